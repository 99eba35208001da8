#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace llmem {

// A frozen weight [out, in]: bitsandbytes' in 4 bits (Linear4bit) or 8 (Linear8bitLt), or a GPTQ checkpoint's in 4.
struct QuantizedWeight {
  int bits = 4;
  bool gptq = false;
  bool keeps_inputs = false;  // 4 bits: bitsandbytes before 0.43.2 (#1270)
  std::int64_t out = 0, in = 0;
  Dtype dtype = Dtype::bfloat16;              // what backward dequantises to
  Dtype compute_dtype = Dtype::float32;       // what forward dequantises to, 4 bits
  bool looks_for_outliers = true;             // 8 bits: a threshold above 0
  Tensor data;                                // two values a byte; 8 bits: one
  Tensor code, absmax;                        // 4 bits: the table, one scale for 64 values …
  Tensor offset, second_absmax, second_code;  // … and, double-quantised, what those are made of
  Tensor scale;                               // 8 bits: one a row; gptq: one a group and column
  Tensor zeros, group_index;                  // gptq
};

// PEFT's low-rank adapter.
struct LoraAdapter {
  Tensor a, b;                                  // [rank, in], [out, rank]
  Tensor magnitude;                             // DoRA: [out]
  std::optional<Dtype> seen_as = std::nullopt;  // what `a` says that it is held in, where it is computed with in another dtype
  double dropout = 0.0;
  bool enabled = true;
};

// litgpt's adapter of the layer that makes q, k and v.
struct LitParts {
  std::vector<std::int64_t> parts;  // the widths of those of q, k and v that it is on
  bool grouped = false;             // one convolution for all of them
  std::int64_t width = 0;           // of q, k and v together
  Tensor columns;                   // which of these it is on; none: all
};

// What may be put in or around a Linear after it was made.
struct LinearParts {
  std::optional<QuantizedWeight> quantized;  // then the plain weight has no memory
  std::optional<LoraAdapter> adapter;
  std::optional<LitParts> lit;
};

// How a linear is split over the ranks of a tensor-parallel group, and where its input comes from and its output goes.
enum class LinearSplit : std::uint8_t { none, columns, columns_of_gathered, rows, rows_to_sequence };

// torch.nn.Linear; transformers' Conv1D, whose weight is [in, out]; FalconLinear, which adds its bias on its own. Copies share the parts.
struct Linear {
  Tensor weight, bias;  // [out, in], [out] or none
  LinearSplit split = LinearSplit::none;
  std::int64_t ranks = 1;
  std::shared_ptr<LinearParts> parts = std::make_shared<LinearParts>();
  enum Kind : std::uint8_t { plain, conv1d, falcon } kind = plain;

  std::int64_t in() const { return weight.size(kind == conv1d ? 0 : 1); }
  std::int64_t out() const { return weight.size(kind == conv1d ? 1 : 0); }

  // Under sequence parallelism what a block's first linears share: the whole sequence of their input.
  Tensor gathered(const Tensor& input) const;

  Tensor forward(const Tensor& input) const;
};

// Of a quantised weight: the layer itself, and the weight in full precision as DoRA asks for it.
Tensor quantized_linear(const Tensor& input, const QuantizedWeight& weight, const Tensor& bias);
Tensor dequantized(const QuantizedWeight& weight);

// What an adapter makes of its layer's result.
Tensor with_adapter(const Linear& linear, const Tensor& input, Tensor result);

}  // namespace llmem
