#include <algorithm>
#include <utility>

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

Tensor alias(const Tensor& self, const Layout& layout) {
  Tensor result = detach(self);
  result->layout = layout;
  result->base = self.impl();
  return result;
}

namespace {

Dims transposed(Dims dims, int a, int b) {
  std::swap(dims[a], dims[b]);
  return dims;
}

}  // namespace

Tensor view(const Tensor& self, const Dims& sizes) {
  Recorder grad("view", {&self});
  const Tensor result = alias(self, {sizes, *view_strides(self.layout(), sizes)});
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{reshape(gradients[0], sizes)}; });
  return result;
}

Tensor unsafe_view(const Tensor& self, const Dims& sizes) {
  Recorder grad("unsafe_view", {&self});
  const Tensor result = detach(self);
  result->layout = {sizes, *view_strides(self.layout(), sizes)};
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{reshape(gradients[0], sizes)}; });
  return result;
}

Tensor transpose(const Tensor& self, int a, int b) {
  Recorder grad("transpose", {&self});
  const Tensor result = alias(self, {transposed(self.sizes(), a, b), transposed(self.strides(), a, b)});
  grad.attach(result);
  grad.backward([a, b](Tensors& gradients) { return Tensors{transpose(gradients[0], a, b)}; });
  return result;
}

Tensor t(const Tensor& self) { return transpose(self, 0, 1); }

Tensor unsqueeze(const Tensor& self, int at) {
  Recorder grad("unsqueeze", {&self});
  Layout layout = self.layout();
  layout.strides.insert(at, at < self.dim() ? self.sizes()[at] * self.strides()[at] : 1);
  layout.sizes.insert(at, 1);
  const Tensor result = alias(self, layout);
  grad.attach(result);
  grad.backward([at](Tensors& gradients) {
    Layout squeezed = gradients[0].layout();
    squeezed.sizes.erase(at);
    squeezed.strides.erase(at);
    return Tensors{alias(gradients[0], squeezed)};
  });
  return result;
}

Tensor expand(const Tensor& self, const Dims& sizes) {
  Recorder grad("expand", {&self});
  const Tensor result = alias(self, {sizes, expanded_strides(self.layout(), sizes)});
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{sum_to(gradients[0], sizes)}; });
  return result;
}

Tensor narrow(const Tensor& self, int d, std::int64_t start, std::int64_t length) {
  (void)start;  // where a view begins does not show in its memory
  Recorder grad("slice", {&self});
  Layout layout = self.layout();
  layout.sizes[d] = length;
  const Tensor result = alias(self, layout);
  grad.attach(result);
  // slice_backward: zeros of the whole, the gradient copied into its place
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())}; });
  return result;
}

// select_backward: zeros of the whole, the gradient copied into its place
Tensor select(const Tensor& self, int d) {
  Recorder grad("select", {&self});
  Layout layout = self.layout();
  layout.sizes.erase(d);
  layout.strides.erase(d);
  const Tensor result = alias(self, layout);
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())}; });
  return result;
}

// self[:, index]: rows along d. Backward: index_put_ into zeros (aten/src/ATen/native/cuda/Indexing.cu, index_put_with_sort_kernel): the
// linear index, then keys and values sorted.
Tensor index_along(const Tensor& self, int d, const Tensor& index) {
  Recorder grad("index", {&self});
  Dims sizes = self.sizes();
  sizes[d] = index.numel();
  Saved index_ = grad.save_if(grad.recording(), index);
  const Tensor result = self.device().empty(sizes, self.dtype());
  grad.attach(result);
  grad.backward([index_ = std::move(index_), sizes = self.sizes(), d](Tensors& gradients) {
    const Tensor saved = index_.unpack();
    Device& device = gradients[0].device();
    const Tensor out = device.empty(sizes, gradients[0].dtype());
    const std::int64_t count = saved.numel();
    const auto vector = [&] { return device.empty({count}, Dtype::int64); };
    Tensor linear;
    {
      const Tensor product = vector();
      linear = vector();
    }
    const Tensor sorted = vector(), original = vector();
    {
      const Tensor range = vector();
      device.scratch(sort_scratch(device.gpu(), count, std::max<std::int64_t>(sizes[d] - 1, 1)));
    }
    return Tensors{out};
  });
  return result;
}

