#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/decoder_layer.h"
#include "spec/spec.h"

namespace llmem {

// What the forward of a model is run with, as the recipe says.
struct ForwardOptions {
  Attention attention = Attention::sdpa;
  bool checkpointing = false;  // of every decoder layer, non-reentrant
  Tensor position_ids;         // [1, S]; none: the model makes them
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

// transformers loss_utils.ForCausalLMLoss: logits [B, S, V], labels [B, S]. `split`: each rank has a part of the vocabulary.
Tensor causal_lm_loss(Tensor logits, Tensor labels, bool split = false);

// transformers LlamaForCausalLM and those of its kind.
class CausalLm {
 public:
  // `make` gives every parameter and buffer its tensor, in the order in which the real module's are moved to the device
  // (torch.nn.Module._apply: children first, in the order of their definition).
  using Make = std::function<Tensor(const TensorRequest& request)>;
  CausalLm(const Architecture& architecture, Dtype weights, const Make& make);

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  int layer_count() const { return static_cast<int>(layers_.size()); }

  // Tensor parallelism: which of `ranks` this one is, and what else is split.
  struct Split {
    std::int64_t ranks = 1, rank = 0;
    bool sequence = false, loss = false;
  };
  void split(const Split& split);

  // What a pipeline stage has of the model: layers first_layer to end_layer - 1, and what comes before and after all of them.
  struct Stage {
    int first_layer = 0, end_layer = 0;
    bool embeds = false, heads = false;
  };
  // input: ids [B, S] where the stage embeds, else hidden states [B, S, h]. Returns hidden states, or logits where it has the head.
  // There is no mask: the stage's layers are called one by one, with causal attention.
  Tensor run_stage(const Stage& stage, const Tensor& input, const ForwardOptions& options) const;

  // ids and labels [B, S] int64. Returns the loss, a scalar.
  Tensor loss(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const;

 private:
  Tensor hidden_states(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const;
  Tensor run_layer(int index, const Tensor& input, const LayerContext& context, const UnitHooks& hooks) const;

  Tensor embedded(const Tensor& ids) const;
  LayerContext context_of(const Tensor& inputs_embeds, const ForwardOptions& options) const;

  std::shared_ptr<const Architecture> architecture_;  // the layers read it, too
  std::vector<NamedTensor> parameters_;
  Tensor embed_tokens_, embed_scale_;
  std::vector<DecoderLayer> layers_;
  Norm norm_;
  RotaryEmbedding rotary_emb_, local_rotary_emb_;
  Linear lm_head_;
  Split split_;
};

}  // namespace llmem
