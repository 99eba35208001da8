#include "model/modules.h"

#include "tensor/ops.h"

namespace llmem {

Tensor Linear::forward(const Tensor& input) const { return linear(input, weight, bias); }

Tensor RmsNorm::forward(Tensor hidden_states) const {
  const Dtype input_dtype = hidden_states.dtype();
  hidden_states = to(hidden_states, Dtype::float32);
  const Tensor variance = mean_last(square(hidden_states));
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden_states = mul(hidden_states, scale);
  }
  return mul(weight, to(hidden_states, input_dtype));
}

RotaryEmbedding::Angles RotaryEmbedding::forward(const Tensor& position_ids, Dtype dtype) const {
  const ModuleScope scope(inverse_frequencies.device(), "rotary_emb");
  const std::int64_t sequence = position_ids.size(-1), half = inverse_frequencies.size(0);
  Device& device = position_ids.device();
  Tensor frequencies;
  {
    const Tensor positions = unary_no_grad(position_ids, "float", Dtype::float32);
    frequencies = device.empty({1, sequence, half}, Dtype::float32);
  }
  const Tensor angles = cat({frequencies, frequencies}, 2);
  const Tensor cos = mul_scalar(unary_no_grad(angles, "cos", Dtype::float32));
  const Tensor sin = mul_scalar(unary_no_grad(angles, "sin", Dtype::float32));
  const Tensor cos_cast = to(cos, dtype);
  return {cos_cast, to(sin, dtype)};
}

namespace {

Tensor rotate_half(const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor x1 = narrow(x, 3, 0, half);
  const Tensor x2 = narrow(x, 3, half, half);
  return cat({neg(x2), x1}, 3);
}

Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const Tensor straight = mul(x, cos);
  const Tensor turned = mul(rotate_half(x), sin);
  return add(straight, turned);
}

}  // namespace

QueryAndKey apply_rotary(const Tensor& query, const Tensor& key, const RotaryEmbedding::Angles& angles) {
  const Tensor cos = unsqueeze(angles.cos, 1), sin = unsqueeze(angles.sin, 1);
  const Tensor turned_query = rotated(query, cos, sin);
  return {turned_query, rotated(key, cos, sin)};
}

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

AttentionResult sdpa_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  const Tensor output = scaled_dot_product_attention(query, key, value);
  return {contiguous(transpose(output, 1, 2)), {}};
}

namespace {

Tensor repeat_kv(const Tensor& states, std::int64_t times) {
  if (times == 1) return states;
  const Dims& s = states.sizes();
  const Tensor repeated = expand(unsqueeze(states, 2), {s[0], s[1], times, s[2], s[3]});
  return reshape(repeated, {s[0], s[1] * times, s[2], s[3]});
}

}  // namespace

AttentionResult eager_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  const std::int64_t groups = query.size(1) / key.size(1);
  const Tensor keys = repeat_kv(key, groups);
  const Tensor values = repeat_kv(value, groups);
  Tensor weights = mul_scalar(matmul(query, transpose(keys, 2, 3)));
  weights = add(weights, mask);
  weights = to(softmax_float(weights), query.dtype());
  Tensor output = matmul(weights, values);
  output = contiguous(transpose(output, 1, 2));
  return {output, weights};
}

}  // namespace llmem
