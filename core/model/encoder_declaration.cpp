#include "model/encoder_declaration.h"

namespace llmem {

void read_encoder(ConfigReader& c, Architecture& a, std::string_view word_head) {
  c.file().only("is_decoder", false);
  c.file().only("add_cross_attention", false);
  a.dropout = c.number("hidden_dropout_prob").value_or(0);
  a.own_classifier = a.head != Head::next_word;
  if (!a.own_classifier) a.head = Head::masked_word;
  a.names.head = a.own_classifier ? "classifier" : word_head;
  a.classifier.dropout = c.number("classifier_dropout").value_or(a.dropout);
}

void declare_position_buffers(ConfigReader& c, const Module& embeddings) {
  for (const char* name : {"position_ids", "token_type_ids"})
    embeddings.buffer(name, {1, c.count("max_position_embeddings", 512)}, Dtype::int64);
}

void declare_bert_layers(const Module& encoder, const Architecture& a) {
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = encoder.child("layer", i), attention = layer.child("attention");
    for (const char* name : {"query", "key", "value"}) attention.child("self").linear(name, a.hidden_size, a.heads * a.head_dim, true);
    attention.child("output").linear("dense", a.hidden_size, a.hidden_size, true);
    attention.child("output").norm("LayerNorm", a.hidden_size, true);
    layer.child("intermediate").linear("dense", a.hidden_size, a.intermediate_size, true);
    layer.child("output").linear("dense", a.intermediate_size, a.hidden_size, true);
    layer.child("output").norm("LayerNorm", a.hidden_size, true);
  }
}

void declare_roberta_classifier(const Architecture& a, const Module& root) {
  if (a.head == Head::sequence_label) {
    root.child("classifier").linear("dense", a.hidden_size, a.hidden_size, true);
    root.child("classifier").linear("out_proj", a.hidden_size, a.classifier.labels, true);
  } else {
    root.linear("classifier", a.hidden_size, a.classifier.labels, true);
  }
}

}  // namespace llmem
