#include <algorithm>

#include "base/text.h"
#include "model/bodies.h"
#include "model/encoder_declaration.h"

// Encoders with a masked-language head (BERT kinds) and encoder-decoders (T5 kinds): modeling_<model_type>.py.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

void read_bert(C& c, A& a) {
  read_encoder(c, a, "cls.predictions.decoder");
  a.names.model = "bert";
  a.names.layers = "encoder.layer";
}

void read_roberta(C& c, A& a) {
  read_encoder(c, a, "lm_head.decoder");
  a.names.model = "roberta";
  a.names.layers = "encoder.layer";
  if (a.head == Head::sequence_label) a.names.head = "classifier.out_proj";
}

void read_distilbert(C& c, A& a) {
  read_encoder(c, a, "vocab_projector");
  a.names.model = "distilbert";
  a.names.layers = "transformer.layer";
  a.dropout = c.number("dropout").value_or(0);
  a.classifier.dropout = c.number("seq_classif_dropout").value_or(0);
}

// ModernBertConfig: layers look around locally, but each third.
void read_modernbert(C& c, A& a) {
  read_encoder(c, a, "decoder");
  a.float_logits = a.head == Head::masked_word;  // ForMaskedLMLoss
  a.dropout = c.number("mlp_dropout").value_or(0);
  a.embedding_dropout = c.number("embedding_dropout").value_or(0);
  a.classifier.dropout = c.number("classifier_dropout").value_or(0);
  a.sliding_window = c.count("local_attention", 128) / 2;
  const std::int64_t every = c.count("global_attn_every_n_layers", 3);
  for (const std::string& type : c.each_layer("layer_types", a.layers)) a.sliding.push_back(type == "sliding_attention");
  if (a.sliding.empty())
    for (std::int64_t i = 0; i < a.layers; ++i) a.sliding.push_back(i % every != 0);
  if (c.flag("sparse_prediction")) a.unplayed = "sparse_prediction";
  if (c.text("classifier_pooling") != "cls") a.unplayed = "classifier_pooling";
  if (c.text("classifier_activation") != "gelu") a.unplayed = "classifier_activation";
}

void bert(C& c, const A& a, const Module& root) {
  const Module embeddings = root.child("bert.embeddings");
  embeddings.embedding("word_embeddings", a.vocab_size, a.hidden_size);
  embeddings.embedding("position_embeddings", c.count("max_position_embeddings", 512), a.hidden_size);
  embeddings.embedding("token_type_embeddings", c.count("type_vocab_size", 2), a.hidden_size);
  embeddings.norm("LayerNorm", a.hidden_size, true);
  declare_position_buffers(c, embeddings);
  declare_bert_layers(root.child("bert.encoder"), a);
  if (a.head == Head::sequence_label) root.child("bert.pooler").linear("dense", a.hidden_size, a.hidden_size, true);
  if (a.own_classifier) return root.linear("classifier", a.hidden_size, a.classifier.labels, true);
  const Module predictions = root.child("cls.predictions");
  predictions.parameter("bias", {a.vocab_size});
  predictions.child("transform").linear("dense", a.hidden_size, a.hidden_size, true);
  predictions.child("transform").norm("LayerNorm", a.hidden_size, true);
  if (!a.tied_embeddings) predictions.linear("decoder", a.hidden_size, a.vocab_size, true);
}

void roberta(C& c, const A& a, const Module& root) {
  const Module embeddings = root.child("roberta.embeddings"), head = root.child("lm_head");
  embeddings.embedding("word_embeddings", a.vocab_size, a.hidden_size);
  embeddings.embedding("token_type_embeddings", c.count("type_vocab_size", 2), a.hidden_size);
  embeddings.norm("LayerNorm", a.hidden_size, true);
  embeddings.embedding("position_embeddings", c.count("max_position_embeddings", 512), a.hidden_size);
  declare_position_buffers(c, embeddings);
  declare_bert_layers(root.child("roberta.encoder"), a);
  if (a.own_classifier) return declare_roberta_classifier(a, root);
  head.parameter("bias", {a.vocab_size});
  head.linear("dense", a.hidden_size, a.hidden_size, true);
  head.norm("layer_norm", a.hidden_size, true);
  if (!a.tied_embeddings) head.linear("decoder", a.hidden_size, a.vocab_size, true);
}

