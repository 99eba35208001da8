#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

// What the pointwise kernels allocate (aten/src/ATen/TensorIterator.cpp), for ops that are made of them.
namespace llmem {

// The result of a kernel over two operands that broadcast: promoted dtype, in the order of the operands' dimensions.
Tensor elementwise(const Tensor& a, const Tensor& b);
// torch.empty_like
Tensor empty_like(const Tensor& self, Dtype dtype);

}  // namespace llmem
