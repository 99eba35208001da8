#include "model/ulysses.h"

#include <vector>

#include "tensor/collectives.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// dist.all_gather into a list, then torch.cat
struct GatheredPositions {
  std::vector<Tensor> parts;
  Tensor whole;
};
GatheredPositions gathered(const Tensor& positions, std::int64_t ranks) {
  Device& device = positions.device();
  GatheredPositions made;
  for (std::int64_t i = 0; i < ranks; ++i) made.parts.push_back(device.empty(positions.sizes(), Dtype::int64));
  made.whole = device.empty({positions.size(0), positions.size(1) * ranks}, Dtype::int64);
  return made;
}

// combine_sequence: [s, B, H, d] -> [S, B, H / ranks, d]; where there are fewer heads than ranks, a head goes to several.
Tensor combined(const Tensor& states, std::int64_t ranks) {
  const std::int64_t tokens = states.size(0), rows = states.size(1), d = states.size(3);
  const std::int64_t copies = ranks / states.size(2);
  Tensor input = copies > 1 ? repeat_interleave(states, 2, copies) : states;
  const std::int64_t heads = input.size(2) / ranks;
  input = contiguous(permute(reshape(input, {tokens, rows, ranks, heads, d}), {2, 0, 1, 3, 4}));
  return reshape(all_to_all(input), {tokens * ranks, rows, heads, d});
}

// _partition_global_sequence: [S, B, h / ranks] -> [s, B, h]
Tensor partitioned(const Tensor& states, std::int64_t ranks) {
  const std::int64_t tokens = states.size(0) / ranks, rows = states.size(1), h = states.size(2);
  const Tensor sent = contiguous(reshape(states, {ranks, tokens, rows, h}));
  const Tensor received = all_to_all(sent);
  return reshape(permute(received, {1, 2, 0, 3}), {tokens, rows, ranks * h});
}

Tensor tokens_first(const Tensor& states) { return permute(states, {2, 0, 1, 3}); }
Tensor heads_first(const Tensor& states) { return contiguous(permute(states, {1, 2, 0, 3})); }

}  // namespace

AttentionResult ulysses_attention(const Tensor& query, const Tensor& key, const Tensor& value, const LayerContext& context,
                                  double dropout) {
  const std::int64_t ranks = context.ring.ranks, rows = query.size(0), d = query.size(3);
  const GatheredPositions positions = gathered(context.position_ids, ranks);
  Tensor q = combined(tokens_first(query), ranks), k = combined(tokens_first(key), ranks), v = combined(tokens_first(value), ranks);
  q = heads_first(q);
  k = heads_first(k);
  v = heads_first(v);
  LayerContext all = context;
  all.position_ids = positions.whole;
  AttentionResult result = context.attention == Attention::flash_attention_2 ? flash_attention(q, k, v, {}, all)
                                                                             : sdpa_attention(q, k, v, {}, dropout, context.repeats_keys);
  const Tensor own = permute(result.output, {1, 0, 2, 3});
  const Tensor output = partitioned(reshape(own, {own.size(0), rows, own.size(2) * d}), ranks);
  result.output = reshape(permute(output, {1, 0, 2}), {rows, query.size(2), query.size(1), d});
  return result;
}

}  // namespace llmem