// The head is defined before the encoder, and the embeddings are tied to it.
void xlm_roberta(C& c, const A& a, const Module& root) {
  if (a.own_classifier) return roberta(c, a, root);
  const Module embeddings = root.child("roberta.embeddings"), head = root.child("lm_head");
  head.parameter("bias", {a.vocab_size});
  head.linear("dense", a.hidden_size, a.hidden_size, true);
  head.norm("layer_norm", a.hidden_size, true);
  head.linear("decoder", a.hidden_size, a.vocab_size, !a.tied_embeddings);
  if (!a.tied_embeddings) embeddings.embedding("word_embeddings", a.vocab_size, a.hidden_size);
  embeddings.embedding("token_type_embeddings", c.count("type_vocab_size", 2), a.hidden_size);
  embeddings.norm("LayerNorm", a.hidden_size, true);
  embeddings.embedding("position_embeddings", c.count("max_position_embeddings", 512), a.hidden_size);
  declare_position_buffers(c, embeddings);
  declare_bert_layers(root.child("roberta.encoder"), a);
}

void distilbert(C& c, const A& a, const Module& root) {
  const Module embeddings = root.child("distilbert.embeddings"), transformer = root.child("distilbert.transformer");
  embeddings.buffer("position_ids", {1, c.count("max_position_embeddings", 512)}, Dtype::int64);
  embeddings.embedding("word_embeddings", a.vocab_size, a.hidden_size);
  embeddings.embedding("position_embeddings", c.count("max_position_embeddings", 512), a.hidden_size);
  embeddings.norm("LayerNorm", a.hidden_size, true);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = transformer.child("layer", i);
    for (const char* name : {"q_lin", "k_lin", "v_lin", "out_lin"})
      layer.child("attention").linear(name, a.hidden_size, a.hidden_size, true);
    layer.norm("sa_layer_norm", a.hidden_size, true);
    layer.child("ffn").linear("lin1", a.hidden_size, a.intermediate_size, true);
    layer.child("ffn").linear("lin2", a.intermediate_size, a.hidden_size, true);
    layer.norm("output_layer_norm", a.hidden_size, true);
  }
  if (a.own_classifier) {
    if (a.head == Head::sequence_label) root.linear("pre_classifier", a.hidden_size, a.hidden_size, true);
    return root.linear("classifier", a.hidden_size, a.classifier.labels, true);
  }
  root.linear("vocab_transform", a.hidden_size, a.hidden_size, true);
  root.norm("vocab_layer_norm", a.hidden_size, true);
  if (a.tied_embeddings)
    root.child("vocab_projector").parameter("bias", {a.vocab_size});
  else
    root.linear("vocab_projector", a.hidden_size, a.vocab_size, true);
}

void modernbert(C& c, const A& a, const Module& root) {
  const Module model = root.child("model");
  const bool norm_bias = c.flag("norm_bias"), attention_bias = c.flag("attention_bias"), mlp_bias = c.flag("mlp_bias");
  model.child("embeddings").embedding("tok_embeddings", a.vocab_size, a.hidden_size);
  model.child("embeddings").norm("norm", a.hidden_size, norm_bias);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    if (i > 0) layer.norm("attn_norm", a.hidden_size, norm_bias);
    layer.child("attn").linear("Wqkv", a.hidden_size, 3 * a.hidden_size, attention_bias);
    layer.child("attn").linear("Wo", a.hidden_size, a.hidden_size, attention_bias);
    layer.norm("mlp_norm", a.hidden_size, norm_bias);
    layer.child("mlp").linear("Wi", a.hidden_size, 2 * a.intermediate_size, mlp_bias);
    layer.child("mlp").linear("Wo", a.intermediate_size, a.hidden_size, mlp_bias);
  }
  model.norm("final_norm", a.hidden_size, norm_bias);
  for (const bool slides : {false, true}) {
    if (std::find(a.sliding.begin(), a.sliding.end(), slides) == a.sliding.end()) continue;
    for (const char* name : {"_inv_freq", "_original_inv_freq"})
      model.child("rotary_emb").buffer(std::string(slides ? "sliding" : "full") + "_attention" + name, {a.head_dim / 2});
  }
  root.child("head").linear("dense", a.hidden_size, a.hidden_size, c.flag("classifier_bias"));
  root.child("head").norm("norm", a.hidden_size, norm_bias);
  if (a.own_classifier)
    root.linear("classifier", a.hidden_size, a.classifier.labels, true);
  else if (!a.tied_embeddings)
    root.linear("decoder", a.hidden_size, a.vocab_size, c.flag("decoder_bias"));
  else if (c.flag("decoder_bias"))
    root.child("decoder").parameter("bias", {a.vocab_size});
}

