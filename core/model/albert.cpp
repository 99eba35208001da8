#include "model/activation.h"
#include "model/bodies.h"
#include "model/encoder_head.h"
#include "tensor/ops.h"

// modeling_albert.py: layers of one group run again and again, behind embeddings that are narrower.
namespace llmem {

namespace {

struct AlbertLayer {
  DenseModule query, key, value, dense;
  NormModule attention_norm;
  DenseModule ffn, ffn_output;
  NormModule full_layer_layer_norm;
};

AlbertLayer made_layer(const MadeModule& layer) {
  const MadeModule attention = layer.child("attention");
  return {attention.dense("query"),    attention.dense("key"), attention.dense("value"),  attention.dense("dense"),
          attention.norm("LayerNorm"), layer.dense("ffn"),     layer.dense("ffn_output"), layer.norm("full_layer_layer_norm")};
}

class Albert : public Body {
 public:
  Albert(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("albert"), embeddings = model.child("embeddings"), encoder = model.child("encoder");
    word_embeddings_ = embeddings.tensor("word_embeddings.weight");
    position_embeddings_ = embeddings.tensor("position_embeddings.weight");
    token_type_embeddings_ = embeddings.tensor("token_type_embeddings.weight");
    position_ids_ = embeddings.tensor("position_ids");
    embeddings_norm_ = embeddings.norm("LayerNorm");
    mapping_in_ = encoder.dense("embedding_hidden_mapping_in");
    for (std::int64_t g = 0; encoder.tensor("albert_layer_groups." + std::to_string(g) + ".albert_layers.0.ffn.weight"); ++g) {
      const MadeModule group = encoder.child("albert_layer_groups", g);
      groups_.emplace_back();
      for (std::int64_t i = 0; group.tensor("albert_layers." + std::to_string(i) + ".ffn.weight"); ++i)
        groups_.back().push_back(made_layer(group.child("albert_layers", i)));
    }
    make_head(root, model);
  }

  Tensor embedding() const override { return word_embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor embedding_output = embedded(ids, options);
    context.attention_mask = encoder_mask(embedding_output, options);
    locals = {embedding_output};
    return mapping_in_(embedding_output);
  }

  // AlbertLayerGroup
  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const double per_group = static_cast<double>(a_.layers) / static_cast<double>(groups_.size());
    Tensor hidden_states = input;
    for (const AlbertLayer& each : groups_[static_cast<std::size_t>(index / per_group)])
      hidden_states = layer_of(each, hidden_states, context);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return hidden_states; }

  bool has_logits() const override { return true; }
  Tensor logits(const Tensor& hidden_states, std::vector<Tensor>&) const override { return head_.logits(a_, hidden_states); }

 private:
  void make_head(const MadeModule& root, const MadeModule& model) {
    if (a_.head != Head::masked_word) {
      head_ = label_head(a_, root, model.dense("pooler"));
      return;
    }
    const MadeModule predictions = root.child("predictions");  // AlbertMLMHead
    head_.activation = a_.activation;
    head_.transform = predictions.dense("dense");
    head_.transform_norm = predictions.norm("LayerNorm");
    head_.decoder = words_decoder(a_, predictions, word_embeddings_);
  }

  Tensor embedded(const Tensor& ids, const ForwardOptions& options) const {
    Device& device = ids.device();
    const ModuleScope scope(device, "embeddings");
    const Tensor position_ids = narrow(position_ids_, 1, 0, ids.size(1));
    const Tensor buffered_token_type_ids = device.empty(position_ids.sizes(), Dtype::int64);  // gather
    const Tensor token_type_ids = expand(buffered_token_type_ids, ids.sizes());
    const Tensor inputs_embeds = embedded_ids(word_embeddings_, "word_embeddings", ids, options);
    const Tensor token_type_embeddings = embedded_at(token_type_embeddings_, "token_type_embeddings", token_type_ids);
    Tensor embeddings = add(inputs_embeds, token_type_embeddings);
    const Tensor position_embeddings = embedded_at(position_embeddings_, "position_embeddings", position_ids);
    embeddings = add(embeddings, position_embeddings);
    embeddings = embeddings_norm_(embeddings);
    return dropout(embeddings, a_.dropout);
  }

  Tensor layer_of(const AlbertLayer& layer, const Tensor& hidden_states, const LayerContext& context) const {
    const AttentionResult attended = attention(layer, hidden_states, context);
    const ModuleScope scope(hidden_states.device(), "mlp", Category::mlp);
    const auto fed = [&] {
      Tensor ffn_output = layer.ffn(attended.output);
      ffn_output = activate(a_.activation, ffn_output);
      ffn_output = layer.ffn_output(ffn_output);
      return ffn_output;
    };
    const Tensor ffn_output = fed();
    const Tensor sum = add(ffn_output, attended.output);
    return layer.full_layer_layer_norm(sum);
  }

  AttentionResult attention(const AlbertLayer& layer, const Tensor& hidden_states, const LayerContext& context) const {
    const ModuleScope scope(hidden_states.device(), "attention", Category::attention);
    const Tensor query = by_heads(layer.query(hidden_states), a_.head_dim);
    const Tensor key = by_heads(layer.key(hidden_states), a_.head_dim);
    const Tensor value = by_heads(layer.value(hidden_states), a_.head_dim);
    AttentionResult result = bidirectional_attention(query, key, value, context.attention_mask, a_.attention_dropout, context);
    result.output = layer.dense(result.output);
    result.output = dropout(result.output, a_.dropout);
    const Tensor sum = add(hidden_states, result.output);
    result.output = layer.attention_norm(sum);
    return result;
  }

  const Architecture& a_;
  Tensor word_embeddings_, position_embeddings_, token_type_embeddings_, position_ids_;
  NormModule embeddings_norm_;
  DenseModule mapping_in_;
  std::vector<std::vector<AlbertLayer>> groups_;
  EncoderHead head_;
};

}  // namespace

MadeBody albert_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Albert>(a, root); }

}  // namespace llmem
