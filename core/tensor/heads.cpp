#include "tensor/heads.h"

#include <utility>

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

// torch/csrc/autograd/FunctionsManual.cpp, cat_tensors_backward: narrowed views of the gradient. Here a chain of nodes, one for each part, of
// which none allocates.
Tensor cat_of(const std::vector<Tensor>& parts, int d) {
  Dims sizes = parts.front().sizes();
  sizes[d] = 0;
  for (const Tensor& part : parts) sizes[d] += part.size(d);
  Tensor result = parts.front().device().empty(sizes, parts.front().dtype());
  for (const Tensor& part : parts) {
    Recorder grad("cat", {&result, &part});
    const Tensor next = detach(result);
    grad.attach(next);
    grad.backward([d, length = part.size(d)](Tensors& gradients) { return Tensors{gradients[0], narrow(gradients[0], d, 0, length)}; });
    result = next;
  }
  return result;
}

// clamp_backward(grad, self): what was there before is cloned for it (tools/autograd/gen_variable_type.py, original_self)
Tensor clamp_in_place(const Tensor& self) {
  Recorder grad("clamp_", {&self});
  const Tensor original = grad.recording() ? empty_like(self, self.dtype()) : Tensor();
  Saved self_ = grad.save_if(grad.recording(), original);
  const Tensor result = detach(self);
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

// grad * other: under checkpointing, what asks for `other` has the layer computed again
Tensor mul_in_place_by(const Tensor& self, const Tensor& other) {
  Recorder grad("mul_", {&self});
  Saved other_ = grad.save_if(grad.recording(), other);
  const Tensor result = detach(self);
  grad.attach(result);
  grad.backward([other_ = std::move(other_)](Tensors& gradients) {
    const Tensor saved = other_.unpack();
    return Tensors{elementwise(gradients[0], saved)};
  });
  return result;
}

}  // namespace llmem
