#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// `inner`: the dimension that is summed over; sizes [n, m] or [b, n, m].
Tensor gemm(const Tensor& a, const Dims& sizes, std::int64_t inner) {
  Device& device = a.device();
  const Meter::Muted no_kernel(device.meter);
  const Tensor result = device.empty(sizes, a.dtype());
  device.use_cublas();
  if (device.stopped) return result;
  const int last = sizes.size() - 1;
  const std::int64_t batch = last == 2 ? sizes[0] : 1, n = sizes[last - 1], m = sizes[last];
  const std::int64_t itemsize = a.itemsize() * batch, outer = itemsize * (n * inner + n * m);
  device.meter.product(2 * batch * n * m * inner, outer + itemsize * inner * m, outer, a.dtype());
  return result;
}

// torch/csrc/autograd/FunctionsManual.cpp, mm_mat2_backward: a column-major weight gets a column-major gradient, grad.t() @ self seen from the other side.
Tensor weight_gradient(const Tensor& gradient, const Tensor& input, bool column_major) {
  if (column_major) return t(gemm(gradient, {gradient.size(1), input.size(1)}, gradient.size(0)));
  return gemm(gradient, {input.size(1), gradient.size(1)}, gradient.size(0));
}

bool is_column_major(const Tensor& matrix) { return matrix.strides()[0] == 1 && matrix.strides()[1] == matrix.size(0); }

}  // namespace

// mat2: mm_mat2_backward(grad, self); self: grad @ mat2.t()
Tensor mm(const Tensor& self, const Tensor& mat2) {
  Recorder grad("mm", {&self, &mat2});
  Saved mat2_ = grad.save_if(grad.needs(0), mat2);
  Saved self_ = grad.save_if(grad.needs(1), self);
  const Tensor result = gemm(self, {self.size(0), mat2.size(1)}, self.size(1));
  grad.attach(result);
  grad.backward([self_ = std::move(self_), mat2_ = std::move(mat2_), column_major = is_column_major(mat2)](Tensors& gradients) {
    const Tensor saved_mat2 = mat2_ ? mat2_.unpack() : Tensor();
    const Tensor saved_self = self_ ? self_.unpack() : Tensor();
    Tensors out(2);
    if (saved_self) out[1] = weight_gradient(gradients[0], saved_self, column_major);
    if (saved_mat2) out[0] = gemm(gradients[0], {gradients[0].size(0), saved_mat2.size(0)}, gradients[0].size(1));
    return out;
  });
  return result;
}

namespace {

// mat1: grad @ mat2.t(); mat2: as in mm; self (the bias): grad, summed over the rows by the engine
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2) {
  Recorder grad("addmm", {&self, &mat1, &mat2});
  Saved mat1_ = grad.save_if(grad.needs(2), mat1);
  Saved mat2_ = grad.save_if(grad.needs(1), mat2);
  const Tensor result = gemm(mat1, {mat1.size(0), mat2.size(1)}, mat1.size(1));
  grad.attach(result);
  grad.backward([mat1_ = std::move(mat1_), mat2_ = std::move(mat2_), column_major = is_column_major(mat2)](Tensors& gradients) {
    const Tensor saved_mat1 = mat1_ ? mat1_.unpack() : Tensor();
    const Tensor saved_mat2 = mat2_ ? mat2_.unpack() : Tensor();
    Tensors out(3);
    if (saved_mat2) out[1] = gemm(gradients[0], {gradients[0].size(0), saved_mat2.size(0)}, gradients[0].size(1));
    if (saved_mat1) out[2] = weight_gradient(gradients[0], saved_mat1, column_major);
    out[0] = gradients[0];
    return out;
  });
  return result;
}

Dims matrix_of(const Tensor& tensor) { return {tensor.numel() / tensor.size(-1), tensor.size(-1)}; }

Dims with_last(Dims sizes, std::int64_t last) {
  sizes[sizes.size() - 1] = last;
  return sizes;
}

}  // namespace

// aten/src/ATen/native/Linear.cpp: with a bias addmm over the flattened input, without one matmul, which folds
// (aten/src/ATen/native/LinearAlgebra.cpp, should_fold). Autocast casts the arguments from the last to the first.
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor cast_bias = bias ? autocast(bias) : bias;
  const Tensor cast_weight = autocast(weight);
  const Tensor cast_input = autocast(input);
  const Dims sizes = with_last(input.sizes(), weight.size(0));
  if (bias) {
    const Tensor rows = reshape(cast_input, matrix_of(cast_input));
    return view(addmm(cast_bias, rows, t(cast_weight)), sizes);
  }
  const Tensor transposed = t(cast_weight);
  return unsafe_view(mm(reshape(cast_input, matrix_of(cast_input)), transposed), sizes);
}

// mat2: self.transpose(1, 2) @ grad; self: grad @ mat2.transpose(1, 2)
Tensor bmm(const Tensor& self, const Tensor& mat2) {
  Recorder grad("bmm", {&self, &mat2});
  Saved mat2_ = grad.save_if(grad.needs(0), mat2);
  Saved self_ = grad.save_if(grad.needs(1), self);
  const Tensor result = gemm(self, {self.size(0), self.size(1), mat2.size(2)}, self.size(2));
  grad.attach(result);
  grad.backward([self_ = std::move(self_), mat2_ = std::move(mat2_)](Tensors& gradients) {
    const Tensor saved_mat2 = mat2_ ? mat2_.unpack() : Tensor();
    const Tensor saved_self = self_ ? self_.unpack() : Tensor();
    const Tensor& gradient = gradients[0];
    Tensors out(2);
    if (saved_self) out[1] = gemm(gradient, {gradient.size(0), saved_self.size(2), gradient.size(2)}, gradient.size(1));
    if (saved_mat2) out[0] = gemm(gradient, {gradient.size(0), gradient.size(1), saved_mat2.size(1)}, gradient.size(2));
    return out;
  });
  return result;
}

// aten/src/ATen/native/LinearAlgebra.cpp, _matmul_impl, the batched case: both expanded and flattened to 3-D.
Tensor matmul(const Tensor& a, const Tensor& b) {
  const Tensor right = autocast(b);
  const Tensor left = autocast(a);
  const std::int64_t batch = left.size(0) * left.size(1);
  const Tensor rows = reshape(expand(left, left.sizes()), {batch, left.size(2), left.size(3)});
  const Tensor columns = reshape(expand(right, right.sizes()), {batch, right.size(2), right.size(3)});
  return unsafe_view(bmm(rows, columns), {left.size(0), left.size(1), left.size(2), right.size(3)});
}

}  // namespace llmem
