#include "model/activation.h"
#include "model/bodies.h"
#include "model/encoder_head.h"
#include "tensor/ops.h"

// modeling_mpnet.py: BERT's layer with a bias of relative positions on the scores, the same for all layers.
namespace llmem {

namespace {

struct MpnetLayer {
  DenseModule q, k, v, o;
  NormModule attention_norm;
  DenseModule intermediate, output;
  NormModule output_norm;
};

MpnetLayer made_layer(const MadeModule& layer) {
  const MadeModule attention = layer.child("attention"), attn = attention.child("attn"), output = layer.child("output");
  return {attn.dense("q"),
          attn.dense("k"),
          attn.dense("v"),
          attn.dense("o"),
          attention.norm("LayerNorm"),
          layer.child("intermediate").dense("dense"),
          output.dense("dense"),
          output.norm("LayerNorm")};
}

// MPNetEncoder.relative_position_bucket
Tensor buckets_of(const Tensor& relative_position) {
  Device& device = relative_position.device();
  const auto like = [&](Dtype dtype) { return device.empty(relative_position.sizes(), dtype); };
  Tensor n = like(Dtype::int64), ret;
  {
    const auto ahead = [&] {
      const Tensor negative = like(Dtype::boolean);
      return like(Dtype::int64);
    };
    const auto offsets = [&] {
      const Tensor integers = ahead();
      return like(Dtype::int64);
    };
    const Tensor scaled = offsets();
    ret = like(Dtype::int64);
  }
  n = like(Dtype::int64);
  const Tensor is_small = like(Dtype::boolean);
  const auto logarithm = [&] {
    Tensor ratio = like(Dtype::float32);
    for (int i = 0; i < 4; ++i) ratio = like(Dtype::float32);
    return ratio;
  };
  const auto integers = [&] {
    const Tensor ratio = logarithm();
    return like(Dtype::int64);
  };
  const auto large = [&] {
    const Tensor rounded = integers();
    return like(Dtype::int64);
  };
  Tensor val_if_large = large();
  {
    const Tensor most = like(Dtype::int64);
    val_if_large = like(Dtype::int64);
  }
  const Tensor chosen = like(Dtype::int64);
  return ret;
}

class Mpnet : public Body {
 public:
  Mpnet(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("mpnet"), embeddings = model.child("embeddings");
    word_embeddings_ = embeddings.tensor("word_embeddings.weight");
    position_embeddings_ = embeddings.tensor("position_embeddings.weight");
    embeddings_norm_ = embeddings.norm("LayerNorm");
    relative_attention_bias_ = model.tensor("encoder.relative_attention_bias.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) layers_.push_back(made_layer(model.child("encoder.layer", i)));
    if (a.head != Head::masked_word) {
      head_ = label_head(a, root, {});
      return;
    }
    const MadeModule head = root.child("lm_head");
    head_.transform = head.dense("dense");
    head_.transform_norm = head.norm("layer_norm");
    head_.decoder = words_decoder(a, head, word_embeddings_);
  }

  Tensor embedding() const override { return word_embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor embedding_output = embedded(ids, options);
    context.attention_mask = encoder_mask(embedding_output, options);
    context.biases.own = position_bias(ids.device(), ids.size(0), ids.size(1));
    locals = {embedding_output};
    return embedding_output;
  }

  Tensor layer(int index, const Tensor& hidden_states, const LayerContext& context, Tensor&) const override {
    const MpnetLayer& layer = layers_[static_cast<std::size_t>(index)];
    const Tensor attention_output = attention(layer, hidden_states, context);
    const ModuleScope scope(hidden_states.device(), "mlp", Category::mlp);
    Tensor intermediate_output = layer.intermediate(attention_output);
    intermediate_output = activate(a_.activation, intermediate_output);
    Tensor states = layer.output(intermediate_output);
    states = dropout(states, a_.dropout);
    const Tensor sum = add(states, attention_output);
    return layer.output_norm(sum);
  }

  Tensor end(Tensor hidden_states) const override { return hidden_states; }

  bool has_logits() const override { return true; }
  Tensor logits(const Tensor& hidden_states, std::vector<Tensor>&) const override { return head_.logits(a_, hidden_states); }

 private:
  Tensor embedded(const Tensor& ids, const ForwardOptions& options) const {
    const ModuleScope scope(ids.device(), "embeddings");
    const Tensor position_ids = positions_of_words(ids);
    const Tensor inputs_embeds = embedded_ids(word_embeddings_, "word_embeddings", ids, options);
    const Tensor position_embeddings = embedded_at(position_embeddings_, "position_embeddings", position_ids);
    Tensor embeddings = add(inputs_embeds, position_embeddings);
    embeddings = embeddings_norm_(embeddings);
    return dropout(embeddings, a_.dropout);
  }

  // MPNetEncoder.compute_position_bias: [B, heads, S, S]
  Tensor position_bias(Device& device, std::int64_t rows, std::int64_t sequence) const {
    const Tensor context_position = device.empty({sequence, 1}, Dtype::int64), memory_position = device.empty({1, sequence}, Dtype::int64);
    const Tensor relative_position = device.empty({sequence, sequence}, Dtype::int64);
    const Tensor rp_bucket = buckets_of(relative_position);
    const Tensor values = embedded_at(relative_attention_bias_, "relative_attention_bias", rp_bucket);
    return contiguous(expand(unsqueeze(permute(values, {2, 0, 1}), 0), {rows, a_.heads, sequence, sequence}));
  }

  Tensor attention(const MpnetLayer& layer, const Tensor& hidden_states, const LayerContext& context) const {
    const ModuleScope scope(hidden_states.device(), "attention", Category::attention);
    const auto attended = [&] {
      const Tensor q = by_heads(layer.q(hidden_states), a_.head_dim);
      const Tensor k = by_heads(layer.k(hidden_states), a_.head_dim);
      const Tensor v = by_heads(layer.v(hidden_states), a_.head_dim);
      Tensor attention_scores = matmul(q, transpose(k, 2, 3));
      attention_scores = mul_scalar(attention_scores);
      attention_scores = add_in_place(attention_scores, context.biases.own);
      if (context.attention_mask) attention_scores = add(attention_scores, context.attention_mask);
      Tensor attention_probs = softmax_last(attention_scores);
      attention_probs = dropout(attention_probs, a_.attention_dropout);
      Tensor c = matmul(attention_probs, v);
      c = contiguous(transpose(c, 1, 2));
      c = view(c, {c.size(0), c.size(1), a_.hidden_size});
      return layer.o(c);
    };
    const Tensor output = attended();
    const Tensor dropped = dropout(output, a_.dropout);
    const Tensor sum = add(dropped, hidden_states);
    return layer.attention_norm(sum);
  }

  const Architecture& a_;
  Tensor word_embeddings_, position_embeddings_, relative_attention_bias_;
  NormModule embeddings_norm_;
  std::vector<MpnetLayer> layers_;
  EncoderHead head_;
};

}  // namespace

MadeBody mpnet_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Mpnet>(a, root); }

}  // namespace llmem
