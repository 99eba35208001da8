#pragma once

#include "tensor/tensor.h"

namespace llmem {

// view_as_complex(self) * numbers, seen as floats again; numbers: complex, given as twice as many floats, without gradient
Tensor mul_complex(const Tensor& self, const Tensor& numbers);

}  // namespace llmem
