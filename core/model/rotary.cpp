#include "model/rotary.h"

#include "tensor/ops.h"

namespace llmem {

RotaryEmbedding::Angles RotaryEmbedding::forward(const Tensor& position_ids, Dtype dtype) const {
  const ModuleScope scope(inverse_frequencies.device(), "rotary_emb");
  const std::int64_t sequence = position_ids.size(-1), half = inverse_frequencies.size(0);
  Device& device = position_ids.device();
  Tensor frequencies;
  {
    const Tensor positions = unary_no_grad(position_ids, "float", Dtype::float32);
    const bool exact = inverse_frequencies.dtype() == Dtype::float32;  // FSDP1 casts buffers
    const Tensor inverse = exact ? inverse_frequencies : unary_no_grad(inverse_frequencies, "float", Dtype::float32);
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

}  // namespace llmem
