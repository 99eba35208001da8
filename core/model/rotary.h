#pragma once

#include "model/architecture.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace llmem {

// transformers LlamaRotaryEmbedding: cos and sin of every position, [1, S, d], in the dtype of the hidden states
// (in fp32 where the family keeps them so).
struct RotaryEmbedding {
  struct Angles {
    Tensor cos, sin;
  };
  Tensor inverse_frequencies, original_inverse_frequencies;  // [d / 2], fp32

  Angles forward(const Tensor& position_ids, Dtype dtype, Rotary kind = Rotary::halves) const;
};

struct QueryAndKey {
  Tensor query, key;
  Tensors parts;  // what was turned and what was not, where these are locals of the attention's forward and live as long
};
// The first rotary_dim of every head is turned, the rest passed on.
QueryAndKey apply_rotary(const Architecture& a, const Tensor& query, const Tensor& key, const RotaryEmbedding::Angles& angles);

}  // namespace llmem
