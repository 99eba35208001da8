#include "model/rotary.h"

#include <utility>

#include "tensor/complex.h"
#include "tensor/module_hooks.h"
#include "tensor/ops.h"

namespace llmem {

RotaryEmbedding::Angles RotaryEmbedding::forward(const Tensor& position_ids, Dtype dtype, Rotary kind) const {
  const ModuleScope scope(inverse_frequencies.device(), "rotary_emb");
  const std::int64_t sequence = position_ids.size(-1), half = inverse_frequencies.size(0);
  Device& device = position_ids.device();
  // Nothing of it wants a gradient; hooks only see that it is called.
  call_module(device, {}, itself, {}, [](const Tensor&) { return Tensor(); });
  Tensor frequencies;
  {
    const Tensor positions = unary_no_grad(position_ids, "float", Dtype::float32);
    const bool exact = inverse_frequencies.dtype() == Dtype::float32;  // FSDP1 casts buffers
    const Tensor inverse = exact ? inverse_frequencies : unary_no_grad(inverse_frequencies, "float", Dtype::float32);
    Dims sizes = position_ids.sizes();
    sizes.push_back(half);
    frequencies = device.empty(sizes, Dtype::float32);
  }
  if (kind == Rotary::complex) {  // DeepseekV2RotaryEmbedding: complex numbers, which take as much as two floats
    const Dims sizes{1, sequence, 2 * half};
    Tensor polar;
    {
      const Tensor ones = device.empty(frequencies.sizes(), Dtype::float32);
      polar = device.empty(sizes, Dtype::float32);
    }
    return {mul_scalar(polar), {}};
  }
  if (kind == Rotary::grid_in_turns || kind == Rotary::grid_in_parts) {
    Tensor cos = mul_scalar(unary_no_grad(frequencies, "cos", Dtype::float32));
    Tensor sin = mul_scalar(unary_no_grad(frequencies, "sin", Dtype::float32));
    // recomposition_frequencies
    const auto composed = [&](const Tensor& of) {
      const Tensor first = select(of, 0);
      const Tensor whole = kind == Rotary::grid_in_parts ? device.empty(first.sizes(), Dtype::float32) : first;
      return cat({whole, whole}, 2);
    };
    sin = composed(sin);
    cos = composed(cos);
    const Tensor cos_cast = to(cos, dtype);
    return {cos_cast, to(sin, dtype)};
  }
  const Tensor angles = kind == Rotary::chunked       ? frequencies
                        : kind == Rotary::pairs_float ? repeat_interleave_no_grad(frequencies)
                                                      : cat({frequencies, frequencies}, 2);
  const Tensor cos = mul_scalar(unary_no_grad(angles, "cos", Dtype::float32));
  const Tensor sin = mul_scalar(unary_no_grad(angles, "sin", Dtype::float32));
  if (kind == Rotary::halves_float || kind == Rotary::repeated_float) return {cos, sin};
  const Tensor cos_cast = to(cos, dtype);
  return {cos_cast, to(sin, dtype)};
}

GridPositions grid_positions(const Tensor& position_ids, std::int64_t rows, Rotary kind) {
  const bool knows_text = kind == Rotary::grid_in_turns;
  const std::int64_t sequence = position_ids.size(-1);
  const Tensor all = expand(view(position_ids, {1, 1, sequence}), {knows_text ? 4 : 3, rows, sequence});
  if (!knows_text) return {all, {}};
  return {narrow(all, 0, 1, 3), select(all, 0)};
}

namespace {

Tensor rotate_half(const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor x1 = narrow(x, 3, 0, half);
  const Tensor x2 = narrow(x, 3, half, half);
  return cat({neg(x2), x1}, 3);
}

// CohereAttention's and GlmAttention's: neighbours instead of halves
Tensor rotate_pairs(const Tensor& x) {
  const Tensor x1 = every_second(x), x2 = every_second(x);
  Tensor stacked;
  {
    const Tensor negated = neg(x2);
    stacked = stack_last(negated, x1);
  }
  return view(stacked, x.sizes());
}

Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool pairs, bool as_float) {
  const Tensor straight = as_float ? mul(to(x, Dtype::float32), cos) : mul(x, cos);
  Tensor turned = pairs ? rotate_pairs(x) : rotate_half(x);
  if (as_float) turned = to(turned, Dtype::float32);
  turned = mul(turned, sin);
  return add(straight, turned);
}

}  // namespace

Tensor turned_halves(const Tensor& x, const Tensor& cos, const Tensor& sin) { return rotated(x, cos, sin, false, false); }

