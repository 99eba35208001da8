#include "model/families.h"

// Models in Megatron-LM's own arguments (megatron/training/arguments.py): names with underscores, defaults as there.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

// --moe-layer-freq: a number n, each n-th layer from the first on has experts; or a list of 0 and 1.
std::vector<bool> layers_with_experts(C& c, std::int64_t layers) {
  std::vector<bool> found;
  for (const std::int64_t each : c.integers("moe_layer_freq")) found.push_back(each != 0);
  if (!found.empty()) {
    if (static_cast<std::int64_t>(found.size()) != layers)
      c.file().problem("moe_layer_freq", "conflict", "must have one number for each of the " + std::to_string(layers) + " layers");
    return found;
  }
  const std::int64_t every = c.count("moe_layer_freq", 1);
  if (every > 1)
    for (std::int64_t i = 0; i < layers; ++i) found.push_back(i % every == 0);
  return found;
}

void read(C& c, A& a) {
  MegatronShape& shape = a.megatron.emplace();
  shape.layers = a.layers, shape.hidden = a.hidden_size, shape.heads = a.heads, shape.groups = a.kv_heads, shape.head_dim = a.head_dim;
  shape.vocabulary = a.vocab_size;
  shape.gated = c.flag("swiglu");
  // validate_args: with SwiGLU two thirds of it, in multiples of 64
  if (shape.gated && !c.has("intermediate_size")) a.intermediate_size = 4 * a.hidden_size * 2 / 3 / 64 * 64;
  shape.ffn = a.intermediate_size;
  const std::string positions = c.text("position_embedding_type"), normalization = c.text("normalization");
  shape.learned_positions = positions == "learned_absolute";
  if (positions != "learned_absolute" && positions != "rope")
    c.file().problem("position_embedding_type", "unsupported",
                     "\"" + positions + "\" is not supported yet. Supported: learned_absolute, rope.");
  shape.rms = normalization == "RMSNorm";
  if (normalization != "RMSNorm" && normalization != "LayerNorm")
    c.file().problem("normalization", "unsupported", "\"" + normalization + "\" is not supported yet. Supported: LayerNorm, RMSNorm.");
  shape.positions = c.count("max_position_embeddings", 1024);
  shape.linear_bias = !c.flag("disable_bias_linear");
  shape.qkv_bias = c.flag("add_qkv_bias");
  shape.qk_norm = c.flag("qk_layernorm");
  shape.tied = a.tied_embeddings = !c.flag("untie_embeddings_and_output_weights");
  shape.hidden_dropout = a.dropout = c.number("hidden_dropout").value_or(0);
  shape.attention_dropout = c.number("attention_dropout").value_or(0);
  if (c.flag("multi_latent_attention")) {
    shape.latent = {c.integer_or("q_lora_rank", 0), c.count("kv_lora_rank", 32), c.count("qk_head_dim", 128),
                    c.count("qk_pos_emb_head_dim", 64), c.count("v_head_dim", 128)};
  }
  shape.experts.count = c.integer_or("num_experts", 0);
  if (shape.experts.count == 0) return;
  shape.experts.per_token = c.count("moe_router_topk", 2);
  shape.experts.width = c.count("moe_ffn_hidden_size", shape.ffn);
  shape.experts.shared_width = c.integer_or("moe_shared_expert_intermediate_size", 0);
  shape.experts.layers = layers_with_experts(c, a.layers);
  a.experts = shape.experts;
}

void read_bert(C& c, A& a) {
  read(c, a);
  a.megatron->bert = true;
}

// --encoder-num-layers, --decoder-num-layers
void read_t5(C& c, A& a) {
  read(c, a);
  a.megatron->decoder_layers = c.count("decoder_num_layers", a.layers);
}

void declare_attention(const Module& attention, const MegatronShape& s) {
  const auto linear = [&](std::string_view name, std::int64_t in, std::int64_t out, bool bias) { attention.linear(name, in, out, bias); };
  if (s.latent.key_value_rank == 0) {
    linear("linear_proj", s.heads * s.head_dim, s.hidden, s.linear_bias);
    linear("linear_qkv", s.hidden, (s.heads + 2 * s.groups) * s.head_dim, s.linear_bias || s.qkv_bias);
    if (!s.qk_norm) return;
    for (std::string_view name : {"q_layernorm", "k_layernorm"}) attention.norm(name, s.head_dim, !s.rms);
    return;
  }
  const LatentAttention& latent = s.latent;
  const std::int64_t query = s.heads * (latent.nope_dim + latent.rope_dim);
  linear("linear_proj", s.heads * latent.value_dim, s.hidden, s.linear_bias);
  if (latent.query_rank > 0) {
    linear("linear_q_down_proj", s.hidden, latent.query_rank, false);
    if (s.qk_norm) attention.norm("q_layernorm", latent.query_rank, !s.rms);
    linear("linear_q_up_proj", latent.query_rank, query, false);
  } else {
    linear("linear_q_proj", s.hidden, query, false);
  }
  linear("linear_kv_down_proj", s.hidden, latent.key_value_rank + latent.rope_dim, false);
  if (s.qk_norm) attention.norm("kv_layernorm", latent.key_value_rank, !s.rms);
  linear("linear_kv_up_proj", latent.key_value_rank, s.heads * (latent.nope_dim + latent.value_dim), false);
}

