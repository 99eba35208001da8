#pragma once

#include "tensor/tensor.h"

namespace llmem {

// torch.amp.GradScaler (torch/amp/grad_scaler.py): a few scalars on the device.
class GradScaler {
 public:
  explicit GradScaler(Device& device) : device_(device) {}

  // The loss times the scale.
  Tensor scale(const Tensor& loss);
  // Divides the gradients by the scale, in place, and looks whether they are finite. step() does it if nobody did.
  void unscale();
  // Before and after the optimizer's step; a fused kernel unscales by itself.
  void before_step(bool fused);
  void after_step();

 private:
  // One copy a device of what the gradients are divided by and of whether one was not finite; the second stays until after_step.
  void check_finite(const Tensor& inverse_scale, const Tensor& found_inf);
  Tensor scalar() const;

  Device& device_;
  Tensor scale_, growth_tracker_, found_inf_, sum_of_found_, scale_of_step_;
};

}  // namespace llmem
