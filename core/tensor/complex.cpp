#include "tensor/complex.h"

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

// view_as_real: view_as_complex(grad.contiguous()); mul: grad * other.conj(), which is made before the kernel runs
Tensor mul_complex(const Tensor& self, const Tensor& numbers) {
  Recorder grad("mul", {&self});
  Saved numbers_ = grad.save_if(grad.recording(), numbers);
  const Tensor result = elementwise(self, numbers);
  grad.attach(result);
  grad.backward([numbers_ = std::move(numbers_)](Tensors& gradients) {
    const Tensor saved = numbers_.unpack();
    const Tensor gradient = contiguous(gradients[0]);
    const Tensor conjugated = empty_like(saved, saved.dtype());
    return Tensors{elementwise(gradient, conjugated)};
  });
  return result;
}

}  // namespace llmem
