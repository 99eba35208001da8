#include "model/bodies.h"
#include "model/encoder_declaration.h"

// More encoders with a head over masked words or labels: modeling_<model_type>.py.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

// `parts`: whether labels of sequences come from two Linears.
void read_more(C& c, A& a, std::string_view stem, std::string_view word_head, bool parts) {
  read_encoder(c, a, word_head);
  a.names.model = stem;
  a.names.layers = "encoder.layer";
  if (parts && a.head == Head::sequence_label) a.names.head = "classifier.out_proj";
  if (a.heads * a.head_dim != a.hidden_size) a.unplayed = "hidden_size";  // its forward fails
}

std::int64_t embedding_size(C& c) { return c.count("embedding_size", 128); }

void declare_embeddings(C& c, const A& a, const Module& embeddings, std::int64_t width) {
  embeddings.embedding("word_embeddings", a.vocab_size, width);
  embeddings.embedding("position_embeddings", c.count("max_position_embeddings", 512), width);
  embeddings.embedding("token_type_embeddings", c.count("type_vocab_size", 2), width);
  embeddings.norm("LayerNorm", width, true);
  declare_position_buffers(c, embeddings);
}

void read_electra(C& c, A& a) { read_more(c, a, "electra", "generator_lm_head", true); }

void electra(C& c, const A& a, const Module& root) {
  const Module model = root.child("electra");
  const std::int64_t width = embedding_size(c);
  declare_embeddings(c, a, model.child("embeddings"), width);
  if (width != a.hidden_size) model.linear("embeddings_project", width, a.hidden_size, true);
  declare_bert_layers(model.child("encoder"), a);
  if (a.own_classifier) return declare_roberta_classifier(a, root);
  const Module predictions = root.child("generator_predictions");
  predictions.norm("LayerNorm", width, true);
  predictions.linear("dense", a.hidden_size, width, true);
  if (a.tied_embeddings)
    root.child("generator_lm_head").parameter("bias", {a.vocab_size});
  else
    root.linear("generator_lm_head", width, a.vocab_size, true);
}

void read_albert(C& c, A& a) {
  read_more(c, a, "albert", "predictions.decoder", false);
  a.classifier.dropout = c.number("classifier_dropout_prob").value_or(a.dropout);
}

void albert_layer(const A& a, const Module& layer) {
  const Module attention = layer.child("attention");
  layer.norm("full_layer_layer_norm", a.hidden_size, true);
  for (const char* name : {"query", "key", "value"}) attention.linear(name, a.hidden_size, a.heads * a.head_dim, true);
  attention.linear("dense", a.hidden_size, a.hidden_size, true);
  attention.norm("LayerNorm", a.hidden_size, true);
  layer.linear("ffn", a.hidden_size, a.intermediate_size, true);
  layer.linear("ffn_output", a.intermediate_size, a.hidden_size, true);
}

void albert(C& c, const A& a, const Module& root) {
  const Module model = root.child("albert"), encoder = model.child("encoder");
  const std::int64_t width = embedding_size(c), groups = c.count("num_hidden_groups", 1, 1, 1 << 12),
                     inner = c.count("inner_group_num", 1, 1, 1 << 12);
  declare_embeddings(c, a, model.child("embeddings"), width);
  encoder.linear("embedding_hidden_mapping_in", width, a.hidden_size, true);
  for (std::int64_t g = 0; g < groups; ++g)
    for (std::int64_t i = 0; i < inner; ++i) albert_layer(a, encoder.child("albert_layer_groups", g).child("albert_layers", i));
  if (a.head == Head::sequence_label) model.linear("pooler", a.hidden_size, a.hidden_size, true);
  if (a.own_classifier) return root.linear("classifier", a.hidden_size, a.classifier.labels, true);
  const Module predictions = root.child("predictions");
  predictions.norm("LayerNorm", width, true);
  predictions.parameter("bias", {a.vocab_size});
  predictions.linear("dense", a.hidden_size, width, true);
  if (!a.tied_embeddings) predictions.linear("decoder", width, a.vocab_size, true);
}

void read_mpnet(C& c, A& a) {
  read_more(c, a, "mpnet", "lm_head.decoder", true);
  a.classifier.dropout = a.dropout;
  a.eager_only = true;
  if (c.count("relative_attention_num_buckets", 32) < 32) a.unplayed = "relative_attention_num_buckets";  // its forward takes 32
}

void mpnet(C& c, const A& a, const Module& root) {
  const Module model = root.child("mpnet"), embeddings = model.child("embeddings"), encoder = model.child("encoder");
  embeddings.embedding("word_embeddings", a.vocab_size, a.hidden_size);
  embeddings.embedding("position_embeddings", c.count("max_position_embeddings", 512), a.hidden_size);
  embeddings.norm("LayerNorm", a.hidden_size, true);
  embeddings.buffer("position_ids", {1, c.count("max_position_embeddings", 512)}, Dtype::int64);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = encoder.child("layer", i), attention = layer.child("attention");
    for (const char* name : {"q", "k", "v", "o"}) attention.child("attn").linear(name, a.hidden_size, a.hidden_size, true);
    attention.norm("LayerNorm", a.hidden_size, true);
    layer.child("intermediate").linear("dense", a.hidden_size, a.intermediate_size, true);
    layer.child("output").linear("dense", a.intermediate_size, a.hidden_size, true);
    layer.child("output").norm("LayerNorm", a.hidden_size, true);
  }
  encoder.embedding("relative_attention_bias", c.count("relative_attention_num_buckets", 32), a.heads);
  if (a.own_classifier) return declare_roberta_classifier(a, root);
  const Module head = root.child("lm_head");
  head.parameter("bias", {a.vocab_size});
  head.linear("dense", a.hidden_size, a.hidden_size, true);
  head.norm("layer_norm", a.hidden_size, true);
  if (!a.tied_embeddings) head.linear("decoder", a.hidden_size, a.vocab_size, true);
}

constexpr Family kFamilies[] = {
    {"electra", "ElectraForMaskedLM", Coverage::played,
     "vocab_size=30522 embedding_size=128 hidden_size=256 num_hidden_layers=12 num_attention_heads=4 intermediate_size=1024 "
     "hidden_act=gelu hidden_dropout_prob=0.1 attention_dropout=0.1 max_position_embeddings=512 type_vocab_size=2 "
     "tie_word_embeddings=true",
     "attention_dropout=attention_probs_dropout_prob", read_electra, electra, electra_body},
    {"albert", "AlbertForMaskedLM", Coverage::played,
     "vocab_size=30000 embedding_size=128 hidden_size=4096 num_hidden_layers=12 num_hidden_groups=1 num_attention_heads=64 "
     "intermediate_size=16384 inner_group_num=1 hidden_act=gelu_new max_position_embeddings=512 type_vocab_size=2 "
     "classifier_dropout_prob=0.1 tie_word_embeddings=true",
     "attention_dropout=attention_probs_dropout_prob", read_albert, albert, albert_body},
    {"mpnet", "MPNetForMaskedLM", Coverage::played,
     "vocab_size=30527 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072 hidden_act=gelu "
     "hidden_dropout_prob=0.1 attention_dropout=0.1 max_position_embeddings=512 relative_attention_num_buckets=32 "
     "tie_word_embeddings=true",
     "attention_dropout=attention_probs_dropout_prob", read_mpnet, mpnet, mpnet_body},
};

}  // namespace

std::span<const Family> more_encoder_families() { return kFamilies; }

}  // namespace llmem
