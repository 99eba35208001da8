#include <algorithm>

#include "tensor/autograd.h"
#include "tensor/module_hooks.h"
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
  const auto product = [&] { return gemm(self, {self.size(0), mat2.size(1)}, self.size(1)); };
  CheckpointFrame* frame = self.device().saving_frame.get();
  const Tensor result = frame ? frame->product([&] { return Tensors{product()}; })[0] : product();
  grad.attach(result);
  grad.backward([self_ = std::move(self_), mat2_ = std::move(mat2_), column_major = is_column_major(mat2)](Tensors& gradients) {
    const Device& on = gradients[0].device();
    const Tensor saved_mat2 = mat2_ && on.wants_gradient(0) ? mat2_.unpack() : Tensor();
    const Tensor saved_self = self_ && on.wants_gradient(1) ? self_.unpack() : Tensor();
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
  const auto product = [&] { return gemm(mat1, {mat1.size(0), mat2.size(1)}, mat1.size(1)); };
  CheckpointFrame* frame = mat1.device().saving_frame.get();
  const Tensor result = frame ? frame->attention([&] { return Tensors{product()}; })[0] : product();  // kept always
  grad.attach(result);
  grad.backward([mat1_ = std::move(mat1_), mat2_ = std::move(mat2_), column_major = is_column_major(mat2)](Tensors& gradients) {
    const Device& on = gradients[0].device();
    const Tensor saved_mat1 = mat1_ && on.wants_gradient(2) ? mat1_.unpack() : Tensor();
    const Tensor saved_mat2 = mat2_ && on.wants_gradient(1) ? mat2_.unpack() : Tensor();
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

namespace {

// deepspeed/runtime/zero/linear.py, LinearFunctionForZeroStage3: one node that saves input and weight, whatever wants a gradient.
Tensor linear_of_zero3(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  Recorder grad("linear", {&input, &weight, &bias});
  const std::int64_t out = weight.size(0), in = weight.size(1);
  Tensor result;
  {
    const With no_grad(input.device().grad_enabled, false);
    const Tensor rows = reshape(input, matrix_of(input));
    result = unsafe_view(gemm(rows, {rows.size(0), out}, in), with_last(input.sizes(), out));
  }
  Saved input_ = grad.save_if(grad.recording(), input);
  Saved weight_ = grad.save_if(grad.recording(), weight);
  Saved bias_ = grad.save_if(grad.recording() && bias, bias);
  grad.attach(result);
  const bool needs_input = grad.needs(0), needs_weight = grad.needs(1), needs_bias = grad.needs(2);
  grad.backward([=, input_ = std::move(input_), weight_ = std::move(weight_), bias_ = std::move(bias_)](Tensors& gradients) {
    const Tensor saved_input = input_.unpack(), saved_weight = weight_.unpack();
    const Tensor saved_bias = bias_ ? bias_.unpack() : Tensor();
    const std::int64_t rows = gradients[0].numel() / out;
    Tensors made(3);
    if (needs_input) made[0] = unsafe_view(gemm(gradients[0], {rows, in}, out), saved_input.sizes());
    if (needs_weight) made[1] = gemm(gradients[0], {out, in}, rows);
    if (needs_bias) made[2] = sum_to(gradients[0], {out});
    return made;
  });
  return result;
}

}  // namespace

// aten/src/ATen/native/Linear.cpp: with a bias addmm over the flattened input, without one matmul, which folds
// (aten/src/ATen/native/LinearAlgebra.cpp, should_fold). Autocast casts the arguments from the last to the first.
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  if (input.device().module_hooks && input.device().module_hooks->of_zero3()) return linear_of_zero3(input, weight, bias);
  const Tensor cast_bias = bias ? autocast(bias) : bias;
  const Tensor cast_weight = autocast(weight);
  const Tensor cast_input = autocast(input);
  const Dims sizes = with_last(input.sizes(), weight.size(0));
  if (bias) {
    if (input.dim() == 2) return addmm(cast_bias, cast_input, t(cast_weight));
    if (!cast_input.contiguous()) {  // matmul, and the bias added in place
      const Tensor transposed = t(cast_weight);
      return add_in_place(unsafe_view(mm(reshape(cast_input, matrix_of(cast_input)), transposed), sizes), cast_bias);
    }
    const Tensor rows = reshape(cast_input, matrix_of(cast_input));
    return view(addmm(cast_bias, rows, t(cast_weight)), sizes);
  }
  const Tensor transposed = t(cast_weight);
  if (input.dim() == 2) return mm(cast_input, transposed);
  // What cannot be viewed as a matrix is not folded, unless that saved a large gradient of the weight.
  const bool views = view_strides(cast_input.layout(), matrix_of(cast_input)).has_value();
  if (!views && input.dim() == 3 && !transposed.requires_grad())
    return bmm(cast_input, expand(transposed, {input.size(0), weight.size(1), weight.size(0)}));
  return unsafe_view(mm(reshape(cast_input, matrix_of(cast_input)), transposed), sizes);
}

Tensor conv1d_of_gpt2(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor rows = view(input, matrix_of(input));
  const Tensor cast_weight = autocast(weight);
  const Tensor cast_rows = autocast(rows);
  const Tensor cast_bias = autocast(bias);
  return view(addmm(cast_bias, cast_rows, cast_weight), with_last(input.sizes(), weight.size(1)));
}

Tensor falcon_linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const auto product = [&] {
    const Tensor transposed = t(weight);
    const Tensor cast_weight = autocast(transposed);
    const Tensor cast_input = autocast(input);
    const Dims sizes = with_last(input.sizes(), weight.size(0));
    return unsafe_view(mm(reshape(cast_input, matrix_of(cast_input)), cast_weight), sizes);
  };
  const Tensor result = product();
  return bias ? add(result, bias) : result;
}

namespace {

// aten/src/ATen/native/cuda/Blas.cpp, prepare_batch_matrix_for_cublas: what lies along neither of a matrix's dimensions is copied first.
Tensor as_blas_takes(const Tensor& batch) {
  const bool along = batch.strides()[1] == 1 || batch.strides()[2] == 1;
  return along ? batch : batch.device().empty(batch.sizes(), batch.dtype());
}

}  // namespace

// batch1: grad @ batch2.transpose(1, 2) times alpha; batch2: batch1.transpose(1, 2) @ grad times alpha
Tensor baddbmm(const Tensor& input, const Tensor& first, const Tensor& second) {
  const Tensor batch2 = autocast(second);
  const Tensor batch1 = autocast(first);
  const Tensor self = autocast(input);
  Recorder grad("baddbmm", {&batch1, &batch2});
  Saved batch2_ = grad.save_if(grad.needs(0), batch2);
  Saved batch1_ = grad.save_if(grad.needs(1), batch1);
  const auto computed = [&] {
    const Tensor product = gemm(batch1, {batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.size(2));
    const Tensor left = as_blas_takes(batch1), right = as_blas_takes(batch2);
    return product;
  };
  const Tensor result = computed();
  grad.attach(result);
  grad.backward([batch1_ = std::move(batch1_), batch2_ = std::move(batch2_)](Tensors& gradients) {
    const Tensor saved1 = batch1_ ? batch1_.unpack() : Tensor();
    const Tensor saved2 = batch2_ ? batch2_.unpack() : Tensor();
    const Tensor& gradient = gradients[0];
    Tensors out(2);
    if (saved2) out[0] = mul_scalar(gemm(gradient, {gradient.size(0), gradient.size(1), saved2.size(1)}, gradient.size(2)));
    if (saved1) {
      const auto of_batch2 = [&] {
        const Tensor product = gemm(gradient, {gradient.size(0), saved1.size(2), gradient.size(2)}, gradient.size(1));
        const Tensor left = as_blas_takes(saved1);
        return product;
      };
      const Tensor product = of_batch2();
      out[1] = mul_scalar(product);
    }
    return out;
  });
  return result;
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
  const std::int64_t heads = std::max(left.size(1), right.size(1)), batch = left.size(0) * heads;
  const auto flat = [&](const Tensor& each) {
    const Dims whole{each.size(0), heads, each.size(2), each.size(3)};
    return reshape(expand(each, whole), {batch, each.size(2), each.size(3)});
  };
  const Tensor rows = flat(left);
  const Tensor columns = flat(right);
  return unsafe_view(bmm(rows, columns), {left.size(0), heads, left.size(2), right.size(3)});
}

}  // namespace llmem
