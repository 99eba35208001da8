#pragma once

#include "tensor/tensor.h"

namespace llmem {

// transformers modeling_flash_attention_utils.py, _flash_attention_forward over a batch with padding, by the package flash-attn's kernels for
// rows of any length. query [B, H, S, d], key and value [B, Hkv, S, d], mask [B, S] of booleans; -> [B, H, S, d].
// How many tokens are real is a value: all of them are taken to be, which is the most.
Tensor unpadded_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask);

}  // namespace llmem
