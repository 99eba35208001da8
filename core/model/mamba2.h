#pragma once

#include "model/architecture.h"
#include "model/config_class.h"
#include "model/declaration.h"
#include "model/made.h"
#include "tensor/tensor.h"

namespace llmem {

// Mamba2Mixer and those made of it, without the packages mamba-ssm and causal-conv1d: the whole sequence in chunks.
struct Mamba2Mixer {
  const Architecture* architecture = nullptr;
  std::string name;
  DenseModule in_proj, out_proj;
  Tensor conv_weight, conv_bias, dt_bias, A_log, D;
  Tensor norm;             // the weight of the gated RMSNorm; none: there is none
  Tensor mup_vector = {};  // falcon_h1: what in_proj's result is multiplied by
  Activation activation = Activation::silu;

  Tensor forward(const Tensor& hidden_states) const;
};

// causal_conv1d_fn without its package, with the activation: hidden_states [B, C, S], weight [C, 1, k], bias [C] or none
Tensor activated_causal_conv(const Tensor& hidden_states, const Tensor& weight, const Tensor& bias, Activation activation);

Mamba2Mixer made_mamba2_mixer(const Architecture& a, const MadeModule& module, std::string_view name);
// mamba_* fields, as granitemoehybrid, bamba and falcon_h1 call them; `inner`: channels of all heads together.
void read_mamba_fields(ConfigReader& config, Architecture& out, std::int64_t inner);
void check_heads_of_state_space(ConfigReader& config, const Architecture& a, std::string_view heads, std::string_view hidden,
                                std::int64_t inner);
void declare_mamba2_mixer(const StateSpace& s, const Module& mixer, std::int64_t hidden_size, bool normed = true);

}  // namespace llmem
