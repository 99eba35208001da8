#include "model/activation.h"
#include "model/bodies.h"
#include "model/encoder_head.h"
#include "tensor/ops.h"

// modeling_bert.py, modeling_roberta.py, modeling_xlm_roberta.py and modeling_electra.py, which differ in positions, heads and the width of
// the embeddings; modeling_distilbert.py.
namespace llmem {

namespace {

struct BertLayer {
  DenseModule query, key, value, attention_output;
  NormModule attention_norm;
  DenseModule intermediate, output;
  NormModule output_norm;
};

BertLayer made_layer(const MadeModule& layer) {
  const MadeModule attention = layer.child("attention"), self = attention.child("self"), output = attention.child("output");
  return {self.dense("query"),
          self.dense("key"),
          self.dense("value"),
          output.dense("dense"),
          output.norm("LayerNorm"),
          layer.child("intermediate").dense("dense"),
          layer.child("output").dense("dense"),
          layer.child("output").norm("LayerNorm")};
}

class Bert : public Body {
 public:
  Bert(const Architecture& a, const MadeModule& root, std::string_view stem, bool counts_padding) : a_(a), counts_padding_(counts_padding) {
    const MadeModule model = root.child(stem), embeddings = model.child("embeddings");
    word_embeddings_ = embeddings.tensor("word_embeddings.weight");
    if (!word_embeddings_) word_embeddings_ = root.tensor("lm_head.decoder.weight");  // XLMRobertaForMaskedLM
    position_embeddings_ = embeddings.tensor("position_embeddings.weight");
    token_type_embeddings_ = embeddings.tensor("token_type_embeddings.weight");
    position_ids_ = embeddings.tensor("position_ids");
    embeddings_norm_ = embeddings.norm("LayerNorm");
    embeddings_project_ = model.dense("embeddings_project");
    for (std::int64_t i = 0; i < a.layers; ++i) layers_.push_back(made_layer(model.child("encoder.layer", i)));
    make_head(root, model);
  }

  Tensor embedding() const override { return word_embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    Tensor embedding_output = embedded(ids, options);
    if (embeddings_project_.present()) embedding_output = embeddings_project_(embedding_output);
    locals = {embedding_output};
    context.attention_mask = encoder_mask(embedding_output, options);
    return embedding_output;
  }

  Tensor layer(int index, const Tensor& hidden_states, const LayerContext& context, Tensor&) const override {
    const BertLayer& layer = layers_[static_cast<std::size_t>(index)];
    Device& device = hidden_states.device();
    const AttentionResult attended = attention(layer, hidden_states, context);
    const ModuleScope scope(device, "mlp", Category::mlp);
    Tensor intermediate = layer.intermediate(attended.output);
    intermediate = activate(a_.activation, intermediate);
    return output(layer.output, layer.output_norm, intermediate, attended.output);
  }

  Tensor end(Tensor hidden_states) const override { return hidden_states; }

  bool has_logits() const override { return true; }
  Tensor logits(const Tensor& hidden_states, std::vector<Tensor>&) const override { return head_.logits(a_, hidden_states); }

 private:
  void make_head(const MadeModule& root, const MadeModule& model) {
    if (a_.head != Head::masked_word) {
      head_ = label_head(a_, root, model.child("pooler").dense("dense"));
      head_.dense_by_gelu = a_.model_type == "electra";
      return;
    }
    if (a_.names.head == "generator_lm_head") {  // ElectraGeneratorPredictions and the Linear behind it
      const MadeModule predictions = root.child("generator_predictions");
      head_.transform = predictions.dense("dense");
      head_.transform_norm = predictions.norm("LayerNorm");
      head_.decoder = head_module(root, a_.names.head, a_.tied_embeddings ? word_embeddings_ : Tensor());
      return;
    }
    const bool bert = a_.names.head == "cls.predictions.decoder";
    const MadeModule head = root.child(bert ? "cls.predictions" : "lm_head"), transform = bert ? head.child("transform") : head;
    head_.activation = bert ? a_.activation : Activation::gelu;
    head_.transform = transform.dense("dense");
    head_.transform_norm = transform.norm(bert ? "LayerNorm" : "layer_norm");
    head_.decoder = words_decoder(a_, head, word_embeddings_);
  }