void declare(C&, const A& a, const Module& root) {
  const MegatronShape& s = *a.megatron;
  root.child("embedding").embedding("word_embeddings", s.vocabulary, s.hidden);
  if (s.learned_positions) root.child("embedding").embedding("position_embeddings", s.positions, s.hidden);
  const std::int64_t gate = s.gated ? 2 : 1;
  for (std::int64_t i = 0; i < s.layers + s.decoder_layers; ++i) {
    const bool encodes = i < s.layers && s.decoder_layers > 0;
    const Module layer = root.child(encodes ? "encoder.layers" : "decoder.layers", s.decoder_layers > 0 && !encodes ? i - s.layers : i);
    const Module mlp = layer.child("mlp");
    if (i >= s.layers) {
      const Module cross = layer.child("cross_attention");
      layer.norm("pre_cross_attn_layernorm", s.hidden, !s.rms);
      cross.linear("linear_proj", s.heads * s.head_dim, s.hidden, s.linear_bias);
      cross.linear("linear_q", s.hidden, s.heads * s.head_dim, s.linear_bias);
      cross.linear("linear_kv", s.hidden, 2 * s.heads * s.head_dim, s.linear_bias);
    }
    layer.norm("input_layernorm", s.hidden, !s.rms);
    declare_attention(layer.child("self_attention"), s);
    layer.norm("pre_mlp_layernorm", s.hidden, !s.rms);
    if (!s.experts.at(i)) {
      mlp.linear("linear_fc1", s.hidden, gate * s.ffn, s.linear_bias);
      mlp.linear("linear_fc2", s.ffn, s.hidden, s.linear_bias);
      continue;
    }
    mlp.linear("router", s.hidden, s.experts.count);
    const Module experts = mlp.child("experts");
    experts.parameter("linear_fc1.weight", {s.experts.count, gate * s.experts.width, s.hidden});
    if (s.linear_bias) experts.parameter("linear_fc1.bias", {s.experts.count, gate * s.experts.width});
    experts.parameter("linear_fc2.weight", {s.experts.count, s.hidden, s.experts.width});
    if (s.linear_bias) experts.parameter("linear_fc2.bias", {s.experts.count, s.hidden});
    if (s.experts.shared_width == 0) continue;
    mlp.child("shared_experts").linear("linear_fc1", s.hidden, gate * s.experts.shared_width);
    mlp.child("shared_experts").linear("linear_fc2", s.experts.shared_width, s.hidden);
  }
  root.child("decoder").norm("final_layernorm", s.hidden, !s.rms);
  if (s.decoder_layers > 0) root.child("encoder").norm("final_layernorm", s.hidden, !s.rms);
  if (s.decoder_layers > 0 && s.tied) root.child("lm_head.output_layer").parameter("bias", {s.vocabulary});
  if (!s.tied) root.linear("output_layer", s.hidden, s.vocabulary);
  if (!s.bert) return;
  root.child("embedding").embedding("tokentype_embeddings", 2, s.hidden);
  root.child("lm_head").linear("dense", s.hidden, s.hidden, true);
  root.child("lm_head").norm("layer_norm", s.hidden, !s.rms);
  root.child("output_layer").parameter("bias", {s.vocabulary});
  root.child("pooler").linear("dense", s.hidden, s.hidden, true);
  root.linear("binary_head", s.hidden, 2, true);
}

constexpr Family kFamilies[] = {
    {"megatron", "GPTModel", Coverage::played,
     "max_position_embeddings=1024 position_embedding_type=learned_absolute normalization=LayerNorm hidden_act=gelu hidden_dropout=0.1 "
     "attention_dropout=0.1",
     "num_hidden_layers=num_layers intermediate_size=ffn_hidden_size num_key_value_heads=num_query_groups head_dim=kv_channels", read,
     declare},
    {"megatron_bert", "BertModel", Coverage::played,
     "max_position_embeddings=1024 position_embedding_type=learned_absolute normalization=LayerNorm hidden_act=gelu hidden_dropout=0.1 "
     "attention_dropout=0.1",
     "num_hidden_layers=num_layers intermediate_size=ffn_hidden_size num_key_value_heads=num_query_groups head_dim=kv_channels", read_bert,
     declare},
    {"megatron_t5", "T5Model", Coverage::played,
     "max_position_embeddings=512 position_embedding_type=learned_absolute normalization=LayerNorm hidden_act=gelu hidden_dropout=0.1 "
     "attention_dropout=0.1",
     "num_hidden_layers=encoder_num_layers intermediate_size=ffn_hidden_size num_key_value_heads=num_query_groups head_dim=kv_channels",
     read_t5, declare},
};

}  // namespace

std::span<const Family> megatron_families() { return kFamilies; }

}  // namespace llmem
