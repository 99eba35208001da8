#pragma once

#include "tensor/tensor.h"

// What DTensor (torch/distributed/tensor) does between the parts of a layer that is split over `ranks`. Functional collectives are out of
// place, and gather or scatter along any dimension but the first goes through a copy in the order of the ranks
// (torch/distributed/_functional_collectives.py). B: rows, S: sequence, h: features, V: vocabulary.
namespace llmem {

// Into a column-split linear: nothing forward; backward, each rank has a part of the input's gradient: all-reduce.
Tensor all_reduce_gradient(const Tensor& input);
// Out of a row-split linear: all-reduce forward, nothing backward.
Tensor all_reduce(const Tensor& partial);

// [B, S / ranks, h] -> [B, S, h]; backward a reduce-scatter.
Tensor gather_sequence(const Tensor& input, std::int64_t ranks);
// A sum in parts, [B, S, h] -> [B, S / ranks, h]; backward an all-gather.
Tensor reduce_scatter_sequence(const Tensor& partial, std::int64_t ranks);

// [..., V / ranks] -> [..., V]; backward this rank's columns.
Tensor gather_columns(const Tensor& input, std::int64_t ranks);

// Blocks of the first dimension, one for each rank, change places among the ranks of context parallelism, forward and backward
// (deepspeed/sequence/layer.py, _dim_zero_all_to_all).
Tensor all_to_all(const Tensor& blocks);

// An embedding split by rows: weight [V / ranks, h]. Its gradient is of the whole vocabulary. The result is a sum in parts, brought to
// [B, S, h] or, `sequence`, [B, S / ranks, h].
Tensor split_embedding(const Tensor& weight, const Tensor& ids, std::int64_t vocabulary, std::int64_t ranks, bool sequence);

// torch/distributed/tensor/parallel/loss.py: cross_entropy of logits [N, V / ranks] fp32, target [N].
Tensor split_cross_entropy(const Tensor& logits, const Tensor& target);

}  // namespace llmem
