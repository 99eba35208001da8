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

void nothing(C&, A&) {}

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

// validate_architecture: the widened hidden states are those of all heads together, and heads are shared out among groups
void check_heads_of_state_space(C& c, A& a, std::string_view heads, std::string_view hidden, std::int64_t inner) {
  const StateSpace& s = a.state_space;
  if (inner != s.inner())
    c.file().problem(c.in_file(hidden), "conflict",
                     "widened it has " + std::to_string(inner) + " channels, and the state space's heads have " + std::to_string(s.heads) +
                         " * " + std::to_string(s.head_dim));
  else if (s.heads % s.groups != 0 || s.inner() % s.groups != 0)
    c.file().problem(c.in_file(heads), "conflict",
                     std::to_string(s.heads) + " heads cannot be shared out among " + std::to_string(s.groups) + " groups");
}

void mamba(C& c, const A& a, const Module& root) {
  const std::int64_t inner = widened(c, a, "expand"), states = c.count("state_size", 16), rank = time_step_rank(c, a, "time_step_rank");
  mamba_kind(a, root, [&](const Module& mixer) {
    mixer.parameter("A_log", {inner, states});
    mixer.parameter("D", {inner});
    causal_conv(mixer, "conv1d", inner, c.count("conv_kernel", 4), c.flag("use_conv_bias"));
    mixer.linear("in_proj", a.hidden_size, 2 * inner, c.flag("use_bias"));
    mixer.linear("x_proj", inner, rank + 2 * states);
    mixer.linear("dt_proj", rank, inner, true);
    mixer.linear("out_proj", inner, a.hidden_size, c.flag("use_bias"));
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
  s.bias = c.flag("use_bias");
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

void granite_hybrid(C& c, const A& a, const Module& root) {
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  const std::int64_t inner = widened(c, a, "mamba_expand"), heads = c.count("mamba_n_heads", 128);
  const std::int64_t channels = inner + 2 * c.count("mamba_n_groups", 1) * c.count("mamba_d_state", 256);
  const std::int64_t experts = c.integer_or("num_local_experts", 0), shared = c.count("shared_intermediate_size", 1024);
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    const bool attends =
        !types.empty() && (types[static_cast<std::size_t>(i)] == "attention" || types[static_cast<std::size_t>(i)] == "full_attention");
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
    if (experts > 0) {
      layer.child("block_sparse_moe.router").parameter("weight", {experts, a.hidden_size});
      layer.child("block_sparse_moe.experts").parameter("gate_up_proj", {experts, 2 * a.intermediate_size, a.hidden_size});
      layer.child("block_sparse_moe.experts").parameter("down_proj", {experts, a.hidden_size, a.intermediate_size});
    }
    layer.child("shared_mlp").linear("input_linear", a.hidden_size, 2 * shared);
    layer.child("shared_mlp").linear("output_linear", shared, a.hidden_size);
    if (attends) {
      separate_attention(layer.child("self_attn"), a, c.flag("attention_bias"));
      continue;
    }
    const Module mixer = layer.child("mamba");
    for (const char* name : {"dt_bias", "A_log", "D"}) mixer.parameter(name, {heads});
    causal_conv(mixer, "conv1d", channels, c.count("mamba_d_conv", 4), c.flag("mamba_conv_bias"));
    mixer.linear("in_proj", a.hidden_size, inner + channels + heads, c.flag("mamba_proj_bias"));
    mixer.norm("norm", inner);
    mixer.linear("out_proj", inner, a.hidden_size, c.flag("mamba_proj_bias"));
  }
  model.norm("norm", a.hidden_size);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

void jamba(C& c, const A& a, const Module& root) {
  const std::int64_t inner = widened(c, a, "mamba_expand"), states = c.count("mamba_d_state", 16),
                     rank = time_step_rank(c, a, "mamba_dt_rank");
  const std::int64_t attention_period = c.count("attn_layer_period", 8), attention_offset = c.integer_or("attn_layer_offset", 4);
  const std::int64_t expert_period = c.count("expert_layer_period", 2), expert_offset = c.integer_or("expert_layer_offset", 1);
  const std::int64_t experts = c.count("num_experts", 16);
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), feed_forward = layer.child("feed_forward");
    if (i % attention_period == attention_offset) {
      separate_attention(layer.child("self_attn"), a, false);
    } else {
      const Module mixer = layer.child("mamba");
      mixer.parameter("A_log", {inner, states});
      mixer.parameter("D", {inner});
      causal_conv(mixer, "conv1d", inner, c.count("mamba_d_conv", 4), c.flag("mamba_conv_bias"));
      mixer.linear("in_proj", a.hidden_size, 2 * inner, c.flag("mamba_proj_bias"));
      mixer.linear("x_proj", inner, rank + 2 * states);
      mixer.linear("dt_proj", rank, inner, true);
      mixer.linear("out_proj", inner, a.hidden_size, c.flag("mamba_proj_bias"));
      mixer.norm("dt_layernorm", rank);
      mixer.norm("b_layernorm", states);
      mixer.norm("c_layernorm", states);
    }
    if (experts > 1 && i % expert_period == expert_offset) {
      feed_forward.linear("router", a.hidden_size, experts);
      feed_forward.child("experts").parameter("gate_up_proj", {experts, 2 * a.intermediate_size, a.hidden_size});
      feed_forward.child("experts").parameter("down_proj", {experts, a.hidden_size, a.intermediate_size});
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
    {"mamba", "MambaForCausalLM", Coverage::parameters,
     "vocab_size=50280 hidden_size=768 state_size=16 num_hidden_layers=32 expand=2 conv_kernel=4 use_conv_bias=true "
     "hidden_act=silu residual_in_fp32=true time_step_rank=auto time_step_scale=1.0 time_step_min=0.001 time_step_max=0.1 "
     "time_step_init_scheme=random time_step_floor=0.0001 use_associative_scan=true tie_word_embeddings=true",
     "", nothing, mamba},
    {"falcon_mamba", "FalconMambaForCausalLM", Coverage::parameters,
     "vocab_size=50280 hidden_size=768 state_size=16 num_hidden_layers=32 expand=2 conv_kernel=4 use_conv_bias=true "
     "hidden_act=silu residual_in_fp32=true time_step_rank=auto time_step_scale=1.0 time_step_min=0.001 time_step_max=0.1 "
     "time_step_init_scheme=random time_step_floor=0.0001 use_associative_scan=true tie_word_embeddings=true "
     "mixer_rms_eps=1e-06",
     "", nothing, mamba},
    {"mamba2", "Mamba2ForCausalLM", Coverage::played,
     "num_heads=128 head_dim=64 vocab_size=32768 hidden_size=4096 state_size=128 num_hidden_layers=64 expand=2 conv_kernel=4 "
     "n_groups=8 use_conv_bias=true hidden_act=silu residual_in_fp32=true time_step_rank=auto time_step_min=0.001 "
     "time_step_max=0.1 time_step_floor=0.0001 chunk_size=256",
     "", mamba2_config, mamba2, mamba2_body},
    {"granitemoehybrid", "GraniteMoeHybridForCausalLM", Coverage::parameters,
     "vocab_size=32000 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "embedding_multiplier=1.0 logits_scaling=1.0 residual_multiplier=1.0 attention_multiplier=1.0 num_local_experts=8 "
     "num_experts_per_tok=2 shared_intermediate_size=1024 mamba_n_heads=128 mamba_n_groups=1 mamba_d_state=256 "
     "mamba_d_head=auto mamba_d_conv=4 mamba_expand=2 mamba_chunk_size=256 mamba_conv_bias=true",
     "layers_block_type=layer_types", nothing, granite_hybrid},
    {"jamba", "JambaForCausalLM", Coverage::parameters,
     "vocab_size=65536 hidden_size=4096 intermediate_size=14336 num_hidden_layers=32 num_attention_heads=32 "
     "num_key_value_heads=8 hidden_act=silu num_experts_per_tok=2 num_experts=16 expert_layer_period=2 expert_layer_offset=1 "
     "attn_layer_period=8 attn_layer_offset=4 use_mamba_kernels=true mamba_d_state=16 mamba_d_conv=4 mamba_expand=2 "
     "mamba_dt_rank=auto mamba_conv_bias=true use_associative_scan=true",
     "num_experts=num_local_experts", nothing, jamba},
};

}  // namespace

std::span<const Family> state_space_families() { return kFamilies; }

}  // namespace llmem
