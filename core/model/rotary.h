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

// Positions of a model that sees: [3, B, S] along time, height and width, and [B, S] of the text, of which some classes know none.
struct GridPositions {
  Tensor grid, text;
};
constexpr bool is_grid(Rotary kind) { return kind == Rotary::grid_in_turns || kind == Rotary::grid_in_parts; }
// Qwen3VLTextModel, Qwen2_5_VLTextModel: what their forwards make of [S] (or of what they are given, [1, S]).
GridPositions grid_positions(const Tensor& position_ids, std::int64_t rows, Rotary kind);

// (x * cos) + (rotate_half(x) * sin)
Tensor turned_halves(const Tensor& x, const Tensor& cos, const Tensor& sin);

struct QueryAndKey {
  Tensor query, key;
  Tensors parts;  // what was turned and what was not, where these are locals of the attention's forward and live as long
};
// The first rotary_dim of every head is turned, the rest passed on.
QueryAndKey apply_rotary(const Architecture& a, const Tensor& query, const Tensor& key, const RotaryEmbedding::Angles& angles);

}  // namespace llmem
