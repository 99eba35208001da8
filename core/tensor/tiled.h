#pragma once

#include "tensor/ops.h"

// TRL's head in tiles (n tokens [n, h], weight [V, h], bias [V] or none): the targets' log-probabilities [n].
namespace llmem {

Tensor tiled_log_probabilities(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets);
TiledStatistics tiled_statistics(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets);

}  // namespace llmem
