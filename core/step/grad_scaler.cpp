#include "step/grad_scaler.h"

#include "tensor/device.h"
#include "tensor/ops.h"

namespace llmem {

Tensor GradScaler::scalar() const {
  const OpScope op(device_, "grad_scaler");
  return device_.empty({}, Dtype::float32);
}

Tensor GradScaler::scale(const Tensor& loss) {
  if (!scale_) {
    scale_ = scalar();
    growth_tracker_ = device_.empty({}, Dtype::int32);
  }
  return mul(loss, scale_);
}

void GradScaler::check_finite(const Tensor& inverse_scale, const Tensor& found_inf) {
  (void)found_inf;
  found_inf_ = scalar();
  const Tensor copy = unary_no_grad(inverse_scale, "inverse_scale", Dtype::float32);
}

void GradScaler::unscale() {
  // self._scale.double().reciprocal().float()
  Tensor inverse = unary_no_grad(scale_, "inverse_scale", Dtype::float64);
  inverse = unary_no_grad(inverse, "inverse_scale", Dtype::float64);
  inverse = unary_no_grad(inverse, "inverse_scale", Dtype::float32);
  check_finite(inverse, scalar());
}

void GradScaler::before_step(bool fused) {
  const bool unscaled = static_cast<bool>(found_inf_);
  if (!fused) {
    if (!unscaled) unscale();
    return;
  }
  if (!unscaled) {
    const Tensor one = scalar();
    check_finite(one, scalar());
  }
  sum_of_found_ = scalar();
  if (!unscaled) scale_of_step_ = scalar();
}

void GradScaler::after_step() {
  scale_of_step_.reset();
  sum_of_found_.reset();
  found_inf_.reset();
}

}  // namespace llmem
