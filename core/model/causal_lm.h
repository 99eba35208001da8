#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/modules.h"
#include "spec/spec.h"

namespace llmem {

// What the forward of a model is run with, as the recipe says.
struct ForwardOptions {
  Attention attention = Attention::sdpa;
  bool checkpointing = false;  // of every decoder layer, non-reentrant
};

// Context of one forward that every layer reads.
struct LayerContext {
  RotaryEmbedding::Angles position_embeddings;
  Tensor attention_mask, position_ids;  // the positions are only held: every layer gets them, none reads them again
  Attention attention = Attention::sdpa;
};

// transformers LlamaAttention (Qwen3Attention with qk_norm).
struct AttentionBlock {
  Linear q_proj, k_proj, v_proj, o_proj;
  RmsNorm q_norm, k_norm;  // weights undefined: none
  std::int64_t head_dim = 0;

  AttentionResult forward(const Tensor& hidden_states, const LayerContext& context) const;
};

// transformers LlamaMLP: gated, SiLU.
struct Mlp {
  Linear gate_proj, up_proj, down_proj;

  Tensor forward(const Tensor& x) const;
};

struct DecoderLayer {
  AttentionBlock self_attn;
  Mlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;

  Tensor forward(const Tensor& hidden_states, const LayerContext& context) const;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
  int unit = -1;  // the decoder layer it belongs to; -1: to none
};

// A tensor that a model wants to have.
struct TensorRequest {
  enum Kind : std::uint8_t { parameter, buffer };
  std::string name;
  Kind kind = parameter;
  Dims sizes;
  Dtype dtype = Dtype::float32;
  int unit = -1;  // as in NamedTensor
};

// "model.norm.weight" -> "model.norm": a tensor's module, by its name.
std::string_view module_of(std::string_view tensor_name);

// A parallel method's hooks around the forward of a unit: a decoder layer by its number, or the whole model (-1).
struct UnitHooks {
  std::function<Tensor(int unit, const Tensor& input)> before;
  std::function<Tensor(int unit, Tensor output)> after;
};

// transformers LlamaForCausalLM.
class CausalLm {
 public:
  // `make` gives every parameter and buffer its tensor, in the order in which the real module's are moved to the device
  // (torch.nn.Module._apply: children first, in the order of their definition).
  using Make = std::function<Tensor(const TensorRequest& request)>;
  CausalLm(const Architecture& architecture, Dtype weights, const Make& make);

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  int layer_count() const { return static_cast<int>(layers_.size()); }

  // ids and labels [B, S] int64. Returns the loss, a scalar.
  Tensor loss(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const;

 private:
  Tensor hidden_states(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const;
  Tensor run_layer(int index, const Tensor& input, const LayerContext& context, const UnitHooks& hooks) const;

  std::vector<NamedTensor> parameters_;
  Tensor embed_tokens_;
  std::vector<DecoderLayer> layers_;
  RmsNorm norm_;
  RotaryEmbedding rotary_emb_;
  Linear lm_head_;
};

}  // namespace llmem
