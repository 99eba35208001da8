#include "model/masks.h"

#include "tensor/ops.h"

namespace llmem {

void ask_for_packed_sequences(const Tensor& position_ids, std::int64_t rows) {
  Device& device = position_ids.device();
  const std::int64_t sequence = position_ids.size(-1);
  Tensor before_first = device.empty({rows, 1}, Dtype::int64);
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
  const auto all_first = [&] {
    const Tensor last_is_first = device.empty({rows}, Dtype::boolean);
    return device.empty({}, Dtype::boolean);
  };
  all_first();
  device.streams.host_waits(device.stream);
  before_first.reset();  // a function's names go in the order in which it took them
  difference.reset();
}

namespace {

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

// fast_all: `mask.sum() == mask.numel()`
void ask_for_padding(const Tensor& mask) {
  Device& device = mask.device();
  const Tensor count = device.empty({}, Dtype::int64);
  device.scratch(Bytes{8} * mask.numel());
  device.scratch(Bytes{1});
  device.streams.host_waits(device.stream);
}

// sdpa_mask without a shortcut: where key <= query (and in the window), [1, 1, S, S], and where the key is no padding, [B, 1, S, S]
Tensor boolean_causal_mask(Device& device, std::int64_t rows, std::int64_t sequence, bool window, const Tensor& padding) {
  const auto booleans = [&](std::int64_t batch, std::int64_t queries) {
    return device.empty({batch, 1, queries, sequence}, Dtype::boolean);
  };
  const Tensor batch = device.empty({rows}, Dtype::int64), head = device.empty({1}, Dtype::int64);
  const auto offset_range = [&] { return add_scalar(device.empty({sequence}, Dtype::int64)); };
  const Tensor queries = offset_range();
  const Tensor keys = offset_range();
  const Dims sizes{1, 1, sequence, sequence};
  const auto causal_mask = [&] { return window ? in_window_and_causal(device, queries, sizes) : device.empty(sizes, Dtype::boolean); };
  if (!padding) return causal_mask();
  Tensor mask;
  {
    const Tensor all = device.empty({}, Dtype::boolean);  // and_mask
    const Tensor causal = causal_mask();
    mask = booleans(1, sequence);
  }
  Tensor kept;
  {
    const auto index = [&] { return device.empty({rows, 1, 1, sequence}, Dtype::int64); };
    // aten/src/ATen/native/TensorAdvancedIndexing.cpp, AdvancedIndex: copies where an index does not lie as the result does
    const Tensor of_rows = index(), of_keys = rows > 1 ? index() : Tensor();
    kept = booleans(rows, 1);
  }
  return booleans(rows, sequence);
}

Tensor as_booleans(const Tensor& mask) { return unary_no_grad(mask, "attention_mask", Dtype::boolean); }

}  // namespace

Tensor sdpa_causal_mask(Device& device, const Tensor& position_ids, std::int64_t rows, std::int64_t sequence, const PaddingMask& padding) {
  if (!padding.mask) {
    if (position_ids) ask_for_packed_sequences(position_ids, rows);
    return {};
  }
  const Tensor kept = as_booleans(padding.mask);
  ask_for_padding(kept);
  if (!padding.padding) return {};
  ask_for_padding(kept);
  return boolean_causal_mask(device, rows, sequence, false, kept);
}

Tensor flash_mask(const Tensor& position_ids, std::int64_t rows, const PaddingMask& padding) {
  if (!padding.mask) {
    if (position_ids) ask_for_packed_sequences(position_ids, rows);
    return {};
  }
  Tensor kept = as_booleans(padding.mask);
  kept.device().scratch(Bytes{1});  // attention_mask.all(), read by the host
  kept.device().streams.host_waits(kept.device().stream);
  return padding.padding ? kept : Tensor();
}

Tensor sdpa_causal_mask_always(Device& device, const Tensor& position_ids, std::int64_t rows, std::int64_t sequence, bool window,
                               const PaddingMask& padding) {
  Tensor kept;
  if (padding.mask)
    kept = as_booleans(padding.mask);
  else if (position_ids)
    ask_for_packed_sequences(position_ids, rows);
  const Tensor mask = boolean_causal_mask(device, rows, sequence, window, kept);
  return expand(mask, {rows, 1, sequence, sequence});
}

Tensor eager_causal_mask(Device& device, const Tensor& position_ids, std::int64_t rows, std::int64_t sequence, Dtype dtype, bool window,
                         const PaddingMask& padding) {
  Tensor kept;
  if (padding.mask) {
    kept = as_booleans(padding.mask);
  } else if (position_ids) {
    ask_for_packed_sequences(position_ids, rows);
  }
  const Tensor allowed = boolean_causal_mask(device, rows, sequence, window, kept);
  const Tensor zero = device.empty({}, dtype), lowest = device.empty({}, dtype);
  return device.empty({rows, 1, sequence, sequence}, dtype);
}

}  // namespace llmem
