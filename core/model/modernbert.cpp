#include "model/activation.h"
#include "model/bodies.h"
#include "model/encoder.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// modeling_modernbert.py
namespace llmem {

namespace {

// unbind(d) of three: views; their gradients are stacked.
Tensors unbind(const Tensor& self, int d) {
  Recorder grad("unbind", {&self});
  Tensors parts;
  Layout layout = self.layout();
  const std::int64_t count = layout.sizes[d];
  layout.sizes.erase(d);
  layout.strides.erase(d);
  for (std::int64_t i = 0; i < count; ++i) {
    parts.push_back(alias(self, layout));
    grad.attach(parts.back());
  }
  grad.backward(
      [sizes = self.sizes(), dtype = self.dtype()](Tensors& gradients) { return Tensors{gradients[0].device().empty(sizes, dtype)}; });
  return parts;
}

// apply_rotary_pos_emb: in fp32, the cast made once for each factor
Tensor turned(const Tensor& states, const Tensor& cos, const Tensor& sin) {
  const auto along = [&] {
    const Tensor wide = to(states, Dtype::float32);
    return mul(wide, cos);
  };
  const Tensor first = along();
  const auto across = [&] {
    const auto rotated = [&] {
      const Tensor wide = to(states, Dtype::float32);
      const std::int64_t half = wide.size(3) / 2;
      const Tensor first_half = narrow(wide, 3, 0, half), second_half = narrow(wide, 3, half, half);
      const Tensor negated = neg(second_half);
      return cat({negated, first_half}, 3);
    };
    const Tensor other = rotated();
    return mul(other, sin);
  };
  const Tensor second = across();
  return add(first, second);
}

struct ModernLayer {
  NormModule attn_norm;
  DenseModule Wqkv, Wo;
  NormModule mlp_norm;
  DenseModule Wi, mlp_Wo;
};

class ModernBert : public Body {
 public:
  ModernBert(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("model");
    tok_embeddings_ = model.tensor("embeddings.tok_embeddings.weight");
    norm_ = model.child("embeddings").norm("norm");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule layer = model.child("layers", i), attn = layer.child("attn"), mlp = layer.child("mlp");
      layers_.push_back(
          {layer.norm("attn_norm"), attn.dense("Wqkv"), attn.dense("Wo"), layer.norm("mlp_norm"), mlp.dense("Wi"), mlp.dense("Wo")});
    }
    final_norm_ = model.norm("final_norm");
    const MadeModule rotary = model.child("rotary_emb");
    const auto angles = [&](const std::string& kind) {
      return RotaryEmbedding{rotary.tensor(kind + "_inv_freq"), rotary.tensor(kind + "_original_inv_freq")};
    };
    full_ = angles("full_attention");
    local_ = angles("sliding_attention");
    head_dense_ = root.child("head").dense("dense");
    head_norm_ = root.child("head").norm("norm");
    last_ = head_module(root, a.names.head, a.tied_embeddings && a.head == Head::masked_word ? tok_embeddings_ : Tensor());
  }

  Tensor embedding() const override { return tok_embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    Device& device = ids.device();
    const Tensor position_ids = unsqueeze(device.empty({ids.size(1)}, Dtype::int64), 0);
    const auto embedded = [&] {
      const ModuleScope scope(device, "embeddings");
      const Tensor words = embedded_ids(tok_embeddings_, "tok_embeddings", ids, options);
      const Tensor normed = norm_(words);
      return dropout(normed, a_.embedding_dropout);
    };
    const Tensor hidden_states = embedded();
    locals = {position_ids, hidden_states};  // mask_kwargs
    context.attention_mask = encoder_mask(hidden_states, options);
    context.sliding_attention_mask = window_mask(hidden_states, options);
    if (full_.inverse_frequencies) context.position_embeddings = full_.forward(position_ids, hidden_states.dtype());
    if (local_.inverse_frequencies) context.sliding_position_embeddings = local_.forward(position_ids, hidden_states.dtype());
    return hidden_states;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const ModernLayer& layer = layers_[static_cast<std::size_t>(index)];
    Device& device = input.device();
    const auto attended = [&] {
      const Tensor normed = layer.attn_norm.norm.weight ? layer.attn_norm(input) : input;
      return attention(layer, normed, context, a_.sliding[static_cast<std::size_t>(index)]);
    };
    const AttentionResult result = attended();
    const Tensor hidden_states = add(input, result.output);
    const auto fed = [&] {
      const ModuleScope scope(device, "mlp", Category::mlp);
      const Tensor normed = layer.mlp_norm(hidden_states);
      return mlp(layer, normed);
    };
    const Tensor delta = fed();
    return add(hidden_states, delta);
  }

