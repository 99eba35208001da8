#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/bodies.h"
#include "model/families.h"
#include "model/mamba2.h"

// Hybrids that mix attention with convolutions, linear attention or state-space layers, each in its own pattern of layers:
// modeling_<model_type>.py.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

void causal_conv(const Module& at, std::string_view name, std::int64_t channels, std::int64_t kernel, bool bias = false) {
  at.child(name).parameter("weight", {channels, 1, kernel});
  if (bias) at.child(name).parameter("bias", {channels});
}

void gated_mlp(const Module& mlp, const A& a, std::int64_t width, bool bias = false) {
  mlp.linear("gate_proj", a.hidden_size, width, bias);
  mlp.linear("up_proj", a.hidden_size, width, bias);
  mlp.linear("down_proj", width, a.hidden_size, bias);
}

void attention(const Module& at, const A& a, bool bias, std::string_view output = "o_proj") {
  at.linear("q_proj", a.hidden_size, a.heads * a.head_dim, bias);
  at.linear("k_proj", a.hidden_size, a.kv_heads * a.head_dim, bias);
  at.linear("v_proj", a.hidden_size, a.kv_heads * a.head_dim, bias);
  at.linear(output, a.heads * a.head_dim, a.hidden_size, bias);
}

void rotary_buffers(const Module& model, std::int64_t dim) {
  model.child("rotary_emb").buffer("inv_freq", {dim / 2});
  model.child("rotary_emb").buffer("original_inv_freq", {dim / 2});
}

void head(const A& a, const Module& root) {
  if (!a.tied_embeddings) root.linear(a.names.head, a.hidden_size, a.vocab_size);
}

// ---- lfm2: short convolutions

std::vector<bool> attending_layers(C& c, const A& a, std::string_view word, const std::vector<bool>& otherwise) {
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  if (types.empty()) return otherwise;
  std::vector<bool> attends;
  for (const std::string& type : types) attends.push_back(type == word);
  return attends;
}

void lfm2_config(C& c, A& a) {
  a.names.norm = "embedding_norm";
  a.names.layer = "a:self_attn c:conv m:feed_forward 1:operator_norm 3:ffn_norm";
  a.names.attention = "q:q_proj k:k_proj v:v_proj o:out_proj Q:q_layernorm K:k_layernorm";
  a.names.mlp = "g:w1 u:w3 d:w2";
  a.qk_norm = true;
  a.qk_norm_kind = QkNorm::head;
  if (c.flag("block_auto_adjust_ff_dim")) {  // Lfm2MLP
    const std::int64_t multiple = c.count("block_multiple_of", 256);
    std::int64_t width = 2 * a.intermediate_size / 3;
    if (const auto factor = c.number("block_ffn_dim_multiplier")) width = static_cast<std::int64_t>(*factor * static_cast<double>(width));
    a.intermediate_size = (width + multiple - 1) / multiple * multiple;
  }
  std::vector<bool> all(static_cast<std::size_t>(a.layers), true);
  const std::vector<std::int64_t> listed = c.integers("full_attn_idxs");
  if (!listed.empty())
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] = std::find(listed.begin(), listed.end(), static_cast<std::int64_t>(i)) != listed.end();
  a.attends = attending_layers(c, a, "full_attention", all);
  a.conv_kernel = c.count("conv_L_cache", 3);
  a.conv_bias = c.flag("conv_bias");
}

void lfm2(C&, const A& a, const Module& root) {
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    if (a.attends[static_cast<std::size_t>(i)]) {
      attention(layer.child("self_attn"), a, false, "out_proj");
      for (const char* name : {"q_layernorm", "k_layernorm"}) layer.child("self_attn").norm(name, a.head_dim);
    } else {
      causal_conv(layer.child("conv"), "conv", a.hidden_size, a.conv_kernel, a.conv_bias);
      layer.child("conv").linear("in_proj", a.hidden_size, 3 * a.hidden_size, a.conv_bias);
      layer.child("conv").linear("out_proj", a.hidden_size, a.hidden_size, a.conv_bias);
    }
    layer.child("feed_forward").linear("w1", a.hidden_size, a.intermediate_size);
    layer.child("feed_forward").linear("w3", a.hidden_size, a.intermediate_size);
    layer.child("feed_forward").linear("w2", a.intermediate_size, a.hidden_size);
    layer.norm("operator_norm", a.hidden_size);
    layer.norm("ffn_norm", a.hidden_size);
  }
  rotary_buffers(model, a.rotary_dim);
  model.norm("embedding_norm", a.hidden_size);
  head(a, root);
}

