#pragma once

#include "model/linear.h"
#include "model/norms.h"
#include "model/older.h"
#include "model/rotary.h"
#include "spec/spec.h"
#include "tensor/ring_attention.h"

namespace llmem {

// What every layer of one forward reads. Families with a sliding window in some layers have a mask (and maybe angles) for those.
struct LayerContext {
  RotaryEmbedding::Angles position_embeddings, sliding_position_embeddings;
  Tensor attention_mask, sliding_attention_mask;
  Tensor alibi;
  Tensor position_ids;    // only held: every layer gets them, none reads them again
  Tensor grid_positions;  // of a model that sees
  Attention attention = Attention::sdpa;
  Ring ring;                     // context parallelism
  Dtype half = Dtype::bfloat16;  // what flash-attn is given where states are in fp32
  bool repeats_keys = false;     // SDPA is given as many key heads as query heads, and copies without gaps
  std::shared_ptr<KeyValueCache> cache;
  // gemma4: inputs of every layer's own, [B, S, layers, d], and what a layer leaves for those that share its keys and values
  Tensor per_layer_inputs;
  struct SharedKeys {
    Tensor key, value;
  };
  std::shared_ptr<SharedKeys> shared_keys, sliding_shared_keys;
  Tensor encoder_states, encoder_attention_mask;  // of a decoder that looks at an encoder's result
  // t5: what is added to the scores, made by a stack's first layer, which leaves it in `made_biases`, for all.
  struct Biases {
    Tensor own, cross;
  };
  Biases biases;
  std::shared_ptr<Biases> made_biases;
  bool checkpointed = false;                // gradient_checkpointing of the modules
  std::shared_ptr<const struct Seen> seen;  // images
};

struct AttentionResult {
  Tensor output;   // [B, S, heads, d]
  Tensor weights;  // eager only: [B, heads, S, S]
};
// query [B, heads, S, d], key and value [B, kv_heads, S, d]
AttentionResult sdpa_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout = 0,
                               bool repeats_keys = false, const Ring& ring = {});
// mask: none, or [B, S] where there is padding
AttentionResult flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                const LayerContext& context);
AttentionResult eager_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout_probability,
                                bool softcapped);

// transformers LlamaAttention and those of its kind.
struct AttentionBlock {
  const Architecture* architecture = nullptr;
  int layer = 0;
  Linear q_proj, k_proj, v_proj, qkv_proj, o_proj;
  Norm q_norm, k_norm;
  bool liger_rope = false;
  Tensor sinks = {};                             // gpt_oss: a score for each head that no token has
  Norm output_norm = {};                         // of what enters o_proj (bitnet)
  std::vector<Norm> q_norms = {}, k_norms = {};  // of each head its own (stablelm)

  AttentionResult forward(const Tensor& hidden_states, const LayerContext& context) const;
};

}  // namespace llmem
