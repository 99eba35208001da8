#pragma once

#include <string>

#include "model/attention.h"
#include "model/body.h"

// What encoders share: attention in both directions, post-norm blocks, heads for masked words and labels.
namespace llmem {

// query [B, heads, S, d], key and value [B, heads, S', d]; what leaves has the heads beside each other, [B, S, heads * d].
AttentionResult bidirectional_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout,
                                        const LayerContext& context);
// eager_attention_forward of modeling_bert.py and of those that copy it; t5's adds a bias to the scores first. The output is [B, S, heads, d].
AttentionResult eager_in_own_dtype(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias, const Tensor& mask,
                                   double dropout);

// [B, S, h] -> [B, heads, S, d]
Tensor by_heads(const Tensor& states, std::int64_t head_dim);

// create_bidirectional_mask of what the model is given
Tensor encoder_mask(const Tensor& inputs_embeds, const ForwardOptions& options);

// create_bidirectional_sliding_window_mask: `window` tokens to each side
Tensor bidirectional_window_mask(Device& device, std::int64_t rows, std::int64_t sequence, std::int64_t window, Attention attention,
                                 Dtype dtype, const PaddingMask& padding);

// create_position_ids_from_input_ids (modeling_roberta.py, modeling_mpnet.py): words counted, padding left out, [B, S]
Tensor positions_of_words(const Tensor& ids);

// nn.Embedding of positions or of kinds of tokens, under its name.
Tensor embedded_at(const Tensor& weight, std::string_view name, const Tensor& places);

// nn.Linear under its name that no adapter is put on by name of its own accord: the word head, or a part of a classifier.
DenseModule head_module(const MadeModule& of, std::string_view name, const Tensor& tied_weight = {}, const Tensor& tied_bias = {});

}  // namespace llmem
