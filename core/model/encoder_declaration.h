#pragma once

#include "model/families.h"

// What the rows of several encoders say (families_encoder.cpp, families_encoder_more.cpp).
namespace llmem {

// Which dropouts there are, and what the class ends in, whose last Linear is `word_head` or a classifier.
void read_encoder(ConfigReader& c, Architecture& a, std::string_view word_head);

// The buffers of BertEmbeddings and RobertaEmbeddings, [1, max_position_embeddings].
void declare_position_buffers(ConfigReader& c, const Module& embeddings);

// BertLayer, under `encoder`.layer; its heads may make less than hidden_size.
void declare_bert_layers(const Module& encoder, const Architecture& a);

// RobertaClassificationHead over the first token, or a Linear over each.
void declare_roberta_classifier(const Architecture& a, const Module& root);

}  // namespace llmem