// T5Config: "gated-gelu" means gelu_new; with tied embeddings what enters the head is scaled.
void read_t5(C& c, A& a) {
  a.head = Head::target_word;
  a.names.model = "encoder";
  a.names.layers = "block";
  a.names.decoder_layers = "decoder.block";
  a.decoder_layers = c.integer_or("num_decoder_layers", a.layers, 1, 1 << 12);
  a.layers += a.decoder_layers;
  a.dropout = c.number("dropout_rate").value_or(0);
  a.scaled_logits = a.model_type != "mt5" && c.flag("tie_word_embeddings");
}

void t5_attention(const Module& attention, const A& a, std::int64_t buckets) {
  const std::int64_t inner = a.heads * a.head_dim;
  for (const char* name : {"q", "k", "v"}) attention.linear(name, a.hidden_size, inner);
  attention.linear("o", inner, a.hidden_size);
  if (buckets > 0) attention.embedding("relative_attention_bias", buckets, a.heads);
}

void t5_stack(C& c, const A& a, const Module& stack, std::int64_t layers, bool decoder) {
  const bool gated = c.text("hidden_act").rfind("gated-", 0) == 0;
  const std::int64_t buckets = c.count("relative_attention_num_buckets", 32);
  for (std::int64_t i = 0; i < layers; ++i) {
    const Module block = stack.child("block", i);
    std::int64_t at = 0;
    const auto next = [&] { return block.child("layer", at++); };
    const Module attention = next();
    t5_attention(attention.child("SelfAttention"), a, i == 0 || a.model_type == "umt5" ? buckets : 0);
    attention.norm("layer_norm", a.hidden_size);
    if (decoder) {
      const Module cross = next();
      t5_attention(cross.child("EncDecAttention"), a, 0);
      cross.norm("layer_norm", a.hidden_size);
    }
    const Module feed_forward = next(), dense = feed_forward.child("DenseReluDense");
    if (gated) {
      dense.linear("wi_0", a.hidden_size, a.intermediate_size);
      dense.linear("wi_1", a.hidden_size, a.intermediate_size);
    } else {
      dense.linear("wi", a.hidden_size, a.intermediate_size);
    }
    dense.linear("wo", a.intermediate_size, a.hidden_size);
    feed_forward.norm("layer_norm", a.hidden_size);
  }
  stack.norm("final_layer_norm", a.hidden_size);
}

