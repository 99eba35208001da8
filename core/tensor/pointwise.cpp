#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// c10/core/ScalarType.cpp, promoteTypes, for the pairs that occur here: the wider float wins; bfloat16 with float16 is float32.
Dtype promoted(Dtype a, Dtype b) {
  if (a == b) return a;
  if (!is_floating(a)) return b;
  if (!is_floating(b)) return a;
  if (a == Dtype::float64 || b == Dtype::float64) return Dtype::float64;
  return Dtype::float32;
}

// aten/src/ATen/native/TypeProperties.cpp, result_type: a floating scalar tensor has no say beside one with dimensions.
Dtype promoted(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return a.dtype();
  if ((a.dim() == 0) != (b.dim() == 0) && is_floating(a.dtype()) && is_floating(b.dtype())) return a.dim() == 0 ? b.dtype() : a.dtype();
  return promoted(a.dtype(), b.dtype());
}

}  // namespace

Tensor elementwise(const Tensor& a, const Tensor& b) {
  const Dims sizes = broadcast(a.sizes(), b.sizes());
  const Dims strides = elementwise_strides(sizes, {expanded_strides(a.layout(), sizes), expanded_strides(b.layout(), sizes)});
  return a.device().empty_strided({sizes, strides}, promoted(a, b));
}

// c10/core/MemoryFormat.h, is_channels_last_strides_2d_s4
bool is_channels_last(const Layout& layout) {
  if (layout.sizes.size() != 4 || layout.strides[1] == 0) return false;
  std::int64_t least = 0;
  for (const int d : {1, 3, 2, 0}) {
    if (layout.sizes[d] == 0 || layout.strides[d] < least || (d == 0 && least == layout.strides[1])) return false;
    least = layout.sizes[d] > 1 ? layout.strides[d] * layout.sizes[d] : layout.strides[d];
  }
  return true;
}

Dims channels_last_strides(const Dims& sizes) {
  Dims strides(4, 1);
  std::int64_t stride = 1;
  for (const int d : {1, 3, 2, 0}) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

Tensor empty_like(const Tensor& self, Dtype dtype) {
  return self.device().empty_strided({self.sizes(), strides_like(self.layout())}, dtype);
}

namespace {

Tensor like(const Tensor& self, Dtype dtype) { return empty_like(self, dtype); }
Tensor like(const Tensor& self) { return like(self, self.dtype()); }

}  // namespace

// other: grad * self; self: grad * other
Tensor mul(const Tensor& self, const Tensor& other) {
  Recorder grad("mul", {&self, &other});
  Saved other_ = grad.save_if(grad.needs(0), other);
  Saved self_ = grad.save_if(grad.needs(1), self);
  const Tensor result = elementwise(self, other);
  grad.attach(result);
  grad.backward([self_ = std::move(self_), other_ = std::move(other_)](Tensors& gradients) {
    const Device& on = gradients[0].device();
    const Tensor saved_other = other_ && on.wants_gradient(0) ? other_.unpack() : Tensor();
    const Tensor saved_self = self_ && on.wants_gradient(1) ? self_.unpack() : Tensor();
    Tensors out(2);
    if (saved_self) out[1] = elementwise(gradients[0], saved_self);
    if (saved_other) out[0] = elementwise(gradients[0], saved_other);
    return out;
  });
  return result;
}

Tensor add(const Tensor& self, const Tensor& other) {
  Recorder grad("add", {&self, &other});
  const Tensor result = elementwise(self, other);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0], gradients[0]}; });
  return result;
}

// self: grad / other
Tensor div(const Tensor& self, const Tensor& other) {
  Recorder grad("div", {&self, &other});
  Saved other_ = grad.save_if(grad.needs(0), other);
  const Tensor result = elementwise(self, other);
  grad.attach(result);
  grad.backward([other_ = std::move(other_)](Tensors& gradients) {
    const Tensor saved = other_.unpack();
    return Tensors{elementwise(gradients[0], saved), Tensor()};
  });
  return result;
}

Tensor mul_scalar(const Tensor& self) {
  Recorder grad("mul", {&self});
  const Tensor result = like(self);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{like(gradients[0])}; });
  return result;
}

