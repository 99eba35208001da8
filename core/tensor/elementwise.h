#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

// What the pointwise kernels allocate (aten/src/ATen/TensorIterator.cpp), for ops that are made of them.
namespace llmem {

// The result of a kernel over two operands that broadcast: promoted dtype, in the order of the operands' dimensions.
Tensor elementwise(const Tensor& a, const Tensor& b);
// torch.empty_like
Tensor empty_like(const Tensor& self, Dtype dtype);
// Whether Tensor.suggest_memory_format() is channels_last; the strides of a fresh tensor of that format.
bool is_channels_last(const Layout& layout);
Dims channels_last_strides(const Dims& sizes);

}  // namespace llmem