// ---- qwen3_next, qwen3_5, qwen3_5_moe: a gated delta net in three of four layers, attention with an output gate in the fourth

void qwen3_next_config(C& c, A& a) {
  const std::int64_t interval = c.integer_or("full_attention_interval", 4, 1);
  std::vector<bool> attends(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i < attends.size(); ++i) attends[i] = (static_cast<std::int64_t>(i) + 1) % interval == 0;
  a.attends = attending_layers(c, a, "full_attention", attends);
  a.qkv_bias = a.output_bias = c.flag("attention_bias");
  partial_rotary(c, a, "partial_rotary_factor", 0.25);
  a.norm = NormKind::rms_one_plus;
  a.qk_norm = true;
  a.qk_norm_kind = QkNorm::head;
  a.gated_output = a.partly_rotary = a.parts_rebound = true;
  DeltaNet& d = a.delta_net;
  d.key_heads = c.count("linear_num_key_heads", 16);
  d.value_heads = c.count("linear_num_value_heads", 32);
  d.key_dim = c.count("linear_key_head_dim", 128);
  d.value_dim = c.count("linear_value_head_dim", 128);
  d.kernel = c.count("linear_conv_kernel_dim", 4);
  if (d.value_heads % d.key_heads != 0)
    c.file().problem(
        "linear_num_value_heads", "conflict",
        std::to_string(d.value_heads) + " value heads cannot be shared out among " + std::to_string(d.key_heads) + " key heads");
  if (!c.has("num_experts")) return;
  a.names.mixture = "R:gate E:experts S:shared_expert G:shared_expert_gate";
  a.experts.router = RouterKind::qwen;
  a.experts.normed = c.flag("norm_topk_prob");
  a.experts.count = c.integer_or("num_experts", 0);
  a.experts.per_token = c.integer_or("num_experts_per_tok", 1);
  a.experts.width = c.count("moe_intermediate_size", 1);
  a.experts.shared_width = c.integer_or("shared_expert_intermediate_size", 0);
  const std::vector<std::int64_t> dense = c.integers("mlp_only_layers");
  const std::int64_t step = c.integer_or("decoder_sparse_step", 1, 1);
  a.experts.layers.assign(attends.size(), false);
  for (std::size_t i = 0; i < attends.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    a.experts.layers[i] = a.experts.count > 0 && (layer + 1) % step == 0 && std::find(dense.begin(), dense.end(), layer) == dense.end();
  }
}

void qwen3_5_config(C& c, A& a) {
  qwen3_next_config(c, a);
  a.rotary = Rotary::grid_in_turns;
  a.experts.normed = true;
}

void delta_net(const A& a, const Module& at, bool in_two) {
  const DeltaNet& d = a.delta_net;
  const std::int64_t keys = d.keys(), values = d.values(), value_heads = d.value_heads;
  at.parameter("dt_bias", {value_heads});
  at.parameter("A_log", {value_heads});
  causal_conv(at, "conv1d", 2 * keys + values, d.kernel);
  if (in_two) {
    at.linear("in_proj_qkvz", a.hidden_size, 2 * keys + 2 * values);
    at.linear("in_proj_ba", a.hidden_size, 2 * value_heads);
  }
  at.norm("norm", d.value_dim);
  at.linear("out_proj", values, a.hidden_size);
  if (in_two) return;
  at.linear("in_proj_qkv", a.hidden_size, 2 * keys + values);
  at.linear("in_proj_z", a.hidden_size, values);
  at.linear("in_proj_b", a.hidden_size, value_heads);
  at.linear("in_proj_a", a.hidden_size, value_heads);
}

void qwen_mixture(const A& a, const Module& mlp) {
  const Experts& e = a.experts;
  mlp.child("gate").parameter("weight", {e.count, a.hidden_size});
  mlp.child("experts").parameter("gate_up_proj", {e.count, 2 * e.width, a.hidden_size});
  mlp.child("experts").parameter("down_proj", {e.count, a.hidden_size, e.width});
  if (e.shared_width > 0) gated_mlp(mlp.child("shared_expert"), a, e.shared_width);
  mlp.linear("shared_expert_gate", a.hidden_size, 1);
}

