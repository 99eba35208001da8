#pragma once

#include "model/modules.h"

namespace llmem {

// transformers LlamaMLP: gated, SiLU.
struct Mlp {
  Linear gate_proj, up_proj, down_proj;

  Tensor forward(const Tensor& x) const;
};

}  // namespace llmem