// derivatives.yaml, index_copy: the source's gradient is expanded as the source, which is saved for it.
Tensor place_columns(const Tensor& source, const Tensor& columns, std::int64_t width) {
  Recorder grad("index_copy", {&source});
  Saved source_ = grad.save_if(grad.recording(), source);
  Saved columns_ = grad.save_if(grad.recording(), columns);
  Dims sizes = source.sizes();
  sizes[sizes.size() - 1] = width;
  const Tensor result = source.device().empty(sizes, source.dtype());
  grad.attach(result);
  grad.backward([source_ = std::move(source_), columns_ = std::move(columns_)](Tensors& gradients) {
    const Tensor saved = source_.unpack();
    return Tensors{gradients[0].device().empty(saved.sizes(), gradients[0].dtype())};
  });
  return result;
}

Tensor index_one(const Tensor& self, int d) { return index_along(self, d, self.device().empty({1}, Dtype::int64)); }

// split_with_sizes_backward: cat of the gradients, zeros where there is none
Tensors split_last(const Tensor& self, const std::vector<std::int64_t>& lengths) { return split_along(self, self.dim() - 1, lengths); }

Tensors split_along(const Tensor& self, int d, const std::vector<std::int64_t>& lengths) {
  Recorder grad("split", {&self});
  Tensors parts;
  Layout layout = self.layout();
  for (const std::int64_t length : lengths) {
    layout.sizes[d] = length;
    parts.push_back(alias(self, layout));
    grad.attach(parts.back());
  }
  grad.backward([sizes = self.sizes(), lengths, d](Tensors& gradients) {
    const Tensor* any = nullptr;
    for (const Tensor& each : gradients)
      if (each) any = &each;
    Tensors zeros;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i]) continue;
      Dims part = sizes;
      part[d] = lengths[i];
      zeros.push_back(any->device().empty(part, any->dtype()));
    }
    // aten/src/ATen/native/cuda/Shape.cu, compute_output_memory_format
    bool last = zeros.empty();
    for (const Tensor& each : gradients) last = last && is_channels_last(each.layout());
    if (last) return Tensors{any->device().empty_strided({sizes, channels_last_strides(sizes)}, any->dtype())};
    return Tensors{any->device().empty(sizes, any->dtype())};
  });
  return parts;
}

// torch/csrc/autograd/functions/tensor.cpp, CopySlices: the gradient is copied, its slice cloned for the source
Tensor copy_into_slice(const Tensor& base, const Tensor& source) {
  Recorder grad("copy_slices", {&base, &source});
  const bool for_base = grad.needs(0);
  const Tensor result = detach(base);
  grad.attach(result);
  grad.backward([for_base, sizes = source.sizes()](Tensors& gradients) {
    Device& device = gradients[0].device();
    Tensors out(2);
    const Tensor whole = device.empty_strided(gradients[0].layout(), gradients[0].dtype());
    out[1] = device.empty(sizes, gradients[0].dtype());
    const Tensor zeros = for_base ? device.empty(sizes, gradients[0].dtype()) : Tensor();  // what goes in the slice's place
    if (for_base) out[0] = whole;
    return out;
  });
  return result;
}

// backward: constant_pad_nd by as many less, which copies
Tensor pad_last(const Tensor& self, std::int64_t count) {
  Recorder grad("pad", {&self});
  Dims sizes = self.sizes();
  sizes[self.dim() - 1] += count;
  const Tensor result = self.device().empty(sizes, self.dtype());
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())}; });
  return result;
}

Tensor reshape(const Tensor& self, const Dims& sizes) {
  if (view_strides(self.layout(), sizes)) return view(self, sizes);
  return unsafe_view(contiguous(self), sizes);
}

Tensor contiguous(const Tensor& self) {
  if (self.contiguous()) return self;
  Recorder grad("contiguous", {&self});
  const Tensor result = self.device().empty(self.sizes(), self.dtype());
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0]}; });
  return result;
}

}  // namespace llmem
