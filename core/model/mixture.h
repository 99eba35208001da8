#pragma once

#include <memory>
#include <optional>
#include <string>

#include "model/mlp.h"
#include "spec/spec.h"

namespace llmem {

// PEFT's ParamWrapper: adapters on tensors that belong to no Linear. A is [rank * experts, in], B [out, rank * experts].
struct ExpertAdapters {
  std::optional<LoraAdapter> router, gate_up, down;
};

// Whether PEFT, asked for all-linear, adapts the router and the experts, which were Linears before Transformers 5
// (peft/utils/transformers_weight_conversion.py, 0.21: _MODEL_TO_CONVERSION_PATTERN, _MOE_TARGET_MODULE_MAPPING).
bool peft_adapts_experts(const Architecture& a);
// Whether a module of that name is then none of its targets, since the name stands for a part of the experts.
bool names_a_part_of_experts(const Architecture& a, std::string_view module);
// The parameters of a mixture that get adapters.
struct ExpertTargets {
  bool router = false, gate_up = false, down = false;
  bool any() const { return router || gate_up || down; }
};
ExpertTargets expert_targets(const Architecture& a, const AdapterOptions& options);
// Only one of the two projections that are one matrix is named: PEFT raises.
bool names_half_of_experts(const Architecture& a, const AdapterOptions& options);

// A sparse mixture of experts in place of an MLP, with the experts of transformers' integrations/moe.py, grouped_mm_experts_forward: every
// chosen pair of token and expert is gathered, sorted by expert. How tokens are shared out among experts does not show in memory.
struct Mixture {
  const Architecture* architecture = nullptr;
  Tensor router, router_bias, correction;
  Linear router_linear;                           // where the router is one, which adapters may be put on (hunyuan)
  Tensor gate_up, gate_up_bias, down, down_bias;  // [E, …]
  Mlp shared;
  Linear shared_gate;
  Linear into_latent, out_of_latent;                                              // nemotron_h: around the experts
  std::shared_ptr<ExpertAdapters> adapters = std::make_shared<ExpertAdapters>();  // copies share them

  bool present() const { return static_cast<bool>(gate_up); }
  // `scores`: gets what GptOssMLP returns beside its states, if asked for.
  Tensor forward(const Tensor& hidden_states, Tensor* scores = nullptr) const;
  // What the block returns beside its hidden states, where a caller's name holds it.
  struct Chosen {
    Tensor logits, weights, indices;
  };

  Tensor run_experts(const Tensor& rows, const Tensor& weights, const Tensor& indices) const;

 private:
  Chosen choose(const Tensor& rows, const Tensor& weight) const;
  Tensor adapted_router() const;
};

// PhimoeTopKRouter (sparse_mixer.cpp)
Mixture::Chosen choose_by_sparse_mixer(const Tensor& rows, const Linear& router);

// By the name of its module.
struct NamedMixture {
  std::string name;
  const Mixture* mixture = nullptr;
};

}  // namespace llmem
