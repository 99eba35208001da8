#pragma once

#include "model/architecture.h"
#include "tensor/tensor.h"

namespace llmem {

// transformers LlamaRMSNorm: in fp32, the weight applied after the cast back.
struct RmsNorm {
  Tensor weight;             // [features]
  bool on_dtensors = false;  // under sequence parallelism

  Tensor forward(Tensor hidden_states) const;
};

// A norm of any kind; `present` is false where a module has none.
struct Norm {
  bool present = false;
  NormKind kind = NormKind::rms;
  Tensor weight, bias;
  bool on_dtensors = false;  // under sequence parallelism
  bool liger = false;

  Tensor forward(const Tensor& hidden_states) const;
};

}  // namespace llmem