void qwen_hybrid(const A& a, const Module& root, bool in_two) {
  const Module model = root.child(a.names.model);
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    if (a.attends[static_cast<std::size_t>(i)]) {
      const Module at = layer.child("self_attn");
      at.linear("q_proj", a.hidden_size, 2 * a.heads * a.head_dim, a.qkv_bias);  // queries and the gate of the output
      at.linear("k_proj", a.hidden_size, a.kv_heads * a.head_dim, a.qkv_bias);
      at.linear("v_proj", a.hidden_size, a.kv_heads * a.head_dim, a.qkv_bias);
      at.linear("o_proj", a.heads * a.head_dim, a.hidden_size, a.qkv_bias);
      at.norm("q_norm", a.head_dim);
      at.norm("k_norm", a.head_dim);
    } else {
      delta_net(a, layer.child("linear_attn"), in_two);
    }
    if (a.experts.at(i))
      qwen_mixture(a, layer.child("mlp"));
    else
      gated_mlp(layer.child("mlp"), a, a.intermediate_size);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  rotary_buffers(model, a.rotary_dim);
  head(a, root);
}

void qwen3_next(C&, const A& a, const Module& root) { qwen_hybrid(a, root, true); }
void qwen3_5(C&, const A& a, const Module& root) { qwen_hybrid(a, root, false); }

// ---- nemotron_h: one mixer a layer, of the kind that the pattern's letter says

// layers_block_type's words, or hybrid_override_pattern's letters, or NemotronHConfig's own four.
std::string nemotron_pattern(C& c) {
  std::string pattern;
  for (const char* key : {"layers_block_type", "layer_types"}) {
    const nlohmann::json* types = c.file().find(key);
    if (!pattern.empty() || types == nullptr || !types->is_array()) continue;
    for (const nlohmann::json& each : *types) {
      const std::string type = each.is_string() ? each.get<std::string>() : "";
      pattern += type == "mamba" || type == "linear_attention" ? 'M'
                 : type == "moe"                               ? 'E'
                 : type.find("attention") != std::string::npos ? '*'
                                                               : '-';
    }
  }
  if (pattern.empty()) pattern = c.text("hybrid_override_pattern");
  return pattern.empty() ? "ME*-" : pattern;
}

void nemotron_h_config(C& c, A& a) {
  a.names.model = "model";
  a.names.embedding = "embeddings";
  a.names.norm = "norm_f";
  a.names.layer = "a:mixer m:mixer";
  a.names.mlp = "u:up_proj d:down_proj";
  a.names.mixture = "E:experts R:gate S:shared_experts";
  if (c.file().present("attention_head_dim")) a.head_dim = c.count("attention_head_dim", a.head_dim);
  a.mlp_bias = c.flag("mlp_bias");
  Experts& e = a.experts;
  e.count = c.integer_or("n_routed_experts", 0);
  e.per_token = c.integer_or("num_experts_per_tok", 1);
  e.width = c.count("moe_intermediate_size", 7688);
  e.shared_width = c.count("moe_shared_expert_intermediate_size", 7688);
  e.latent = c.integer_or("moe_latent_size", 0);
  e.groups = c.integer_or("n_group", 1, 1);
  e.groups_kept = c.integer_or("topk_group", 1, 1);
  e.normed = c.flag("norm_topk_prob");
  e.gated = false;
  e.correction = e.float_router = e.shared_last = true;
  e.router = RouterKind::deepseek_v3;
  // NemotronHConfig.num_hidden_layers: as many as there are types, whatever the file says
  a.layer_kinds = nemotron_pattern(c);
  a.layers = static_cast<std::int64_t>(a.layer_kinds.size());
  a.attends.assign(a.layer_kinds.size(), false);
  e.layers.assign(a.layer_kinds.size(), false);
  for (std::size_t i = 0; i < a.layer_kinds.size(); ++i) {
    a.attends[i] = a.layer_kinds[i] == '*';
    e.layers[i] = a.layer_kinds[i] == 'E';
  }
  a.rotary = Rotary::none;
  a.unturned.assign(a.layer_kinds.size(), true);
  a.float_logits = true;
  StateSpace& s = a.state_space;
  s.heads = c.count("mamba_num_heads", 128);
  s.head_dim = c.count("mamba_head_dim", 64);
  s.groups = c.count("n_groups", 8);
  s.states = c.count("ssm_state_size", 128);
  s.kernel = c.count("conv_kernel", 4);
  s.chunk = c.count("chunk_size", 128);
  s.conv_bias = c.flag("use_conv_bias");
  s.bias = s.out_bias = c.flag("use_bias");
  if (c.text("mamba_hidden_act") != "silu") a.unplayed = "mamba_hidden_act";
}

