#include "model/modules.h"

#include "tensor/ops.h"

namespace llmem {

Tensor Linear::forward(const Tensor& input) const { return linear(input, weight, bias); }

}  // namespace llmem
