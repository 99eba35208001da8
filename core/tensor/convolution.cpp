#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

// aten/src/ATen/native/cuda/DepthwiseConv2d.cu, over [B, C, S] and a weight [C, 1, k], padded by k - 1 on both sides: input and gradient as
// contiguous copies where they are not; backward: the input's gradient, the weight's, the bias's.
Tensor depthwise_conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor cast_bias = bias ? autocast(bias) : bias;
  const Tensor cast_weight = autocast(weight);
  const Tensor self = autocast(input);
  Recorder grad("conv1d", {&self, &cast_weight, &cast_bias});
  Device& device = self.device();
  Saved self_ = grad.save_if(grad.recording(), self);
  Saved weight_ = grad.save_if(grad.recording(), cast_weight);
  Dims sizes = self.sizes();
  sizes[2] += cast_weight.size(-1) - 1;
  const auto computed = [&] {
    const Tensor whole = self.contiguous() ? self : device.empty(self.sizes(), self.dtype());
    return device.empty(sizes, self.dtype());
  };
  const Tensor result = computed();
  grad.attach(result);
  grad.backward([self_ = std::move(self_), weight_ = std::move(weight_), need_self = grad.needs(0), need_weight = grad.needs(1),
                 need_bias = grad.needs(2)](Tensors& gradients) {
    const Tensor saved = self_.unpack(), saved_weight = weight_.unpack();
    Device& on = saved.device();
    Tensors out(3);
    if (need_self) out[0] = on.empty(saved.sizes(), saved.dtype());
    if (need_weight) {
      out[1] = on.empty(saved_weight.sizes(), saved_weight.dtype());
      const Tensor whole = saved.contiguous() ? saved : on.empty(saved.sizes(), saved.dtype());
    }
    if (need_bias) {
      reduction_scratch(on, row_sum_scratch(on.gpu(), saved.size(1), gradients[0].numel() / saved.size(1)));
      out[2] = on.empty({saved.size(1)}, gradients[0].dtype());
    }
    return out;
  });
  return result;
}

// aten/src/ATen/native/Convolution.cpp, through cuDNN: [B, C, T] that is a transposed [B, T, C] is taken for channels-last, and so is the result.
Tensor channel_conv1d(const Tensor& input, const Tensor& weight) {
  const Tensor cast_weight = autocast(weight);
  const Tensor self = autocast(input);
  Recorder grad("conv1d", {&self, &cast_weight});
  Saved self_ = grad.save_if(grad.needs(1), self);
  Saved weight_ = grad.save_if(grad.needs(0), cast_weight);
  const std::int64_t rows = self.size(0), tokens = self.size(2), out = cast_weight.size(0);
  const Tensor result = self.device().empty_strided({{rows, out, tokens}, {tokens * out, 1, out}}, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_), weight_ = std::move(weight_), sizes = self.sizes(), of_weight = cast_weight.sizes(),
                 need_self = grad.needs(0), need_weight = grad.needs(1)](Tensors& gradients) {
    Device& on = gradients[0].device();
    Tensors made(2);
    if (need_self) made[0] = on.empty_strided({sizes, {sizes[1] * sizes[2], 1, sizes[1]}}, gradients[0].dtype());
    if (need_weight) made[1] = on.empty(of_weight, gradients[0].dtype());
    return made;
  });
  return result;
}

// causal_conv1d_fn without its package: conv1d, and of its result the first S places
Tensor causal_conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias, std::int64_t sequence) {
  const auto whole = [&] {
    const Tensor cast = to(input, weight.dtype());
    return depthwise_conv1d(cast, weight, bias);
  };
  return to(narrow(whole(), 2, 0, sequence), input.dtype());
}

}  // namespace llmem
