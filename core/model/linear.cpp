#include "model/linear.h"

#include <utility>

#include "tensor/collectives.h"
#include "tensor/module_hooks.h"
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
  Device& device = input.device();
  const auto base = [this](const Tensor& x) {
    if (parts->quantized) return quantized_linear(x, *parts->quantized, bias);
    switch (kind) {
      case conv1d: return conv1d_of_gpt2(x, weight, bias);
      case falcon: return falcon_linear(x, weight, bias);
      case plain: break;
    }
    return linear(x, weight, bias);
  };
  if (!parts->adapter) return call_module(device, input, itself, {&weight, &bias}, base);
  return call_module(device, input, itself, {}, [&](const Tensor& x) {
    Tensor result = call_module(device, x, base_layer, {&weight, &bias}, base);
    return parts->adapter->enabled ? with_adapter(*this, x, std::move(result)) : result;
  });
}

}  // namespace llmem