  Tensor end(Tensor hidden_states) const override { return final_norm_(hidden_states); }

  bool has_logits() const override { return true; }
  Tensor logits(const Tensor& hidden_states, std::vector<Tensor>&) const override {
    const auto headed = [&](const Tensor& states) {
      const auto activated = [&] {
        const Tensor dense = head_dense_(states);
        return activate(Activation::gelu, dense);
      };
      const Tensor active = activated();
      return head_norm_(active);
    };
    if (a_.head == Head::masked_word) return last_(headed(hidden_states));
    Tensor pooled = headed(a_.head == Head::sequence_label ? select(hidden_states, 1) : hidden_states);
    pooled = dropout(pooled, a_.classifier.dropout);
    return last_(pooled);
  }

 private:
  // create_bidirectional_sliding_window_mask
  Tensor window_mask(const Tensor& hidden_states, const ForwardOptions& options) const {
    const std::int64_t rows = hidden_states.size(0), sequence = hidden_states.size(1);
    return bidirectional_window_mask(hidden_states.device(), rows, sequence, a_.sliding_window, options.attention, hidden_states.dtype(),
                                     options.padding);
  }

  AttentionResult attention(const ModernLayer& layer, const Tensor& hidden_states, const LayerContext& context, bool slides) const {
    const ModuleScope scope(hidden_states.device(), "attn", Category::attention);
    const std::int64_t rows = hidden_states.size(0), sequence = hidden_states.size(1);
    const Tensor qkv = view(layer.Wqkv(hidden_states), {rows, sequence, 3, a_.heads, a_.head_dim});
    const Tensors parts = unbind(qkv, 2);
    Tensor query = transpose(parts[0], 1, 2), key = transpose(parts[1], 1, 2);
    const Tensor value = transpose(parts[2], 1, 2);
    const RotaryEmbedding::Angles& angles = slides ? context.sliding_position_embeddings : context.position_embeddings;
    const Dtype dtype = query.dtype();
    {
      const Tensor cos = unsqueeze(angles.cos, 1), sin = unsqueeze(angles.sin, 1);
      const Tensor turned_query = turned(query, cos, sin), turned_key = turned(key, cos, sin);
      const Tensor cast = to(turned_query, dtype);
      key = to(turned_key, dtype);
      query = cast;
    }
    const Tensor& mask = slides ? context.sliding_attention_mask : context.attention_mask;
    AttentionResult result;
    if (context.attention == Attention::eager) {
      result = eager_attention(query, key, value, mask, a_.attention_dropout, false);
      result.output = merged_heads(result.output, rows, sequence);
    } else {
      result = bidirectional_attention(query, key, value, mask, a_.attention_dropout, context);
    }
    result.output = layer.Wo(result.output);
    result.output = dropout(result.output, a_.attention_dropout);
    return result;
  }

  Tensor mlp(const ModernLayer& layer, const Tensor& hidden_states) const {
    const auto [input, gate] = halves_of(layer.Wi(hidden_states));
    const auto product = [&, opened = input, closed = gate] {
      const Tensor active = activate(a_.activation, opened);
      return mul(active, closed);
    };
    const auto dropped = [&] {
      const Tensor whole = product();
      return dropout(whole, a_.dropout);
    };
    return layer.mlp_Wo(dropped());
  }

  const Architecture& a_;
  Tensor tok_embeddings_;
  NormModule norm_, final_norm_, head_norm_;
  std::vector<ModernLayer> layers_;
  RotaryEmbedding full_, local_;
  DenseModule head_dense_, last_;
};

}  // namespace

MadeBody modernbert_body(const Architecture& a, const MadeModule& root) { return std::make_unique<ModernBert>(a, root); }

}  // namespace llmem
