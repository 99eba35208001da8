#pragma once

#include <vector>

#include "tensor/tensor.h"

// What a gated delta net is made of, beside the ops of ops.h.
namespace llmem {

// a @ b of as many dimensions each, those before the last two alike
Tensor matmul_of_batches(const Tensor& a, const Tensor& b);
// torch.linalg.solve_triangular(A, B, unitriangular=True), from the left: A [..., n, n], B [..., n, m]
Tensor solve_triangular(const Tensor& A, const Tensor& B);
// torch.stack of any number of parts, along a new last dimension
Tensor stack_of(const std::vector<Tensor>& parts);
// weight @ x of a matrix [n, k] and a batch [b, k, m]: [b, n, m]
Tensor matmul_of_weight(const Tensor& weight, const Tensor& x);
// self.to(dtype, memory_format=torch.contiguous_format): self where it has the dtype already
Tensor to_contiguous(const Tensor& self, Dtype dtype);

}  // namespace llmem
