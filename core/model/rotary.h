#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace llmem {

// transformers LlamaRotaryEmbedding: cos and sin of every position, [1, S, d], in the dtype of the hidden states.
struct RotaryEmbedding {
  struct Angles {
    Tensor cos, sin;
  };
  Tensor inverse_frequencies, original_inverse_frequencies;  // [d / 2], fp32

  Angles forward(const Tensor& position_ids, Dtype dtype) const;
};

struct QueryAndKey {
  Tensor query, key;
};
QueryAndKey apply_rotary(const Tensor& query, const Tensor& key, const RotaryEmbedding::Angles& angles);

}  // namespace llmem
