#pragma once

#include "model/architecture.h"
#include "model/linear.h"
#include "model/norms.h"

namespace llmem {

// transformers LlamaMLP (gated), Phi3MLP (gate and up in one), Starcoder2MLP (no gate).
struct Mlp {
  // XIELUActivation's parameters and constants (apertus).
  struct Xielu {
    Tensor alpha_p, alpha_n, beta, eps;
  };

  const Architecture* architecture = nullptr;
  Linear gate, up, gate_up, down;
  bool liger = false;
  std::string_view name = {};  // under which it is called; empty: the layer's name for it
  Xielu xielu = {};
  Norm norm = {};  // of what enters down (bitnet)

  Tensor forward(const Tensor& x) const;
};

}  // namespace llmem
