#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

// Ops of routers that do not choose by topk alone.
namespace llmem {

// src: grad.gather(dim, index)
Tensor scatter_columns(const Tensor& values, const Tensor& index, std::int64_t columns) {
  Recorder grad("scatter_", {&values});
  Saved index_ = grad.save_if(grad.recording(), index);
  const Tensor result = values.device().empty({values.size(0), columns}, values.dtype());
  grad.attach(result);
  grad.backward([index_ = std::move(index_)](Tensors& gradients) {
    const Tensor saved = index_.unpack();
    return Tensors{saved.device().empty(saved.sizes(), gradients[0].dtype())};
  });
  return result;
}

// torch/csrc/autograd/FunctionsManual.cpp, repeat_backward: the gradient seen as [times, N, h], summed
Tensor repeat_rows(const Tensor& self, std::int64_t times) {
  Recorder grad("repeat", {&self});
  const Tensor result = self.device().empty({self.size(0) * times, self.size(1)}, self.dtype());
  grad.attach(result);
  grad.backward([times, sizes = self.sizes()](Tensors& gradients) {
    return Tensors{sum_dim(reshape(gradients[0], {times, sizes[0], sizes[1]}), 0, false)};
  });
  return result;
}

// modeling_phimoe.py, PhimoeMultiplier: a gradient for the scores only
Tensor sparse_multiplier(const Tensor& scores, const Tensor& multiplier, const Tensor& index, const Tensor& gates, const Tensor& mask) {
  Recorder grad("PhimoeMultiplier", {&scores, &multiplier, &gates});
  const Tensor result = elementwise(multiplier, mask);
  Saved multiplier_ = grad.save_if(grad.recording(), multiplier);
  Saved index_ = grad.save_if(grad.recording(), index);
  Saved gates_ = grad.save_if(grad.recording(), gates);
  grad.attach(result);
  grad.backward([multiplier_ = std::move(multiplier_), index_ = std::move(index_), gates_ = std::move(gates_)](Tensors& gradients) {
    const Tensor saved = multiplier_.unpack(), saved_index = index_.unpack(), saved_gates = gates_.unpack();
    Tensors out(3);
    const Tensor weighted = elementwise(gradients[0], saved);
    const Tensor negated = empty_like(weighted, weighted.dtype());
    out[0] = elementwise(saved_gates, negated);
    return out;
  });
  return result;
}

}  // namespace llmem
