#pragma once

#include "tensor/tensor.h"

namespace llmem {

// Context parallelism: each of `ranks` has a part of every row's tokens.
struct Ring {
  std::int64_t ranks = 1, rank = 0;
  bool all_to_all = false;   // keys and values go from rank to rank; else all are gathered at once
  bool load_balance = true;  // a rank's part is a chunk of the beginning and one of the end
  bool ulysses = false;      // no ring: in attention a rank has all tokens of some heads, elsewhere neighbouring tokens of all
};

// Causal attention of this rank's queries [B, H, S / ranks, d] to all keys and values (torch/distributed/tensor/experimental/
// _context_parallel/_attention.py over flash attention).
Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, const Ring& ring);

// The kernels of one step (core/tensor/attention.cpp).
struct FlashForward {
  Tensor output, logsumexp, rng_state, unused;
};
FlashForward flash_forward(const Tensor& query, const Tensor& key, double dropout, bool causal);
Tensors flash_backward(const Tensor& gradient, const Tensor& output, const Tensor& query, const Tensor& key, const Tensor& value,
                       bool causal);

}  // namespace llmem
