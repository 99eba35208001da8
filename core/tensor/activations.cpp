#include "tensor/autograd.h"
#include "tensor/device.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// One kernel forward, one backward over the gradient and the input (aten/src/ATen/native/cuda/Activation*.cu).
Tensor activation_of_input(const char* op, const Tensor& self) {
  Recorder grad(op, {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = empty_like(self, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    return Tensors{elementwise(gradients[0], saved)};
  });
  return result;
}

// The same over the gradient and the result.
Tensor activation_of_result(const char* op, const Tensor& self) {
  Recorder grad(op, {&self});
  const Tensor result = empty_like(self, self.dtype());
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors& gradients) {
    const Tensor saved = result_.unpack();
    return Tensors{elementwise(gradients[0], saved)};
  });
  return result;
}

// A number written over some elements, of which no gradient comes.
Tensor overwritten(const char* op, const Tensor& self, const Tensor& places) {
  Recorder grad(op, {&self});
  Saved places_ = grad.save_if(grad.recording(), places);
  const Tensor result = empty_like(self, self.dtype());
  grad.attach(result);
  grad.backward([places_ = std::move(places_)](Tensors& gradients) {
    const Tensor saved = places_.unpack();
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

}  // namespace

Tensor gelu(const Tensor& self) { return activation_of_input("gelu", self); }
Tensor relu(const Tensor& self) { return activation_of_result("relu", self); }
Tensor tanh_of(const Tensor& self) { return activation_of_result("tanh", self); }

// torch/csrc/autograd/FunctionsManual.cpp, pow_backward: grad * (exponent * self.pow(exponent - 1)). Autocast runs pow in fp32.
Tensor power(const Tensor& input) {
  const Tensor self = autocast_float(input);
  Recorder grad("pow", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = empty_like(self, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    const Tensor power = empty_like(saved, saved.dtype());
    const Tensor scaled = empty_like(power, power.dtype());
    return Tensors{elementwise(gradients[0], scaled)};
  });
  return result;
}

// other: -grad; self: grad
Tensor sub(const Tensor& self, const Tensor& other) {
  Recorder grad("sub", {&self, &other});
  const bool for_other = grad.needs(1);
  const Tensor result = elementwise(self, other);
  grad.attach(result);
  grad.backward([for_other](Tensors& gradients) {
    Tensors out(2);
    if (for_other) out[1] = empty_like(gradients[0], gradients[0].dtype());
    out[0] = gradients[0];
    return out;
  });
  return result;
}

// grad.masked_fill(mask, 0)
Tensor masked_fill(const Tensor& self, const Tensor& mask) { return overwritten("masked_fill", self, mask); }

// grad.scatter(dim, index, 0)
Tensor scatter_number(const Tensor& self, const Tensor& index) { return overwritten("scatter", self, index); }

// where(self >= min & self <= max, grad, 0)
Tensor clamp(const Tensor& self) {
  Recorder grad("clamp", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = empty_like(self, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

// One row is scanned by cub, as find_packed_sequence_indices'.
Tensor cumulative_sum(const Tensor& self) {
  const Tensor result = unary_no_grad(self, "cumsum", self.dtype());
  if (self.size(0) == 1) self.device().scratch(scan_scratch(self.size(1)));
  return result;
}

// The layout is what TensorIterator makes of both. Backward: where(mask, grad, 0)
Tensor where(const Tensor& mask, const Tensor& self, const Tensor& otherwise) {
  Recorder grad("where", {&self});
  (void)otherwise;
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Dims sizes = broadcast(mask.sizes(), self.sizes());
  const Dims strides = elementwise_strides(sizes, {expanded_strides(mask.layout(), sizes), expanded_strides(self.layout(), sizes)});
  const Tensor result = self.device().empty_strided({sizes, strides}, self.dtype());
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    const Tensor zero = saved.device().empty({}, gradients[0].dtype());
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

Tensor masked_by_number(const Tensor& mask, const Tensor& self) {
  const Tensor number = self.device().empty({}, self.dtype());
  return where(mask, self, number);
}

// aten/src/ATen/native/cuda/Dropout.cu, dropout_cuda: the mask, then the result; backward masks and scales the gradient.
Tensor dropout(const Tensor& self, double probability) {
  if (probability <= 0 || !self.device().training) return self;
  Recorder grad("dropout", {&self});
  const Tensor mask = empty_like(self, Dtype::boolean);
  const Tensor result = empty_like(self, self.dtype());
  Saved mask_ = grad.save_if(grad.recording(), mask);
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

// aten/src/ATen/native/cuda/layer_norm_kernel.cu, layer_norm_cuda and layer_norm_backward_cuda: result, mean and rstd of every row;
// then the input's, the weight's and the bias's gradients. Autocast runs it in fp32.
Tensor layer_norm(const Tensor& input, const Tensor& weight_or_none, const Tensor& bias_or_none) {
  const Tensor bias = autocast_float(bias_or_none);
  const Tensor weight = autocast_float(weight_or_none);
  const Tensor self = autocast_float(input);
  Recorder grad("layer_norm", {&self, &weight, &bias});
  Device& device = self.device();
  Saved bias_ = grad.save_if(grad.recording() && bias, bias);
  Saved self_ = grad.save_if(grad.recording(), self);
  Saved weight_ = grad.save_if(grad.recording() && weight, weight);
  const Tensor contiguous_input = self.contiguous() ? self : device.empty(self.sizes(), self.dtype());
  const Tensor result = device.empty(self.sizes(), self.dtype());
  Dims rows = self.sizes();
  rows[rows.size() - 1] = 1;
  const Tensor mean = device.empty(rows, Dtype::float32), rstd = device.empty(rows, Dtype::float32);
  Saved mean_ = grad.save_if(grad.recording(), mean), rstd_ = grad.save_if(grad.recording(), rstd);
  grad.attach(result);
  grad.backward([self_ = std::move(self_), weight_ = std::move(weight_), bias_ = std::move(bias_), mean_ = std::move(mean_),
                 rstd_ = std::move(rstd_), need_self = grad.needs(0), need_weight = grad.needs(1),
                 need_bias = grad.needs(2)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    const Tensor saved_weight = weight_ ? weight_.unpack() : Tensor(), saved_bias = bias_ ? bias_.unpack() : Tensor();
    const Tensor saved_mean = mean_.unpack(), saved_rstd = rstd_.unpack();
    Device& on = saved.device();
    const Tensor gradient = gradients[0].contiguous() ? gradients[0] : on.empty(gradients[0].sizes(), gradients[0].dtype());
    const Tensor kept = saved.contiguous() ? saved : on.empty(saved.sizes(), saved.dtype());
    Tensors out(3);
    if (need_self) out[0] = on.empty(saved.sizes(), saved.dtype());
    if (need_weight) out[1] = on.empty(saved_weight.sizes(), saved_weight.dtype());
    if (need_bias) out[2] = on.empty(saved_bias.sizes(), saved_bias.dtype());
    return out;
  });
  return result;
}

}  // namespace llmem
