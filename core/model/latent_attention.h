#pragma once

#include "model/attention.h"

namespace llmem {

// Multi-head latent attention: DeepseekV2Attention, DeepseekV3Attention. Keys and values are made from a narrow common state.
struct LatentAttentionBlock {
  const Architecture* architecture = nullptr;
  Linear q_proj, q_a_proj, q_b_proj, kv_a_proj, kv_b_proj, o_proj;
  Norm q_a_norm, kv_a_norm;

  bool present() const { return static_cast<bool>(kv_b_proj.weight); }
  AttentionResult forward(const Tensor& hidden_states, const LayerContext& context) const;
};

}  // namespace llmem
