#pragma once

#include "tensor/tensor.h"

// TRL's head in tiles (n tokens [n, h], weight [V, h], bias [V] or none): the targets' log-probabilities [n], and what its metrics want.
namespace llmem {

Tensor tiled_log_probabilities(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets);
struct TiledStatistics {  // of each token
  Tensor log_probability, entropy, is_top1;
};
TiledStatistics tiled_statistics(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets);

}  // namespace llmem
