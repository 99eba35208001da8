#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/attention.h"
#include "model/made.h"
#include "model/mixture.h"
#include "model/options.h"

namespace llmem {

// The decoder of a family whose modules are not Llama's: what its forward does before, in and after the layers. Written as the Python is,
// since its names decide what lives how long.
class Body {
 public:
  virtual ~Body() = default;

  virtual Tensor embedding() const = 0;  // the weight of the token embedding, which a tied head shares

  // Token ids [B, S] to the hidden states that enter the first layer, and what every layer reads. `locals`: variables of the model's
  // forward that live until it returns.
  virtual Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const = 0;
  // `kept`: what the layer returns beside its hidden states; it lives until the next layer has returned.
  virtual Tensor layer(int index, const Tensor& hidden_states, const LayerContext& context, Tensor& kept) const = 0;
  virtual Tensor end(Tensor hidden_states) const = 0;
  // The three, or what an encoder-decoder does. `run`: layers first … end - 1, with checkpointing and parallel methods around each.
  using RunLayers = std::function<Tensor(Tensor hidden_states, const LayerContext& context, int first, int end)>;
  virtual Tensor whole(const Tensor& ids, const ForwardOptions& options, LayerContext& context, int layers, const RunLayers& run) const;
  // What the class ends in, where that is more than a Linear: hidden states to logits.
  // `locals`: variables of the forward that live until it returns.
  virtual Tensor logits(const Tensor& hidden_states, std::vector<Tensor>& locals) const {
    (void)locals;
    return hidden_states;
  }
  virtual bool has_logits() const { return false; }
  virtual std::vector<NamedMixture> mixtures() const { return {}; }
};

// nn.Embedding under its name; with `options.inputs_require_grad` its result wants a gradient.
Tensor embedded_ids(const Tensor& weight, std::string_view name, const Tensor& ids, const ForwardOptions& options);

// torch.arange(S).unsqueeze(0), plus what was seen before
Tensor arange_positions(const Tensor& inputs_embeds, const ForwardOptions& options);

// create_causal_mask without a window: for SDPA none or booleans, for eager attention numbers. `position_ids` none: nobody asks for packed
// sequences.
Tensor causal_mask(const Tensor& inputs_embeds, const Tensor& position_ids, const ForwardOptions& options);

// attn_output.reshape(*input_shape, -1).contiguous()
Tensor merged_heads(const Tensor& output, std::int64_t rows, std::int64_t sequence);

}  // namespace llmem
