#pragma once

#include "model/attention.h"
#include "model/mlp.h"

namespace llmem {

// transformers LlamaDecoderLayer
struct DecoderLayer {
  AttentionBlock self_attn;
  Mlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;

  Tensor forward(const Tensor& hidden_states, const LayerContext& context) const;
};

}  // namespace llmem
