#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

// The building blocks that decoders share, each written as its PyTorch module is.
namespace llmem {

struct Linear {
  Tensor weight, bias;  // [out, in], [out] or none

  Tensor forward(const Tensor& input) const;
};

}  // namespace llmem
