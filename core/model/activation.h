#pragma once

#include <string_view>

#include "model/architecture.h"
#include "tensor/tensor.h"

namespace llmem {

// transformers activations.ACT2FN; `other` where the name is of none that is known
Activation activation_named(std::string_view name);
Tensor activate(Activation activation, const Tensor& input);

}  // namespace llmem
