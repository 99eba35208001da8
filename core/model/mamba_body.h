#pragma once

#include <vector>

#include "model/architecture.h"
#include "model/body.h"
#include "model/made.h"
#include "tensor/ops.h"

namespace llmem {

// transformers modeling_mamba.py and modeling_mamba2.py, MambaBlock and Mamba2Block: one stack, of either mixer. make_mixer(module): a layer's.
template <class Mixer>
class MambaBody : public Body {
 public:
  template <class MakeMixer>
  MambaBody(const Architecture& a, const MadeModule& root, MakeMixer make_mixer) : a_(a) {
    const MadeModule backbone = root.child("backbone");
    embeddings_ = backbone.tensor("embeddings.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule block = backbone.child("layers", i);
      layers_.push_back({block.norm("norm", NormKind::rms), make_mixer(block.child("mixer"))});
    }
    norm_f_ = backbone.norm("norm_f", NormKind::rms);
  }

  Tensor embedding() const override { return embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext&, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(embeddings_, "embeddings", ids, options);
    locals = {inputs_embeds};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext&, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor residual = input;
    const auto normed = [&] { return layer.norm(to(input, layer.norm.norm.weight.dtype())); };
    Tensor hidden_states = normed();
    if (a_.float_residual) residual = to(residual, Dtype::float32);
    hidden_states = layer.mixer.forward(hidden_states);
    hidden_states = add(residual, hidden_states);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return norm_f_(hidden_states); }

 private:
  struct Layer {
    NormModule norm;
    Mixer mixer;
  };

  const Architecture& a_;
  Tensor embeddings_;
  std::vector<Layer> layers_;
  NormModule norm_f_;
};

}  // namespace llmem
