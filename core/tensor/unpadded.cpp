#include "tensor/unpadded.h"

#include <utility>

#include "tensor/autograd.h"
#include "tensor/device.h"
#include "tensor/ops.h"
#include "tensor/patches.h"

namespace llmem {

namespace {

// Where the real tokens are in [B * S], and where each row's begin among them: [B + 1] of int32.
struct RealTokens {
  Tensor indices, starts;
};

// modeling_flash_attention_utils.py, _get_unpad_data. The sum of booleans goes over a copy in int32.
RealTokens real_tokens(const Tensor& mask) {
  Device& device = mask.device();
  const OpScope op(device, "unpad");
  const std::int64_t rows = mask.size(0), tokens = mask.numel();
  const Tensor lengths = device.empty({rows}, Dtype::int32);
  device.scratch(Bytes{4} * tokens);
  RealTokens real;
  real.indices = view(transpose(nonzero_of(view(mask, {tokens}), tokens), 0, 1), {tokens});
  device.scratch(Bytes{4});  // lengths.max().item()
  device.streams.host_waits(device.stream);
  const Tensor sums = device.empty({rows}, Dtype::int32);
  device.scratch(scan_scratch_of(rows, 4));
  real.starts = device.empty({rows + 1}, Dtype::int32);
  return real;
}

// Multiply-adds over rows that are as long as they can be, half of them behind the causal mask.
void meter_rows(const Tensor& query, const Tensor& key, std::int64_t rows, bool backward) {
  Device& device = query.device();
  if (device.stopped) return;
  const Dims& q = query.sizes();
  const std::int64_t forward = 2 * q[0] * q[1] * (key.size(0) / rows) * q[2];
  const std::int64_t bytes = 2 * (query.bytes_read() + key.bytes_read());
  device.meter.attention(backward ? forward / 2 * 5 : forward, backward ? 2 * bytes : bytes, query.dtype());
}

// csrc/flash_attn/flash_api.cpp of flash-attn 2.8, mha_varlen_bwd: softmax_d [H, T + 128 B] and the fp32 accumulator of dq [T + 128 B, H, d'],
// d' = d rounded up to 32, above 128 to 64; with fewer key heads also dk, dv of every query head.
Tensors varlen_backward(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t rows) {
  Device& device = query.device();
  const Meter::Muted no_kernel(device.meter);
  meter_rows(query, key, rows, true);
  const std::int64_t heads = query.size(1), d = query.size(2), step = d <= 128 ? 32 : 64;
  constexpr std::int64_t largest_block = 128;  // of queries: what may be added to beyond a row's end
  const std::int64_t places = query.size(0) + largest_block * rows;
  const auto like = [&](const Tensor& input) { return device.empty(input.sizes(), input.dtype()); };
  const Tensor dq = like(query), dk = like(key), dv = like(value);
  const Tensor softmax_d = device.empty({heads, places}, Dtype::float32);
  const Tensor dq_accumulator = device.empty({places, heads, divide_up(d, step) * step}, Dtype::float32);
  if (key.size(1) != heads) {
    const Dims expanded{key.size(0), heads, d};
    const Tensor dk_expanded = device.empty(expanded, key.dtype()), dv_expanded = device.empty(expanded, value.dtype());
  }
  return {dq, dk, dv};
}

// flash_attn_interface.py, FlashAttnVarlenFunc over mha_varlen_fwd: it keeps q, k, v, the output, its log-sum-exp (fp32 [H, T]), where rows
// begin, and the generator's state.
Tensor varlen(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& starts) {
  Recorder grad("flash_attention", {&query, &key, &value});
  Device& device = query.device();
  const std::int64_t rows = starts.numel() - 1;
  const auto kernel = [&] {
    const Meter::Muted no_kernel(device.meter);
    meter_rows(query, key, rows, false);
    const Tensor output = device.empty(query.sizes(), query.dtype());
    const Tensor logsumexp = device.empty({query.size(1), query.size(0)}, Dtype::float32);
    return Tensors{output, logsumexp, device.empty({2}, Dtype::int64)};
  };
  const Tensors made = kernel();
  const Tensor& result = made[0];
  const auto kept = [&](const Tensor& each) { return grad.save_if(grad.recording(), each); };
  Saved query_ = kept(query), key_ = kept(key), value_ = kept(value), result_ = kept(result), logsumexp_ = kept(made[1]),
        starts_ = kept(starts), rng_ = kept(made[2]);
  grad.attach(result);
  grad.backward([query_ = std::move(query_), key_ = std::move(key_), value_ = std::move(value_), result_ = std::move(result_),
                 logsumexp_ = std::move(logsumexp_), starts_ = std::move(starts_), rng_ = std::move(rng_), rows](Tensors&) {
    const Tensors in = {query_.unpack(), key_.unpack(), value_.unpack()};
    const Tensors others = {result_.unpack(), logsumexp_.unpack(), starts_.unpack(), rng_.unpack()};
    return varlen_backward(in[0], in[1], in[2], rows);
  });
  return result;
}

// The kernel takes head sizes that are multiples of 8.
Tensor varlen_of_any_head(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& starts) {
  const std::int64_t d = query.size(2), padding = divide_up(d, 8) * 8 - d;
  if (padding == 0) return varlen(query, key, value, starts);
  const Tensor q = pad_last(query, padding), k = pad_last(key, padding), v = pad_last(value, padding);
  return narrow(varlen(q, k, v, starts), 2, 0, d);
}

// flash_attn/bert_padding.py, IndexPutFirstAxis: zeros(places).index_put_
Tensor put_first(const Tensor& values, const Tensor& indices, std::int64_t places) {
  Recorder grad("pad", {&values});
  Saved indices_ = grad.save_if(grad.recording(), indices);
  Dims sizes = values.sizes();
  sizes[0] = places;
  const Tensor result = values.device().empty(sizes, values.dtype());
  grad.attach(result);
  grad.backward([indices_ = std::move(indices_)](Tensors& gradients) {
    const Tensor saved = indices_.unpack();
    Dims rows = gradients[0].sizes();
    rows[0] = saved.numel();
    return Tensors{gradients[0].device().empty(rows, gradients[0].dtype())};
  });
  return result;
}

// [B, H, S, d] -> [B * S, H, d]: a view where tokens come before heads in memory
Tensor tokens_in_a_row(const Tensor& states) {
  return reshape(transpose(states, 1, 2), {states.size(0) * states.size(2), states.size(1), states.size(3)});
}

}  // namespace

Tensor unpadded_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  const std::int64_t rows = query.size(0), sequence = query.size(2), heads = query.size(1), d = query.size(3);
  const RealTokens real = real_tokens(mask);
  const auto unpadded = [&](const Tensor& states) { return index_first(tokens_in_a_row(states), real.indices); };
  const Tensor k = unpadded(key);
  const Tensor v = unpadded(value);
  const Tensor q = unpadded(query);
  const Tensor output = varlen_of_any_head(q, k, v, real.starts);
  return transpose(view(put_first(output, real.indices, rows * sequence), {rows, sequence, heads, d}), 1, 2);
}

}  // namespace llmem
