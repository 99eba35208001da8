#include "model/decoder_traits.h"

#include <algorithm>

namespace llmem::traits {

using C = ConfigReader;
using A = Architecture;

void bias_asked(C& c, A& a) { a.qkv_bias = a.output_bias = c.flag("attention_bias"); }

void layer_norms(A& a) {
  a.norm = NormKind::layer;
  a.norm_bias = true;
}

void sandwich_norms(A& a) {
  a.names.layer = "a:self_attn m:mlp 1:input_layernorm 2:post_attention_layernorm 3:pre_feedforward_layernorm 4:post_feedforward_layernorm";
}

void post_norms(A& a) { a.names.layer = "a:self_attn m:mlp 2:post_attention_layernorm 4:post_feedforward_layernorm"; }

void plain_mlp(A& a, std::string_view names) { a.names.mlp = names; }

void normed_heads(A& a, QkNorm kind) {
  a.qk_norm = true;
  a.qk_norm_kind = kind;
}

void partial_rotary(C& c, A& a, double otherwise) { llmem::partial_rotary(c, a, "partial_rotary_factor", otherwise); }

void window_by_layer(C& c, A& a) {
  const std::int64_t window = c.flag("use_sliding_window") ? c.integer_or("sliding_window", 0, 1, INT64_MAX) : 0;
  const std::int64_t first = c.integer_or("max_window_layers", 0, 0, INT64_MAX);
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  std::vector<bool> slides(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i < slides.size(); ++i)
    slides[i] = types.empty() ? window > 0 && static_cast<std::int64_t>(i) >= first : types[i] == "sliding_attention";
  if (std::find(slides.begin(), slides.end(), true) == slides.end()) return;
  a.sliding_window = window;
  a.sliding = std::move(slides);
}

void window_everywhere(C& c, A& a) { a.sliding_window = c.integer_or("sliding_window", 0, 1, INT64_MAX); }

void granite_multipliers(C& c, A& a) {
  // Each is applied whatever its number.
  for (const char* key : {"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"}) c.number(key);
  a.scaled_embedding = ScaledEmbedding::by_number;
  a.scaled_residual = a.scaled_logits = true;
}

void chosen_by(A& a, RouterKind router, bool normed) {
  a.experts.router = router;
  a.experts.normed = normed;
}

void experts(C& c, A& a, std::string_view count, std::string_view per_token, std::string_view width) {
  a.experts.count = c.integer_or(count, 0, 0, 1 << 16);
  a.experts.per_token = c.integer_or(per_token, 1, 0, 1 << 16);
  a.experts.width = c.integer_or(width, a.intermediate_size, 1);
}

void expert_layers_of_qwen(C& c, A& a) {
  const std::vector<std::int64_t> dense = c.integers("mlp_only_layers");
  const std::int64_t step = c.integer_or("decoder_sparse_step", 1, 1);
  expert_layers(a, [&](std::int64_t i) { return (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end(); });
}

void experts_of_deepseek(C& c, A& a) {
  a.experts.shared_last = true;
  a.experts.groups = c.integer_or("n_group", 1, 1);
  a.experts.groups_kept = c.integer_or("topk_group", 1, 1);
  experts(c, a, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size");
  a.experts.shared_width = a.experts.width * c.integer_or("n_shared_experts", 0);
  a.names.mixture = "E:experts R:gate S:shared_experts";
  const std::int64_t first = c.integer_or("first_k_dense_replace", 0);
  expert_layers(a, [&](std::int64_t i) { return i >= first; });
}

void latent_attention(C& c, A& a) {
  a.latent.query_rank = c.integer_or("q_lora_rank", 0);
  a.latent.key_value_rank = c.integer_or("kv_lora_rank", 0, 1);
  a.latent.nope_dim = c.integer_or("qk_nope_head_dim", 0);
  a.latent.rope_dim = c.integer_or("qk_rope_head_dim", 0);
  a.latent.value_dim = c.integer_or("v_head_dim", 0, 1);
  a.head_dim = a.latent.nope_dim + a.latent.rope_dim;
  a.rotary_dim = a.latent.rope_dim;
  a.qkv_bias = a.output_bias = c.flag("attention_bias");
}

void deepseek(C& c, A& a) {
  latent_attention(c, a);
  experts_of_deepseek(c, a);
}

}  // namespace llmem::traits
