#include <nlohmann/json.hpp>

#include "model/decoder_traits.h"

// More decoders of Llama's kind, as families_decoder.cpp has them: those that are fine-tuned less often.
namespace llmem {

namespace {

using namespace traits;

using C = ConfigReader;
using A = Architecture;

void with_mlp_bias(C& c, A& a) {
  bias_asked(c, a);
  a.mlp_bias = c.flag("mlp_bias");
}

void ministral(C& c, A& a) {
  const bool windowed = c.has("sliding_window");
  sliding_layers(c, a, [&](std::int64_t) { return windowed; });
}

void ministral3(C& c, A& a) {
  window_everywhere(c, a);
  a.scaled_queries = true;
}

void cwm(C& c, A& a) {
  a.mlp_bias = c.flag("mlp_bias");
  sliding_layers(c, a, [](std::int64_t i) { return i % 4 != 0; });
}

void helium(C& c, A& a) {
  a.qkv_bias = c.flag("attention_bias");
  a.mlp_bias = c.flag("mlp_bias");
  a.norm = NormKind::rms_all_float;
  a.rotary = Rotary::pairs;
  a.square_output = true;
  if (a.heads * a.head_dim != a.hidden_size) a.unplayed = "head_dim";  // its forward fails
}

void hyperclovax(C& c, A& a) {
  with_mlp_bias(c, a);
  granite_multipliers(c, a);
  if (c.flag("use_post_norm")) a.names.layer = "a:self_attn m:mlp 1:input_layernorm 3:post_attention_layernorm 2:post_norm1 4:post_norm2";
}

void jais2(C& c, A& a) {
  with_mlp_bias(c, a);
  layer_norms(a);
  plain_mlp(a, "u:up_proj d:down_proj");
}

void vaultgemma(C& c, A& a) {
  bias_asked(c, a);
  a.norm = NormKind::rms_one_plus;
  a.scaled_embedding = ScaledEmbedding::by_buffer;
  a.names.layer = "a:self_attn m:mlp 1:input_layernorm 3:pre_feedforward_layernorm";
  sliding_layers(c, a, [](std::int64_t i) { return (i + 1) % 2 != 0; });
  a.eager_only = true;
  a.softcapped_attention = c.has("attn_logit_softcapping");
  a.softcapped_logits = c.has("final_logit_softcapping");
}

void youtu(C& c, A& a) {
  latent_attention(c, a);
  a.rotary = c.flag("rope_interleave") ? Rotary::interleaved : Rotary::halves;
}

void minicpm3(C& c, A& a) {
  latent_attention(c, a);
  if (!c.has("v_head_dim")) a.latent.value_dim = a.hidden_size / a.heads;
  a.mlp_bias = c.flag("mlp_bias");
  a.scaled_embedding = ScaledEmbedding::by_buffer;
  a.scaled_residual = a.scaled_head_input = true;
  // torch.tensor(config.scale_emb)
  const nlohmann::json* scale = c.file().find("scale_emb");
  a.integer_embed_scale = scale == nullptr || scale->is_number_integer();
}

void solar_open(C& c, A& a) {
  a.qkv_bias = c.flag("attention_bias");
  experts_of_deepseek(c, a);
  a.experts.correction = a.experts.float_router = true;
  a.experts.layers.clear();
  chosen_by(a, RouterKind::deepseek_v3, c.flag("norm_topk_prob"));
}

void dots1(C& c, A& a) {
  bias_asked(c, a);
  normed_heads(a);
  experts_of_deepseek(c, a);
  a.experts.correction = a.experts.float_router = true;
  chosen_by(a, RouterKind::deepseek_v3, c.flag("norm_topk_prob"));
  const std::int64_t first = c.integer_or("max_window_layers", 0, 0, INT64_MAX);
  sliding_layers(c, a, [&](std::int64_t i) { return c.has("sliding_window") && i >= first; });
  a.masks_as_needed = true;
}

void exaone_moe(C& c, A& a) {
  normed_heads(a, QkNorm::head_transposed);
  experts_of_deepseek(c, a);
  experts(c, a, "num_experts", "num_experts_per_tok", "moe_intermediate_size");
  a.experts.shared_width = a.experts.width * c.integer_or("num_shared_experts", 0);
  a.experts.correction = a.experts.float_router = true;
  chosen_by(a, RouterKind::deepseek_v3, c.flag("norm_topk_prob"));
  const std::vector<std::string> types = c.each_layer("mlp_layer_types", a.layers);
  if (!types.empty()) expert_layers(a, [&](std::int64_t i) { return types[static_cast<std::size_t>(i)] == "sparse"; });
  const std::int64_t pattern = c.integer_or("sliding_window_pattern", 0, 0);
  sliding_layers(c, a, [&](std::int64_t i) { return pattern > 0 && (i + 1) % pattern != 0 && i + 1 != a.layers; });
  a.masks_as_needed = true;
  a.unturned.assign(a.sliding.size(), false);
  if (a.sliding_window > 0)
    for (std::size_t i = 0; i < a.unturned.size(); ++i) a.unturned[i] = !a.sliding[i];
}

void flex_olmo(C& c, A& a) {
  bias_asked(c, a);
  a.norm = NormKind::rms_float;
  a.rotary = Rotary::halves_float;
  post_norms(a);
  normed_heads(a, QkNorm::whole);
  experts(c, a, "num_experts", "num_experts_per_tok", "intermediate_size");
  chosen_by(a, RouterKind::qwen, c.flag("norm_topk_prob"));
}

void nanochat(C& c, A& a) {
  bias_asked(c, a);
  a.norm = NormKind::l2;
  a.normed_embeddings = true;
  normed_heads(a, QkNorm::head_after_rotary);
  plain_mlp(a, "u:fc1 d:fc2");
  a.softcapped_logits = c.has("final_logit_softcapping");
}

void granitemoeshared(C& c, A& a) {
  bias_asked(c, a);
  granite_multipliers(c, a);
  a.scaled_embedding = ScaledEmbedding::by_number_after_mask;
  experts(c, a, "num_local_experts", "num_experts_per_tok", "intermediate_size");
  a.names.layer = "a:self_attn 1:input_layernorm 3:post_attention_layernorm m:block_sparse_moe s:shared_mlp";
  a.names.mixture = "R:router E:experts";
  a.names.mlp = "f:input_linear d:output_linear";
  chosen_by(a, RouterKind::granite);
  a.experts.shared_width = c.integer_or("shared_intermediate_size", 0);
  a.experts.shared_last = a.experts.shared_width > 0;
}

void hy_v3(C& c, A& a) {
  with_mlp_bias(c, a);
  normed_heads(a, QkNorm::head_transposed);
  experts(c, a, "num_experts", "num_experts_per_tok", "moe_intermediate_size");
  a.experts.shared_width = a.experts.width * c.integer_or("num_shared_experts", 1);
  a.experts.correction_on_block = a.experts.float_router = true;
  a.experts.float_combine = c.flag("enable_moe_fp32_combine");
  a.names.mixture = "R:gate E:experts S:shared_experts";
  chosen_by(a, RouterKind::hunyuan_v3);
  const std::vector<std::string> types = c.each_layer("mlp_layer_types", a.layers);
  expert_layers(a, [&](std::int64_t i) { return types.empty() ? i > 0 : types[static_cast<std::size_t>(i)] == "sparse"; });
}

void bitnet(C& c, A& a) {
  bias_asked(c, a);
  a.names.attention = "q:q_proj k:k_proj v:v_proj o:o_proj n:attn_sub_norm";
  a.names.mlp = "g:gate_proj u:up_proj d:down_proj n:ffn_sub_norm";
}

constexpr Family kFamilies[] = {
    {"ministral", "MinistralForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8 "
     "hidden_act=silu sliding_window=4096",
     "", ministral, nullptr},
    {"ministral3", "Ministral3ForCausalLM", Coverage::played,
     "vocab_size=131072 hidden_size=4096 intermediate_size=14336 num_hidden_layers=34 num_attention_heads=32 num_key_value_heads=8 "
     "head_dim=128 hidden_act=silu",
     "", ministral3, nullptr},
    {"cwm", "CwmForCausalLM", Coverage::played,
     "vocab_size=128256 hidden_size=6144 intermediate_size=21504 num_hidden_layers=64 num_attention_heads=48 num_key_value_heads=8 "
     "head_dim=128 hidden_act=silu sliding_window=8192",
     "", cwm, nullptr},
    {"helium", "HeliumForCausalLM", Coverage::played,
     "vocab_size=48000 hidden_size=2560 intermediate_size=7040 num_hidden_layers=24 num_attention_heads=20 num_key_value_heads=20 "
     "head_dim=128 hidden_act=silu",
     "", helium, nullptr},
    {"hyperclovax", "HyperCLOVAXForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 use_post_norm=true",
     "", hyperclovax, nullptr},
    {"jais2", "Jais2ForCausalLM", Coverage::played,
     "vocab_size=150272 hidden_size=3328 intermediate_size=26624 num_hidden_layers=32 num_attention_heads=26 hidden_act=relu2 "
     "attention_bias=true mlp_bias=true",
     "", jais2, nullptr},
    {"vaultgemma", "VaultGemmaForCausalLM", Coverage::played,
     "vocab_size=256000 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 num_attention_heads=8 num_key_value_heads=4 "
     "head_dim=256 hidden_act=gelu_pytorch_tanh tie_word_embeddings=true sliding_window=4096 final_logit_softcapping=30.0 "
     "attn_logit_softcapping=50.0",
     "hidden_act=hidden_activation", vaultgemma, nullptr},
    {"youtu", "YoutuForCausalLM", Coverage::played,
     "vocab_size=128256 hidden_size=2048 intermediate_size=6144 num_hidden_layers=32 num_attention_heads=16 num_key_value_heads=16 "
     "kv_lora_rank=512 q_lora_rank=1536 qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=128 hidden_act=silu "
     "tie_word_embeddings=true rope_interleave=true",
     "", youtu, nullptr},
    {"minicpm3", "MiniCPM3ForCausalLM", Coverage::played,
     "vocab_size=73448 hidden_size=2560 intermediate_size=6400 num_hidden_layers=62 num_attention_heads=40 num_key_value_heads=40 "
     "kv_lora_rank=256 q_lora_rank=768 qk_nope_head_dim=64 qk_rope_head_dim=32 hidden_act=silu tie_word_embeddings=true",
     "", minicpm3, nullptr},
    {"solar_open", "SolarOpenForCausalLM", Coverage::played,
     "vocab_size=196608 hidden_size=4096 num_hidden_layers=48 num_attention_heads=64 num_key_value_heads=8 head_dim=128 hidden_act=silu "
     "moe_intermediate_size=1280 num_experts_per_tok=8 n_shared_experts=1 n_routed_experts=128 norm_topk_prob=true",
     "n_routed_experts=num_local_experts", solar_open, nullptr},
    {"dots1", "Dots1ForCausalLM", Coverage::played,
     "vocab_size=152064 hidden_size=4608 intermediate_size=10944 moe_intermediate_size=1408 num_hidden_layers=62 num_attention_heads=32 "
     "num_key_value_heads=32 hidden_act=silu sliding_window=4096 max_window_layers=62",
     "n_routed_experts=num_local_experts", dots1, nullptr},
    {"exaone_moe", "ExaoneMoeForCausalLM", Coverage::played,
     "vocab_size=102400 hidden_size=4096 intermediate_size=16384 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=32 "
     "hidden_act=silu sliding_window=4096 sliding_window_pattern=4 first_k_dense_replace=1 moe_intermediate_size=1024 num_experts=64 "
     "num_experts_per_tok=8 num_shared_experts=1 norm_topk_prob=true",
     "num_experts=num_local_experts", exaone_moe, nullptr},
    {"flex_olmo", "FlexOlmoForCausalLM", Coverage::played,
     "vocab_size=100352 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "num_experts_per_tok=5 num_experts=7",
     "num_experts=num_local_experts", flex_olmo, nullptr},
    {"nanochat", "NanoChatForCausalLM", Coverage::played,
     "vocab_size=50304 hidden_size=768 intermediate_size=8192 num_hidden_layers=12 num_attention_heads=6 hidden_act=relu2 "
     "final_logit_softcapping=15.0",
     "", nanochat, nullptr},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0 num_local_experts=8 "
     "num_experts_per_tok=2",
     "", granitemoeshared, nullptr},
    {"hy_v3", "HYV3ForCausalLM", Coverage::played,
     "vocab_size=120832 hidden_size=4096 intermediate_size=13312 num_hidden_layers=80 num_attention_heads=64 num_key_value_heads=8 "
     "head_dim=128 hidden_act=silu num_experts=192 num_experts_per_tok=8 num_shared_experts=1 moe_intermediate_size=1536 "
     "enable_moe_fp32_combine=true",
     "num_experts=num_local_experts", hy_v3, nullptr},
    {"bitnet", "BitNetForCausalLM", Coverage::played,
     "vocab_size=128256 hidden_size=2560 intermediate_size=6912 num_hidden_layers=30 num_attention_heads=20 num_key_value_heads=5 "
     "hidden_act=relu2",
     "", bitnet, nullptr},
};

}  // namespace

std::span<const Family> recent_families() { return kFamilies; }

}  // namespace llmem
