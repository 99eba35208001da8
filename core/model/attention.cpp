#include "model/attention.h"

#include <tuple>
#include <utility>

#include "model/ulysses.h"
#include "tensor/heads.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

Tensor repeat_kv(const Tensor& states, std::int64_t times) {
  if (times == 1) return states;
  const Dims& s = states.sizes();
  const Tensor repeated = expand(unsqueeze(states, 2), {s[0], s[1], times, s[2], s[3]});
  return reshape(repeated, {s[0], s[1] * times, s[2], s[3]});
}

}  // namespace

// A mask takes a kernel that knows nothing of fewer key heads, and so do large heads (use_gqa_in_sdpa).
AttentionResult sdpa_attention(const Tensor& given_query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout,
                               bool repeats_keys, const Ring& ring) {
  if (ring.ranks > 1 && !ring.ulysses) {
    const Tensor output = ring_attention(given_query, key, value, dropout, ring);
    return {contiguous(transpose(output, 1, 2)), {}};
  }
  const bool fewer_keys = !mask && !repeats_keys && key.size(3) == value.size(3) && key.size(3) <= 256;
  const std::int64_t groups = fewer_keys ? 1 : given_query.size(1) / key.size(1);
  Tensor query = given_query, keys = repeat_kv(key, groups), values = repeat_kv(value, groups);
  if (repeats_keys) {
    for (Tensor* each : {&query, &keys, &values}) *each = contiguous(*each);
  }
  const Tensor output = scaled_dot_product_attention(query, keys, values, mask, dropout);
  return {contiguous(transpose(output, 1, 2)), {}};
}

namespace {

// modeling_flash_attention_utils.py, _is_packed_sequence: asked in every layer where there is one row.
void ask_for_packed_row(const Tensor& position_ids) {
  Device& device = position_ids.device();
  const std::int64_t sequence = position_ids.size(-1);
  Tensor increasing;
  {
    const Tensor counted = device.empty({sequence}, Dtype::int64), first = device.empty({}, Dtype::int64);
    increasing = device.empty({sequence}, Dtype::int64);
  }
  Tensor difference = device.empty({1, sequence}, Dtype::int64);
  difference = device.empty({1, sequence}, Dtype::int64);
  const Tensor sum = device.empty({}, Dtype::int64), any = device.empty({}, Dtype::boolean);
}

}  // namespace

AttentionResult flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                const LayerContext& context) {
  if (!mask && query.size(0) == 1 && context.position_ids) ask_for_packed_row(context.position_ids);
  const Tensor output = flash_attention_2(query, key, value, context.half, mask);
  return {contiguous(transpose(output, 1, 2)), {}};
}

AttentionResult eager_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout_probability,
                                bool softcapped) {
  const std::int64_t groups = query.size(1) / key.size(1);
  const Tensor keys = repeat_kv(key, groups);
  const Tensor values = repeat_kv(value, groups);
  Tensor weights = mul_scalar(matmul(query, transpose(keys, 2, 3)));
  if (softcapped) {  // gemma2
    weights = mul_scalar(weights);
    weights = tanh_of(weights);
    weights = mul_scalar(weights);
  }
  if (mask) weights = add(weights, mask);  // a pipeline's stages are called without one
  weights = to(softmax_float(weights), query.dtype());
  weights = dropout(weights, dropout_probability);
  Tensor output = matmul(weights, values);
  output = contiguous(transpose(output, 1, 2));
  return {output, weights};
}

