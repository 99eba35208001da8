#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

// where(mask, self, a number): the layout is what TensorIterator makes of both, the number a scalar of its own. Backward: where(mask, grad, 0)
Tensor masked_by_number(const Tensor& mask, const Tensor& self) {
  Recorder grad("where", {&self});
  Saved mask_ = grad.save_if(grad.recording(), mask);
  Device& device = self.device();
  const Dims sizes = broadcast(mask.sizes(), self.sizes());
  Tensor result;
  {
    const Tensor number = device.empty({}, self.dtype());
    const Dims strides = elementwise_strides(sizes, {expanded_strides(mask.layout(), sizes), expanded_strides(self.layout(), sizes)});
    result = device.empty_strided({sizes, strides}, self.dtype());
  }
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    const Tensor zero = saved.device().empty({}, gradients[0].dtype());
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

}  // namespace llmem
