#include <nlohmann/json.hpp>
#include <string>

#include "model/bodies.h"
#include "model/families.h"
#include "model/mamba2.h"

// State-space models and hybrids of them with attention: modeling_<model_type>.py.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

void causal_conv(const Module& at, std::string_view name, std::int64_t channels, std::int64_t kernel, bool bias) {
  at.child(name).parameter("weight", {channels, 1, kernel});
  if (bias) at.child(name).parameter("bias", {channels});
}

// MambaModel and Mamba2Model
template <class Mixer>
void mamba_kind(const A& a, const Module& root, const Mixer& mixer) {
  const Module backbone = root.child("backbone");
  backbone.embedding("embeddings", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module block = backbone.child("layers", i);
    block.norm("norm", a.hidden_size);
    mixer(block.child("mixer"));
  }
  backbone.norm("norm_f", a.hidden_size);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

std::int64_t widened(C& c, const A& a, std::string_view key) {
  return static_cast<std::int64_t>(c.number(key).value_or(2) * static_cast<double>(a.hidden_size));
}

// "auto": hidden_size / 16, rounded up
std::int64_t time_step_rank(C& c, const A& a, std::string_view key) {
  const nlohmann::json* given = c.file().find(key);
  if (given && given->is_number_integer()) return c.count(key, 1);
  return (a.hidden_size + 15) / 16;
}

void mamba_config(C& c, A& a) {
  a.names.model = "backbone";
  a.names.embedding = "embeddings";
  a.names.norm = "norm_f";
  StateSpace& s = a.state_space;
  s.heads = 1;
  s.head_dim = widened(c, a, "expand");
  s.states = c.count("state_size", 16);
  s.kernel = c.count("conv_kernel", 4);
  s.rank = time_step_rank(c, a, "time_step_rank");
  s.conv_bias = c.flag("use_conv_bias");
  s.bias = s.out_bias = c.flag("use_bias");
  a.float_residual = c.flag("residual_in_fp32");
  a.float_logits = true;
  a.loops_over_tokens = true;
}

void mamba_mixer(const A& a, const Module& mixer) {
  const StateSpace& s = a.state_space;
  mixer.parameter("A_log", {s.inner(), s.states});
  mixer.parameter("D", {s.inner()});
  causal_conv(mixer, "conv1d", s.inner(), s.kernel, s.conv_bias);
  mixer.linear("in_proj", a.hidden_size, 2 * s.inner(), s.bias);
  mixer.linear("x_proj", s.inner(), s.rank + 2 * s.states);
  mixer.linear("dt_proj", s.rank, s.inner(), true);
  mixer.linear("out_proj", s.inner(), a.hidden_size, s.bias);
}

void mamba(C&, const A& a, const Module& root) {
  mamba_kind(a, root, [&](const Module& mixer) { mamba_mixer(a, mixer); });
}

// FalconMambaWeightlessRMSNorm has weights that nothing reads, as buffers.
void falcon_mamba(C&, const A& a, const Module& root) {
  mamba_kind(a, root, [&](const Module& mixer) {
    mamba_mixer(a, mixer);
    mixer.child("dt_layernorm").buffer("weight", {a.state_space.inner()}, std::nullopt);
    mixer.child("b_layernorm").buffer("weight", {a.state_space.states}, std::nullopt);
    mixer.child("c_layernorm").buffer("weight", {a.state_space.states}, std::nullopt);
  });
}

void mamba2_config(C& c, A& a) {
  a.names.model = "backbone";
  a.names.embedding = "embeddings";
  a.names.norm = "norm_f";
  StateSpace& s = a.state_space;
  s.heads = c.count("num_heads", 128);
  s.head_dim = c.count("head_dim", 64);
  s.groups = c.count("n_groups", 8);
  s.states = c.count("state_size", 128);
  s.kernel = c.count("conv_kernel", 4);
  s.chunk = c.count("chunk_size", 256);
  s.conv_bias = c.flag("use_conv_bias");
  s.bias = s.out_bias = c.flag("use_bias");
  a.float_residual = c.flag("residual_in_fp32");
  a.float_logits = true;
  check_heads_of_state_space(c, a, "num_heads", "hidden_size", widened(c, a, "expand"));
}

void mamba2(C&, const A& a, const Module& root) {
  mamba_kind(a, root, [&](const Module& mixer) { declare_mamba2_mixer(a.state_space, mixer, a.hidden_size); });
}

void separate_attention(const Module& attention, const A& a, bool bias, std::string_view output = "o_proj") {
  attention.linear("q_proj", a.hidden_size, a.heads * a.head_dim, bias);
  attention.linear("k_proj", a.hidden_size, a.kv_heads * a.head_dim, bias);
  attention.linear("v_proj", a.hidden_size, a.kv_heads * a.head_dim, bias);
  attention.linear(output, a.heads * a.head_dim, a.hidden_size, bias);
}

void granite_hybrid_config(C& c, A& a) {
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  a.attends.assign(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i < types.size(); ++i) a.attends[i] = types[i] == "attention" || types[i] == "full_attention";
  a.experts.count = c.integer_or("num_local_experts", 0);
  a.experts.per_token = c.integer_or("num_experts_per_tok", 1);
  a.experts.width = a.intermediate_size;
  a.experts.router = RouterKind::granite;
  a.names.layer = "a:self_attn m:block_sparse_moe";
  a.names.mixture = "R:router E:experts";
  a.qkv_bias = a.output_bias = c.flag("attention_bias");
  a.scaled_embedding = ScaledEmbedding::by_number;
  a.scaled_logits = true;
  if (c.text("position_embedding_type") != "rope") {
    a.rotary = Rotary::none;
    a.unturned.assign(a.attends.size(), true);
  }
  read_mamba_fields(c, a, widened(c, a, "mamba_expand"));
}

void rotary_buffers(const Module& model, std::int64_t dim) {
  model.child("rotary_emb").buffer("inv_freq", {dim / 2});
  model.child("rotary_emb").buffer("original_inv_freq", {dim / 2});
}

void granite_hybrid(C& c, const A& a, const Module& root) {
  const std::int64_t experts = a.experts.count, shared = c.count("shared_intermediate_size", 1024);
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
    if (experts > 0) {
      layer.child("block_sparse_moe.router").parameter("weight", {experts, a.hidden_size});
      layer.child("block_sparse_moe.experts").parameter("gate_up_proj", {experts, 2 * a.intermediate_size, a.hidden_size});
      layer.child("block_sparse_moe.experts").parameter("down_proj", {experts, a.hidden_size, a.intermediate_size});
    }
    layer.child("shared_mlp").linear("input_linear", a.hidden_size, 2 * shared);
    layer.child("shared_mlp").linear("output_linear", shared, a.hidden_size);
    if (a.attends[static_cast<std::size_t>(i)])
      separate_attention(layer.child("self_attn"), a, a.qkv_bias);
    else
      declare_mamba2_mixer(a.state_space, layer.child("mamba"), a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  if (a.rotary != Rotary::none) rotary_buffers(model, a.head_dim);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

void bamba_config(C& c, A& a) {
  const std::vector<std::int64_t> attending = c.integers("attn_layer_indices");
  a.attends.assign(static_cast<std::size_t>(a.layers), false);
  for (const std::int64_t i : attending)
    if (i >= 0 && i < a.layers) a.attends[static_cast<std::size_t>(i)] = true;
  a.qkv_bias = a.output_bias = c.flag("attention_bias");
  a.mlp_bias = c.flag("mlp_bias");
  a.names.layer = "a:self_attn m:feed_forward 1:input_layernorm 3:pre_ff_layernorm";
  a.partly_rotary = a.parts_rebound = true;
  a.rotary_dim = a.head_dim / 2;  // BambaConfig: partial_rotary_factor 0.5, whatever the file says
  read_mamba_fields(c, a, widened(c, a, "mamba_expand"));
}

void bamba(C&, const A& a, const Module& root) {
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), mlp = layer.child("feed_forward");
    for (const char* name : {"gate_proj", "up_proj"}) mlp.linear(name, a.hidden_size, a.intermediate_size, a.mlp_bias);
    mlp.linear("down_proj", a.intermediate_size, a.hidden_size, a.mlp_bias);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("pre_ff_layernorm", a.hidden_size);
    if (a.attends[static_cast<std::size_t>(i)])
      separate_attention(layer.child("self_attn"), a, a.qkv_bias);
    else
      declare_mamba2_mixer(a.state_space, layer.child("mamba"), a.hidden_size);
  }
  model.norm("final_layernorm", a.hidden_size);
  rotary_buffers(model, a.rotary_dim);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

void jamba_config(C& c, A& a) {
  StateSpace& s = a.state_space;
  s.heads = 1;
  s.head_dim = widened(c, a, "mamba_expand");
  s.states = c.count("mamba_d_state", 16);
  s.kernel = c.count("mamba_d_conv", 4);
  s.rank = time_step_rank(c, a, "mamba_dt_rank");
  s.conv_bias = c.flag("mamba_conv_bias");
  s.bias = s.out_bias = c.flag("mamba_proj_bias");
  a.loops_over_tokens = true;
  const std::int64_t attention_period = c.count("attn_layer_period", 8), attention_offset = c.integer_or("attn_layer_offset", 4);
  const std::int64_t expert_period = c.count("expert_layer_period", 2), expert_offset = c.integer_or("expert_layer_offset", 1);
  const auto within = [&](const char* key, std::int64_t offset, std::int64_t period) {  // JambaConfig.validate_architecture
    if (offset >= period)
      c.file().problem(key, "conflict", std::to_string(offset) + " is not less than the period, " + std::to_string(period));
  };
  within("attn_layer_offset", attention_offset, attention_period);
  within("expert_layer_offset", expert_offset, expert_period);
  a.experts.count = c.count("num_experts", 16);
  a.experts.per_token = c.integer_or("num_experts_per_tok", 2);
  a.experts.width = a.intermediate_size;
  a.experts.router = RouterKind::jamba;
  if (a.experts.count == 1) a.experts.count = 0;
  a.names.layer = "a:self_attn m:feed_forward";
  a.names.mixture = "R:router E:experts";
  a.rotary = Rotary::none;
  a.unturned.assign(static_cast<std::size_t>(a.layers), true);
  a.attends.assign(static_cast<std::size_t>(a.layers), false);
  a.experts.layers.assign(static_cast<std::size_t>(a.layers), false);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    a.attends[static_cast<std::size_t>(i)] = i % attention_period == attention_offset;
    a.experts.layers[static_cast<std::size_t>(i)] = i % expert_period == expert_offset;
  }
}

void jamba(C&, const A& a, const Module& root) {
  const StateSpace& s = a.state_space;
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), feed_forward = layer.child("feed_forward");
    if (a.attends[static_cast<std::size_t>(i)]) {
      separate_attention(layer.child("self_attn"), a, false);
    } else {
      const Module mixer = layer.child("mamba");
      mamba_mixer(a, mixer);
      mixer.norm("dt_layernorm", s.rank);
      mixer.norm("b_layernorm", s.states);
      mixer.norm("c_layernorm", s.states);
    }
    if (a.experts.at(i)) {
      feed_forward.child("router").parameter("weight", {a.experts.count, a.hidden_size});
      feed_forward.child("experts").parameter("gate_up_proj", {a.experts.count, 2 * a.intermediate_size, a.hidden_size});
      feed_forward.child("experts").parameter("down_proj", {a.experts.count, a.hidden_size, a.intermediate_size});
    } else {
      feed_forward.linear("gate_proj", a.hidden_size, a.intermediate_size);
      feed_forward.linear("up_proj", a.hidden_size, a.intermediate_size);
      feed_forward.linear("down_proj", a.intermediate_size, a.hidden_size);
    }
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("pre_ff_layernorm", a.hidden_size);
  }
  model.norm("final_layernorm", a.hidden_size);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

