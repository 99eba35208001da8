#include <utility>

#include "model/bodies.h"
#include "model/decoder_layer.h"
#include "model/rotary.h"
#include "tensor/ops.h"

// modeling_lfm2.py, without the package causal-conv1d.
namespace llmem {

namespace {

struct ShortConv {
  Tensor weight, bias;
  DenseModule in_proj, out_proj;

  Tensor forward(const Tensor& input) const {
    const ModuleScope scope(input.device(), "conv", Category::mlp);
    const std::int64_t channels = input.size(2), sequence = input.size(1);
    const Tensor bcx = transpose(in_proj(input), 1, 2);
    const Tensors parts = split_along(bcx, 1, {channels, channels, channels});
    Tensor hidden_states = mul(parts[0], parts[2]);
    hidden_states = causal_conv1d(hidden_states, weight, bias, sequence);
    Tensor y = mul(parts[1], hidden_states);
    y = contiguous(transpose(y, 1, 2));
    y = out_proj(y);
    return y;
  }
};

struct Layer {
  AttentionBlock attention;
  ShortConv conv;
  bool attends = false;
  DenseModule w1, w3, w2;
  NormModule operator_norm, ffn_norm;
};

class Lfm2 : public Body {
 public:
  Lfm2(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("model");
    embed_tokens_ = model.tensor("embed_tokens.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) layers_.push_back(made(model.child("layers", i), static_cast<int>(i)));
    rotary_emb_ = {model.tensor("rotary_emb.inv_freq"), model.tensor("rotary_emb.original_inv_freq")};
    embedding_norm_ = model.norm("embedding_norm", NormKind::rms);
  }

  Tensor embedding() const override { return embed_tokens_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(embed_tokens_, "embed_tokens", ids, options);
    context.position_ids = arange_positions(inputs_embeds, options);
    context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
    context.position_embeddings = rotary_emb_.forward(context.position_ids, inputs_embeds.dtype());
    locals = {inputs_embeds};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    AttentionResult attended;
    Tensor hidden_states;
    if (layer.attends) {
      attended = layer.attention.forward(layer.operator_norm(input), context);
      hidden_states = std::exchange(attended.output, {});
    } else {
      hidden_states = layer.conv.forward(layer.operator_norm(input));
    }
    hidden_states = add(hidden_states, input);
    hidden_states = with_feed_forward(layer, hidden_states);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return embedding_norm_(hidden_states); }

 private:
  Layer made(const MadeModule& module, int index) const {
    Layer layer;
    layer.attends = a_.attends[static_cast<std::size_t>(index)];
    if (layer.attends) {
      const MadeModule at = module.child("self_attn");
      layer.attention.architecture = &a_;
      layer.attention.layer = index;
      layer.attention.q_proj = at.dense("q_proj").linear;
      layer.attention.k_proj = at.dense("k_proj").linear;
      layer.attention.v_proj = at.dense("v_proj").linear;
      layer.attention.o_proj = at.dense("out_proj").linear;
      layer.attention.q_norm = at.norm("q_layernorm", NormKind::rms).norm;
      layer.attention.k_norm = at.norm("k_layernorm", NormKind::rms).norm;
    } else {
      const MadeModule at = module.child("conv");
      layer.conv = {at.tensor("conv.weight"), at.tensor("conv.bias"), at.dense("in_proj"), at.dense("out_proj")};
    }
    const MadeModule feed_forward = module.child("feed_forward");
    layer.w1 = feed_forward.dense("w1");
    layer.w3 = feed_forward.dense("w3");
    layer.w2 = feed_forward.dense("w2");
    layer.operator_norm = module.norm("operator_norm", NormKind::rms);
    layer.ffn_norm = module.norm("ffn_norm", NormKind::rms);
    return layer;
  }

  static Tensor with_feed_forward(const Layer& layer, const Tensor& hidden_states) {
    const auto fed = [&] {
      const Tensor normed = layer.ffn_norm(hidden_states);
      const ModuleScope scope(hidden_states.device(), "feed_forward", Category::mlp);
      const auto product = [&] {
        const auto activated = [&] {
          const Tensor gate = layer.w1(normed);
          return silu(gate);
        };
        const Tensor open = activated();
        return mul(open, layer.w3(normed));
      };
      return layer.w2(product());
    };
    const Tensor states = fed();
    return add(hidden_states, states);
  }

  const Architecture& a_;
  Tensor embed_tokens_;
  std::vector<Layer> layers_;
  RotaryEmbedding rotary_emb_;
  NormModule embedding_norm_;
};

}  // namespace

std::unique_ptr<const Body> lfm2_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Lfm2>(a, root); }

}  // namespace llmem
