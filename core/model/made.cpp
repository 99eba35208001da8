#include "model/made.h"

#include "tensor/device.h"

namespace llmem {

Tensor DenseModule::operator()(const Tensor& input) const {
  const ModuleScope scope(input.device(), name);
  return linear.forward(input);
}

Tensor NormModule::operator()(const Tensor& input) const {
  const ModuleScope scope(input.device(), name, Category::norms);
  return norm.forward(input);
}

}  // namespace llmem
