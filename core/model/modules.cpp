#include "model/modules.h"

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
    default: return linear(input, weight, bias);
  }
}

}  // namespace llmem
