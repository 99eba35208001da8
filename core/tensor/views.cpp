#include <utility>

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// A view keeps its base alive, also outside the graph.
Tensor alias(const Tensor& self, Layout layout) {
  Tensor result = detach(self);
  result->layout = layout;
  result->base = self.impl();
  return result;
}

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