constexpr Family kFamilies[] = {
    {"mamba", "MambaForCausalLM", Coverage::played,
     "vocab_size=50280 hidden_size=768 state_size=16 num_hidden_layers=32 expand=2 conv_kernel=4 use_conv_bias=true "
     "hidden_act=silu residual_in_fp32=true time_step_rank=auto time_step_scale=1.0 time_step_min=0.001 time_step_max=0.1 "
     "time_step_init_scheme=random time_step_floor=0.0001 use_associative_scan=true tie_word_embeddings=true",
     "", mamba_config, mamba, mamba_body},
    {"falcon_mamba", "FalconMambaForCausalLM", Coverage::played,
     "vocab_size=50280 hidden_size=768 state_size=16 num_hidden_layers=32 expand=2 conv_kernel=4 use_conv_bias=true "
     "hidden_act=silu residual_in_fp32=true time_step_rank=auto time_step_scale=1.0 time_step_min=0.001 time_step_max=0.1 "
     "time_step_init_scheme=random time_step_floor=0.0001 use_associative_scan=true tie_word_embeddings=true "
     "mixer_rms_eps=1e-06",
     "", mamba_config, falcon_mamba, falcon_mamba_body},
    {"mamba2", "Mamba2ForCausalLM", Coverage::played,
     "num_heads=128 head_dim=64 vocab_size=32768 hidden_size=4096 state_size=128 num_hidden_layers=64 expand=2 conv_kernel=4 "
     "n_groups=8 use_conv_bias=true hidden_act=silu residual_in_fp32=true time_step_rank=auto time_step_min=0.001 "
     "time_step_max=0.1 time_step_floor=0.0001 chunk_size=256",
     "", mamba2_config, mamba2, mamba2_body},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", Coverage::played,
     "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0 num_local_experts=8 "
     "num_experts_per_tok=2 shared_intermediate_size=1024 mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256 "
     "mamba_d_head=auto mamba_d_conv=4 mamba_expand=2 mamba_chunk_size=256 mamba_conv_bias=true",
     "layer_types=layers_block_type", granite_hybrid_config, granite_hybrid, granite_hybrid_body},
    {"bamba", "BambaForCausalLM", Coverage::played,
     "vocab_size=128000 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=8 "
     "hidden_act=silu mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256 mamba_d_conv=4 mamba_expand=2 mamba_chunk_size=256 "
     "mamba_conv_bias=true",
     "", bamba_config, bamba, bamba_body},
    {"jamba", "JambaForCausalLM", Coverage::played,
     "vocab_size=65536 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=8 hidden_act=silu num_experts_per_tok=2 num_experts=16 expert_layer_period=2 expert_layer_offset=1 "
     "attn_layer_period=8 attn_layer_offset=4 use_mamba_kernels=true mamba_d_state=16 mamba_d_conv=4 mamba_expand=2 "
     "mamba_dt_rank=auto mamba_conv_bias=true use_associative_scan=true",
     "num_experts=num_local_experts", jamba_config, jamba, jamba_body},
};

}  // namespace

std::span<const Family> state_space_families() { return kFamilies; }

}  // namespace llmem
