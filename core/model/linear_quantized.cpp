#include <memory>
#include <utility>

#include "model/linear.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// bitsandbytes' quantised layers: nn/modules.py (Linear4bit, Linear8bitLt), autograd/_functions.py (MatMul4Bit, MatMul8bitLt),
// backends/cuda/ops.py.
namespace llmem {

namespace {

constexpr std::int64_t most_rows_of_kernel = 1536, block = 64;

// backends/cuda/ops.py, _gemm_4bit_use_custom_cuda, for 8 rows or more: whether the fused kernel is expected to be faster than making
// the weight and multiplying. A weight below 4 Mi values:
bool fused_is_faster_small(const GpuKind& gpu, std::int64_t rows, std::int64_t out, std::int64_t in) {
  const std::int64_t blocks = divide_up(out, 64), sms = gpu.sms;
  const bool sm80 = gpu.compute_capability == 80, hbm = sm80 || gpu.compute_capability / 10 == 9;
  const bool quarter_wave = blocks * 4 <= sms;
  if (in * 2 < out) {
    if (hbm) {
      const bool low_wave = blocks * 3 < sms;
      return rows <= (sm80 ? (low_wave ? 1536 : 512) : (low_wave ? 512 : 320));
    }
    if (blocks >= sms) return rows <= 320;
    return rows <= (blocks * in > sms * 320 ? 192 : 320);
  }
  if (sm80 && quarter_wave) return rows <= (in >= out ? (blocks * 8 <= sms ? 32 : 128) : 384);
  if (quarter_wave) return rows <= (in < out || hbm ? 32 : 23);
  return blocks * 2 <= sms && rows <= 16;
}

std::int64_t most_rows_sm80(std::int64_t sms, std::int64_t blocks, std::int64_t out, std::int64_t in) {
  if (blocks >= sms * 3) return 128;
  if (blocks >= sms) return in < out ? 64 : 32;
  if (in >= out * 3 && blocks * 4 > sms) return 0;
  if (in == out && blocks >= 48 && blocks * 5 < sms * 3) return 0;
  if (blocks * 2 < sms) {
    if (in <= out) return 128;
    if (blocks * 3 >= sms) return 0;
  }
  return blocks >= sms / 2 && in < out ? 128 : 16;
}

std::int64_t most_rows_sm90(std::int64_t sms, std::int64_t blocks, std::int64_t out, std::int64_t in) {
  if (blocks >= sms * 3) return 64;
  if (blocks >= sms * 2) return 48;
  if (blocks >= sms) return 32;
  return blocks >= sms / 2 && !(in >= out && blocks * 4 < sms * 3) ? 16 : 0;
}

std::int64_t most_rows_sm120(std::int64_t sms, std::int64_t blocks, std::int64_t out, std::int64_t in) {
  if (blocks >= sms * 3) return 256;
  if (blocks >= sms * 2) return 128;
  if (blocks * 5 >= sms * 4) return in >= out ? 96 : 64;
  if (blocks >= sms / 2) return in * 2 >= out && blocks >= 128 ? 64 : 8;
  return in > out * 2 && blocks > 64 ? 16 : 8;
}

// sm_89, and those of which bitsandbytes knows nothing better
std::int64_t most_rows_others(std::int64_t sms, std::int64_t blocks, std::int64_t out, std::int64_t in) {
  const bool tall = in > out * 2;
  if (blocks >= sms * 3) return 256;
  if (blocks >= sms * 2) return 128;
  if (blocks * 5 >= sms * 4) {
    if (tall || blocks >= 200) return 128;
    return in >= out ? (sms >= 60 ? 128 : 32) : 64;
  }
  if (blocks >= sms / 2) return tall ? 64 : (blocks >= 64 ? 8 : 32);
  if (in > out && blocks <= 48) return in >= out * 3 ? 12 : 10;
  return tall || blocks < 48 ? 16 : 8;
}

std::int64_t most_rows_large(const GpuKind& gpu, std::int64_t out, std::int64_t in) {
  const std::int64_t blocks = divide_up(out, 64), sms = gpu.sms;
  switch (gpu.compute_capability) {
    case 80: return most_rows_sm80(sms, blocks, out, in);
    case 86: return blocks >= sms ? 128 : (blocks >= sms / 2 ? 64 : 16);
    case 120: return most_rows_sm120(sms, blocks, out, in);
    case 121: return blocks >= sms ? 256 : most_rows_others(sms, blocks, out, in);
    default: break;
  }
  return gpu.compute_capability / 10 == 9 ? most_rows_sm90(sms, blocks, out, in) : most_rows_others(sms, blocks, out, in);
}

bool fused_is_faster(const GpuKind& gpu, Dtype dtype, std::int64_t rows, std::int64_t out, std::int64_t in) {
  if (rows > most_rows_of_kernel || in % block != 0) return false;
  if (dtype == Dtype::float32) return rows < 8;
  const int major = gpu.compute_capability / 10;
  if (gpu.compute_capability == 87 || major == 11) return false;
  if (major == 10) {
    const std::int64_t blocks = divide_up(out, 64);
    if (blocks >= gpu.sms * 3) return rows <= 32;
    return blocks >= gpu.sms && in < out && rows <= 8;
  }
  if (out * in < 4 * 1024 * 1024) return fused_is_faster_small(gpu, rows, out, in);
  return rows <= 512 && rows <= most_rows_large(gpu, out, in);
}

// gemm_4bit: by its own kernel, or (_dequant_linear_fallback) over a weight made for the purpose
Tensor multiplied(const Tensor& x, const QuantizedWeight& w, const Tensor& bias) {
  Device& device = x.device();
  if (fused_is_faster(device.gpu(), x.dtype(), x.numel() / w.in, w.out, w.in)) {
    Dims sizes = x.sizes();
    sizes[sizes.size() - 1] = w.out;
    return device.empty(sizes, x.dtype());
  }
  Tensor scales, shifted;
  if (w.offset) {
    scales = device.empty(w.absmax.sizes(), Dtype::float32);
    shifted = device.empty(w.absmax.sizes(), Dtype::float32);
  }
  const Tensor made = device.empty({w.out, w.in}, x.dtype());
  return linear(x, made, bias);
}

// dequantize_4bit
Tensor dequantized_4bit(Device& device, const QuantizedWeight& w) {
  const OpScope op(device, "dequantize_4bit");
  const Tensor scales = w.offset ? device.empty(w.absmax.sizes(), Dtype::float32) : Tensor();
  return device.empty({w.out, w.in}, w.dtype);
}

// Before 0.43.2 forward made the weight as backward does: F.dequantize_4bit(B, quant_state).to(A.dtype)
Tensor older_weight(const Tensor& x, const QuantizedWeight& w) {
  const Tensor made = dequantized_4bit(x.device(), w);
  return to(made, x.dtype());
}

// [B, S, out] @ [out, in]
Tensor input_gradient(const Tensor& gradient, const Tensor& weight) {
  Dims sizes = gradient.sizes();
  sizes[sizes.size() - 1] = weight.size(1);
  Device& device = gradient.device();
  const Meter::Muted no_kernel(device.meter);
  const Tensor result = device.empty(sizes, gradient.dtype());
  device.use_cublas();
  const std::int64_t rows = gradient.numel() / gradient.size(-1), outer = (gradient.numel() + result.numel()) * gradient.itemsize();
  device.meter.product(2 * rows * weight.size(0) * weight.size(1), outer + weight.bytes_read(), outer, gradient.dtype());
  return result;
}

Tensor matmul_4bit(const Tensor& x, const QuantizedWeight& w, const Tensor& bias) {
  Recorder grad("MatMul4Bit", {&x});
  Tensor result;
  {
    const With no_grad(x.device().grad_enabled, false);
    result = w.keeps_inputs ? linear(x, older_weight(x, w), bias) : multiplied(x, w, bias);
  }
  grad.attach(result);
  if (w.keeps_inputs && grad.recording()) grad.keep(std::make_shared<const Tensor>(detach(x)));  // ctx.tensors = (A, B)
  grad.backward([&w](Tensors& gradients) {
    Tensor weight = dequantized_4bit(gradients[0].device(), w);
    weight = to(weight, gradients[0].dtype());
    Tensors out{input_gradient(gradients[0], weight)};
    gradients[0].reset();  // a Python function's arguments die at its return, before its results are cast
    return out;
  });
  return result;
}

// AutoGPTQ and GPTQModel, nn_modules/triton_utils/dequant.py, QuantLinearFunction: forward and backward each make the weight in float16
// and multiply; only the checkpoint's own tensors are saved.
Tensor gptq_weight(Device& device, const QuantizedWeight& w) {
  const OpScope op(device, "dequant248");
  return device.empty({w.out, w.in}, Dtype::float16);
}

Tensor matmul_gptq(const Tensor& x, const QuantizedWeight& w) {
  Recorder grad("QuantLinearFunction", {&x});
  Tensor result;
  {
    const With no_grad(x.device().grad_enabled, false);
    const Tensor weight = gptq_weight(x.device(), w);
    result = linear(x, weight, {});
  }
  grad.attach(result);
  grad.backward([&w](Tensors& gradients) {
    const Tensor weight = gptq_weight(gradients[0].device(), w);
    return Tensors{input_gradient(gradients[0], weight)};
  });
  return result;
}

// int8_vectorwise_quant: rows of int8 with a scale each; where outliers are looked for, |x| >= threshold
struct QuantizedRows {
  Tensor scales, values;
};
QuantizedRows quantized_rows(const Tensor& x, bool looks_for_outliers) {
  Device& device = x.device();
  const Tensor half = x.dtype() == Dtype::float16 ? x : unary_no_grad(x, "half", Dtype::float16);
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  QuantizedRows made;
  made.scales = device.empty({rows}, Dtype::float32);
  made.values = device.empty({rows, columns}, Dtype::int8);
  if (!looks_for_outliers) return made;
  Tensor outliers;
  {
    const Tensor magnitude = device.empty({rows, columns}, Dtype::float16);
    outliers = device.empty({rows, columns}, Dtype::boolean);
  }
  {
    const Tensor any = device.empty({}, Dtype::boolean);
    ReductionScratch scratch = row_sum_scratch(device.gpu(), 1, outliers.numel());
    scratch.partial_sums.count /= 4;  // of bytes, not floats
    reduction_scratch(device, scratch);
  }
  device.scratch(Bytes{1});  // out_row[:, outlier_cols] = 0, of no columns
  return made;
}

// int8_mixed_scaled_mm without outliers: int32, dequantised to fp16, cast to what the input was in
Tensor multiplied_in_8_bits(const Tensor& x, const QuantizedWeight& w) {
  Device& device = x.device();
  const QuantizedRows rows = quantized_rows(x, w.looks_for_outliers);
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = w.out;
  const Tensor product = device.empty(sizes, Dtype::int32);
  const Tensor half = device.empty(sizes, Dtype::float16);
  return to(half, x.dtype());
}

// The input is an attribute of ctx, which lives as long as the graph.
Tensor matmul_8bit(const Tensor& x, const QuantizedWeight& w) {
  Recorder grad("MatMul8bitLt", {&x});
  Tensor result;
  {
    const With no_grad(x.device().grad_enabled, false);
    result = multiplied_in_8_bits(x, w);
  }
  grad.attach(result);
  if (grad.recording()) grad.keep(std::make_shared<const Tensor>(detach(x)));
  grad.backward([&w, dtype = x.dtype()](Tensors& gradients) {
    Device& device = gradients[0].device();
    const Tensor weight = device.empty({w.out, w.in}, dtype);
    device.scratch(Bytes{4 * w.out});  // the rows' scales, divided by 127
    Tensor gradient = to(gradients[0], dtype);
    const Tensor product = input_gradient(gradient, weight);
    gradients[0].reset();
    return Tensors{view(product, product.sizes())};
  });
  return result;
}

// bias.data = bias.data.to(dtype): for good
void cast_for_good(const Tensor& tensor, Dtype dtype) {
  if (tensor && tensor.dtype() != dtype) set_data(tensor, unary_no_grad(tensor, "bias", dtype));
}

}  // namespace

Tensor quantized_linear(const Tensor& input, const QuantizedWeight& w, const Tensor& bias) {
  if (w.gptq) {
    const Tensor result = matmul_gptq(input, w);
    return bias ? add(result, bias) : result;
  }
  if (w.bits == 8) {
    cast_for_good(bias, input.dtype());
    return matmul_8bit(input, w);
  }
  const Tensor x = to(input, w.compute_dtype);
  cast_for_good(bias, x.dtype());
  const Tensor result = matmul_4bit(x, w, bias);
  return to(result, input.dtype());
}

Tensor dequantized(const QuantizedWeight& w) {
  Device& device = w.data.device();
  if (w.bits == 4) return dequantized_4bit(device, w);
  const Tensor product = device.empty({w.out, w.in}, Dtype::float32);  // int8_vectorwise_dequant: A * stats * (1 / 127)
  return device.empty({w.out, w.in}, Dtype::float32);
}

}  // namespace llmem
