#include "model/activation.h"

#include "tensor/ops.h"

namespace llmem {

namespace {

// NewGELUActivation: 0.5 * input * (1.0 + tanh(sqrt(2 / pi) * (input + 0.044715 * pow(input, 3))))
Tensor gelu_new(const Tensor& input) {
  const Tensor half = mul_scalar(input);
  Tensor inner = power(input);
  inner = mul_scalar(inner);
  inner = add(input, inner);
  inner = mul_scalar(inner);
  inner = tanh_of(inner);
  inner = add_scalar(inner);
  return mul(half, inner);
}

// FastGELUActivation: 0.5 * input * (1.0 + torch.tanh(input * 0.7978845608 * (1.0 + 0.044715 * input * input)))
Tensor gelu_fast(const Tensor& input) {
  const Tensor half = mul_scalar(input);
  const auto argument = [&] {
    const Tensor scaled = mul_scalar(input);
    const auto one_plus = [&] {
      const auto squared = [&] {
        const Tensor small = mul_scalar(input);
        return mul(small, input);
      };
      const Tensor square_of = squared();
      return add_scalar(square_of);
    };
    const Tensor factor = one_plus();
    return mul(scaled, factor);
  };
  Tensor inner = argument();
  inner = tanh_of(inner);
  inner = add_scalar(inner);
  return mul(half, inner);
}

// QuickGELUActivation: input * torch.sigmoid(1.702 * input)
Tensor quick_gelu(const Tensor& input) {
  const auto opened = [&] {
    const Tensor scaled = mul_scalar(input);
    return sigmoid(scaled);
  };
  const Tensor open = opened();
  return mul(input, open);
}

// ReLUSquaredActivation: torch.square(relu(input))
Tensor relu_squared(const Tensor& input) {
  const Tensor applied = relu(input);
  return square(applied);
}

}  // namespace

Activation activation_named(std::string_view name) {
  static constexpr struct {
    std::string_view name;
    Activation value;
  } kNames[] = {{"silu", Activation::silu},          {"swish", Activation::silu},          {"gelu", Activation::gelu},
                {"relu", Activation::relu},          {"gelu_new", Activation::gelu_new},   {"gelu_pytorch_tanh", Activation::gelu_tanh},
                {"relu2", Activation::relu_squared}, {"gelu_fast", Activation::gelu_fast}, {"quick_gelu", Activation::quick_gelu},
                {"xielu", Activation::xielu}};
  for (const auto& each : kNames)
    if (each.name == name) return each.value;
  return Activation::other;
}

Tensor activate(Activation activation, const Tensor& input) {
  switch (activation) {
    case Activation::silu: return silu(input);
    case Activation::gelu:
    case Activation::gelu_tanh: return gelu(input);
    case Activation::gelu_new: return gelu_new(input);
    case Activation::gelu_fast: return gelu_fast(input);
    case Activation::quick_gelu: return quick_gelu(input);
    case Activation::relu: return relu(input);
    case Activation::relu_squared: return relu_squared(input);
    case Activation::xielu:  // Mlp has its parameters
    case Activation::other: break;
  }
  return {};
}

}  // namespace llmem