void nemotron_mixer(const A& a, const Module& mixer, char kind) {
  switch (kind) {
    case 'M': return declare_mamba2_mixer(a.state_space, mixer, a.hidden_size);
    case 'E': {
      const Experts& e = a.experts;
      const std::int64_t inside = e.latent > 0 ? e.latent : a.hidden_size;
      mixer.child("experts").parameter("up_proj", {e.count, e.width, inside});
      mixer.child("experts").parameter("down_proj", {e.count, inside, e.width});
      mixer.child("gate").parameter("weight", {e.count, a.hidden_size}, Dtype::float32);
      mixer.child("gate").buffer("e_score_correction_bias", {e.count});
      mixer.child("shared_experts").linear("up_proj", a.hidden_size, e.shared_width, a.mlp_bias);
      mixer.child("shared_experts").linear("down_proj", e.shared_width, a.hidden_size, a.mlp_bias);
      if (e.latent == 0) return;
      mixer.linear("fc1_latent_proj", a.hidden_size, e.latent, a.mlp_bias);
      return mixer.linear("fc2_latent_proj", e.latent, a.hidden_size, a.mlp_bias);
    }
    case '*': return attention(mixer, a, false);
    default:
      mixer.linear("up_proj", a.hidden_size, a.intermediate_size, a.mlp_bias);
      return mixer.linear("down_proj", a.intermediate_size, a.hidden_size, a.mlp_bias);
  }
}

void nemotron_h(C&, const A& a, const Module& root) {
  const Module model = root.child("model");
  model.embedding("embeddings", a.vocab_size, a.hidden_size);
  for (std::size_t i = 0; i < a.layer_kinds.size(); ++i) {
    const Module layer = model.child("layers", static_cast<std::int64_t>(i));
    layer.norm("norm", a.hidden_size);
    nemotron_mixer(a, layer.child("mixer"), a.layer_kinds[i]);
  }
  model.norm("norm_f", a.hidden_size);
  root.linear("lm_head", a.hidden_size, a.vocab_size);  // NemotronHForCausalLM ties nothing, whatever the config says
}

// ---- falcon_h1: attention and a state-space mixer side by side

void falcon_h1_config(C& c, A& a) {
  a.mlp_bias = c.flag("mlp_bias");
  a.qkv_bias = a.output_bias = c.flag("attention_bias");
  a.scaled_keys = a.scaled_logits = true;
  const auto expanded = static_cast<std::int64_t>(c.number("mamba_expand").value_or(2) * static_cast<double>(a.hidden_size));
  read_mamba_fields(c, a, c.integer_or("mamba_d_ssm", expanded));
  a.state_space.out_bias = c.flag("projectors_bias");
  a.state_space.normed = c.flag("mamba_rms_norm");
  a.state_space.norm_first = c.flag("mamba_norm_before_gate");
}

void falcon_h1(C&, const A& a, const Module& root) {
  const StateSpace& s = a.state_space;
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), mamba = layer.child("mamba");
    gated_mlp(layer.child("feed_forward"), a, a.intermediate_size, a.mlp_bias);
    declare_mamba2_mixer(s, mamba, a.hidden_size, s.normed);
    mamba.buffer("mup_vector", {1, 1, s.inner() + s.channels() + s.heads}, std::nullopt);
    attention(layer.child("self_attn"), a, a.qkv_bias);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("pre_ff_layernorm", a.hidden_size);
  }
  model.norm("final_layernorm", a.hidden_size);
  rotary_buffers(model, a.head_dim);
  head(a, root);
}

// ---- zamba: one attention layer that thirteen places share

void zamba_config(C& c, A& a) { a.head_dim = c.integer_or("attention_head_dim", 2 * a.hidden_size / a.heads, 1); }

