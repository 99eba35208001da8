#include <utility>

#include "model/linear.h"
#include "tensor/autograd.h"
#include "tensor/module_hooks.h"
#include "tensor/ops.h"

// PEFT's LoRA layers: peft/tuners/lora/layer.py (Linear), bnb.py (Linear4bit, Linear8bitLt), dora.py.
namespace llmem {

namespace {

// lora_B(lora_A(x))
Tensor low_rank(const LoraAdapter& adapter, const Tensor& x) {
  const Tensor inner = linear(x, adapter.a, {});
  return linear(inner, adapter.b, {});
}

// lora_B(lora_A(dropout(x))) * scaling
Tensor scaled_delta(const LoraAdapter& adapter, const Tensor& x) {
  Device& device = x.device();
  const auto inner = [&] {
    const Tensor dropped = call_module(device, x, lora_dropout, {}, [&](const Tensor& input) { return dropout(input, adapter.dropout); });
    return call_module(device, dropped, lora_a, {&adapter.a}, [&](const Tensor& input) { return linear(input, adapter.a, {}); });
  };
  const auto outer = [&] {
    const Tensor down = inner();
    return call_module(device, down, lora_b, {&adapter.b}, [&](const Tensor& input) { return linear(input, adapter.b, {}); });
  };
  const Tensor delta = outer();
  return mul_scalar(delta);
}

// DoraLinearLayer.get_lora_weight: B @ A, by way of the layers' forward
Tensor lora_weight(const LoraAdapter& adapter) {
  const std::int64_t in = adapter.a.size(1);
  const Tensor eye = adapter.a.device().empty({in, in}, adapter.a.dtype());
  return t(low_rank(adapter, eye));
}

// get_weight_norm: of each row of the weight with its delta, outside the graph. `columns`: the rows lie in memory as columns.
Tensor weight_norm(const Tensor& weight, const Tensor& delta, bool columns) {
  const Tensor sum = add(weight, mul_scalar(delta));
  // Autocast has norms in fp32.
  const Dims rows{sum.size(0)};
  const Tensor norm = sum.device().empty(rows, sum.device().autocast ? Dtype::float32 : sum.dtype());
  if (columns) reduction_scratch(sum.device(), column_sum_scratch(sum.device().gpu(), sum.size(1), sum.size(0)));
  return to(norm, sum.dtype());
}

// DoraLinearLayer.forward: what to add to the layer's result. `base`: that result; none with dropout, when the layer is run again on
// what was left of x.
Tensor dora_delta(const Linear& layer, const Tensor& x, Tensor base) {
  const LoraAdapter& adapter = *layer.parts->adapter;
  Tensor delta = lora_weight(adapter);
  delta = to(delta, x.dtype());
  Tensor weight = layer.parts->quantized ? dequantized(*layer.parts->quantized) : layer.weight;
  weight = to(weight, x.dtype());
  const bool columns = layer.kind == Linear::conv1d;
  if (columns) weight = t(weight);
  const Tensor norm = weight_norm(weight, detach(delta), columns);
  const Tensor magnitude_scale = view(div(adapter.magnitude, norm), {1, norm.size(0)});
  const Tensor low = low_rank(adapter, x);
  if (!base) {
    base = linear(x, weight, {});
  } else if (layer.bias) {
    base = sub(base, layer.bias);
  }
  const auto scaled_base = [&] {
    const Tensor shifted = add_scalar(magnitude_scale);
    return mul(shifted, base);
  };
  const auto scaled_low = [&] {
    const Tensor product = mul(magnitude_scale, low);
    return mul_scalar(product);
  };
  const Tensor first = scaled_base();
  return add(first, scaled_low());
}

Tensor with_dora(const Linear& layer, const Tensor& x, const Tensor& result) {
  const bool drops = layer.parts->adapter->dropout > 0.0;
  const Tensor left = dropout(x, layer.parts->adapter->dropout);
  const Tensor delta = dora_delta(layer, left, drops ? Tensor() : result);
  return add(result, delta);
}

// peft/tuners/lora/gptq.py
Tensor with_gptq_adapter(const LoraAdapter& adapter, const Tensor& input, const Tensor& result) {
  const bool converts = !input.device().autocast;
  const Tensor x = converts ? to(input, adapter.a.dtype()) : input;
  Tensor delta = low_rank(adapter, dropout(x, adapter.dropout));
  if (converts) delta = to(delta, result.dtype());
  delta = mul_scalar(delta);
  return add_in_place(result, delta);
}

}  // namespace

Tensor with_adapter(const Linear& layer, const Tensor& input, Tensor result) {
  const LoraAdapter& adapter = *layer.parts->adapter;
  const bool quantized = layer.parts->quantized.has_value();
  if (quantized && layer.parts->quantized->gptq) return with_gptq_adapter(adapter, input, result);
  if (quantized && layer.parts->quantized->bits == 4) result = clone(result);
  // A quantised layer leaves casts to autocast where that is on.
  const bool converts = !quantized || !input.device().autocast;
  const Dtype expected = result.dtype();
  // x = self._cast_input_dtype(x, lora_A.weight.dtype)
  Device& device = input.device();
  if (device.module_hooks && !device.stopped) device.module_hooks->look(std::uint64_t{device.module()} * parts + itself, adapter.a);
  const Tensor x = converts ? to(input, adapter.seen_as.value_or(adapter.a.dtype())) : input;
  if (adapter.magnitude) {
    result = with_dora(layer, x, result);
  } else {
    const auto sum = [&] {
      Tensor delta = scaled_delta(adapter, x);
      if (quantized && converts) delta = to(delta, expected);
      return add(result, delta);
    };
    result = sum();
  }
  if (converts) result = to(result, expected);
  return result;
}

}  // namespace llmem
