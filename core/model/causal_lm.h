#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"
#include "model/body.h"
#include "model/decoder_layer.h"
#include "model/losses.h"
#include "model/made.h"
#include "model/masks.h"
#include "model/options.h"
#include "spec/spec.h"

namespace llmem {

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

// Parts of a model that a parallel method may wrap beside its decoder layers and the whole (-1): the embedding; the last norm with the head.
constexpr int embedding_unit = -2, output_unit = -3;

// A parallel method's hooks around the forward of a unit: a decoder layer by its number, or the whole model (-1).
struct UnitHooks {
  bool around_checkpoint = true;   // else they are called again where a layer is computed again
  std::optional<Dtype> cast = {};  // what a layer's floating arguments are brought to
  std::function<Tensor(int unit, const Tensor& input)> before;
  std::function<Tensor(int unit, Tensor output)> after;
  bool ends_apart = false;  // embedding and output are units, too
};

// transformers LlamaForCausalLM and those of its kind.
class CausalLm {
 public:
  // `make` gives every parameter and buffer its tensor, in the order in which the real module's are moved to the device
  // (torch.nn.Module._apply: children first, in the order of their definition).
  using Make = std::function<Tensor(const TensorRequest& request)>;
  CausalLm(const Architecture& architecture, Dtype weights, const Make& make);

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  // Before 4.56, of the llama kind only Llama's norm was in pytorch_utils.ALL_LAYERNORM_LAYERS, and Granite's until 4.48.
  bool registers_its_norm(Transformers version) const {
    return architecture_->model_type == "llama" || (architecture_->model_type == "granite" && version < Transformers::v4_48);
  }
  // Whether a forward over text runs what has this name: the towers of a model that sees get no gradients, nor what a class only registers.
  bool runs(std::string_view name, bool with_images) const;
  int layer_count() const { return static_cast<int>(architecture_->layers); }
  // Every Linear, in the order of model.named_modules(); the head's name is "lm_head".
  const std::vector<NamedLinear>& linears() const { return linears_; }
  std::vector<NamedMixture> mixtures() const;
  const Architecture& architecture() const { return *architecture_; }
  // peft's disable_adapter: forward without them, and with the original of what has a copy.
  void enable_adapters(bool enabled);
  // PEFT's modules_to_save: from now on the embedding, or the head, computes with this copy of its weight.
  const Tensor& embedding_weight() const { return embed_tokens_; }
  const Tensor& head_weight() const { return lm_head_.weight; }
  void train_copies(const Tensor& embedding, const Tensor& head);
  // … or a parameter of any other module: it becomes the copy, which trains.
  void train_copy(const Tensor& parameter, const Tensor& copy);
  void use_liger(const LigerKernels& kernels);

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
  Tensor run_stage(const Stage& stage, const Tensor& input, const ForwardOptions& options, const UnitHooks& hooks) const;

  // ids and labels [B, S] int64. Returns the loss, a scalar. Where `logits` is given, they outlive the forward in it (the standard loss).
  Tensor loss(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks,
              Tensor* logits = nullptr) const;
  // [B, S, V]
  Tensor logits(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const;
  // TRL's log-probabilities of the labels, [B, S - 1].
  Tensor label_probabilities(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const;
  // TRL's fused head.
  FusedHead fused_head(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const;

 private:
  Tensor hidden_states(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const;
  // What the two calls do between their hooks.
  Tensor decoded(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const;
  Tensor loss_of(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks, Tensor* kept_logits) const;
  Tensor loss_of_labels(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks,
                        Tensor* kept_logits) const;  // heads.cpp
  Tensor run_layers(Tensor hidden, const LayerContext& context, const ForwardOptions& options, const UnitHooks& hooks, int first,
                    int end) const;
  // `inside`: checkpointing of what the hooks are around
  Tensor run_layer(int index, const Tensor& input, const LayerContext& context, const UnitHooks& hooks, Tensor* kept,
                   Checkpointing inside = Checkpointing::none) const;

  Tensor head_input(const Tensor& hidden) const;
  Tensor scaled(Tensor logits) const;
  Tensor embedded(const Tensor& ids, bool require_grad) const;
  Tensor embedded_unit(const Tensor& ids, bool require_grad, const UnitHooks& hooks) const;
  // The masks, where they are made already.
  LayerContext context_of(const Tensor& inputs_embeds, const ForwardOptions& options, const Tensor& full_mask,
                          const Tensor& sliding_mask) const;

  bool crosses(int layer) const { return !architecture_->crosses.empty() && architecture_->crosses[static_cast<std::size_t>(layer)]; }

  std::shared_ptr<const Architecture> architecture_;  // the layers read it, too
  bool has_towers_ = false;
  std::shared_ptr<const class Tower> tower_;  // none: not played over images
  std::vector<NamedTensor> parameters_;
  Tensor embed_tokens_, embed_scale_;
  std::unique_ptr<const Body> body_;     // of a family that has its own; then what follows is empty
  Tensor other_embedding_, other_head_;  // with modules_to_save: what is not in use, the original or the copy
  struct Copied {
    Tensor parameter, other;
  };
  std::vector<Copied> copied_;  // … of other modules
  bool adapters_enabled_ = true;
  std::vector<DecoderLayer> layers_;
  Norm norm_;
  RotaryEmbedding rotary_emb_, local_rotary_emb_;
  Linear lm_head_;
  Split split_;
  std::vector<NamedLinear> linears_;
};

// The same model in torchtitan's modules.
Architecture as_torchtitan(Architecture architecture);

}  // namespace llmem
