#pragma once

#include "model/modules.h"
#include "model/norms.h"
#include "model/rotary.h"
#include "spec/spec.h"

namespace llmem {

// What every layer of one forward reads.
struct LayerContext {
  RotaryEmbedding::Angles position_embeddings;
  Tensor attention_mask, position_ids;  // the positions are only held: every layer gets them, none reads them again
  Attention attention = Attention::sdpa;
};

struct AttentionResult {
  Tensor output;   // [B, S, heads, d]
  Tensor weights;  // eager only: [B, heads, S, S]
};
// query [B, heads, S, d], key and value [B, kv_heads, S, d]
AttentionResult sdpa_attention(const Tensor& query, const Tensor& key, const Tensor& value);
AttentionResult eager_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask);

// transformers LlamaAttention (Qwen3Attention with qk_norm).
struct AttentionBlock {
  Linear q_proj, k_proj, v_proj, o_proj;
  RmsNorm q_norm, k_norm;  // weights undefined: none
  std::int64_t head_dim = 0;

  AttentionResult forward(const Tensor& hidden_states, const LayerContext& context) const;
};

}  // namespace llmem
