#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/build.h"
#include "model/mamba2.h"
#include "model/rotary.h"
#include "tensor/ops.h"

// modeling_granitemoehybrid.py, modeling_bamba.py and modeling_nemotron_h.py: Mamba-2 in some layers, attention in others.
namespace llmem {

namespace {

// What these models' forwards make before their layers, with or without rotary embedding.
class MambaHybrid : public Body {
 public:
  Tensor embedding() const override { return embed_tokens_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    Tensor inputs_embeds = embedded_ids(embed_tokens_, a_.names.embedding, ids, options);
    if (a_.scaled_embedding == ScaledEmbedding::by_number) inputs_embeds = mul_scalar(inputs_embeds);
    context.position_ids = positions(inputs_embeds, options);
    context.attention_mask = causal_mask(inputs_embeds, mask_sees_positions_ ? context.position_ids : Tensor(), options);
    if (rotary_emb_.inverse_frequencies) context.position_embeddings = rotary_emb_.forward(context.position_ids, inputs_embeds.dtype());
    locals = {inputs_embeds, context.position_ids};
    if (!mask_sees_positions_) context.position_ids = {};  // nor do the layers
    return inputs_embeds;
  }

  Tensor end(Tensor hidden_states) const override { return norm_(hidden_states); }

 protected:
  MambaHybrid(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child(a.names.model);
    embed_tokens_ = model.child(a.names.embedding).tensor("weight");
    if (a.rotary != Rotary::none) rotary_emb_ = {model.tensor("rotary_emb.inv_freq"), model.tensor("rotary_emb.original_inv_freq")};
  }

  virtual Tensor positions(const Tensor& inputs_embeds, const ForwardOptions& options) const {
    return arange_positions(inputs_embeds, options);
  }

  const Architecture& a_;
  Tensor embed_tokens_;
  RotaryEmbedding rotary_emb_;
  NormModule norm_;
  bool mask_sees_positions_ = true;
};

// A layer's first half: the mixer or attention, whichever it has.
struct Mixed {
  bool attends = false;
  Mamba2Mixer mamba;
  AttentionBlock attention;

  // What attention returns beside its output lives as long as the layer's forward.
  AttentionResult forward(const Tensor& hidden_states, const LayerContext& context) const {
    if (attends) return attention.forward(hidden_states, context);
    return {mamba.forward(hidden_states), {}};
  }
};

Mixed made_mixed(const Architecture& a, const MadeModule& layer, int index) {
  Mixed mixed;
  mixed.attends = a.attends[static_cast<std::size_t>(index)];
  if (mixed.attends)
    mixed.attention = build_attention(layer.tensors(), layer.path("self_attn"), a, index);
  else
    mixed.mamba = made_mamba2_mixer(a, layer.child("mamba"), "mamba");
  return mixed;
}

class GraniteHybrid : public MambaHybrid {
 public:
  GraniteHybrid(const Architecture& a, const MadeModule& root) : MambaHybrid(a, root) {
    mask_sees_positions_ = false;
    const MadeModule model = root.child("model");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule module = model.child("layers", i);
      Layer layer;
      layer.input_layernorm = module.norm("input_layernorm", NormKind::rms);
      layer.post_attention_layernorm = module.norm("post_attention_layernorm", NormKind::rms);
      if (a.experts.count > 0) layer.mixture = build_mixture(module.tensors(), module.path("block_sparse_moe"), a);
      layer.input_linear = module.child("shared_mlp").dense("input_linear");
      layer.output_linear = module.child("shared_mlp").dense("output_linear");
      layer.mixed = made_mixed(a, module, static_cast<int>(i));
      layers_.push_back(std::move(layer));
    }
    norm_ = model.norm("norm", NormKind::rms);
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor residual = input;
    Tensor hidden_states = layer.input_layernorm(input);
    AttentionResult mixed = layer.mixed.forward(hidden_states, context);
    hidden_states = std::exchange(mixed.output, {});
    const auto added = [&] {
      const Tensor scaled = mul_scalar(hidden_states);
      return add(residual, scaled);
    };
    hidden_states = added();
    residual = hidden_states;
    hidden_states = layer.post_attention_layernorm(hidden_states);
    if (layer.mixture.present()) {
      const Tensor moe_hidden_states = layer.mixture.forward(hidden_states);
      const auto both = [&] {
        const Tensor shared = shared_mlp(layer, hidden_states);
        return add(moe_hidden_states, shared);
      };
      hidden_states = both();
      hidden_states = added();
      return hidden_states;
    }
    hidden_states = shared_mlp(layer, hidden_states);
    hidden_states = added();
    return hidden_states;
  }

 private:
  struct Layer {
    NormModule input_layernorm, post_attention_layernorm;
    Mixture mixture;
    DenseModule input_linear, output_linear;
    Mixed mixed;
  };

