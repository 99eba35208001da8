#pragma once

#include "model/architecture.h"
#include "tensor/tensor.h"

namespace llmem {

// transformers activations.ACT2FN
Tensor activate(Activation activation, const Tensor& input);

}  // namespace llmem