  Tensor embedded(const Tensor& ids, const ForwardOptions& options) const {
    Device& device = ids.device();
    const ModuleScope scope(device, "embeddings");
    const std::int64_t sequence = ids.size(1);
    const Tensor position_ids = counts_padding_ ? positions_of_words(ids) : narrow(position_ids_, 1, 0, sequence);
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

  AttentionResult attention(const BertLayer& layer, const Tensor& hidden_states, const LayerContext& context) const {
    const ModuleScope scope(hidden_states.device(), "attention", Category::attention);
    const auto attended = [&] {
      const Tensor query = by_heads(layer.query(hidden_states), a_.head_dim);
      const Tensor key = by_heads(layer.key(hidden_states), a_.head_dim);
      const Tensor value = by_heads(layer.value(hidden_states), a_.head_dim);
      return bidirectional_attention(query, key, value, context.attention_mask, a_.attention_dropout, context);
    };
    AttentionResult result = attended();
    result.output = output(layer.attention_output, layer.attention_norm, result.output, hidden_states);
    return result;
  }

  // BertSelfOutput and BertOutput
  Tensor output(const DenseModule& dense, const NormModule& norm, const Tensor& states, const Tensor& input_tensor) const {
    Tensor hidden_states = dense(states);
    hidden_states = dropout(hidden_states, a_.dropout);
    const Tensor sum = add(hidden_states, input_tensor);
    return norm(sum);
  }

  const Architecture& a_;
  bool counts_padding_;
  Tensor word_embeddings_, position_embeddings_, token_type_embeddings_, position_ids_;
  NormModule embeddings_norm_;
  DenseModule embeddings_project_;
  std::vector<BertLayer> layers_;
  EncoderHead head_;
};

// modeling_distilbert.py
struct DistilLayer {
  DenseModule q_lin, k_lin, v_lin, out_lin;
  NormModule sa_layer_norm;
  DenseModule lin1, lin2;
  NormModule output_layer_norm;
};

class DistilBert : public Body {
 public:
  DistilBert(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("distilbert"), embeddings = model.child("embeddings");
    word_embeddings_ = embeddings.tensor("word_embeddings.weight");
    position_embeddings_ = embeddings.tensor("position_embeddings.weight");
    position_ids_ = embeddings.tensor("position_ids");
    embeddings_norm_ = embeddings.norm("LayerNorm");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule layer = model.child("transformer.layer", i), attention = layer.child("attention"), ffn = layer.child("ffn");
      layers_.push_back({attention.dense("q_lin"), attention.dense("k_lin"), attention.dense("v_lin"), attention.dense("out_lin"),
                         layer.norm("sa_layer_norm"), ffn.dense("lin1"), ffn.dense("lin2"), layer.norm("output_layer_norm")});
    }
    if (a.head == Head::masked_word) {
      transform_ = root.dense("vocab_transform");
      transform_norm_ = root.norm("vocab_layer_norm");
      last_ = head_module(root, "vocab_projector", a.tied_embeddings ? word_embeddings_ : Tensor());
    } else {
      transform_ = head_module(root, "pre_classifier");
      last_ = head_module(root, "classifier");
    }
  }

  Tensor embedding() const override { return word_embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const auto embedded = [&] {
      const ModuleScope scope(ids.device(), "embeddings");
      const Tensor inputs_embeds = embedded_ids(word_embeddings_, "word_embeddings", ids, options);
      const Tensor position_embeddings = embedded_at(position_embeddings_, "position_embeddings", narrow(position_ids_, 1, 0, ids.size(1)));
      Tensor embeddings = add(inputs_embeds, position_embeddings);
      embeddings = embeddings_norm_(embeddings);
      return dropout(embeddings, a_.dropout);
    };
    const Tensor embeddings = embedded();
    locals = {embeddings};
    context.attention_mask = encoder_mask(embeddings, options);
    return embeddings;
  }

  Tensor layer(int index, const Tensor& hidden_states, const LayerContext& context, Tensor&) const override {
    const DistilLayer& layer = layers_[static_cast<std::size_t>(index)];
    AttentionResult attended = attention(layer, hidden_states, context);
    {
      const Tensor sum = add(attended.output, hidden_states);
      attended.output = layer.sa_layer_norm(sum);
    }
    const auto fed = [&] {
      const ModuleScope scope(hidden_states.device(), "ffn", Category::mlp);
      Tensor x = layer.lin1(attended.output);
      x = activate(a_.activation, x);
      x = layer.lin2(x);
      return dropout(x, a_.dropout);
    };
    const Tensor ffn_output = fed();
    const Tensor sum = add(ffn_output, attended.output);
    return layer.output_layer_norm(sum);
  }

  Tensor end(Tensor hidden_states) const override { return hidden_states; }

  bool has_logits() const override { return true; }
  Tensor logits(const Tensor& hidden_states, std::vector<Tensor>& locals) const override {
    if (a_.head == Head::token_label) return last_(dropout(hidden_states, a_.dropout));
    if (a_.head == Head::masked_word) {
      Tensor states = transform_(hidden_states);
      states = activate(a_.activation, states);
      states = transform_norm_(states);
      locals.push_back(states);
      return last_(states);
    }
    Tensor pooled = transform_(select(hidden_states, 1));
    pooled = relu(pooled);
    pooled = dropout(pooled, a_.classifier.dropout);
    locals.push_back(pooled);
    return last_(pooled);
  }

 private:
  AttentionResult attention(const DistilLayer& layer, const Tensor& hidden_states, const LayerContext& context) const {
    const ModuleScope scope(hidden_states.device(), "attention", Category::attention);
    const Tensor query = by_heads(layer.q_lin(hidden_states), a_.head_dim);
    const Tensor key = by_heads(layer.k_lin(hidden_states), a_.head_dim);
    const Tensor value = by_heads(layer.v_lin(hidden_states), a_.head_dim);
    AttentionResult result = bidirectional_attention(query, key, value, context.attention_mask, a_.attention_dropout, context);
    result.output = layer.out_lin(result.output);
    return result;
  }

  const Architecture& a_;
  Tensor word_embeddings_, position_embeddings_, position_ids_;
  NormModule embeddings_norm_;
  std::vector<DistilLayer> layers_;
  DenseModule transform_, last_;
  NormModule transform_norm_;
};

}  // namespace

MadeBody distilbert_body(const Architecture& a, const MadeModule& root) { return std::make_unique<DistilBert>(a, root); }
MadeBody bert_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Bert>(a, root, "bert", false); }
MadeBody electra_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Bert>(a, root, "electra", false); }
MadeBody roberta_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Bert>(a, root, "roberta", true); }

}  // namespace llmem
