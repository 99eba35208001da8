#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/build.h"
#include "model/mamba2.h"
#include "model/rotary.h"
#include "tensor/ops.h"

// modeling_falcon_h1.py: attention and a Mamba-2 mixer side by side, with a multiplier at every turn.
namespace llmem {

namespace {

class FalconH1 : public Body {
 public:
  FalconH1(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("model");
    embed_tokens_ = model.tensor("embed_tokens.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule module = model.child("layers", i), mlp = module.child("feed_forward");
      layers_.push_back({mlp.dense("gate_proj"), mlp.dense("up_proj"), mlp.dense("down_proj"),
                         made_mamba2_mixer(a, module.child("mamba"), "mamba"),
                         build_attention(module.tensors(), module.path("self_attn"), a, static_cast<int>(i)),
                         module.norm("input_layernorm", NormKind::rms), module.norm("pre_ff_layernorm", NormKind::rms)});
    }
    rotary_emb_ = {model.tensor("rotary_emb.inv_freq"), model.tensor("rotary_emb.original_inv_freq")};
    norm_ = model.norm("final_layernorm", NormKind::rms);
  }

  Tensor embedding() const override { return embed_tokens_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const auto scaled = [&] { return mul_scalar(embedded_ids(embed_tokens_, "embed_tokens", ids, options)); };
    const Tensor inputs_embeds = scaled();
    context.position_ids = arange_positions(inputs_embeds, options);
    context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
    context.position_embeddings = rotary_emb_.forward(context.position_ids, inputs_embeds.dtype());
    locals = {inputs_embeds};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor residual = input;
    Tensor hidden_states = layer.input_layernorm(input);
    Tensor mamba_hidden_states = layer.mamba.forward(hidden_states);
    mamba_hidden_states = mul_scalar(mamba_hidden_states);
    const auto attend = [&] {
      const Tensor scaled = mul_scalar(hidden_states);
      return layer.attention.forward(scaled, context);
    };
    AttentionResult attended = attend();
    attended.output = mul_scalar(attended.output);
    hidden_states = add(mamba_hidden_states, attended.output);
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer.pre_ff_layernorm(hidden_states);
    hidden_states = feed_forward(layer, hidden_states);
    hidden_states = add(residual, hidden_states);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return norm_(hidden_states); }

 private:
  struct Layer {
    DenseModule gate_proj, up_proj, down_proj;
    Mamba2Mixer mamba;
    AttentionBlock attention;
    NormModule input_layernorm, pre_ff_layernorm;
  };

  Tensor feed_forward(const Layer& layer, const Tensor& x) const {
    const ModuleScope scope(x.device(), "feed_forward", Category::mlp);
    const auto product = [&] {
      const Tensor up = layer.up_proj(x);
      const auto opened = [&] {
        const auto scaled = [&] {
          const Tensor gate = layer.gate_proj(x);
          return mul_scalar(gate);
        };
        const Tensor states = scaled();
        return activate(a_.activation, states);
      };
      const Tensor open = opened();
      return mul(up, open);
    };
    Tensor y = product();
    const auto down = [&] {
      const Tensor projected = layer.down_proj(y);
      return mul_scalar(projected);
    };
    y = down();
    return y;
  }

  const Architecture& a_;
  Tensor embed_tokens_;
  std::vector<Layer> layers_;
  RotaryEmbedding rotary_emb_;
  NormModule norm_;
};

}  // namespace

MadeBody falcon_h1_body(const Architecture& a, const MadeModule& root) { return std::make_unique<FalconH1>(a, root); }

}  // namespace llmem
