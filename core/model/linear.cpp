#include "model/linear.h"

#include <utility>

#include "tensor/collectives.h"
#include "tensor/ops.h"

namespace llmem {

Tensor Linear::gathered(const Tensor& input) const {
  return split == LinearSplit::columns_of_gathered ? gather_sequence(input, ranks) : input;
}

Tensor Linear::forward(const Tensor& input) const {
  switch (split) {
    case LinearSplit::columns: return linear(all_reduce_gradient(input), weight, bias);
    case LinearSplit::rows: return all_reduce(linear(input, weight, bias));
    case LinearSplit::rows_to_sequence: return reduce_scatter_sequence(linear(input, weight, bias), ranks);
    default: break;
  }
  Tensor result = parts->quantized ? quantized_linear(input, *parts->quantized, bias) : linear(input, weight, bias);
  if (!parts->adapter || !parts->adapter->enabled) return result;
  return with_adapter(*this, input, std::move(result));
}

}  // namespace llmem
