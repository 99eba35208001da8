#include "model/masks.h"

#include "tensor/ops.h"

namespace llmem {

namespace {

// find_packed_sequence_indices: is a row several sequences? Asked at every forward; the answer is no.
void ask_for_packed_sequences(const Tensor& position_ids, std::int64_t rows) {
  Device& device = position_ids.device();
  const std::int64_t sequence = position_ids.size(-1);
  const Tensor before_first = device.empty({rows, 1}, Dtype::int64);
  Tensor difference;
  {
    const Tensor prepended = device.empty({rows, sequence + 1}, Dtype::int64);
    difference = device.empty({rows, sequence}, Dtype::int64);
  }
  Tensor packed;
  {
    const Tensor jumps = device.empty({rows, sequence}, Dtype::boolean);
    packed = device.empty({rows, sequence}, Dtype::int64);
    const Tensor as_integers = device.empty({rows, sequence}, Dtype::int64);
    if (rows == 1) device.scratch(scan_scratch(sequence));
  }
  const Tensor last_is_first = device.empty({rows}, Dtype::boolean);
  device.scratch(Bytes{1});
}

// and_mask of sliding_window_overlay and causal_mask_function: True, and key > query - window, and key <= query
Tensor in_window_and_causal(Device& device, const Tensor& queries, const Dims& sizes) {
  Tensor result = device.empty({}, Dtype::boolean);
  const auto and_with = [&](const auto& make) {
    const Tensor other = make();
    result = device.empty(sizes, Dtype::boolean);
  };
  and_with([&] {
    const Tensor shifted = add_scalar(queries);
    return device.empty(sizes, Dtype::boolean);
  });
  and_with([&] { return device.empty(sizes, Dtype::boolean); });
  return result;
}

// sdpa_mask without a shortcut: where key <= query (and in the window), [1, 1, S, S]
Tensor boolean_causal_mask(Device& device, std::int64_t rows, std::int64_t sequence, bool window) {
  const Tensor batch = device.empty({rows}, Dtype::int64), head = device.empty({1}, Dtype::int64);
  const auto offset_range = [&] { return add_scalar(device.empty({sequence}, Dtype::int64)); };
  const Tensor queries = offset_range();
  const Tensor keys = offset_range();
  const Dims sizes{1, 1, sequence, sequence};
  return window ? in_window_and_causal(device, queries, sizes) : device.empty(sizes, Dtype::boolean);
}

Tensor eager_mask(const Tensor& position_ids, std::int64_t rows, Dtype dtype, bool window) {
  ask_for_packed_sequences(position_ids, rows);
  Device& device = position_ids.device();
  const std::int64_t sequence = position_ids.size(-1);
  const Tensor allowed = boolean_causal_mask(device, rows, sequence, window);
  const Tensor zero = device.empty({}, dtype), lowest = device.empty({}, dtype);
  return device.empty({rows, 1, sequence, sequence}, dtype);
}

}  // namespace

Tensor sdpa_causal_mask(const Tensor& position_ids, std::int64_t rows) {
  ask_for_packed_sequences(position_ids, rows);
  return {};
}

Tensor eager_causal_mask(const Tensor& position_ids, std::int64_t rows, Dtype dtype) {
  return eager_mask(position_ids, rows, dtype, false);
}

Tensor eager_sliding_window_mask(const Tensor& position_ids, std::int64_t rows, Dtype dtype) {
  return eager_mask(position_ids, rows, dtype, true);
}

}  // namespace llmem
