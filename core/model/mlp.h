#pragma once

#include "model/architecture.h"
#include "model/linear.h"

namespace llmem {

// transformers LlamaMLP (gated), Phi3MLP (gate and up in one), Starcoder2MLP (no gate).
struct Mlp {
  const Architecture* architecture = nullptr;
  Linear gate, up, gate_up, down;
  bool liger = false;
  std::string_view name = {};  // under which it is called; empty: the layer's name for it

  Tensor forward(const Tensor& x) const;
};

}  // namespace llmem