namespace {

// GptOssAttention's _apply_rotary_emb
Tensor turned_in_chunks(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  const auto [first, second] = halves_of(x);
  const auto combined = [&](const Tensor& a, const Tensor& b, bool minus) {
    const Tensor left = mul(a, cos);
    const Tensor right = mul(b, sin);
    return minus ? sub(left, right) : add(left, right);
  };
  const Tensor new_first = combined(first, second, true), new_second = combined(second, first, false);
  return cat({new_first, new_second}, 3);
}

// apply_rotary_pos_emb_interleave of deepseek_v3
Tensor turned_neighbours(const Tensor& first, const Tensor& second, const Tensor& cos, const Tensor& sin) {
  const auto combined = [&](const Tensor& a, const Tensor& b, bool minus) {
    const Tensor left = mul(a, cos);
    const Tensor right = mul(b, sin);
    return minus ? sub(left, right) : add(left, right);
  };
  const auto both = [&] {
    const Tensor one = combined(first, second, true);
    return std::pair(one, combined(second, first, false));
  };
  const auto [one, two] = both();
  return cat({one, two}, 3);
}

// apply_rotary_emb of deepseek_v2: as complex numbers
QueryAndKey turned_as_complex(const Tensor& query, const Tensor& key, const Tensor& numbers) {
  const Tensor q = to(query, Dtype::float32), k = to(key, Dtype::float32);
  const auto turned = [&](const Tensor& states, Dtype dtype) {
    const Tensor product = mul_complex(states, numbers);
    return to(product, dtype);
  };
  const Tensor turned_query = turned(q, query.dtype());
  return {turned_query, turned(k, key.dtype()), {}};
}

}  // namespace

QueryAndKey apply_rotary(const Architecture& a, const Tensor& query, const Tensor& key, const RotaryEmbedding::Angles& angles) {
  const Dtype dtype = query.dtype();
  if (a.rotary == Rotary::complex) { return turned_as_complex(query, key, unsqueeze(angles.cos, 1)); }
  if (a.rotary == Rotary::chunked) {
    const Tensor c = unsqueeze(angles.cos, 1), s = unsqueeze(angles.sin, 1);
    const Tensor turned_query = turned_in_chunks(query, c, s);
    return {turned_query, turned_in_chunks(key, c, s), {}};
  }
  if (a.rotary == Rotary::interleaved) {
    const std::int64_t half = angles.cos.size(-1) / 2;
    const Tensor c = unsqueeze(narrow(angles.cos, 2, 0, half), 1), s = unsqueeze(narrow(angles.sin, 2, 0, half), 1);
    const Tensor q1 = every_second(query), q2 = every_second(query), k1 = every_second(key), k2 = every_second(key);
    const Tensor turned_query = turned_neighbours(q1, q2, c, s);
    return {turned_query, turned_neighbours(k1, k2, c, s), {}};
  }
  Tensor cos = unsqueeze(angles.cos, 1), sin = unsqueeze(angles.sin, 1);
  const bool pairs = a.rotary == Rotary::pairs || a.rotary == Rotary::pairs_float || a.rotary == Rotary::repeated_float;
  if (a.rotary == Rotary::pairs || a.rotary == Rotary::repeated_float) {
    cos = repeat_interleave_no_grad(narrow(cos, 3, 0, cos.size(-1) / 2));
    sin = repeat_interleave_no_grad(narrow(sin, 3, 0, sin.size(-1) / 2));
  }
  const auto turned = [&](const Tensor& states) { return rotated(states, cos, sin, pairs, a.rotary == Rotary::repeated_float); };
  // The slices are there where a whole head is turned, too: the rest is empty then, but asks for a gradient.
  if (a.partly_rotary) {
    const std::int64_t rest = a.head_dim - a.rotary_dim;
    const auto parts = [&](const Tensor& states) {
      const Tensor first = rest == 0 ? view(states, states.sizes()) : narrow(states, 3, 0, a.rotary_dim);
      return std::pair(first, narrow(states, 3, a.rotary_dim, rest));
    };
    const auto [query_turned, query_rest] = parts(query);
    const auto [key_turned, key_rest] = parts(key);
    if (a.partly_rotary_at_once) {  // Phi3: torch.cat([(q_rot * cos) + (rotate_half(q_rot) * sin), q_pass])
      const Tensor whole_query = cat({turned(query_turned), query_rest}, 3);
      return {whole_query, cat({turned(key_turned), key_rest}, 3), {}};
    }
    Tensor first_query = turned(query_turned), first_key = turned(key_turned);
    if (a.rotary == Rotary::pairs || a.parts_rebound) {  // q_embed = torch.cat([q_embed, q_pass]): the parts' names are taken
      first_query = cat({first_query, query_rest}, 3);
      first_key = cat({first_key, key_rest}, 3);
      return {first_query, first_key, {}};
    }
    const Tensor whole_query = cat({first_query, query_rest}, 3);
    const Tensor whole_key = cat({first_key, key_rest}, 3);
    if (a.parts_inside) return {whole_query, whole_key, {}};
    return {whole_query, whole_key, {first_query, query_rest, first_key, key_rest}};
  }
  if (a.rotary == Rotary::pairs_float) {  // CohereAttention: q.float(), k.float() first
    const Tensor float_query = to(query, Dtype::float32), float_key = to(key, Dtype::float32);
    const Tensor turned_query = turned(float_query), turned_key = turned(float_key);
    const Tensor cast = to(turned_query, dtype);
    return {cast, to(turned_key, dtype), {}};
  }
  const Tensor turned_query = turned(query), turned_key = turned(key);
  if (a.rotary != Rotary::halves_float && a.rotary != Rotary::repeated_float) return {turned_query, turned_key, {}};
  const Tensor cast = to(turned_query, dtype);
  return {cast, to(turned_key, dtype), {}};
}

}  // namespace llmem
