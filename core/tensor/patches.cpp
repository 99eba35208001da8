#include "tensor/patches.h"

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

// aten/src/ATen/native/Convolution.cpp: the bias is added in place. Backward: the output's gradient without gaps, the weight's gradient; the bias's
// by a sum. Pixels want none.
Tensor patch_convolution(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor self = autocast(input);
  const Tensor cast_weight = autocast(weight);
  const Tensor cast_bias = bias ? autocast(bias) : bias;
  Recorder grad("conv", {&self, &cast_weight, &cast_bias});
  Saved self_ = grad.save_if(grad.needs(1), self);
  Saved weight_ = grad.save_if(grad.recording(), cast_weight);
  Dims sizes{self.size(0), cast_weight.size(0)};
  for (int d = 2; d < self.dim(); ++d) sizes.push_back(self.size(d) / cast_weight.size(d));
  const Tensor result = self.device().empty(sizes, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_), weight_ = std::move(weight_), of_weight = cast_weight.sizes(), need_weight = grad.needs(1),
                 need_bias = grad.needs(2)](Tensors& gradients) {
    Tensors out(3);
    const Tensor& gradient = gradients[0];
    Device& on = gradient.device();
    if (need_weight) {
      const Tensor whole = contiguous(gradient);
      out[1] = on.empty(of_weight, gradient.dtype());
    }
    if (need_bias) {
      const std::int64_t features = gradient.size(1);
      reduction_scratch(on, column_sum_scratch(on.gpu(), gradient.numel() / features, features));
      out[2] = on.empty({features}, gradient.dtype());
    }
    return out;
  });
  return result;
}

// UnbindBackward stacks what comes from each row.
Tensor rows_in_a_row(const Tensor& self) {
  Recorder grad("cat", {&self});
  const Tensor result = self.device().empty({self.size(0) * self.size(1), self.size(2)}, self.dtype());
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())}; });
  return result;
}

// aten/src/ATen/native/cuda/IndexKernel.cu, masked_scatter__cuda: a copy of self, a prefix sum over the mask in full. FunctionsManual.cpp,
// masked_scatter_backward: masked_select, which indexes by nonzero(mask) (Nonzero.cu).
Tensor scatter_rows(const Tensor& self, const Tensor& mask, const Tensor& source) {
  Recorder grad("masked_scatter", {&self, &source});
  Device& device = self.device();
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const auto scattered = [&] {
    const Tensor result = device.empty(self.sizes(), self.dtype());
    const Tensor positions = device.empty(self.sizes(), Dtype::int64);
    const Tensor whole = device.empty(self.sizes(), Dtype::boolean);
    device.scratch(scan_scratch(self.numel()));
    return result;
  };
  const Tensor result = scattered();
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_), of_source = source.sizes(), count = source.numel(), need_self = grad.needs(0),
                 need_source = grad.needs(1)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    const Tensor& gradient = gradients[0];
    Device& on = gradient.device();
    Tensors out(2);
    if (need_self) out[0] = on.empty(gradient.sizes(), gradient.dtype());
    if (!need_source) return out;
    const auto nonzero = [&] {
      const Tensor whole = on.empty(gradient.sizes(), Dtype::boolean);
      return nonzero_of(whole, count);
    };
    const Tensor indices = nonzero();
    out[1] = view(on.empty({count}, gradient.dtype()), of_source);
    return out;
  });
  return result;
}

// aten/src/ATen/native/cuda/AveragePool2d.cu: the output's gradient without gaps, the input's
Tensor average_pool(const Tensor& self, std::int64_t kernel) {
  Recorder grad("avg_pool2d", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Dims sizes{self.size(0), self.size(1), self.size(2) / kernel, self.size(3) / kernel};
  const Tensor result = self.device().empty(sizes, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    const Tensor whole = contiguous(gradients[0]);
    return Tensors{saved.device().empty(saved.sizes(), gradients[0].dtype())};
  });
  return result;
}

}  // namespace llmem
