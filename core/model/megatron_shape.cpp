#include "model/families.h"
#include "model/megatron_model.h"

namespace llmem {

namespace {

// A decoder of Llama's kind: RMSNorm, rotary embedding, a gated MLP.
bool is_of_llamas_kind(const Architecture& a) {
  return find_family(a.model_type)->body == nullptr && a.norm == NormKind::rms && a.activation == Activation::silu && !a.partly_rotary &&
         !a.scaled_residual && !a.scaled_logits && !a.softcapped_logits && !a.softcapped_attention && a.sliding.empty() &&
         a.scaled_embedding == ScaledEmbedding::no && a.unturned.empty() && a.qk_norm_kind <= QkNorm::head && !a.parallel_residual &&
         !a.attention_sinks && a.attends.empty() && a.sliding_window == 0 && !a.output_bias && !a.mlp_bias;
}

bool has_routed_layers(const Architecture& a) {
  return a.experts.count == 0 || a.experts.router == RouterKind::mixtral || a.experts.router == RouterKind::qwen ||
         a.experts.router == RouterKind::deepseek_v2 || a.experts.router == RouterKind::deepseek_v3;
}

}  // namespace

std::optional<MegatronShape> megatron_shape(const Architecture& a) {
  if (a.megatron) return a.megatron;
  MegatronShape shape;
  shape.layers = a.layers, shape.hidden = a.hidden_size, shape.ffn = a.intermediate_size;
  shape.heads = a.heads, shape.groups = a.kv_heads, shape.head_dim = a.head_dim, shape.vocabulary = a.vocab_size;
  shape.tied = a.tied_embeddings;
  shape.hidden_dropout = a.dropout, shape.attention_dropout = a.attention_dropout;
  if (a.model_type == "gpt2") {
    for (const Parameter& each : a.tensors)
      if (each.name.find("wpe.") != std::string::npos) shape.positions = each.shape[0];
    shape.learned_positions = shape.linear_bias = true;
    return shape;
  }
  const bool windowed = a.sliding_window > 0 && a.model_type == "mistral";  // --window-size keeps what full attention keeps
  Architecture plain = a;
  if (windowed) plain.sliding_window = 0;
  if (!is_of_llamas_kind(plain) || !has_routed_layers(a)) return std::nullopt;
  shape.rms = shape.gated = true;
  shape.qkv_bias = a.qkv_bias;
  shape.qk_norm = a.qk_norm || a.latent.key_value_rank > 0;
  shape.latent = a.latent, shape.experts = a.experts;
  return shape;
}

}  // namespace llmem
