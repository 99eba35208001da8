#include "model/decoder_traits.h"

// Decoders whose layer is attention and an MLP (or experts) between norms. A row holds the defaults of the configuration class
// (transformers/models/<model_type>/configuration_<model_type>.py, 5.24) and the traits of modeling_<model_type>.py.
namespace llmem {

namespace {

using namespace traits;

using C = ConfigReader;
using A = Architecture;

// ---- one function a family, where it has traits of its own

void llama(C& c, A& a) {
  bias_asked(c, a);
  a.mlp_bias = c.flag("mlp_bias");
}

void mistral(C& c, A& a) { window_everywhere(c, a); }

void qwen2(C& c, A& a) {
  a.qkv_bias = true;
  window_by_layer(c, a);
}

void qwen3(C& c, A& a) {
  bias_asked(c, a);
  normed_heads(a);
  window_by_layer(c, a);
}

void qwen2_5_vl(C& c, A& a) {
  qwen2(c, a);
  a.rotary = Rotary::grid_in_parts;
}

void qwen3_vl(C& c, A& a) {
  qwen3(c, a);
  a.rotary = Rotary::grid_in_turns;
}

void granite(C& c, A& a) {
  llama(c, a);
  granite_multipliers(c, a);
}

void smollm3(C& c, A& a) {
  llama(c, a);
  const std::vector<std::int64_t> turned = c.integers("no_rope_layers");
  const std::int64_t interval = c.integer_or("no_rope_layer_interval", 4, 1);
  a.unturned.assign(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i < a.unturned.size(); ++i)
    a.unturned[i] = i < turned.size() ? turned[i] == 0 : (static_cast<std::int64_t>(i) + 1) % interval == 0;
  if (c.flag("use_sliding_window")) sliding_layers(c, a, [&](std::int64_t i) { return !a.unturned[static_cast<std::size_t>(i)]; });
}

void gemma(C& c, A& a) {
  bias_asked(c, a);
  a.norm = NormKind::rms_one_plus;
  a.scaled_embedding = ScaledEmbedding::by_buffer;
}

void gemma2(C& c, A& a) {
  gemma(c, a);
  sandwich_norms(a);
  sliding_layers(c, a, [](std::int64_t i) { return (i + 1) % 2 != 0; });
  a.softcapped_attention = c.has("attn_logit_softcapping");
  a.softcapped_logits = c.has("final_logit_softcapping");
}

void gemma3(C& c, A& a) {
  gemma(c, a);
  sandwich_norms(a);
  normed_heads(a, QkNorm::head_transposed);
  const std::int64_t pattern = c.integer_or("sliding_window_pattern", 6, 1);
  sliding_layers(c, a, [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  a.softcapped_attention = c.has("attn_logit_softcapping");
  a.softcapped_logits = c.has("final_logit_softcapping");
  a.local_rotary = true;
}

void cohere(C& c, A& a) {
  bias_asked(c, a);
  a.norm = NormKind::layer_cohere;
  a.names.layer = "a:self_attn m:mlp 1:input_layernorm";
  a.parallel_residual = true;
  a.rotary = Rotary::pairs_float;
  a.scaled_logits = c.number("logit_scale").has_value();
  if (c.flag("use_qk_norm")) normed_heads(a, QkNorm::heads_by_dim);
}

void cohere2(C& c, A& a) {
  cohere(c, a);
  const std::int64_t pattern = c.integer_or("sliding_window_pattern", 4, 1);
  sliding_layers(c, a, [&](std::int64_t i) { return (i + 1) % pattern != 0; });
  a.unturned.assign(a.sliding.size(), false);
  for (std::size_t i = 0; i < a.unturned.size(); ++i) a.unturned[i] = !a.sliding[i];
}

void glm(C& c, A& a) {
  a.qkv_bias = c.flag("attention_bias");
  a.names.mlp = "f:gate_up_proj d:down_proj";
  a.rotary = Rotary::pairs;
  a.partly_rotary = true;
  partial_rotary(c, a, 0.5);
}

void glm4(C& c, A& a) {
  glm(c, a);
  a.names.layer = "a:self_attn m:mlp 1:input_layernorm 3:post_attention_layernorm 2:post_self_attn_layernorm 4:post_mlp_layernorm";
}

void olmo(C& c, A& a) {
  bias_asked(c, a);
  a.norm = NormKind::layer_bare;
  a.rotary = Rotary::halves_float;
  a.clipped_qkv = c.number("clip_qkv").has_value();
}

void olmo2(C& c, A& a) {
  bias_asked(c, a);
  a.norm = NormKind::rms_float;
  a.rotary = Rotary::halves_float;
  post_norms(a);
  normed_heads(a, QkNorm::whole);
}

void olmo3(C& c, A& a) {
  olmo2(c, a);
  a.local_rotary = true;
  sliding_layers(c, a, [](std::int64_t i) { return (i + 1) % 4 != 0; });
}

void phi3(C& c, A& a) {
  a.names.attention = "o:o_proj f:qkv_proj";
  a.names.mlp = "f:gate_up_proj d:down_proj";
  partial_rotary(c, a, 1.0);
  a.partly_rotary = a.partly_rotary_at_once = true;
  window_everywhere(c, a);
  a.dropout = c.number("resid_pdrop").value_or(0);
  a.embedding_dropout = c.number("embd_pdrop").value_or(0);
}

void phi(C& c, A& a) {
  layer_norms(a);
  a.names.layer = "a:self_attn m:mlp 1:input_layernorm";
  a.names.attention = "q:q_proj k:k_proj v:v_proj o:dense Q:q_layernorm K:k_layernorm";
  a.names.norm = "final_layernorm";
  plain_mlp(a, "u:fc1 d:fc2");
  a.parallel_residual = a.qkv_bias = a.output_bias = a.mlp_bias = a.head_bias = true;
  a.partly_rotary = a.residual_last = a.rotary_before_norm = true;
  partial_rotary(c, a, 0.5);
  if (c.flag("qk_layernorm")) normed_heads(a, QkNorm::head_transposed);
  a.qk_norm_bias = true;
  a.dropout = c.number("resid_pdrop").value_or(0);
  a.embedding_dropout = c.number("embd_pdrop").value_or(0);
}

void starcoder2(C& c, A& a) {
  layer_norms(a);
  a.qkv_bias = a.output_bias = a.mlp_bias = c.flag("use_bias");
  plain_mlp(a, "u:c_fc d:c_proj");
  window_everywhere(c, a);
  a.dropout = c.number("residual_dropout").value_or(0);
  a.embedding_dropout = c.number("embedding_dropout").value_or(0);
  a.dropout_in_blocks = true;
}

void stablelm(C& c, A& a) {
  layer_norms(a);
  a.qkv_bias = c.flag("use_qkv_bias");
  a.names.attention = "q:q_proj k:k_proj v:v_proj o:o_proj Q:q_layernorm K:k_layernorm";
  if (c.flag("qk_layernorm")) normed_heads(a, QkNorm::each_head_apart);
  a.parallel_residual = c.flag("use_parallel_residual");
  a.normed_lives_on = true;
  if (a.parallel_residual) a.names.layer = "a:self_attn m:mlp 1:input_layernorm";
  a.partly_rotary = true;
  partial_rotary(c, a, 0.25);
  a.dropout = c.number("hidden_dropout").value_or(0);
}

void ernie4_5(C& c, A& a) {
  a.qkv_bias = a.output_bias = a.mlp_bias = c.flag("use_bias");
  a.rotary = Rotary::repeated_float;
}

void seed_oss(C& c, A& a) {
  a.qkv_bias = c.flag("attention_bias");
  a.output_bias = c.flag("attention_out_bias");
  a.mlp_bias = c.flag("mlp_bias");
  a.dropout = c.number("residual_dropout").value_or(0);
  a.dropout_in_blocks = true;
}

void arcee(C& c, A& a) {
  llama(c, a);
  plain_mlp(a, "u:up_proj d:down_proj");
}

void apertus(C& c, A& a) {
  bias_asked(c, a);
  a.names.layer = "a:self_attn m:mlp 1:attention_layernorm 3:feedforward_layernorm";
  plain_mlp(a, c.text("hidden_act") == "xielu" ? "u:up_proj d:down_proj x:act_fn" : "u:up_proj d:down_proj");
  normed_heads(a, QkNorm::head_transposed);
}

void nemotron(C& c, A& a) {
  llama(c, a);
  a.norm = NormKind::layer_one_plus;
  a.norm_bias = true;
  plain_mlp(a, "u:up_proj d:down_proj");
  a.partly_rotary = true;
  partial_rotary(c, a, 0.5);
  a.parts_inside = true;
}

void exaone4(C& c, A& a) {
  post_norms(a);
  normed_heads(a, QkNorm::head_transposed);
  const std::int64_t pattern = c.integer_or("sliding_window_pattern", 0, 0);
  sliding_layers(c, a, [&](std::int64_t i) { return pattern > 0 && (i + 1) % pattern != 0; });
  if (a.sliding_window > 0) {
    a.unturned.assign(a.sliding.size(), false);
    for (std::size_t i = 0; i < a.unturned.size(); ++i) a.unturned[i] = !a.sliding[i];
  } else {
    a.sliding.clear();
  }
}

void hunyuan_dense(C& c, A& a) {
  bias_asked(c, a);
  normed_heads(a, QkNorm::head_after_rotary);
  a.names.attention = "q:q_proj k:k_proj v:v_proj o:o_proj Q:query_layernorm K:key_layernorm";
}

void mixtral(C& c, A& a) {
  window_everywhere(c, a);
  experts(c, a, "num_local_experts", "num_experts_per_tok", "intermediate_size");
  chosen_by(a, RouterKind::mixtral);
  if (c.number("router_jitter_noise").value_or(0) > 0) a.unplayed = "router_jitter_noise";
}

void qwen2_moe(C& c, A& a) {
  a.qkv_bias = c.flag("qkv_bias");
  experts(c, a, "num_experts", "num_experts_per_tok", "moe_intermediate_size");
  a.experts.shared_width = c.integer_or("shared_expert_intermediate_size", 0);
  a.names.mixture = "R:gate E:experts S:shared_expert G:shared_expert_gate";
  expert_layers_of_qwen(c, a);
  // Qwen2MoeModel makes both masks, whatever its layers have.
  const bool used = c.flag("use_sliding_window");
  const std::int64_t most = c.integer_or("max_window_layers", 28, 0, INT64_MAX);
  sliding_layers(c, a, [&](std::int64_t i) { return used && (i + 1) % 2 != 0 && i < most; });
  if (!used) a.sliding_window = 0;
  chosen_by(a, RouterKind::qwen, c.flag("norm_topk_prob"));
}

void qwen3_moe(C& c, A& a) {
  bias_asked(c, a);
  normed_heads(a);
  experts(c, a, "num_experts", "num_experts_per_tok", "moe_intermediate_size");
  a.names.mixture = "E:experts R:gate";
  expert_layers_of_qwen(c, a);
  if (c.flag("use_sliding_window")) window_everywhere(c, a);
  chosen_by(a, RouterKind::qwen, c.flag("norm_topk_prob"));
}

void qwen3_vl_moe(C& c, A& a) {
  qwen3_moe(c, a);
  a.rotary = Rotary::grid_in_turns;
}

void olmoe(C& c, A& a) {
  bias_asked(c, a);
  normed_heads(a, QkNorm::whole);
  a.clipped_qkv = c.number("clip_qkv").has_value();
  experts(c, a, "num_experts", "num_experts_per_tok", "intermediate_size");
  chosen_by(a, RouterKind::qwen, c.flag("norm_topk_prob"));
}

void phimoe(C& c, A& a) {
  layer_norms(a);
  bias_asked(c, a);
  a.head_bias = c.flag("lm_head_bias");
  window_everywhere(c, a);
  experts(c, a, "num_local_experts", "num_experts_per_tok", "intermediate_size");
  a.names.mixture = "R:router E:experts";
  chosen_by(a, RouterKind::phimoe);
  a.experts.per_token = 2;
  if (c.number("input_jitter_noise").value_or(0) > 0) a.unplayed = "input_jitter_noise";
}

void granitemoe(C& c, A& a) {
  bias_asked(c, a);
  granite_multipliers(c, a);
  a.scaled_embedding = ScaledEmbedding::by_number_after_mask;
  experts(c, a, "num_local_experts", "num_experts_per_tok", "intermediate_size");
  a.names.layer = "a:self_attn 1:input_layernorm 3:post_attention_layernorm m:block_sparse_moe";
  a.names.mixture = "R:router E:experts";
  chosen_by(a, RouterKind::granite);
}

void hunyuan_moe(C& c, A& a) {
  hunyuan_dense(c, a);
  experts(c, a, "num_experts", "", "intermediate_size");
  // A list, one for each layer, in the published config.
  const std::vector<std::int64_t> each = c.integers("moe_topk");
  a.experts.per_token = each.empty() ? c.integer_or("moe_topk", 1, 1) : each.front();
  a.experts.shared_width = a.intermediate_size;
  a.experts.float_router = true;
  a.names.mixture = "R:gate.wg E:experts S:shared_mlp";
  chosen_by(a, RouterKind::hunyuan);
}

void minimax_m2(C& c, A& a) {
  normed_heads(a, QkNorm::whole);
  experts(c, a, "num_local_experts", "num_experts_per_tok", "intermediate_size");
  a.experts.correction_on_block = true;
  if (c.number("router_jitter_noise").value_or(0) > 0) a.unplayed = "router_jitter_noise";
  if (c.has("rotary_dim"))
    a.rotary_dim = c.integer_or("rotary_dim", a.head_dim);
  else
    partial_rotary(c, a, 1.0);
  chosen_by(a, RouterKind::minimax);
  a.partly_rotary = a.parts_rebound = true;
}

void glm4_moe(C& c, A& a) {
  a.qkv_bias = c.flag("attention_bias");
  experts_of_deepseek(c, a);
  a.experts.correction = a.experts.float_router = true;
  if (c.flag("use_qk_norm")) normed_heads(a);
  partial_rotary(c, a, 0.5);
  chosen_by(a, RouterKind::deepseek_v3, c.flag("norm_topk_prob"));
  a.partly_rotary = a.parts_rebound = true;
}

void ernie4_5_moe(C& c, A& a) {
  a.qkv_bias = a.output_bias = a.mlp_bias = a.head_bias = c.flag("use_bias");
  a.rotary = Rotary::repeated_float;
  experts(c, a, "moe_num_experts", "moe_k", "moe_intermediate_size");
  a.experts.shared_width = a.experts.width * c.integer_or("moe_num_shared_experts", 0);
  a.experts.frozen_correction = a.experts.float_router = true;
  a.names.mixture = "R:gate E:experts S:shared_experts";
  const std::int64_t first = c.integer_or("moe_layer_start_index", 1), every = c.integer_or("moe_layer_interval", 1, 1);
  std::int64_t last = c.integer_or("moe_layer_end_index", -1, -1);
  if (last == -1) last = a.layers - 1;
  expert_layers(a, [&](std::int64_t i) { return (i + 1) % every == 0 && i >= first && i <= last; });
  chosen_by(a, RouterKind::ernie);
}

void gpt_oss(C& c, A& a) {
  bias_asked(c, a);
  a.attention_sinks = true;
  experts(c, a, "num_local_experts", "num_experts_per_tok", "intermediate_size");
  a.experts.biased = true;
  a.norm = NormKind::rms_float;
  a.names.mixture = "R:router E:experts";
  sliding_layers(c, a, [](std::int64_t i) { return (i + 1) % 2 != 0; });
  chosen_by(a, RouterKind::gpt_oss);
  a.rotary = Rotary::chunked;
  a.eager_only = true;
}

void deepseek_v2(C& c, A& a) {
  deepseek(c, a);
  a.mlp_bias = c.flag("mlp_bias");
  a.experts.float_router = true;
  chosen_by(a, RouterKind::deepseek_v2);
  a.rotary = Rotary::complex;
  const std::string method = c.text("topk_method");
  if (method != "group_limited_greedy") a.experts.groups = 0;
}

void deepseek_v3(C& c, A& a) {
  deepseek(c, a);
  a.experts.correction = a.experts.float_router = true;
  chosen_by(a, RouterKind::deepseek_v3, c.flag("norm_topk_prob"));
  a.rotary = c.flag("rope_interleave") ? Rotary::interleaved : Rotary::halves;
}

void glm4_moe_lite(C& c, A& a) {
  deepseek_v3(c, a);
  const std::vector<std::string> types = c.each_layer("mlp_layer_types", a.layers);
  expert_layers(a, [&](std::int64_t i) { return types.empty() ? i > 0 : types[static_cast<std::size_t>(i)] != "dense"; });
}

constexpr Family kFamilies[] = {
    {"llama", "LlamaForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu", "", llama,
     nullptr},
    {"mistral", "MistralForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=8 hidden_act=silu sliding_window=4096",
     "", mistral, nullptr},
    {"qwen2", "Qwen2ForCausalLM", Coverage::played,
     "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=32 hidden_act=silu sliding_window=4096 max_window_layers=28",
     "", qwen2, nullptr},
    {"qwen3", "Qwen3ForCausalLM", Coverage::played,
     "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=32 head_dim=128 hidden_act=silu sliding_window=4096 max_window_layers=28",
     "", qwen3, nullptr},
    {"granite", "GraniteForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0",
     "", granite, nullptr},
    {"smollm3", "SmolLM3ForCausalLM", Coverage::played,
     "vocab_size=128256 hidden_size=2048 intermediate_size=11008 num_hidden_layers=36 num_attention_heads=16 "
     "num_key_value_heads=4 hidden_act=silu no_rope_layer_interval=4 tie_word_embeddings=true",
     "", smollm3, nullptr},
    {"gemma", "GemmaForCausalLM", Coverage::played,
     "vocab_size=256000 hidden_size=3072 intermediate_size=24576 num_hidden_layers=28 num_attention_heads=16 "
     "num_key_value_heads=16 head_dim=256 hidden_act=gelu_pytorch_tanh tie_word_embeddings=true",
     "", gemma, nullptr},
    {"gemma2", "Gemma2ForCausalLM", Coverage::played,
     "vocab_size=256000 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 num_attention_heads=8 "
     "num_key_value_heads=4 head_dim=256 hidden_act=gelu_pytorch_tanh tie_word_embeddings=true sliding_window=4096 "
     "final_logit_softcapping=30.0 attn_logit_softcapping=50.0",
     "hidden_act=hidden_activation", gemma2, nullptr},
    {"gemma3_text", "Gemma3ForCausalLM", Coverage::played,
     "vocab_size=262208 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 num_attention_heads=8 "
     "num_key_value_heads=4 head_dim=256 hidden_act=gelu_pytorch_tanh tie_word_embeddings=true sliding_window=4096",
     "hidden_act=hidden_activation", gemma3, nullptr},
    {"cohere", "CohereForCausalLM", Coverage::played,
     "vocab_size=256000 hidden_size=8192 intermediate_size=22528 logit_scale=0.0625 num_hidden_layers=40 "
     "num_attention_heads=64 hidden_act=silu tie_word_embeddings=true",
     "", cohere, nullptr},
    {"cohere2", "Cohere2ForCausalLM", Coverage::played,
     "vocab_size=256000 hidden_size=8192 intermediate_size=22528 logit_scale=0.0625 num_hidden_layers=40 "
     "num_attention_heads=64 hidden_act=silu tie_word_embeddings=true sliding_window=4096",
     "", cohere2, nullptr},
    {"glm", "GlmForCausalLM", Coverage::played,
     "vocab_size=151552 hidden_size=4096 intermediate_size=13696 num_hidden_layers=40 num_attention_heads=32 "
     "num_key_value_heads=2 head_dim=128 hidden_act=silu attention_bias=true",
     "", glm, nullptr},
    {"glm4", "Glm4ForCausalLM", Coverage::played,
     "vocab_size=151552 hidden_size=4096 intermediate_size=13696 num_hidden_layers=40 num_attention_heads=32 "
     "num_key_value_heads=2 head_dim=128 hidden_act=silu attention_bias=true",
     "", glm4, nullptr},
    {"olmo", "OlmoForCausalLM", Coverage::played,
     "vocab_size=50304 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu", "", olmo,
     nullptr},
    {"olmo2", "Olmo2ForCausalLM", Coverage::played,
     "vocab_size=50304 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu", "", olmo2,
     nullptr},
    {"olmo3", "Olmo3ForCausalLM", Coverage::played,
     "vocab_size=50304 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "sliding_window=4096",
     "", olmo3, nullptr},
    {"phi3", "Phi3ForCausalLM", Coverage::played,
     "vocab_size=32064 hidden_size=3072 intermediate_size=8192 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu", "", phi3,
     nullptr},
    {"phi", "PhiForCausalLM", Coverage::played,
     "vocab_size=51200 hidden_size=2048 intermediate_size=8192 num_hidden_layers=24 num_attention_heads=32 "
     "hidden_act=gelu_new",
     "", phi, nullptr},
    {"starcoder2", "Starcoder2ForCausalLM", Coverage::played,
     "vocab_size=49152 hidden_size=3072 intermediate_size=12288 num_hidden_layers=30 num_attention_heads=24 "
     "num_key_value_heads=2 hidden_act=gelu_pytorch_tanh use_bias=true tie_word_embeddings=true",
     "", starcoder2, nullptr},
    {"stablelm", "StableLmForCausalLM", Coverage::played,
     "vocab_size=50304 intermediate_size=6912 hidden_size=2560 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=32 hidden_act=silu",
     "", stablelm, nullptr},
    {"ernie4_5", "Ernie4_5ForCausalLM", Coverage::played,
     "vocab_size=103424 hidden_size=1024 intermediate_size=3072 num_hidden_layers=18 num_attention_heads=16 "
     "num_key_value_heads=2 hidden_act=silu tie_word_embeddings=true head_dim=128",
     "", ernie4_5, nullptr},
    {"seed_oss", "SeedOssForCausalLM", Coverage::played,
     "vocab_size=155136 hidden_size=4096 intermediate_size=27648 num_hidden_layers=64 num_attention_heads=80 "
     "num_key_value_heads=8 hidden_act=silu attention_bias=true attention_dropout=0.1 residual_dropout=0.1 head_dim=128",
     "", seed_oss, nullptr},
    {"arcee", "ArceeForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=2560 intermediate_size=18432 num_hidden_layers=32 num_attention_heads=32 hidden_act=relu2", "", arcee,
     nullptr},
    {"apertus", "ApertusForCausalLM", Coverage::played,
     "vocab_size=131072 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 "
     "hidden_act=xielu",
     "", apertus, nullptr},
    {"nemotron", "NemotronForCausalLM", Coverage::played,
     "vocab_size=256000 hidden_size=6144 intermediate_size=24576 num_hidden_layers=32 num_attention_heads=48 "
     "hidden_act=relu2",
     "", nemotron, nullptr},
    {"exaone4", "Exaone4ForCausalLM", Coverage::played,
     "vocab_size=102400 hidden_size=4096 intermediate_size=16384 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=32 hidden_act=silu sliding_window=4096 sliding_window_pattern=4",
     "", exaone4, nullptr},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", Coverage::played,
     "vocab_size=290943 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu", "",
     hunyuan_dense, nullptr},
    {"qwen2_5_vl_text", "Qwen2_5_VLForConditionalGeneration", Coverage::parameters,
     "vocab_size=152064 hidden_size=8192 intermediate_size=29568 num_hidden_layers=80 num_attention_heads=64 num_key_value_heads=8 "
     "hidden_act=silu sliding_window=4096 max_window_layers=80",
     "", qwen2_5_vl, nullptr},
    {"qwen3_vl_text", "Qwen3VLForConditionalGeneration", Coverage::parameters,
     "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=32 "
     "head_dim=128 hidden_act=silu",
     "", qwen3_vl, nullptr},
    {"qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", Coverage::parameters,
     "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=24 num_attention_heads=16 num_key_value_heads=16 "
     "hidden_act=silu decoder_sparse_step=1 moe_intermediate_size=1408 num_experts_per_tok=4 num_experts=60",
     "num_experts=num_local_experts", qwen3_vl_moe, nullptr},
    {"mixtral", "MixtralForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=8 hidden_act=silu num_experts_per_tok=2 num_local_experts=8",
     "num_local_experts=num_experts", mixtral, nullptr},
    {"qwen2_moe", "Qwen2MoeForCausalLM", Coverage::played,
     "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=24 num_attention_heads=16 "
     "num_key_value_heads=16 hidden_act=silu sliding_window=4096 max_window_layers=28 decoder_sparse_step=1 "
     "moe_intermediate_size=1408 shared_expert_intermediate_size=5632 num_experts_per_tok=4 num_experts=60 qkv_bias=true",
     "", qwen2_moe, nullptr},
    {"qwen3_moe", "Qwen3MoeForCausalLM", Coverage::played,
     "vocab_size=151936 hidden_size=2048 intermediate_size=6144 num_hidden_layers=24 num_attention_heads=32 "
     "num_key_value_heads=4 hidden_act=silu sliding_window=4096 decoder_sparse_step=1 moe_intermediate_size=768 "
     "num_experts_per_tok=8 num_experts=128",
     "num_local_experts=num_experts", qwen3_moe, nullptr},
    {"olmoe", "OlmoeForCausalLM", Coverage::played,
     "vocab_size=50304 hidden_size=2048 intermediate_size=2048 num_hidden_layers=16 num_attention_heads=16 hidden_act=silu "
     "num_experts_per_tok=8 num_experts=64",
     "num_experts=num_local_experts", olmoe, nullptr},
    {"phimoe", "PhimoeForCausalLM", Coverage::played,
     "vocab_size=32064 hidden_size=4096 intermediate_size=6400 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=8 hidden_act=silu num_experts_per_tok=2 num_local_experts=16",
     "", phimoe, nullptr},
    {"granitemoe", "GraniteMoeForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0 num_local_experts=8 "
     "num_experts_per_tok=2",
     "", granitemoe, nullptr},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM", Coverage::played,
     "vocab_size=290943 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "num_experts=1 moe_topk=1",
     "moe_topk=num_experts_per_tok num_experts=num_local_experts", hunyuan_moe, nullptr},
    {"minimax_m2", "MiniMaxM2ForCausalLM", Coverage::played,
     "vocab_size=200064 hidden_size=3072 intermediate_size=1536 num_hidden_layers=62 num_attention_heads=48 "
     "num_key_value_heads=8 head_dim=128 hidden_act=silu num_experts_per_tok=8 num_local_experts=256",
     "num_local_experts=num_experts", minimax_m2, nullptr},
    {"glm4_moe", "Glm4MoeForCausalLM", Coverage::played,
     "norm_topk_prob=true vocab_size=151552 hidden_size=4096 intermediate_size=10944 num_hidden_layers=46 num_attention_heads=96 "
     "num_key_value_heads=8 hidden_act=silu moe_intermediate_size=1408 num_experts_per_tok=8 n_shared_experts=1 "
     "n_routed_experts=128 first_k_dense_replace=1",
     "n_routed_experts=num_local_experts", glm4_moe, nullptr},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", Coverage::played,
     "vocab_size=103424 hidden_size=2560 intermediate_size=12288 num_hidden_layers=28 num_attention_heads=20 "
     "num_key_value_heads=4 hidden_act=silu tie_word_embeddings=true moe_intermediate_size=1536 moe_k=6 moe_num_experts=64 "
     "moe_num_shared_experts=2 moe_layer_start_index=1 moe_layer_end_index=-1 moe_layer_interval=1",
     "moe_num_experts=num_experts moe_k=num_experts_per_tok", ernie4_5_moe, nullptr},
    {"gpt_oss", "GptOssForCausalLM", Coverage::played,
     "num_hidden_layers=36 num_local_experts=128 vocab_size=201088 hidden_size=2880 intermediate_size=2880 head_dim=64 "
     "num_attention_heads=64 num_key_value_heads=8 sliding_window=128 hidden_act=silu num_experts_per_tok=4 "
     "attention_bias=true",
     "num_local_experts=num_experts", gpt_oss, nullptr},
    {"deepseek_v2", "DeepseekV2ForCausalLM", Coverage::played,
     "topk_method=greedy vocab_size=102400 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 "
     "hidden_act=silu "
     "first_k_dense_replace=0 kv_lora_rank=512 q_lora_rank=1536 n_routed_experts=64 n_shared_experts=2 qk_nope_head_dim=128 "
     "qk_rope_head_dim=64 v_head_dim=128 moe_intermediate_size=1407",
     "n_routed_experts=num_experts", deepseek_v2, nullptr},
    {"deepseek_v3", "DeepseekV3ForCausalLM", Coverage::played,
     "n_group=8 topk_group=4 norm_topk_prob=true rope_interleave=true vocab_size=129280 hidden_size=7168 intermediate_size=18432 "
     "moe_intermediate_size=2048 num_hidden_layers=61 "
     "num_attention_heads=128 num_key_value_heads=128 n_shared_experts=1 n_routed_experts=256 kv_lora_rank=512 "
     "q_lora_rank=1536 qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=128 num_experts_per_tok=8 first_k_dense_replace=3 "
     "hidden_act=silu",
     "n_routed_experts=num_local_experts", deepseek_v3, nullptr},
    {"kimi_k2", "DeepseekV3ForCausalLM", Coverage::played,
     "n_group=8 topk_group=4 norm_topk_prob=true rope_interleave=true vocab_size=129280 hidden_size=7168 intermediate_size=18432 "
     "moe_intermediate_size=2048 num_hidden_layers=61 "
     "num_attention_heads=128 num_key_value_heads=128 n_shared_experts=1 n_routed_experts=256 kv_lora_rank=512 "
     "q_lora_rank=1536 qk_rope_head_dim=64 v_head_dim=128 qk_nope_head_dim=128 num_experts_per_tok=8 first_k_dense_replace=3 "
     "hidden_act=silu",
     "n_routed_experts=num_local_experts", deepseek_v3, nullptr},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM", Coverage::played,
     "norm_topk_prob=true rope_interleave=true vocab_size=154880 hidden_size=2048 intermediate_size=10240 moe_intermediate_size=1536 "
     "num_hidden_layers=47 "
     "num_attention_heads=20 num_key_value_heads=20 n_shared_experts=1 n_routed_experts=64 kv_lora_rank=512 q_lora_rank=768 "
     "qk_rope_head_dim=64 v_head_dim=256 qk_nope_head_dim=192 num_experts_per_tok=4 hidden_act=silu",
     "n_routed_experts=num_local_experts", glm4_moe_lite, nullptr},
};

}  // namespace

std::span<const Family> decoder_families() { return kFamilies; }

}  // namespace llmem
