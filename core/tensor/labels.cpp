#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

// Losses over a few labels a row. Autocast runs them in fp32.
namespace llmem {

namespace {

// The mean's gradient: over self and the target.
void mean_backward(Recorder& grad, const Tensor& self, const Tensor& target) {
  Saved self_ = grad.save_if(grad.recording(), self), target_ = grad.save_if(grad.recording(), target);
  grad.backward([self_ = std::move(self_), target_ = std::move(target_)](Tensors&) {
    const Tensor saved = self_.unpack(), saved_target = target_.unpack();
    return Tensors{empty_like(saved, saved.dtype())};
  });
}

}  // namespace

// aten/src/ATen/native/Loss.cpp, mse_loss_out: the result is made as large as its input, before the mean is written to it.
Tensor mean_squared_error(const Tensor& input, const Tensor& target) {
  const Tensor self = autocast_float(input);
  Recorder grad("mse_loss", {&self});
  const Tensor whole = elementwise(self, target);
  {
    const Tensor each = elementwise(self, target);
    reduction_scratch(self.device(), row_sum_scratch(self.device().gpu(), 1, self.numel()));
  }
  const Tensor result = alias(whole, {{}, {}});
  grad.attach(result);
  mean_backward(grad, self, target);
  return result;
}

// aten/src/ATen/native/Loss.cpp, binary_cross_entropy_with_logits
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target) {
  const Tensor self = autocast_float(input);
  Recorder grad("binary_cross_entropy", {&self});
  Tensor result;
  {
    const Tensor logarithms = unary_no_grad(self, "log_sigmoid", self.dtype());
    const Tensor loss = unary_no_grad(target, "loss", target.dtype());
    result = self.device().empty({}, loss.dtype());
    reduction_scratch(self.device(), row_sum_scratch(self.device().gpu(), 1, loss.numel()));
  }
  grad.attach(result);
  mean_backward(grad, self, target);
  return result;
}

}  // namespace llmem
