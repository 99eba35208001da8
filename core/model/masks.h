#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

// transformers masking_utils. Position ids [1, S].
namespace llmem {

// None, or [B, 1, S, S].
Tensor sdpa_causal_mask(const Tensor& position_ids, std::int64_t rows);
Tensor eager_causal_mask(const Tensor& position_ids, std::int64_t rows, Dtype dtype);
Tensor eager_sliding_window_mask(const Tensor& position_ids, std::int64_t rows, Dtype dtype);

}  // namespace llmem