void zamba_mamba(C& c, const A& a, const Module& mamba) {
  const std::int64_t heads = c.count("n_mamba_heads", 2), states = c.count("mamba_d_state", 16);
  const std::int64_t inner = c.count("mamba_expand", 2) * a.hidden_size, per_head = inner / heads;
  const nlohmann::json* given = c.file().find("mamba_dt_rank");
  const std::int64_t rank = given && given->is_number_integer() ? c.count("mamba_dt_rank", 1) : (a.hidden_size + 15) / 16;
  mamba.parameter("x_proj_weight", {heads, rank + 2 * states, per_head});
  mamba.parameter("dt_proj_weight", {heads, per_head, rank});
  mamba.parameter("dt_proj_bias", {heads, per_head});
  mamba.parameter("A_log", {heads, per_head, states});
  mamba.parameter("D", {heads, per_head});
  causal_conv(mamba, "conv1d", inner, c.count("mamba_d_conv", 4), c.flag("mamba_conv_bias"));
  mamba.linear("in_proj", a.hidden_size, 2 * inner, c.flag("mamba_proj_bias"));
  mamba.linear("out_proj", inner, a.hidden_size, c.flag("mamba_proj_bias"));
}

void zamba_shared(C& c, const A& a, const Module& shared) {
  const std::int64_t attention_width = a.heads * a.head_dim, in = c.integer_or("attention_hidden_size", 2 * a.hidden_size, 1);
  const Module at = shared.child("self_attn");
  at.linear("q_proj", in, attention_width);
  for (const char* name : {"k_proj", "v_proj"}) at.linear(name, in, a.kv_heads * a.head_dim);
  at.linear("o_proj", attention_width, a.hidden_size);
  gated_mlp(shared.child("feed_forward"), a, a.intermediate_size);
  shared.norm("input_layernorm", in);
  shared.norm("pre_ff_layernorm", a.hidden_size);
}

// ZambaConfig: the third layer, and of those after it every sixth from the fourth on
bool zamba_hybrid(std::int64_t layer, std::int64_t period, std::int64_t offset) {
  return layer == 2 || (layer >= 3 && (layer - 3) % period == offset);
}

void zamba(C& c, const A& a, const Module& root) {
  const std::int64_t period = c.count("attn_layer_period", 6), offset = c.integer_or("attn_layer_offset", 4);
  const std::vector<std::string> types = c.each_layer("layers_block_type", a.layers);
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  bool shared_declared = false;
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    const bool hybrid = types.empty() ? zamba_hybrid(i, period, offset) : types[static_cast<std::size_t>(i)] == "hybrid";
    if (!hybrid) {
      zamba_mamba(c, a, layer.child("mamba"));
      layer.norm("input_layernorm", a.hidden_size);
      continue;
    }
    if (!shared_declared || !a.tied_embeddings) zamba_shared(c, a, layer.child("shared_transf"));  // tie_weights does both or neither
    shared_declared = true;
    layer.linear("linear", a.hidden_size, a.hidden_size);
    zamba_mamba(c, a, layer.child("mamba_decoder.mamba"));
    layer.child("mamba_decoder").norm("input_layernorm", a.hidden_size);
  }
  model.norm("final_layernorm", a.hidden_size);
  head(a, root);
}

// ---- minimax: lightning attention with attention in some layers, experts in all

void minimax_config(C& c, A& a) {
  std::vector<bool> attends(static_cast<std::size_t>(a.layers), false);  // MiniMaxConfig: every second layer, the first among them
  for (std::size_t i = 0; i < attends.size(); ++i) attends[i] = i % 2 == 0;
  a.attends = attending_layers(c, a, "full_attention", attends);
  a.experts.count = c.count("num_local_experts", 8);
  a.experts.per_token = c.count("num_experts_per_tok", 2);
  a.experts.width = a.intermediate_size;
}

void minimax(C&, const A& a, const Module& root) {
  const std::int64_t width = a.heads * a.head_dim;
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), at = layer.child("self_attn");
    if (a.attends[static_cast<std::size_t>(i)]) {
      attention(at, a, false);
    } else {
      at.norm("norm", width);
      at.linear("qkv_proj", a.hidden_size, 3 * width);
      at.linear("out_proj", width, a.hidden_size);
      at.linear("output_gate", a.hidden_size, width);
      for (const char* name : {"slope_rate", "query_decay", "key_decay", "diagonal_decay"}) at.buffer(name, {a.heads});
    }
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
    layer.child("mlp.gate").parameter("weight", {a.experts.count, a.hidden_size});
    layer.child("mlp.experts").parameter("gate_up_proj", {a.experts.count, 2 * a.experts.width, a.hidden_size});
    layer.child("mlp.experts").parameter("down_proj", {a.experts.count, a.hidden_size, a.experts.width});
  }
  model.norm("norm", a.hidden_size);
  rotary_buffers(model, a.head_dim);
  head(a, root);
}

