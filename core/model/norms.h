#pragma once

#include "tensor/tensor.h"

namespace llmem {

// transformers LlamaRMSNorm: in fp32, the weight applied after the cast back.
struct RmsNorm {
  Tensor weight;             // [features]
  bool on_dtensors = false;  // under sequence parallelism

  Tensor forward(Tensor hidden_states) const;
};

}  // namespace llmem
