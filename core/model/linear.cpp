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
  const auto base = [&] {
    if (parts->quantized) return quantized_linear(input, *parts->quantized, bias);
    switch (kind) {
      case conv1d: return conv1d_of_gpt2(input, weight, bias);
      case falcon: return falcon_linear(input, weight, bias);
      case plain: break;
    }
    return linear(input, weight, bias);
  };
  Tensor result = base();
  if (!parts->adapter || !parts->adapter->enabled) return result;
  return with_adapter(*this, input, std::move(result));
}

}  // namespace llmem
