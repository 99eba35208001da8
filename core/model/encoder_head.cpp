#include "model/encoder_head.h"

#include "model/activation.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// BertPooler
Tensor pooled(const DenseModule& pooler, const Tensor& hidden_states) {
  const ModuleScope scope(hidden_states.device(), "pooler");
  const auto dense = [&] {
    const Tensor first_token_tensor = select(hidden_states, 1);
    return pooler(first_token_tensor);
  };
  const Tensor pooled_output = dense();
  return tanh_of(pooled_output);
}

}  // namespace

Tensor EncoderHead::logits(const Architecture& a, const Tensor& hidden_states) const {
  if (a.head == Head::masked_word) {
    Tensor states = transform(hidden_states);
    states = activate(activation, states);
    states = transform_norm(states);
    return decoder(states);
  }
  const double probability = a.classifier.dropout;
  if (pooler.present()) return classifier(dropout(pooled(pooler, hidden_states), probability));
  if (!dense.present()) return classifier(dropout(hidden_states, probability));
  Tensor x = select(hidden_states, 1);  // RobertaClassificationHead, ElectraClassificationHead
  x = dropout(x, probability);
  x = dense(x);
  x = dense_by_gelu ? gelu(x) : tanh_of(x);
  x = dropout(x, probability);
  return classifier(x);
}

DenseModule words_decoder(const Architecture& a, const MadeModule& head, const Tensor& word_embeddings) {
  return head_module(head, "decoder", a.tied_embeddings ? word_embeddings : Tensor(), a.tied_embeddings ? head.tensor("bias") : Tensor());
}

EncoderHead label_head(const Architecture& a, const MadeModule& root, const DenseModule& pooler) {
  EncoderHead made;
  made.pooler = pooler;
  const bool in_parts = a.names.head != "classifier";
  if (in_parts) made.dense = head_module(root, "classifier.dense");
  made.classifier = head_module(root, in_parts ? "classifier.out_proj" : "classifier");
  return made;
}

}  // namespace llmem
