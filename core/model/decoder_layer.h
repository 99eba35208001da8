#pragma once

#include "model/attention.h"
#include "model/latent_attention.h"
#include "model/mixture.h"

namespace llmem {

// transformers LlamaDecoderLayer and those of its kind: norms before or after attention and MLP, or both; attention and MLP one
// after the other or side by side.
struct DecoderLayer {
  const Architecture* architecture = nullptr;
  AttentionBlock attention;
  Mlp mlp;
  Norm before_attention, after_attention, before_mlp, after_mlp;
  Mixture mixture = {};              // in place of the MLP
  LatentAttentionBlock latent = {};  // in place of attention

  Tensor forward(const Tensor& hidden_states, const LayerContext& context) const;

 private:
  Tensor one_after_the_other(const Tensor& input, const LayerContext& context) const;
  Tensor side_by_side(const Tensor& input, const LayerContext& context) const;
  AttentionResult attend(const Tensor& states, const LayerContext& context) const;
  Tensor feed_forward(const Tensor& states, Tensor* scores = nullptr) const;
  Tensor normed(char role, const Norm& norm, const Tensor& states) const;
};

}  // namespace llmem
