#include "model/latent_attention.h"

#include <utility>

#include "tensor/ops.h"

namespace llmem {

namespace {

Tensor called(std::string_view name, const Linear& linear, const Tensor& input) {
  const ModuleScope scope(input.device(), name);
  return linear.forward(input);
}

Tensor called(std::string_view name, const Norm& norm, const Tensor& input) {
  const ModuleScope scope(input.device(), name, Category::norms);
  return norm.forward(input);
}

// expand_kv: keys are copied together from what every head has of its own and what all have in common
struct KeyAndValue {
  Tensor key, value;
};
KeyAndValue expand_kv(const LatentAttention& l, std::int64_t heads, const Linear& kv_b_proj, const Tensor& latent, const Tensor& turned) {
  const std::int64_t rows = latent.size(0), sequence = latent.size(2);
  const Tensor projected = called("kv_b_proj", kv_b_proj, latent);
  const Tensor by_head = transpose(view(projected, {rows, sequence, heads, l.nope_dim + l.value_dim}), 1, 2);
  const Tensors parts = split_last(by_head, {l.nope_dim, l.value_dim});
  const Tensor common = expand(turned, {rows, heads, sequence, l.rope_dim});
  Tensor key = by_head.device().empty({rows, heads, sequence, l.nope_dim + l.rope_dim}, by_head.dtype());
  key = copy_into_slice(key, parts[0]);
  key = copy_into_slice(key, common);
  return {key, parts[1]};
}

}  // namespace

AttentionResult LatentAttentionBlock::forward(const Tensor& input, const LayerContext& context) const {
  const Architecture& a = *architecture;
  const LatentAttention& l = a.latent;
  const ModuleScope scope(input.device(), name_of(a.names.layer, 'a'), Category::attention);
  const std::int64_t rows = input.size(0), sequence = input.size(1);
  const auto queries = [&] {
    if (q_proj.weight) return called("q_proj", q_proj, input);
    const auto inner = [&] { return called("q_a_layernorm", q_a_norm, called("q_a_proj", q_a_proj, input)); };
    return called("q_b_proj", q_b_proj, inner());
  };
  Tensor query = queries();
  query = transpose(view(query, {rows, sequence, a.heads, l.nope_dim + l.rope_dim}), 1, 2);
  const Tensors query_parts = split_last(query, {l.nope_dim, l.rope_dim});
  const Tensor compressed = called("kv_a_proj_with_mqa", kv_a_proj, input);
  const Tensors parts = split_last(compressed, {l.key_value_rank, l.rope_dim});
  Tensor latent = called("kv_a_layernorm", kv_a_norm, parts[0]);
  latent = view(latent, {rows, 1, sequence, l.key_value_rank});
  const Tensor to_turn = view(parts[1], {rows, 1, sequence, l.rope_dim});
  const QueryAndKey turned = apply_rotary(a, query_parts[1], to_turn, context.position_embeddings);
  const Tensor whole_query = cat({query_parts[0], turned.query}, 3);
  const KeyAndValue expanded = expand_kv(l, a.heads, kv_b_proj, latent, turned.key);
  AttentionResult result =
      context.attention == Attention::sdpa
          ? sdpa_attention(whole_query, expanded.key, expanded.value, context.attention_mask, a.attention_dropout)
          : eager_attention(whole_query, expanded.key, expanded.value, context.attention_mask, a.attention_dropout, false);
  result.output = contiguous(reshape(result.output, {rows, sequence, a.heads * l.value_dim}));
  result.output = called("o_proj", o_proj, result.output);
  return result;
}

}  // namespace llmem
