#include <algorithm>

#include "model/families.h"

namespace llmem {

namespace {

// Calls `each` with every role and name of a list of Names.
template <class Each>
void for_each_name(std::string_view names, const Each& each) {
  while (!names.empty()) {
    const std::string_view word = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(names.size(), word.size() + 1));
    each(word[0], word.substr(2));
  }
}

}  // namespace

std::string_view name_of(std::string_view names, char role) {
  std::string_view found;
  for_each_name(names, [&](char each, std::string_view name) {
    if (each == role) found = name;
  });
  return found;
}

namespace {

void declare_norm(const Module& at, std::string_view name, NormKind kind, std::int64_t features, bool bias) {
  if (kind != NormKind::layer_bare && kind != NormKind::l2) at.norm(name, features, bias);
}

void declare_qk_norm(const Architecture& a, const Module& attention, std::string_view name, std::int64_t heads) {
  if (a.norm == NormKind::l2) return;
  switch (a.qk_norm_kind) {
    case QkNorm::none: return;
    case QkNorm::whole: return attention.norm(name, heads * a.head_dim, false);
    case QkNorm::each_head_apart:
      for (std::int64_t h = 0; h < heads; ++h) attention.child(name).child("norms").norm(std::to_string(h), a.head_dim);
      return;
    case QkNorm::heads_by_dim: return attention.child(name).parameter("weight", {heads, a.head_dim});
    case QkNorm::head:
    case QkNorm::head_transposed:
    case QkNorm::head_after_rotary: return attention.norm(name, a.head_dim, a.qk_norm_bias);
  }
}

void declare_attention(const Architecture& a, const Module& attention) {
  const std::int64_t queries = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
  if (a.attention_sinks) attention.parameter("sinks", {a.heads});
  for_each_name(a.names.attention, [&](char role, std::string_view name) {
    switch (role) {
      case 'q': return attention.linear(name, a.hidden_size, queries, a.qkv_bias);
      case 'k':
      case 'v': return attention.linear(name, a.hidden_size, keys, a.qkv_bias);
      case 'f': return attention.linear(name, a.hidden_size, queries + 2 * keys, a.qkv_bias);
      case 'o': return attention.linear(name, a.square_output ? a.hidden_size : queries, a.hidden_size, a.output_bias);
      case 'Q': return declare_qk_norm(a, attention, name, a.heads);
      case 'K': return declare_qk_norm(a, attention, name, a.kv_heads);
      case 'n': return attention.norm(name, a.hidden_size);
      default: return;
    }
  });
}

// Multi-head latent attention (deepseek_v2): low-rank queries, keys and values.
void declare_latent_attention(const Architecture& a, const Module& attention) {
  const LatentAttention& l = a.latent;
  const std::int64_t query_dim = l.nope_dim + l.rope_dim;
  if (l.query_rank == 0) {
    attention.linear("q_proj", a.hidden_size, a.heads * query_dim);
  } else {
    attention.linear("q_a_proj", a.hidden_size, l.query_rank, a.qkv_bias);
    attention.norm("q_a_layernorm", l.query_rank);
    attention.linear("q_b_proj", l.query_rank, a.heads * query_dim);
  }
  attention.linear("kv_a_proj_with_mqa", a.hidden_size, l.key_value_rank + l.rope_dim, a.qkv_bias);
  attention.norm("kv_a_layernorm", l.key_value_rank);
  attention.linear("kv_b_proj", l.key_value_rank, a.heads * (l.nope_dim + l.value_dim));
  attention.linear("o_proj", a.heads * l.value_dim, a.hidden_size, a.qkv_bias);
}

void declare_mlp(const Architecture& a, const Module& mlp, std::int64_t width) {
  for_each_name(a.names.mlp, [&](char role, std::string_view name) {
    switch (role) {
      case 'g':
      case 'u': return mlp.linear(name, a.hidden_size, width, a.mlp_bias);
      case 'f': return mlp.linear(name, a.hidden_size, 2 * width, a.mlp_bias);
      case 'd': return mlp.linear(name, width, a.hidden_size, a.mlp_bias);
      case 'n': return mlp.norm(name, width);
      case 'x': {
        const Module xielu = mlp.child(name);
        for (const char* alpha : {"alpha_p", "alpha_n"}) xielu.parameter(alpha, {1});
        for (const char* constant : {"beta", "eps"}) xielu.buffer(constant, {}, std::nullopt);
        return;
      }
      default: return;
    }
  });
}

// Experts are stacked: one tensor for all of them.
void declare_experts(const Architecture& a, const Module& experts) {
  const Experts& e = a.experts;
  if (e.biased) {  // gpt_oss: [in, out], with biases
    experts.parameter("gate_up_proj", {e.count, a.hidden_size, 2 * e.width});
    experts.parameter("gate_up_proj_bias", {e.count, 2 * e.width});
    experts.parameter("down_proj", {e.count, e.width, a.hidden_size});
    experts.parameter("down_proj_bias", {e.count, a.hidden_size});
    return;
  }
  experts.parameter("gate_up_proj", {e.count, 2 * e.width, a.hidden_size});
  experts.parameter("down_proj", {e.count, a.hidden_size, e.width});
}

void declare_mixture(const Architecture& a, const Module& mixture) {
  const Experts& e = a.experts;
  if (e.correction_on_block) mixture.buffer("e_score_correction_bias", {e.count});
  for_each_name(a.names.mixture, [&](char role, std::string_view name) {
    switch (role) {
      case 'R': {
        const Module router = mixture.child(name);
        router.parameter("weight", {e.count, a.hidden_size}, e.float_router ? std::optional(Dtype::float32) : std::nullopt);
        if (e.biased) router.parameter("bias", {e.count});
        if (e.correction) router.buffer("e_score_correction_bias", {e.count});
        if (e.frozen_correction) router.child("moe_statics").frozen("e_score_correction_bias", {1, e.count});
        return;
      }
      case 'E': return declare_experts(a, mixture.child(name));
      case 'S':
        if (e.shared_width > 0) declare_mlp(a, mixture.child(name), e.shared_width);
        return;
      case 'G': return mixture.linear(name, a.hidden_size, 1);
      default: return;
    }
  });
}

void declare_layer(const Architecture& a, const Module& layer, std::int64_t index) {
  for_each_name(a.names.layer, [&](char role, std::string_view name) {
    switch (role) {
      case 'a':
        if (a.latent.key_value_rank > 0) return declare_latent_attention(a, layer.child(name));
        return declare_attention(a, layer.child(name));
      case 'm':
        if (a.experts.at(index)) return declare_mixture(a, layer.child(name));
        return declare_mlp(a, layer.child(name), a.intermediate_size);
      case 's':
        if (a.experts.shared_width > 0) declare_mlp(a, layer.child(name), a.experts.shared_width);
        return;
      default: return declare_norm(layer, name, a.norm, a.hidden_size, a.norm_bias);
    }
  });
}

}  // namespace