void t5(C& c, const A& a, const Module& root) {
  root.embedding("shared", a.vocab_size, a.hidden_size);
  t5_stack(c, a, root.child("encoder"), a.encoder_layers(), false);
  t5_stack(c, a, root.child("decoder"), a.decoder_layers, true);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

constexpr Family kFamilies[] = {
    {"bert", "BertForMaskedLM", Coverage::played,
     "vocab_size=30522 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072 hidden_act=gelu "
     "hidden_dropout_prob=0.1 attention_dropout=0.1 max_position_embeddings=512 type_vocab_size=2 "
     "tie_word_embeddings=true",
     "attention_dropout=attention_probs_dropout_prob", read_bert, bert, bert_body},
    {"roberta", "RobertaForMaskedLM", Coverage::played,
     "vocab_size=50265 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072 hidden_act=gelu "
     "hidden_dropout_prob=0.1 attention_dropout=0.1 max_position_embeddings=512 type_vocab_size=2 "
     "tie_word_embeddings=true",
     "attention_dropout=attention_probs_dropout_prob", read_roberta, roberta, roberta_body},
    {"xlm-roberta", "XLMRobertaForMaskedLM", Coverage::played,
     "vocab_size=30522 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 intermediate_size=3072 hidden_act=gelu "
     "hidden_dropout_prob=0.1 attention_dropout=0.1 max_position_embeddings=512 type_vocab_size=2 "
     "tie_word_embeddings=true",
     "attention_dropout=attention_probs_dropout_prob", read_roberta, xlm_roberta, roberta_body},
    {"distilbert", "DistilBertForMaskedLM", Coverage::played,
     "vocab_size=30522 max_position_embeddings=512 num_hidden_layers=6 num_attention_heads=12 hidden_size=768 "
     "intermediate_size=3072 dropout=0.1 attention_dropout=0.1 hidden_act=gelu qa_dropout=0.1 seq_classif_dropout=0.2 "
     "tie_word_embeddings=true",
     "num_hidden_layers=n_layers num_attention_heads=n_heads hidden_size=dim intermediate_size=hidden_dim hidden_act=activation "
     "intermediate_size=hidden_dim",
     read_distilbert, distilbert, distilbert_body},
    {"modernbert", "ModernBertForMaskedLM", Coverage::played,
     "vocab_size=50368 hidden_size=768 intermediate_size=1152 num_hidden_layers=22 num_attention_heads=12 hidden_act=gelu "
     "initializer_cutoff_factor=2.0 local_attention=128 decoder_bias=true classifier_pooling=cls classifier_activation=gelu "
     "sparse_pred_ignore_index=-100 tie_word_embeddings=true",
     "hidden_act=hidden_activation", read_modernbert, modernbert, modernbert_body},
    {"t5", "T5ForConditionalGeneration", Coverage::played,
     "vocab_size=32128 hidden_size=512 head_dim=64 intermediate_size=2048 num_hidden_layers=6 num_attention_heads=8 "
     "relative_attention_num_buckets=32 relative_attention_max_distance=128 dropout_rate=0.1 initializer_factor=1.0 "
     "hidden_act=relu tie_word_embeddings=true",
     "hidden_size=d_model head_dim=d_kv intermediate_size=d_ff num_hidden_layers=num_layers num_attention_heads=num_heads "
     "hidden_act=feed_forward_proj",
     read_t5, t5, t5_body},
    {"mt5", "MT5ForConditionalGeneration", Coverage::played,
     "vocab_size=250112 hidden_size=512 head_dim=64 intermediate_size=1024 num_hidden_layers=8 num_attention_heads=6 "
     "relative_attention_num_buckets=32 relative_attention_max_distance=128 dropout_rate=0.1 initializer_factor=1.0 "
     "hidden_act=gated-gelu tie_word_embeddings=true",
     "hidden_size=d_model head_dim=d_kv intermediate_size=d_ff num_hidden_layers=num_layers num_attention_heads=num_heads "
     "hidden_act=feed_forward_proj",
     read_t5, t5, t5_body},
    {"umt5", "UMT5ForConditionalGeneration", Coverage::played,
     "vocab_size=250112 hidden_size=512 head_dim=64 intermediate_size=1024 num_hidden_layers=8 num_attention_heads=6 "
     "relative_attention_num_buckets=32 relative_attention_max_distance=128 dropout_rate=0.1 initializer_factor=1.0 "
     "hidden_act=gated-gelu tie_word_embeddings=true",
     "hidden_size=d_model head_dim=d_kv intermediate_size=d_ff num_hidden_layers=num_layers num_attention_heads=num_heads "
     "hidden_act=feed_forward_proj",
     read_t5, t5, t5_body},
};

}  // namespace

std::span<const Family> encoder_families() { return kFamilies; }

}  // namespace llmem
