#pragma once

#include "model/architecture.h"
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
  Tensor norm;  // the weight of the gated RMSNorm; none: there is none

  Tensor forward(const Tensor& hidden_states) const;
};

Mamba2Mixer made_mamba2_mixer(const Architecture& a, const MadeModule& module, std::string_view name);
void declare_mamba2_mixer(const StateSpace& s, const Module& mixer, std::int64_t hidden_size, bool normed = true);

}  // namespace llmem
