#pragma once

#include "spec/spec.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

// transformers masking_utils. Position ids [1, S], or none: then nobody asks for packed sequences.
namespace llmem {

// The attention mask of a batch, as the tokenizer makes it: [B, S] of int64, or none; and whether it masks anything.
struct PaddingMask {
  Tensor mask;
  bool padding = false;
};

// find_packed_sequence_indices: is a row several sequences? Asked at every forward; the answer is no.
void ask_for_packed_sequences(const Tensor& position_ids, std::int64_t rows);
// None where SDPA needs none, or [B, 1, S, S] of booleans.
Tensor sdpa_causal_mask(Device& device, const Tensor& position_ids, std::int64_t rows, std::int64_t sequence, const PaddingMask& padding);
// The same where nothing may be skipped.
Tensor sdpa_causal_mask_always(Device& device, const Tensor& position_ids, std::int64_t rows, std::int64_t sequence, bool window,
                               const PaddingMask& padding);
// flash_attention_mask: [B, S] of booleans where there is padding, else none.
Tensor flash_mask(const Tensor& position_ids, std::int64_t rows, const PaddingMask& padding);
// [B, 1, S, S], to be added. `window`: the config has a sliding window.
Tensor eager_causal_mask(Device& device, const Tensor& position_ids, std::int64_t rows, std::int64_t sequence, Dtype dtype, bool window,
                         const PaddingMask& padding);

// create_bidirectional_mask: of `keys` tokens that are looked at from `queries`; none where nothing is padding. For eager attention numbers of
// `dtype`, for flash attention [B, S'] of booleans, else [B, 1, S, S'] of them.
Tensor bidirectional_mask(Device& device, std::int64_t rows, std::int64_t queries, std::int64_t keys, Attention attention, Dtype dtype,
                          const PaddingMask& padding);

}  // namespace llmem