  Tensor shared_mlp(const Layer& layer, const Tensor& input) const {
    const ModuleScope scope(input.device(), "shared_mlp", Category::mlp);
    Tensor hidden_states = layer.input_linear(input);
    const auto [gate, up] = halves_of(hidden_states);
    const auto product = [&, &gate_states = gate, &up_states = up] { return mul(activate(a_.activation, gate_states), up_states); };
    hidden_states = product();
    return layer.output_linear(hidden_states);
  }

  std::vector<Layer> layers_;
};

class Bamba : public MambaHybrid {
 public:
  Bamba(const Architecture& a, const MadeModule& root) : MambaHybrid(a, root) {
    const MadeModule model = root.child("model");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule module = model.child("layers", i);
      Layer layer;
      layer.mlp = build_mlp(module.tensors(), module.path("feed_forward"), a);
      layer.input_layernorm = module.norm("input_layernorm", NormKind::rms);
      layer.pre_ff_layernorm = module.norm("pre_ff_layernorm", NormKind::rms);
      layer.mixed = made_mixed(a, module, static_cast<int>(i));
      layers_.push_back(std::move(layer));
    }
    norm_ = model.norm("final_layernorm", NormKind::rms);
  }

  // Returns the attention's weights as well, which the model's loop keeps under a name.
  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor& kept) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor residual = input;
    Tensor hidden_states = layer.input_layernorm(input);
    AttentionResult mixed = layer.mixed.forward(hidden_states, context);
    hidden_states = std::exchange(mixed.output, {});
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer.pre_ff_layernorm(hidden_states);
    hidden_states = layer.mlp.forward(hidden_states);
    hidden_states = add(residual, hidden_states);
    kept = mixed.weights;
    return hidden_states;
  }

 private:
  struct Layer {
    Mlp mlp;
    NormModule input_layernorm, pre_ff_layernorm;
    Mixed mixed;
  };

  Tensor positions(const Tensor& inputs_embeds, const ForwardOptions& options) const override {
    if (options.position_ids) return options.position_ids;
    return unsqueeze(inputs_embeds.device().empty({inputs_embeds.size(1)}, Dtype::int64), 0);
  }

  std::vector<Layer> layers_;
};

// One mixer a layer, of the kind that its letter says.
class NemotronH : public MambaHybrid {
 public:
  NemotronH(const Architecture& a, const MadeModule& root) : MambaHybrid(a, root) {
    const MadeModule model = root.child("model");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule module = model.child("layers", i), mixer = module.child("mixer");
      Layer layer;
      layer.norm = module.norm("norm", NormKind::rms_all_float);
      layer.kind = a.layer_kinds[static_cast<std::size_t>(i)];
      switch (layer.kind) {
        case 'M':
          layer.mamba = made_mamba2_mixer(a, mixer, "mixer");
          layer.mamba.activation = Activation::silu;  // mamba_hidden_act
          break;
        case '*': layer.attention = build_attention(module.tensors(), module.path("mixer"), a, static_cast<int>(i)); break;
        case 'E':
          layer.mixture = build_mixture(module.tensors(), module.path("mixer"), a);
          if (a.experts.latent > 0) layer.mixture.into_latent = mixer.dense("fc1_latent_proj").linear;
          if (a.experts.latent > 0) layer.mixture.out_of_latent = mixer.dense("fc2_latent_proj").linear;
          break;
        default: layer.mlp = build_mlp(module.tensors(), module.path("mixer"), a);
      }
      layers_.push_back(std::move(layer));
    }
    norm_ = model.norm("norm_f", NormKind::rms_all_float);
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    const auto normed = [&] { return layer.norm(to(input, layer.norm.norm.weight.dtype())); };
    Tensor hidden_states = normed();
    AttentionResult mixed;
    switch (layer.kind) {
      case 'M': mixed.output = layer.mamba.forward(hidden_states); break;
      case '*': mixed = layer.attention.forward(hidden_states, context); break;
      case 'E': mixed.output = layer.mixture.forward(hidden_states); break;
      default: mixed.output = layer.mlp.forward(hidden_states);
    }
    hidden_states = std::exchange(mixed.output, {});
    hidden_states = add(input, hidden_states);
    return hidden_states;
  }

  std::vector<NamedMixture> mixtures() const override {
    std::vector<NamedMixture> found;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (layers_[i].mixture.present()) found.push_back({"model.layers." + std::to_string(i) + ".mixer", &layers_[i].mixture});
    return found;
  }

 private:
  struct Layer {
    NormModule norm;
    char kind = 'M';
    Mamba2Mixer mamba;
    AttentionBlock attention;
    Mixture mixture;
    Mlp mlp;
  };

  std::vector<Layer> layers_;
};

}  // namespace

MadeBody granite_hybrid_body(const Architecture& a, const MadeModule& root) { return std::make_unique<GraniteHybrid>(a, root); }
MadeBody bamba_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Bamba>(a, root); }
MadeBody nemotron_h_body(const Architecture& a, const MadeModule& root) { return std::make_unique<NemotronH>(a, root); }

}  // namespace llmem
