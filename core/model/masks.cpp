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

// sdpa_mask without a shortcut: where key <= query, [1, 1, S, S]
Tensor boolean_causal_mask(Device& device, std::int64_t rows, std::int64_t sequence) {
  const Tensor batch = device.empty({rows}, Dtype::int64), head = device.empty({1}, Dtype::int64);
  const auto offset_range = [&] { return add_scalar(device.empty({sequence}, Dtype::int64)); };
  const Tensor queries = offset_range();
  const Tensor keys = offset_range();
  return device.empty({1, 1, sequence, sequence}, Dtype::boolean);
}

}  // namespace

Tensor sdpa_causal_mask(const Tensor& position_ids, std::int64_t rows) {
  ask_for_packed_sequences(position_ids, rows);
  return {};
}

Tensor eager_causal_mask(const Tensor& position_ids, std::int64_t rows, Dtype dtype) {
  ask_for_packed_sequences(position_ids, rows);
  Device& device = position_ids.device();
  const std::int64_t sequence = position_ids.size(-1);
  const Tensor allowed = boolean_causal_mask(device, rows, sequence);
  const Tensor zero = device.empty({}, dtype), lowest = device.empty({}, dtype);
  return device.empty({rows, 1, sequence, sequence}, dtype);
}

}  // namespace llmem
