#include "tensor/delta.h"

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

namespace llmem {

// aten/src/ATen/native/LinearAlgebra.cpp, _matmul_impl: both flattened to three dimensions
Tensor matmul_of_batches(const Tensor& a, const Tensor& b) {
  const Tensor right = autocast(b);
  const Tensor left = autocast(a);
  const auto flat = [](const Tensor& each) {
    const std::int64_t rows = each.size(-2), columns = each.size(-1);
    return reshape(each, {each.numel() / (rows * columns), rows, columns});
  };
  const Tensor rows = flat(left);
  const Tensor columns = flat(right);
  Dims sizes = left.sizes();
  sizes[sizes.size() - 1] = right.size(-1);
  return unsafe_view(bmm(rows, columns), sizes);
}

namespace {

// aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp, triangular_solve_kernel: in a result that B was copied to; cuBLAS's batched
// kernel takes arrays of pointers, its plain one is called matrix by matrix where they are few and large.
Tensor solved(const Tensor& A, const Tensor& B) {
  Device& device = B.device();
  Layout columns{B.sizes(), contiguous_strides(B.sizes())};  // each matrix column by column
  columns.strides[B.dim() - 2] = 1;
  columns.strides[B.dim() - 1] = B.size(-2);
  const Tensor result = device.empty_strided(columns, B.dtype());
  const std::int64_t n = A.size(-1), batches = A.numel() / (n * n);
  if (batches > 8 || n < 64) {
    const Tensor pointers_of_A = device.empty({batches}, Dtype::int64), pointers_of_B = device.empty({batches}, Dtype::int64);
  }
  device.use_cublas();
  return result;
}

}  // namespace

// FunctionsManual.cpp, linalg_solve_triangular_backward: B's gradient G solves with A transposed, A's is -G @ X.mH, its lower triangle
Tensor solve_triangular(const Tensor& A, const Tensor& B) {
  Recorder grad("solve_triangular", {&A, &B});
  Saved A_ = grad.save_if(grad.recording(), A);
  const Tensor result = solved(A, B);
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([A_ = std::move(A_), result_ = std::move(result_), needs_A = grad.needs(0), needs_B = grad.needs(1)](Tensors& gradients) {
    const Tensor saved_A = A_.unpack(), saved = result_.unpack();
    const With no_grad(saved.device().grad_enabled, false);
    Tensors out(2);
    const Tensor of_B = solved(saved_A, gradients[0]);
    if (needs_A) {
      Tensor of_A;
      {
        const Tensor product = matmul_of_batches(of_B, transpose(saved, saved.dim() - 2, saved.dim() - 1));
        of_A = empty_like(product, product.dtype());
      }
      of_A = empty_like(of_A, of_A.dtype());
      out[0] = of_A;
    }
    if (needs_B) out[1] = of_B;
    return out;
  });
  return result;
}

// FunctionsManual.cpp, stack_tensors_backward: views of the gradient. Here a chain of nodes, one for each part, of which none allocates.
Tensor stack_of(const std::vector<Tensor>& parts) {
  Dims sizes = parts.front().sizes();
  sizes.push_back(static_cast<std::int64_t>(parts.size()));
  Tensor result = parts.front().device().empty(sizes, parts.front().dtype());
  for (const Tensor& part : parts) {
    Recorder grad("stack", {&result, &part});
    const Tensor next = detach(result);
    grad.attach(next);
    grad.backward([](Tensors& gradients) {
      Layout one = gradients[0].layout();
      const int last = gradients[0].dim() - 1;
      one.sizes.erase(last);
      one.strides.erase(last);
      Tensor of_part = detach(gradients[0]);
      of_part->layout = one;
      of_part->base = gradients[0].impl();
      return Tensors{gradients[0], of_part};
    });
    result = next;
  }
  return result;
}

// LinearAlgebra.cpp, should_fold and _matmul_impl: where the matrix wants a gradient the batch is folded, and the result copied; else the
// matrix is expanded.
Tensor matmul_of_weight(const Tensor& weight, const Tensor& x) {
  const Tensor cast_x = autocast(x);
  const Tensor matrix = autocast(weight);
  const std::int64_t batch = x.size(0), rows = weight.size(0), inner = weight.size(1), columns = x.size(2);
  if (!matrix.requires_grad()) {
    const Tensor expanded = reshape(expand(unsqueeze(matrix, 0), {batch, rows, inner}), {batch, rows, inner});
    return bmm(expanded, cast_x);
  }
  const auto folded = [&] {
    const Tensor turned = reshape(transpose(cast_x, 1, 2), {batch * columns, inner});
    return unsafe_view(mm(turned, t(matrix)), {batch, columns, rows});
  };
  return contiguous(transpose(folded(), 1, 2));
}

// aten/src/ATen/native/TensorConversions.cpp, to_will_alias: a transposed tensor suggests the contiguous format, too
Tensor to_contiguous(const Tensor& self, Dtype dtype) {
  if (self.dtype() == dtype) return self;
  Recorder grad("to", {&self});
  const Tensor result = self.device().empty(self.sizes(), dtype);
  grad.attach(result);
  grad.backward([dtype = self.dtype()](Tensors& gradients) { return Tensors{to(gradients[0], dtype)}; });
  return result;
}

}  // namespace llmem
