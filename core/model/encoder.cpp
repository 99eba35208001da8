#include "model/encoder.h"

#include "tensor/ops.h"

namespace llmem {

Tensor by_heads(const Tensor& states, std::int64_t head_dim) {
  return transpose(view(states, {states.size(0), states.size(1), states.size(2) / head_dim, head_dim}), 1, 2);
}

AttentionResult eager_in_own_dtype(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias, const Tensor& mask,
                                   double probability) {
  Tensor weights = mul_scalar(matmul(query, transpose(key, 2, 3)));
  if (bias) weights = add(weights, bias);
  if (mask) weights = add(weights, mask);
  weights = softmax_last(weights);
  weights = dropout(weights, probability);
  Tensor output = matmul(weights, value);
  output = contiguous(transpose(output, 1, 2));
  return {output, weights};
}

AttentionResult bidirectional_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout,
                                        const LayerContext& context) {
  const std::int64_t rows = query.size(0), sequence = query.size(2);
  AttentionResult result;
  switch (context.attention) {
    case Attention::eager: result = eager_in_own_dtype(query, key, value, {}, mask, dropout); break;
    case Attention::flash_attention_2:
      result.output = contiguous(transpose(flash_attention_2(query, key, value, context.half, mask), 1, 2));
      break;
    case Attention::sdpa:
    case Attention::fused:
      result.output = contiguous(transpose(scaled_dot_product_attention(query, key, value, mask, dropout), 1, 2));
      break;
  }
  result.output = merged_heads(result.output, rows, sequence);
  return result;
}

Tensor encoder_mask(const Tensor& inputs_embeds, const ForwardOptions& options) {
  const std::int64_t rows = inputs_embeds.size(0), sequence = inputs_embeds.size(1);
  return bidirectional_mask(inputs_embeds.device(), rows, sequence, sequence, options.attention, inputs_embeds.dtype(), options.padding);
}

Tensor positions_of_words(const Tensor& ids) {
  Device& device = ids.device();
  const auto integers = [&](Dtype dtype) { return device.empty(ids.sizes(), dtype); };
  const auto not_padding = [&] {
    const Tensor differs = integers(Dtype::boolean);
    return integers(Dtype::int32);
  };
  const Tensor mask = not_padding();
  const auto incremental = [&] {
    Tensor counted = integers(Dtype::int64);
    if (ids.size(0) == 1) device.scratch(scan_scratch(ids.size(1)));
    counted = integers(Dtype::int32);
    counted = integers(Dtype::int32);
    return integers(Dtype::int32);
  };
  const Tensor indices = incremental();
  const Tensor wide = integers(Dtype::int64);
  return integers(Dtype::int64);
}

Tensor embedded_at(const Tensor& weight, std::string_view name, const Tensor& places) {
  const ModuleScope scope(places.device(), name);
  return embedding(weight, places);
}

DenseModule head_module(const MadeModule& of, std::string_view name, const Tensor& tied_weight, const Tensor& tied_bias) {
  const std::string path(name);
  Tensor weight = of.tensor(path + ".weight"), bias = of.tensor(path + ".bias");
  if (tied_weight) weight = tied_weight;
  if (tied_bias) bias = tied_bias;
  return {path, Linear{weight, bias}};
}

}  // namespace llmem
