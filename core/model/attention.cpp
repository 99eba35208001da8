#include "model/attention.h"

#include <utility>

#include "tensor/ops.h"

namespace llmem {

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

AttentionResult AttentionBlock::forward(const Tensor& input, const LayerContext& context) const {
  Device& device = input.device();
  const ModuleScope scope(device, "self_attn", Category::attention);
  const Tensor hidden_states = q_proj.gathered(input);
  const Dims by_head{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
  const auto projected = [&](const char* name, const Linear& projection) {
    const ModuleScope inner(device, name);
    const Tensor out = projection.forward(hidden_states);
    return view(out, {by_head[0], by_head[1], out.size(-1) / head_dim, head_dim});
  };
  const auto normed = [&](const char* name, const RmsNorm& norm, Tensor states) {
    if (!norm.weight) return states;
    const ModuleScope inner(device, name, Category::norms);
    return norm.forward(states);
  };
  Tensor query = transpose(normed("q_norm", q_norm, projected("q_proj", q_proj)), 1, 2);
  Tensor key = transpose(normed("k_norm", k_norm, projected("k_proj", k_proj)), 1, 2);
  const Tensor value = transpose(projected("v_proj", v_proj), 1, 2);

  {
    QueryAndKey turned = apply_rotary(query, key, context.position_embeddings);
    query = std::move(turned.query);
    key = std::move(turned.key);
  }

  AttentionResult result =
      context.attention == Attention::sdpa ? sdpa_attention(query, key, value) : eager_attention(query, key, value, context.attention_mask);
  result.output = reshape(result.output, {by_head[0], by_head[1], result.output.size(2) * head_dim});
  const ModuleScope inner(device, "o_proj");
  result.output = o_proj.forward(result.output);
  return result;
}

}  // namespace llmem
