#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

// The building blocks that decoders share, each written as its PyTorch module is.
namespace llmem {

struct Linear {
  Tensor weight, bias;  // [out, in], [out] or none

  Tensor forward(const Tensor& input) const;
};

// transformers LlamaRMSNorm: in fp32, the weight applied after the cast back.
struct RmsNorm {
  Tensor weight;  // [features]

  Tensor forward(Tensor hidden_states) const;
};

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

// transformers masking_utils. Position ids [1, S]; both return none or [B, 1, S, S].
Tensor sdpa_causal_mask(const Tensor& position_ids, std::int64_t rows);
Tensor eager_causal_mask(const Tensor& position_ids, std::int64_t rows, Dtype dtype);

struct AttentionResult {
  Tensor output;   // [B, S, heads, d]
  Tensor weights;  // eager only: [B, heads, S, S]
};
// query [B, heads, S, d], key and value [B, kv_heads, S, d]
AttentionResult sdpa_attention(const Tensor& query, const Tensor& key, const Tensor& value);
AttentionResult eager_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask);

}  // namespace llmem
