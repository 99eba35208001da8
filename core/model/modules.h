#pragma once

#include "tensor/device.h"
#include "tensor/tensor.h"

// The building blocks that decoders share, each written as its PyTorch module is.
namespace llmem {

// How a linear is split over the ranks of a tensor-parallel group, and where its input comes from and its output goes.
enum class LinearSplit : std::uint8_t { none, columns, columns_of_gathered, rows, rows_to_sequence };

struct Linear {
  Tensor weight, bias;  // [out, in], [out] or none
  LinearSplit split = LinearSplit::none;
  std::int64_t ranks = 1;

  // Under sequence parallelism what a block's first linears share: the whole sequence of their input.
  Tensor gathered(const Tensor& input) const;

  Tensor forward(const Tensor& input) const;
};

}  // namespace llmem
