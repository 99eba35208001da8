#include "model/encoder.h"
#include "model/masks.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// padding_mask.all(), read by the host
void ask_for_any_padding(const Tensor& mask) { mask.device().scratch(Bytes{1}); }

// where key is no padding and within the window, [B, 1, S, S']
Tensor boolean_mask(Device& device, std::int64_t rows, std::int64_t queries, std::int64_t keys, bool window, bool padded) {
  const auto booleans = [&](std::int64_t batch, std::int64_t from, std::int64_t to) {
    return device.empty({batch, 1, from, to}, Dtype::boolean);
  };
  const Tensor batch = device.empty({rows}, Dtype::int64), head = device.empty({1}, Dtype::int64);
  const auto offset_range = [&](std::int64_t count) { return add_scalar(device.empty({count}, Dtype::int64)); };
  const Tensor from = offset_range(queries);
  const Tensor to = offset_range(keys);
  // and_mask of what is allowed where nothing is padding: q_idx >= 0 (bidirectional_mask_function), within the window if there is one
  const auto allowed = [&] {
    if (!window) return booleans(1, queries, 1);
    Tensor result = device.empty({}, Dtype::boolean);
    {
      const auto within = [&] {
        const auto distance = [&] {
          const Tensor difference = device.empty({1, 1, queries, keys}, Dtype::int64);
          return device.empty({1, 1, queries, keys}, Dtype::int64);
        };
        const Tensor absolute = distance();
        return booleans(1, queries, keys);
      };
      const Tensor near = within();
      result = booleans(1, queries, keys);
    }
    const Tensor any_query = booleans(1, queries, 1);
    result = booleans(1, queries, keys);
    return result;
  };
  if (!padded) return expand(allowed(), {rows, 1, queries, keys});
  Tensor mask;
  {
    const Tensor all = device.empty({}, Dtype::boolean);
    const Tensor by_query = allowed();
    mask = booleans(1, queries, window ? keys : 1);
  }
  Tensor kept;
  {
    const auto index = [&] { return device.empty({rows, 1, 1, keys}, Dtype::int64); };
    const Tensor of_rows = index(), of_keys = index();
    kept = booleans(rows, 1, keys);
  }
  return booleans(rows, queries, keys);
}

// torch.where(mask, zeros(()), lowest)
Tensor as_numbers(const Tensor& mask, Dtype dtype) {
  Device& device = mask.device();
  const Tensor zero = device.empty({}, dtype), lowest = device.empty({}, dtype);
  return device.empty(mask.sizes(), dtype);
}

}  // namespace

Tensor bidirectional_mask(Device& device, std::int64_t rows, std::int64_t queries, std::int64_t keys, Attention attention, Dtype dtype,
                          const PaddingMask& padding) {
  if (!padding.mask) return {};
  const Tensor kept = unary_no_grad(padding.mask, "attention_mask", Dtype::boolean);
  ask_for_any_padding(kept);
  if (!padding.padding) return {};
  if (attention == Attention::flash_attention_2) return kept;
  const Tensor allowed = boolean_mask(device, rows, queries, keys, false, true);
  return attention == Attention::eager ? as_numbers(allowed, dtype) : allowed;
}

Tensor bidirectional_window_mask(Device& device, std::int64_t rows, std::int64_t sequence, std::int64_t window, Attention attention,
                                 Dtype dtype, const PaddingMask& padding) {
  Tensor kept;
  if (padding.mask) {
    kept = unary_no_grad(padding.mask, "attention_mask", Dtype::boolean);
    ask_for_any_padding(kept);
  }
  if (attention == Attention::flash_attention_2) return padding.padding ? kept : Tensor();
  if (!padding.padding && sequence < window) return {};
  const Tensor allowed = boolean_mask(device, rows, sequence, sequence, true, static_cast<bool>(padding.mask));
  return attention == Attention::eager ? as_numbers(allowed, dtype) : allowed;
}

}  // namespace llmem
