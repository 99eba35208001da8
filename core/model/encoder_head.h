#pragma once

#include "model/encoder.h"

namespace llmem {

// What the class of an encoder ends in.
struct EncoderHead {
  DenseModule transform, decoder;  // masked words: a Linear, an activation, a norm, and the words
  NormModule transform_norm;
  Activation activation = Activation::gelu;
  DenseModule pooler;             // labels: the first token through a Linear and tanh, and a Linear
  DenseModule dense, classifier;  // … or through two Linears; without either, each token through one
  bool dense_by_gelu = false;     // an activation between the two, else tanh

  // [B, S, h] to logits
  Tensor logits(const Architecture& a, const Tensor& hidden_states) const;
};

// The bias and the weight of `decoder` are the words' where they are tied.
DenseModule words_decoder(const Architecture& a, const MadeModule& head, const Tensor& word_embeddings);
// "classifier", or its two parts where a.names.head says so; `pooler` may be none.
EncoderHead label_head(const Architecture& a, const MadeModule& root, const DenseModule& pooler);

}  // namespace llmem
