#include "model/activation.h"
#include "model/bodies.h"
#include "tensor/ops.h"

// modeling_falcon.py.
namespace llmem {

namespace {

struct Layer {
  DenseModule query_key_value, dense, dense_h_to_4h, dense_4h_to_h;
  NormModule ln_attn, ln_mlp, input_layernorm, post_attention_layernorm;
};

class Falcon : public Body {
 public:
  Falcon(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule transformer = root.child("transformer");
    word_embeddings_ = transformer.tensor("word_embeddings.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule h = transformer.child("h", i), attention = h.child("self_attention"), mlp = h.child("mlp");
      layers_.push_back({attention.dense("query_key_value", Linear::falcon), attention.dense("dense", Linear::falcon),
                         mlp.dense("dense_h_to_4h", Linear::falcon), mlp.dense("dense_4h_to_h", Linear::falcon), h.norm("ln_attn"),
                         h.norm("ln_mlp"), h.norm("input_layernorm"), h.norm("post_attention_layernorm")});
    }
    ln_f_ = transformer.norm("ln_f");
    rotary_emb_ = {transformer.tensor("rotary_emb.inv_freq"), transformer.tensor("rotary_emb.original_inv_freq")};
  }

  Tensor embedding() const override { return word_embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(word_embeddings_, "word_embeddings", ids, options);
    context.position_ids = arange_positions(inputs_embeds, options);
    // allow_is_causal_skip=False: SDPA gets a mask, too.
    context.attention_mask = options.attention == Attention::sdpa ? sdpa_causal_mask_always(ids.device(), context.position_ids, ids.size(0),
                                                                                            ids.size(1), false, options.padding)
                                                                  : causal_mask(inputs_embeds, context.position_ids, options);
    context.position_embeddings = rotary_emb_.forward(context.position_ids, inputs_embeds.dtype());
    locals = {inputs_embeds};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor& kept) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor residual = input, attention_norm, mlp_norm;
    if (two_norms()) {
      attention_norm = layer.ln_attn(input);
      mlp_norm = layer.ln_mlp(input);
    } else {
      attention_norm = layer.input_layernorm(input);
    }
    const AttentionResult attended = attention(layer, attention_norm, context);
    kept = attended.weights;
    if (!a_.new_decoder && !a_.parallel_residual) {
      const Tensor dropped = dropout(attended.output, a_.attention_dropout);
      residual = add(residual, dropped);
      mlp_norm = layer.post_attention_layernorm(residual);
    } else if (!two_norms()) {
      mlp_norm = attention_norm;
    }
    Tensor mlp_output = mlp(layer, mlp_norm);
    if (a_.new_decoder || a_.parallel_residual) mlp_output = add_in_place(mlp_output, attended.output);
    const Tensor out = dropout(mlp_output, a_.dropout);
    return add(residual, out);
  }

  Tensor end(Tensor hidden_states) const override { return ln_f_(hidden_states); }

 private:
  bool two_norms() const { return a_.new_decoder && a_.parallel_norms == 2; }

  struct Heads {
    Tensor query, key, value;
  };
  // _split_heads: [B, S, heads, d]
  Heads split_heads(const Tensor& fused) const {
    const std::int64_t rows = fused.size(0), sequence = fused.size(1), d = a_.head_dim;
    if (a_.new_decoder) {
      const std::int64_t groups = a_.heads / a_.kv_heads;
      const Tensor qkv = view(fused, {rows, sequence, a_.kv_heads, groups + 2, d});
      const Tensor query = narrow(qkv, 3, 0, groups);
      Tensor key = index_one(qkv, 3), value = index_one(qkv, 3);
      key = expand(key, query.sizes());
      value = expand(value, query.sizes());
      const Dims flat{rows, sequence, a_.heads, d};
      const Tensor flat_query = reshape(query, flat), flat_key = reshape(key, flat);
      return {flat_query, flat_key, reshape(value, flat)};
    }
    if (a_.kv_heads != 1 || a_.heads == 1) {
      const Tensor qkv = view(fused, {rows, sequence, a_.heads, 3, d});
      const Tensor query = select(qkv, 3), key = select(qkv, 3);
      return {query, key, select(qkv, 3)};
    }
    const Tensor qkv = view(fused, {rows, sequence, a_.heads + 2, d});
    const Tensor query = narrow(qkv, 2, 0, a_.heads), key = index_one(qkv, 2);
    return {query, key, index_one(qkv, 2)};
  }

  AttentionResult attention(const Layer& layer, const Tensor& input, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "self_attention", Category::attention);
    const std::int64_t rows = input.size(0), sequence = input.size(1), d = a_.head_dim;
    const Tensor fused = layer.query_key_value(input);
    Heads states = split_heads(fused);
    const auto heads_first = [&](const Tensor& each) { return reshape(transpose(each, 1, 2), {rows, each.size(2), sequence, d}); };
    states.query = heads_first(states.query);
    states.key = heads_first(states.key);
    states.value = heads_first(states.value);
    QueryAndKey turned = apply_rotary(a_, states.query, states.key, context.position_embeddings);
    states.query = std::move(turned.query);
    states.key = std::move(turned.key);
    AttentionResult result = context.attention == Attention::sdpa ? sdpa(states, context) : eager(states, input.dtype(), context);
    result.output = view(result.output, {rows, a_.heads, sequence, d});
    result.output = transpose(result.output, 1, 2);
    result.output = reshape(result.output, {rows, sequence, a_.heads * d});
    result.output = layer.dense(result.output);
    return result;
  }

  static AttentionResult sdpa(const Heads& states, const LayerContext& context) {
    return {scaled_dot_product_attention(states.query, states.key, states.value, context.attention_mask), {}};
  }

  static AttentionResult eager(const Heads& states, Dtype dtype, const LayerContext& context) {
    Tensor scores = matmul(states.query, transpose(states.key, 2, 3));
    scores = mul_in_place(scores);
    const auto probabilities = [&] {
      const Tensor masked = add(scores, context.attention_mask);
      return softmax_in(masked, dtype);
    };
    scores = probabilities();
    return {matmul(scores, states.value), scores};
  }

  Tensor mlp(const Layer& layer, const Tensor& input) const {
    const ModuleScope scope(input.device(), "mlp", Category::mlp);
    Tensor x = activate(a_.activation, layer.dense_h_to_4h(input));
    x = layer.dense_4h_to_h(x);
    return x;
  }

  const Architecture& a_;
  Tensor word_embeddings_;
  std::vector<Layer> layers_;
  NormModule ln_f_;
  RotaryEmbedding rotary_emb_;
};

}  // namespace

std::unique_ptr<const Body> falcon_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Falcon>(a, root); }

}  // namespace llmem
