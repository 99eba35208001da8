#include <algorithm>
#include <cstdint>
#include <memory>

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

// What a mixture of experts is made of: choosing, sorting, and matrices of several sizes in one call.
namespace llmem {

// values and indices; value_selecting_reduction_backward: the gradient scattered into zeros
TopK topk(const Tensor& self, std::int64_t k) {
  Recorder grad("topk", {&self});
  Device& device = self.device();
  Dims sizes = self.sizes();
  sizes[self.dim() - 1] = k;
  TopK result;
  result.values = device.empty(sizes, self.dtype());
  result.indices = device.empty(sizes, Dtype::int64);
  Saved indices_ = grad.save_if(grad.recording(), result.indices);
  grad.attach(result.values);
  grad.backward([indices_ = std::move(indices_), whole = self.sizes()](Tensors& gradients) {
    const Tensor saved = indices_.unpack();
    return Tensors{gradients[0].device().empty(whole, gradients[0].dtype())};
  });
  return result;
}

// aten/src/ATen/native/cuda/Sort.cu, of one row: by a block where 4,096 keys fit, else segmented_sort_large_segments, which keeps an index of
// its own beside cub's scratch (64-bit keys, all bits).
TopK sort_vector(const Tensor& self) {
  Device& device = self.device();
  const OpScope op(device, "sort");
  const std::int64_t count = self.numel();
  TopK result;
  result.values = device.empty(self.sizes(), self.dtype());
  result.indices = device.empty(self.sizes(), Dtype::int64);
  const Tensor index = device.empty({count}, Dtype::int64);
  constexpr std::int64_t kSortedByABlock = 4096;
  if (count > kSortedByABlock) device.scratch(sort_scratch(device.gpu(), count, INT64_MAX));
  return result;
}

namespace {

void meter_grouped(Device& device, std::int64_t tokens, std::int64_t in, std::int64_t out, std::int64_t experts, Dtype dtype) {
  const std::int64_t itemsize = size_of(dtype).count, outer = itemsize * tokens * (in + out);
  device.meter.product(2 * tokens * in * out, outer + itemsize * experts * in * out, outer, dtype);
}

}  // namespace

namespace {

// transformers integrations/moe.py, _grouped_mm_fallback: before Ampere each expert's product on its own, as a custom op, whose backward makes
// the gradients of both in zeros, also of what is frozen. The offsets are an attribute of its ctx.
Tensor grouped_mm_fallback(const Tensor& input, const Tensor& weight, const Tensor& offsets) {
  Recorder grad("grouped_mm_fallback", {&input, &weight});
  Device& device = input.device();
  const Meter::Muted no_kernel(device.meter);
  const auto meter = [](Device& on, const Dims& sizes, std::int64_t tokens, Dtype dtype) {
    if (!on.stopped) meter_grouped(on, tokens, sizes[1], sizes[2], sizes[0], dtype);
  };
  const Tensor result = device.empty({input.size(0), weight.size(2)}, input.dtype());
  meter(device, weight.sizes(), input.size(0), input.dtype());
  device.use_cublas();
  device.streams.host_waits(device.stream);  // offs.tolist()
  Saved input_ = grad.save_if(grad.recording(), input);
  Saved weight_ = grad.save_if(grad.recording(), weight);
  grad.keep(std::make_shared<const Tensor>(offsets));
  grad.attach(result);
  grad.backward([input_ = std::move(input_), weight_ = std::move(weight_), needs_input = grad.needs(0), needs_weight = grad.needs(1),
                 meter](Tensors& gradients) {
    const Tensor saved_input = input_.unpack(), saved_weight = weight_.unpack();
    Device& on = gradients[0].device();
    const Meter::Muted no_kernels(on.meter);
    const Tensor of_input = empty_like(saved_input, saved_input.dtype());
    const Tensor of_weight = on.empty_strided(saved_weight.layout(), saved_weight.dtype());
    for (int i = 0; i < 2; ++i) meter(on, saved_weight.sizes(), saved_input.size(0), saved_input.dtype());
    on.streams.host_waits(on.stream);
    return Tensors{needs_input ? of_input : Tensor(), needs_weight ? of_weight : Tensor()};
  });
  return result;
}

}  // namespace

// aten/src/ATen/native/cuda/GroupedBlas.cpp. input [T, in], weight [E, in, out] as the product sees it. Backward: mat2, then self.
Tensor grouped_mm(const Tensor& input, const Tensor& weight, const Tensor& offsets) {
  Device& device = input.device();
  if (device.gpu().compute_capability < 80) return grouped_mm_fallback(input, weight, offsets);
  Recorder grad("grouped_mm", {&input, &weight});
  Saved weight_ = grad.save_if(grad.needs(0), weight);
  Saved input_ = grad.save_if(grad.needs(1), input);
  Saved offsets_ = grad.save_if(grad.recording(), offsets);
  const Meter::Muted no_kernel(device.meter);
  const Tensor result = device.empty({input.size(0), weight.size(2)}, input.dtype());
  if (!device.stopped) meter_grouped(device, input.size(0), weight.size(1), weight.size(2), weight.size(0), input.dtype());
  grad.attach(result);
  grad.backward([weight_ = std::move(weight_), input_ = std::move(input_), offsets_ = std::move(offsets_),
                 layout = weight.layout()](Tensors& gradients) {
    const Tensor saved_offsets = offsets_.unpack();
    const Tensor saved_weight = weight_ ? weight_.unpack() : Tensor(), saved_input = input_ ? input_.unpack() : Tensor();
    Device& on = gradients[0].device();
    const Meter::Muted no_kernels(on.meter);
    const std::int64_t tokens = gradients[0].size(0);
    const auto meter = [&] { meter_grouped(on, tokens, layout.sizes[1], layout.sizes[2], layout.sizes[0], gradients[0].dtype()); };
    Tensors out(2);
    if (saved_input) {
      out[1] = on.empty_strided(layout, gradients[0].dtype());
      meter();
    }
    if (saved_weight) {
      out[0] = on.empty({tokens, layout.sizes[1]}, gradients[0].dtype());
      meter();
    }
    return out;
  });
  return result;
}

namespace {

// other: -grad * ((self / other) / other); self: grad / other
Tensors gradients_of_division(const Saved& self, const Saved& other, const Tensor& gradient) {
  const Tensor saved_other = other.unpack();
  const Tensor saved_self = self ? self.unpack() : Tensor();
  Tensors out(2);
  if (saved_self) {
    const Tensor quotient = elementwise(saved_self, saved_other), again = elementwise(quotient, saved_other);
    const Tensor negated = empty_like(gradient, gradient.dtype());
    out[1] = elementwise(negated, again);
  }
  out[0] = elementwise(gradient, saved_other);
  return out;
}

}  // namespace

// self /= other. Both are kept: self as it was, which is a copy.
Tensor div_in_place(const Tensor& self, const Tensor& other) {
  Recorder grad("div_", {&self, &other});
  const auto like_self = [&] { return self.device().empty(self.sizes(), self.dtype()); };
  Saved other_ = grad.save_if(grad.needs(0) || grad.needs(1), other);
  Saved self_ = grad.needs(1) ? Saved(like_self()) : Saved();
  const Tensor result = detach(self);
  grad.attach(result);
  grad.backward([other_ = std::move(other_), self_ = std::move(self_)](Tensors& gradients) {
    return gradients_of_division(self_, other_, gradients[0]);
  });
  return result;
}

// self / other, new.
Tensor div_both(const Tensor& self, const Tensor& other) {
  Recorder grad("div", {&self, &other});
  Saved other_ = grad.save_if(grad.needs(0) || grad.needs(1), other);
  Saved self_ = grad.save_if(grad.needs(1), self);
  const Tensor result = elementwise(self, other);
  grad.attach(result);
  grad.backward([other_ = std::move(other_), self_ = std::move(self_)](Tensors& gradients) {
    return gradients_of_division(self_, other_, gradients[0]);
  });
  return result;
}

// sum(dim), keepdim or not: backward: the gradient expanded
Tensor sum_dim(const Tensor& self, int d, bool keep) {
  Recorder grad("sum", {&self});
  Dims sizes = self.sizes();
  if (keep)
    sizes[d] = 1;
  else
    sizes.erase(d);
  // Autocast has it summed up in fp32.
  const bool widened = self.device().autocast && (self.dtype() == Dtype::bfloat16 || self.dtype() == Dtype::float16);
  const Tensor result = self.device().empty(sizes, widened ? Dtype::float32 : self.dtype());
  grad.attach(result);
  grad.backward([whole = self.sizes(), d, keep](Tensors& gradients) {
    const Tensor one = keep ? gradients[0] : unsqueeze(gradients[0], d);
    return Tensors{expand(one, whole)};
  });
  return result;
}

// gather(-1, index): backward: zeros, the gradient scatter-added
Tensor gather_columns(const Tensor& self, const Tensor& index) {
  Recorder grad("gather", {&self});
  Saved index_ = grad.save_if(grad.recording(), index);
  const Tensor result = self.device().empty(index.sizes(), self.dtype());
  grad.attach(result);
  grad.backward([index_ = std::move(index_), whole = self.sizes()](Tensors& gradients) {
    const Tensor saved = index_.unpack();
    return Tensors{gradients[0].device().empty(whole, gradients[0].dtype())};
  });
  return result;
}

Tensor max_last(const Tensor& self) { return topk(self, 1).values; }

Tensor sigmoid(const Tensor& self) {
  Recorder grad("sigmoid", {&self});
  const Tensor result = empty_like(self, self.dtype());
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors& gradients) {
    const Tensor saved = result_.unpack();
    return Tensors{elementwise(gradients[0], saved)};
  });
  return result;
}

}  // namespace llmem