namespace {

// StableLmLayerNormPerHead
Tensor normed_apart(const std::vector<Norm>& norms, const Tensor& states) {
  const Tensors heads = split_along(states, 1, std::vector<std::int64_t>(norms.size(), 1));
  std::vector<Tensor> normed;
  for (std::size_t i = 0; i < norms.size(); ++i) normed.push_back(norms[i].forward(heads[i]));
  return cat_of(normed, 1);
}

// GptOssAttention's: the sink is one more key, whose probability is thrown away
AttentionResult eager_with_sinks(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const Tensor& sink,
                                 double dropout_probability) {
  const std::int64_t groups = query.size(1) / key.size(1), keys_count = key.size(2);
  const Tensor keys = repeat_kv(key, groups);
  const Tensor values = repeat_kv(value, groups);
  Tensor weights = mul_scalar(matmul(query, transpose(keys, 2, 3)));
  weights = add(weights, mask);
  const Tensor sinks = expand(reshape(sink, {1, sink.size(0), 1, 1}), {query.size(0), sink.size(0), query.size(2), 1});
  Tensor combined = cat({weights, sinks}, 3);
  const auto shifted = [&] {
    const Tensor largest = max_last(combined);
    return sub(combined, largest);
  };
  combined = shifted();
  const Tensor probabilities = softmax_in(combined, combined.dtype());
  const Tensor scores = narrow(probabilities, 3, 0, keys_count);
  weights = to(dropout(scores, dropout_probability), values.dtype());
  Tensor output = matmul(weights, values);
  output = contiguous(transpose(output, 1, 2));
  return {output, weights};
}

// Ministral3Attention: get_llama_4_attn_scale
Tensor scaled_by_position(const Tensor& query, const Tensor& position_ids) {
  const auto scale = [&] {
    const auto scaling = [&] {
      const auto number = [](const Tensor& of) { return unary_no_grad(of, "attn_scale", Dtype::float32); };
      const auto divided = [&] { return number(position_ids); };
      const auto floored = [&] { return number(divided()); };
      const auto shifted = [&] { return number(floored()); };
      const auto logarithm = [&] { return number(shifted()); };
      const auto weighted = [&] { return number(logarithm()); };
      return number(weighted());
    };
    return to(unsqueeze(unsqueeze(scaling(), 1), 3), query.dtype());
  };
  return mul(query, scale());
}

QueryAndKey liger_rotary(const Tensor& query, const Tensor& key, const RotaryEmbedding::Angles& angles) {
  const auto [turned_query, turned_key] = liger_rope(query, key, angles.cos, angles.sin);
  QueryAndKey turned;
  turned.query = turned_query;
  turned.key = turned_key;
  return turned;
}

}  // namespace

