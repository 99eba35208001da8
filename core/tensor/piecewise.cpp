#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

// other: where(condition, 0, grad); self: where(condition, grad, 0). The zero is a tensor of its own each time.
Tensor where_both(const Tensor& mask, const Tensor& self, const Tensor& other) {
  Recorder grad("where", {&self, &other});
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Tensor result = elementwise(self, other);
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_), for_self = grad.needs(0), for_other = grad.needs(1)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    const auto kept = [&] {
      const Tensor zero = saved.device().empty({}, gradients[0].dtype());
      return empty_like(gradients[0], gradients[0].dtype());
    };
    Tensors out(2);
    if (for_other) out[1] = kept();
    if (for_self) out[0] = kept();
    return out;
  });
  return result;
}

// self: where(self == other, grad / 2, grad).masked_fill_(self > other, 0)
Tensor minimum(const Tensor& self, const Tensor& other) {
  Recorder grad("minimum", {&self});
  (void)other;
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = empty_like(self, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    const Tensor halved = empty_like(gradients[0], gradients[0].dtype());
    const Tensor equal = empty_like(saved, Dtype::boolean);
    const Tensor chosen = empty_like(gradients[0], gradients[0].dtype());
    const Tensor above = empty_like(saved, Dtype::boolean);
    return Tensors{chosen};
  });
  return result;
}

// grad * (result + 1)
Tensor expm1_of(const Tensor& input) {
  const Tensor self = autocast_float(input);
  Recorder grad("expm1", {&self});
  const Tensor result = empty_like(self, self.dtype());
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors& gradients) {
    const Tensor saved = result_.unpack();
    const Tensor one_more = empty_like(saved, saved.dtype());
    return Tensors{elementwise(gradients[0], one_more)};
  });
  return result;
}

}  // namespace llmem
