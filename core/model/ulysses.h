#pragma once

#include "model/attention.h"

namespace llmem {

// Attention under DeepSpeed's sequence parallelism (deepspeed/runtime/sequence_parallel/ulysses_sp.py, UlyssesSPAttentionHF.forward): query
// [B, heads, S / ranks, d] and key and value [B, kv_heads, S / ranks, d] are exchanged for all tokens of this rank's heads, and the result
// [B, S / ranks, heads, d] back. Ranks divide heads; they divide kv_heads or are a multiple of them. No mask.
[[gnu::noinline]] AttentionResult ulysses_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                    const LayerContext& context, double dropout);

}  // namespace llmem