AttentionResult AttentionBlock::forward(const Tensor& input, const LayerContext& context) const {
  Device& device = input.device();
  const Architecture& a = *architecture;
  const ModuleScope scope(device, name_of(a.names.layer, 'a'), Category::attention);
  const Tensor hidden_states = q_proj.gathered(input);
  const std::int64_t rows = hidden_states.size(0), sequence = hidden_states.size(1);
  const auto by_head = [&](const Tensor& states) { return view(states, {rows, sequence, states.size(-1) / a.head_dim, a.head_dim}); };
  const auto projected = [&](char role, const Linear& projection) {
    const ModuleScope inner(device, name_of(a.names.attention, role));
    return projection.forward(hidden_states);
  };
  const auto normed = [&](char role, const Norm& norm, const Tensor& states) {
    if (!norm.present) return states;
    const ModuleScope inner(device, name_of(a.names.attention, role), Category::norms);
    return norm.forward(states);
  };
  const auto clip = [](Tensor& q, Tensor& k, Tensor& v) {
    for (Tensor* each : {&q, &k, &v}) *each = clamp_in_place(*each);
  };
  Tensor query, key, value, qkv, gate;
  if (qkv_proj.weight) {  // Phi3Attention: three slices of one result
    qkv = projected('f', qkv_proj);
    const std::int64_t queries = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
    query = narrow(qkv, 2, 0, queries);
    key = narrow(qkv, 2, queries, keys);
    value = narrow(qkv, 2, queries + keys, keys);
    query = transpose(by_head(query), 1, 2);
    key = transpose(by_head(key), 1, 2);
    value = transpose(by_head(value), 1, 2);
  } else if (a.qk_norm_kind == QkNorm::whole) {  // Olmo2Attention: the norm before the heads are told apart
    query = normed('Q', q_norm, projected('q', q_proj));
    key = normed('K', k_norm, projected('k', k_proj));
    value = projected('v', v_proj);
    if (a.clipped_qkv) clip(query, key, value);
    query = transpose(by_head(query), 1, 2);
    key = transpose(by_head(key), 1, 2);
    value = transpose(by_head(value), 1, 2);
  } else if (a.clipped_qkv || a.model_type == "olmo" ||
             a.model_type == "stablelm") {  // OlmoAttention, StableLmAttention: all three, then their heads
    query = projected('q', q_proj);
    key = projected('k', k_proj);
    value = projected('v', v_proj);
    if (a.clipped_qkv) clip(query, key, value);
    query = transpose(by_head(query), 1, 2);
    key = transpose(by_head(key), 1, 2);
    value = transpose(by_head(value), 1, 2);
  } else if (a.qk_norm_kind == QkNorm::heads_by_dim) {  // CohereAttention: all of one kind, then all of the next
    query = by_head(projected('q', q_proj));
    key = by_head(projected('k', k_proj));
    value = by_head(projected('v', v_proj));
    query = normed('Q', q_norm, query);
    key = normed('K', k_norm, key);
    query = transpose(query, 1, 2);
    key = transpose(key, 1, 2);
    value = transpose(value, 1, 2);
  } else {
    const bool normed_before = a.qk_norm_kind == QkNorm::head;
    if (a.gated_output) {  // Qwen3NextAttention
      const auto both = [&] { return halves_of(view(projected('q', q_proj), {rows, sequence, a.heads, 2 * a.head_dim})); };
      std::tie(query, gate) = both();
      gate = reshape(gate, {rows, sequence, a.heads * a.head_dim});
    } else {
      query = by_head(projected('q', q_proj));
    }
    if (normed_before) query = normed('Q', q_norm, query);
    query = transpose(query, 1, 2);
    key = by_head(projected('k', k_proj));
    if (normed_before) key = normed('K', k_norm, key);
    key = transpose(key, 1, 2);
    if (a.scaled_keys) key = mul_scalar(key);
    value = transpose(by_head(projected('v', v_proj)), 1, 2);
  }

  if (a.qk_norm_kind == QkNorm::head_transposed) {  // Gemma3Attention
    query = normed('Q', q_norm, query);
    key = normed('K', k_norm, key);
  }

  if (!q_norms.empty()) {
    query = normed_apart(q_norms, query);
    key = normed_apart(k_norms, key);
  }

  const auto of_layer = [&](const std::vector<bool>& layers) { return !layers.empty() && layers[static_cast<std::size_t>(layer)]; };
  const bool slides = of_layer(a.sliding);
  QueryAndKey turned;
  if (!of_layer(a.unturned)) {
    turned = this->liger_rope ? liger_rotary(query, key, context.position_embeddings)
                              : apply_rotary(a, query, key,
                                             slides && a.local_rotary ? context.sliding_position_embeddings : context.position_embeddings);
    query = std::move(turned.query);
    key = std::move(turned.key);
  }
  if (a.qk_norm_kind == QkNorm::head_after_rotary) {  // HunYuanDenseV1Attention
    query = normed('Q', q_norm, query);
    key = normed('K', k_norm, key);
  }

  if (a.scaled_queries) query = scaled_by_position(query, context.position_ids);

  if (context.cache) {
    const Tensor keys = context.cache->updated(key), values = context.cache->updated(value);  // both, then their names
    key = keys;
    value = values;
  }
  const Tensor& mask = slides ? context.sliding_attention_mask : context.attention_mask;
  const auto attended = [&] {
    if (context.ring.ulysses) return ulysses_attention(query, key, value, context, a.attention_dropout);
    switch (context.attention) {
      case Attention::fused:  // Megatron's, which has modules of its own
      case Attention::sdpa: return sdpa_attention(query, key, value, mask, a.attention_dropout, context.repeats_keys, context.ring);
      case Attention::flash_attention_2: return flash_attention(query, key, value, mask, context);
      case Attention::eager: break;
    }
    if (sinks) return eager_with_sinks(query, key, value, mask, sinks, a.attention_dropout);
    return eager_attention(query, key, value, mask, a.attention_dropout, a.softcapped_attention);
  };
  AttentionResult result = attended();
  result.output = contiguous(reshape(result.output, {rows, sequence, result.output.size(2) * a.head_dim}));
  if (gate) {
    const auto opened = [&] { return mul(result.output, sigmoid(gate)); };
    result.output = opened();
  }
  if (output_norm.present) {
    const ModuleScope inner(device, name_of(a.names.attention, 'n'), Category::norms);
    result.output = output_norm.forward(result.output);
  }
  {
    const ModuleScope inner(device, name_of(a.names.attention, 'o'));
    result.output = o_proj.forward(result.output);
  }
  if (a.dropout_in_blocks) result.output = dropout(result.output, a.dropout);
  return result;
}

}  // namespace llmem