#define QWEN3_5_DEFAULTS                                                                                                    \
  "vocab_size=248320 num_attention_heads=16 hidden_act=silu head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 " \
  "linear_value_head_dim=128 linear_num_key_heads=16 linear_num_value_heads=32 "

constexpr Family kFamilies[] = {
    {"lfm2", "Lfm2ForCausalLM", Coverage::played,
     "vocab_size=65536 hidden_size=2560 intermediate_size=12288 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8 "
     "hidden_act=silu tie_word_embeddings=true conv_L_cache=3 block_multiple_of=256 block_ffn_dim_multiplier=1.0 "
     "block_auto_adjust_ff_dim=true",
     "tie_word_embeddings=tie_embedding intermediate_size=block_ff_dim", lfm2_config, lfm2, lfm2_body},
    {"qwen3_next", "Qwen3NextForCausalLM", Coverage::played,
     "vocab_size=151936 hidden_size=2048 intermediate_size=5632 num_hidden_layers=48 num_attention_heads=16 num_key_value_heads=2 "
     "hidden_act=silu head_dim=256 linear_conv_kernel_dim=4 linear_key_head_dim=128 linear_value_head_dim=128 linear_num_key_heads=16 "
     "linear_num_value_heads=32 decoder_sparse_step=1 moe_intermediate_size=512 shared_expert_intermediate_size=512 "
     "num_experts_per_tok=10 num_experts=512 norm_topk_prob=true",
     "", qwen3_next_config, qwen3_next, qwen3_next_body},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", Coverage::played,
     QWEN3_5_DEFAULTS "hidden_size=4096 intermediate_size=12288 num_hidden_layers=32 num_key_value_heads=4", "", qwen3_5_config, qwen3_5,
     qwen3_next_body},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", Coverage::played,
     QWEN3_5_DEFAULTS "hidden_size=2048 num_hidden_layers=40 num_key_value_heads=2 moe_intermediate_size=512 "
                      "shared_expert_intermediate_size=512 num_experts_per_tok=8 num_experts=256",
     "", qwen3_5_config, qwen3_5, qwen3_next_body},
    {"nemotron_h", "NemotronHForCausalLM", Coverage::played,
     "vocab_size=131072 hidden_size=4096 num_attention_heads=32 num_key_value_heads=8 head_dim=128 intermediate_size=21504 "
     "hidden_act=relu2 ssm_state_size=128 mamba_num_heads=128 mamba_head_dim=64 n_groups=8 conv_kernel=4 use_conv_bias=true "
     "n_routed_experts=8 moe_intermediate_size=7688 moe_shared_expert_intermediate_size=7688 num_experts_per_tok=2 norm_topk_prob=true "
     "mamba_hidden_act=silu chunk_size=128",
     "hidden_act=mlp_hidden_act n_groups=mamba_n_groups conv_kernel=mamba_d_conv use_conv_bias=mamba_conv_bias", nemotron_h_config,
     nemotron_h, nemotron_h_body},
    {"falcon_h1", "FalconH1ForCausalLM", Coverage::played,
     "vocab_size=128000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8 "
     "hidden_act=silu mamba_d_ssm=1024 mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256 mamba_d_conv=4 mamba_expand=2 "
     "mamba_conv_bias=true mamba_norm_before_gate=true mamba_chunk_size=256",
     "", falcon_h1_config, falcon_h1, falcon_h1_body},
    {"zamba", "ZambaForCausalLM", Coverage::parameters,
     "vocab_size=32000 tie_word_embeddings=true hidden_size=3712 intermediate_size=14848 num_hidden_layers=76 num_attention_heads=16 "
     "num_key_value_heads=16 n_mamba_heads=2 hidden_act=gelu attn_layer_period=6 attn_layer_offset=4 mamba_d_state=16 mamba_d_conv=4 "
     "mamba_expand=2 mamba_conv_bias=true",
     "", zamba_config, zamba},
    {"minimax", "MiniMaxForCausalLM", Coverage::parameters,
     "vocab_size=32000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8 "
     "hidden_act=silu num_experts_per_tok=2 num_local_experts=8",
     "num_local_experts=num_experts", minimax_config, minimax},
};

}  // namespace

std::span<const Family> hybrid_families() { return kFamilies; }

}  // namespace llmem
