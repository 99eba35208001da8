#include "model/activation.h"
#include "model/bodies.h"
#include "model/rotary.h"
#include "tensor/ops.h"

// modeling_gpt_neox.py.
namespace llmem {

namespace {

struct Layer {
  NormModule input_layernorm, post_attention_layernorm;
  DenseModule query_key_value, dense, dense_h_to_4h, dense_4h_to_h;
};

class GptNeoX : public Body {
 public:
  GptNeoX(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("gpt_neox");
    embed_in_ = model.tensor("embed_in.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule layer = model.child("layers", i), attention = layer.child("attention"), mlp = layer.child("mlp");
      layers_.push_back({layer.norm("input_layernorm"), layer.norm("post_attention_layernorm"), attention.dense("query_key_value"),
                         attention.dense("dense"), mlp.dense("dense_h_to_4h"), mlp.dense("dense_4h_to_h")});
    }
    final_layer_norm_ = model.norm("final_layer_norm");
    rotary_emb_ = {model.tensor("rotary_emb.inv_freq"), model.tensor("rotary_emb.original_inv_freq")};
  }

  Tensor embedding() const override { return embed_in_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(embed_in_, "embed_in", ids, options);
    context.position_ids = arange_positions(inputs_embeds, options);
    context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
    Tensor hidden_states = dropout(inputs_embeds, a_.dropout);
    context.position_embeddings = rotary_emb_.forward(context.position_ids, hidden_states.dtype());
    locals = {inputs_embeds};
    return hidden_states;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    AttentionResult attended = attention(layer, layer.input_layernorm(input), context);
    attended.output = dropout(attended.output, a_.dropout);
    if (a_.parallel_residual) {
      const Tensor mlp_output = dropout(mlp(layer, layer.post_attention_layernorm(input)), a_.dropout);
      const Tensor sum = add(mlp_output, attended.output);
      return add(sum, input);
    }
    attended.output = add(attended.output, input);
    const Tensor mlp_output = dropout(mlp(layer, layer.post_attention_layernorm(attended.output)), a_.dropout);
    return add(mlp_output, attended.output);
  }

  Tensor end(Tensor hidden_states) const override { return final_layer_norm_(hidden_states); }

 private:
  AttentionResult attention(const Layer& layer, const Tensor& input, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "attention", Category::attention);
    const std::int64_t rows = input.size(0), sequence = input.size(1), d = a_.head_dim;
    const Tensor qkv = transpose(view(layer.query_key_value(input), {rows, sequence, a_.heads, 3 * d}), 1, 2);
    const Tensors parts = split_last(qkv, {d, d, d});
    const QueryAndKey turned = apply_rotary(a_, parts[0], parts[1], context.position_embeddings);
    const auto attended = [&] {
      const Tensor& mask = context.attention_mask;
      switch (context.attention) {
        case Attention::sdpa: return sdpa_attention(turned.query, turned.key, parts[2], mask, a_.attention_dropout);
        case Attention::flash_attention_2: return flash_attention(turned.query, turned.key, parts[2], mask, context);
        case Attention::fused:  // Megatron's, which has modules of its own
        case Attention::eager: break;
      }
      return eager_attention(turned.query, turned.key, parts[2], mask, a_.attention_dropout, false);
    };
    AttentionResult result = attended();
    result.output = merged_heads(result.output, rows, sequence);
    result.output = layer.dense(result.output);
    return result;
  }

  Tensor mlp(const Layer& layer, const Tensor& input) const {
    const ModuleScope scope(input.device(), "mlp", Category::mlp);
    Tensor hidden_states = layer.dense_h_to_4h(input);
    hidden_states = activate(a_.activation, hidden_states);
    return layer.dense_4h_to_h(hidden_states);
  }

  const Architecture& a_;
  Tensor embed_in_;
  std::vector<Layer> layers_;
  NormModule final_layer_norm_;
  RotaryEmbedding rotary_emb_;
};

}  // namespace

std::unique_ptr<const Body> gpt_neox_body(const Architecture& a, const MadeModule& root) { return std::make_unique<GptNeoX>(a, root); }

}  // namespace llmem