Tensor add_scalar(const Tensor& self) {
  Recorder grad("add", {&self});
  const Tensor result = like(self);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0]}; });
  return result;
}

Tensor neg(const Tensor& self) {
  Recorder grad("neg", {&self});
  const Tensor result = like(self);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{like(gradients[0])}; });
  return result;
}

// torch/csrc/autograd/FunctionsManual.cpp, pow_backward: grad * (2 * self.pow(1))
Tensor square(const Tensor& input) {
  const Tensor self = autocast_float(input);
  Recorder grad("pow", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = like(self);
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    const Tensor power = like(saved);
    const Tensor twice = like(power);
    return Tensors{elementwise(gradients[0], twice)};
  });
  return result;
}

// -0.5 * grad * result.pow(3)
Tensor rsqrt(const Tensor& self) {
  Recorder grad("rsqrt", {&self});
  const Tensor result = like(self);
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors& gradients) {
    const Tensor saved = result_.unpack();
    const Tensor halved = like(gradients[0]);
    const Tensor cubed = like(saved);
    return Tensors{elementwise(halved, cubed)};
  });
  return result;
}

// silu_backward(grad, self)
Tensor silu(const Tensor& self) {
  Recorder grad("silu", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = like(self);
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    return Tensors{elementwise(gradients[0], saved)};
  });
  return result;
}

// grad.to(self's dtype)
Tensor to(const Tensor& self, Dtype dtype) {
  if (self.dtype() == dtype) return self;
  Recorder grad("to", {&self});
  const Tensor result = like(self, dtype);
  grad.attach(result);
  grad.backward([dtype = self.dtype()](Tensors& gradients) { return Tensors{to(gradients[0], dtype)}; });
  return result;
}

Tensor clone(const Tensor& self) {
  Recorder grad("clone", {&self});
  const Tensor result = like(self);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0]}; });
  return result;
}

void set_data(const Tensor& self, const Tensor& data) {
  self->storage = data->storage;
  self->layout = data->layout;
  self->dtype = data->dtype;
}

Tensor unary_no_grad(const Tensor& self, const char* op, Dtype dtype) {
  Device& device = self.device();
  const With no_grad(device.grad_enabled, false);
  const Recorder name(op, {&self});
  return like(self, dtype);
}

// torch/csrc/autograd/FunctionsManual.cpp, cat_tensors_backward: narrowed views of the gradient
Tensor cat(const Tensors& parts, int d) {
  const Tensor last = parts.size() == 3 ? parts[2] : Tensor();
  Recorder grad("cat", {&parts[0], &parts[1], &last});
  Dims sizes = parts[0].sizes();
  const std::int64_t first = parts[0].size(d), second = parts[1].size(d), third = last ? last.size(d) : 0;
  sizes[d] = first + second + third;
  const Tensor result = parts[0].device().empty(sizes, promoted(parts[0].dtype(), parts[1].dtype()));
  grad.attach(result);
  grad.backward([d, first, second, third](Tensors& gradients) {
    Tensors out{narrow(gradients[0], d, 0, first), narrow(gradients[0], d, first, second)};
    if (third > 0) out.push_back(narrow(gradients[0], d, first + second, third));
    return out;
  });
  return result;
}

// What autocast runs in fp32: half-precision arguments are cast on the way in.
Tensor autocast_float(const Tensor& self) {
  if (!self || !self.device().autocast || !is_floating(self.dtype()) || self.dtype() == Dtype::float64) return self;
  return to(self, Dtype::float32);
}

// aten/src/ATen/autocast_mode.cpp, cached_cast: the cast of a leaf that wants a gradient is kept until the region ends.
Tensor autocast(const Tensor& self) {
  Device& device = self.device();
  if (!device.autocast || !self || !is_floating(self.dtype()) || self.dtype() == *device.autocast) return self;
  const bool cached = self->requires_grad && !self->grad_fn && !self->base && self.dtype() == Dtype::float32;
  if (cached)
    for (const Device::CachedCast& entry : device.autocast_cache)
      if (entry.original == self.get()) return entry.cast;
  const Tensor cast = to(self, *device.autocast);
  if (cached) device.autocast_cache.push_back({self.get(), cast});
  return cast;
}

}  // namespace llmem
