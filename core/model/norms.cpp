#include "model/norms.h"

#include "tensor/device.h"
#include "tensor/megatron.h"
#include "tensor/module_hooks.h"
#include "tensor/ops.h"

namespace llmem {

Tensor RmsNorm::forward(Tensor hidden_states) const {
  const With wrapped(hidden_states.device().wrapped_tensors, on_dtensors);
  const Dtype input_dtype = hidden_states.dtype();
  hidden_states = to(hidden_states, Dtype::float32);
  const Tensor variance = mean_last(square(hidden_states));
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden_states = mul(hidden_states, scale);
  }
  return mul(weight, to(hidden_states, input_dtype));
}

namespace {

// Olmo2RMSNorm: the weight before the cast back
Tensor rms_float(Tensor hidden_states, const Tensor& weight) {
  const Dtype input_dtype = hidden_states.dtype();
  hidden_states = to(hidden_states, Dtype::float32);
  const Tensor variance = mean_last(square(hidden_states));
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden_states = mul(hidden_states, scale);
  }
  return to(mul(weight, hidden_states), input_dtype);
}

// HeliumRMSNorm, NemotronHRMSNorm: the weight in fp32, too
Tensor rms_all_float(Tensor hidden_states, const Tensor& weight) {
  const Dtype input_dtype = hidden_states.dtype();
  hidden_states = to(hidden_states, Dtype::float32);
  const auto mean_square = [&] { return mean_last(square(hidden_states)); };
  const Tensor variance = mean_square();
  const auto scaled = [&] { return mul(hidden_states, rsqrt(add_scalar(variance))); };
  hidden_states = scaled();
  const auto product = [&] { return mul(to(weight, Dtype::float32), hidden_states); };
  const Tensor weighted = product();
  return to(weighted, input_dtype);
}

// Llama4TextL2Norm
Tensor l2(const Tensor& x) {
  const auto normed = [](const Tensor& as_float) {
    const auto mean_square = [&] { return mean_last(square(as_float)); };
    const auto shifted = [&] { return add_scalar(mean_square()); };
    return mul(as_float, rsqrt(shifted()));
  };
  const Tensor made = normed(to(x, Dtype::float32));
  return to(made, x.dtype());
}

// Gemma4RMSNorm
Tensor rms_by_power(const Tensor& x, const Tensor& weight) {
  const auto normed = [](const Tensor& as_float) {
    const auto mean_square = [&] { return mean_last(square(as_float)); };
    const Tensor mean_squared = add_scalar(mean_square());
    return mul(as_float, power(mean_squared));
  };
  Tensor output = normed(to(x, Dtype::float32));
  if (weight) {
    const auto weighted = [&] { return mul(output, to(weight, Dtype::float32)); };
    output = weighted();
  }
  return to(output, x.dtype());
}

// Gemma2RMSNorm
Tensor rms_one_plus(const Tensor& x, const Tensor& weight) {
  Tensor output;
  {
    const Tensor as_float = to(x, Dtype::float32);
    Tensor variance = square(as_float);
    variance = mean_last(variance);
    variance = add_scalar(variance);
    variance = rsqrt(variance);
    output = mul(as_float, variance);
  }
  {
    const Tensor one_plus = add_scalar(to(weight, Dtype::float32));
    output = mul(output, one_plus);
  }
  return to(output, x.dtype());
}

// CohereLayerNorm
Tensor layer_cohere(Tensor hidden_states, const Tensor& weight) {
  const Dtype input_dtype = hidden_states.dtype();
  hidden_states = to(hidden_states, Dtype::float32);
  const Tensor mean = mean_last(hidden_states);
  Tensor variance = sub(hidden_states, mean);
  variance = square(variance);
  variance = mean_last(variance);
  {
    const Tensor centred = sub(hidden_states, mean);
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden_states = mul(centred, scale);
  }
  {
    const Tensor as_float = to(weight, Dtype::float32);
    hidden_states = mul(as_float, hidden_states);
  }
  return to(hidden_states, input_dtype);
}

// NemotronLayerNorm1P: F.layer_norm(input, shape, weight + 1, bias), under autocast in its dtype (_cast_if_autocast_enabled)
Tensor layer_one_plus(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor one_plus = add_scalar(weight);
  Device& device = input.device();
  if (!device.autocast) return layer_norm(input, one_plus, bias);
  const Dtype dtype = *device.autocast;
  const Tensor cast_input = to(input, dtype), cast_weight = to(one_plus, dtype), cast_bias = to(bias, dtype);
  const With outside(device.autocast, std::optional<Dtype>());
  return layer_norm(cast_input, cast_weight, cast_bias);
}

}  // namespace

namespace {

Tensor normed(const Norm& norm, const Tensor& hidden_states) {
  if (norm.liger && norm.kind == NormKind::rms) return liger_rms_norm(hidden_states, norm.weight);
  switch (norm.kind) {
    case NormKind::rms: return RmsNorm{norm.weight, norm.on_dtensors}.forward(hidden_states);
    case NormKind::rms_fused: return fused_norm(hidden_states, norm.weight, {});
    case NormKind::rms_float: return rms_float(hidden_states, norm.weight);
    case NormKind::rms_one_plus: return rms_one_plus(hidden_states, norm.weight);
    case NormKind::rms_all_float: return rms_all_float(hidden_states, norm.weight);
    case NormKind::l2: return l2(hidden_states);
    case NormKind::rms_after: {
      const Tensor output = l2(hidden_states);
      return mul(output, norm.weight);
    }
    case NormKind::rms_by_power: return rms_by_power(hidden_states, norm.weight);
    case NormKind::layer: return layer_norm(hidden_states, norm.weight, norm.bias);
    case NormKind::layer_bare: {  // OlmoLayerNorm
      const Dtype input_dtype = hidden_states.dtype();
      return to(layer_norm(to(hidden_states, Dtype::float32), {}, {}), input_dtype);
    }
    case NormKind::layer_cohere: return layer_cohere(hidden_states, norm.weight);
    case NormKind::layer_one_plus: return layer_one_plus(hidden_states, norm.weight, norm.bias);
  }
  return {};
}

}  // namespace

Tensor Norm::forward(const Tensor& input) const {
  return call_module(input.device(), input, itself, {&weight, &bias},
                     [this](const Tensor& hidden_states) { return normed(*this, hidden_states); });
}

}  // namespace llmem
