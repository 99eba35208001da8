#include "model/activation.h"

#include "tensor/ops.h"

namespace llmem {

namespace {

// NewGELUActivation: 0.5 * input * (1.0 + tanh(sqrt(2 / pi) * (input + 0.044715 * pow(input, 3))))
Tensor gelu_new(const Tensor& input) {
  const Tensor half = mul_scalar(input);
  Tensor inner = cube(input);
  inner = mul_scalar(inner);
  inner = add(input, inner);
  inner = mul_scalar(inner);
  inner = tanh_of(inner);
  inner = add_scalar(inner);
  return mul(half, inner);
}

// ReLUSquaredActivation: torch.square(relu(input))
Tensor relu_squared(const Tensor& input) {
  const Tensor applied = relu(input);
  return square(applied);
}

}  // namespace

Tensor activate(Activation activation, const Tensor& input) {
  switch (activation) {
    case Activation::silu: return silu(input);
    case Activation::gelu:
    case Activation::gelu_tanh: return gelu(input);
    case Activation::gelu_new: return gelu_new(input);
    case Activation::relu: return relu(input);
    case Activation::relu_squared: return relu_squared(input);
    case Activation::other: break;
  }
  return {};
}

}  // namespace llmem