namespace {

void declare_rotary(const Architecture& a, const Module& rotary) {
  // Gemma3RotaryEmbedding has a pair for each kind of layer.
  for (const char* kind : {"full_attention_", "sliding_attention_"}) {
    const std::string prefix = a.local_rotary ? kind : "";
    const bool slides = prefix == "sliding_attention_";
    if (a.local_rotary && std::find(a.sliding.begin(), a.sliding.end(), slides) == a.sliding.end()) continue;
    rotary.buffer(prefix + "inv_freq", {a.rotary_dim / 2});
    rotary.buffer(prefix + "original_inv_freq", {a.rotary_dim / 2});
    if (!a.local_rotary) return;
  }
}

}  // namespace

void declare_decoder(ConfigReader&, const Architecture& a, const Module& root) {
  const Module model = root.child(a.names.model), rotary = model.child("rotary_emb");
  model.embedding(a.names.embedding, a.vocab_size, a.hidden_size);
  if (a.scaled_embedding == ScaledEmbedding::by_buffer)
    model.child(a.names.embedding).buffer("embed_scale", {}, a.integer_embed_scale ? std::optional(Dtype::int64) : std::nullopt);
  for (std::int64_t i = 0; i < a.layers; ++i) declare_layer(a, model.child(a.names.layers, i), i);
  if (a.rotary_before_norm) declare_rotary(a, rotary);
  declare_norm(model, a.names.norm, a.norm, a.hidden_size, a.norm_bias);
  if (!a.rotary_before_norm && a.rotary != Rotary::none) declare_rotary(a, rotary);
  if (!a.tied_embeddings)
    root.linear(a.names.head, a.hidden_size, a.vocab_size, a.head_bias);
  else if (a.head_bias)
    root.child(a.names.head).parameter("bias", {a.vocab_size});
}

}  // namespace llmem
