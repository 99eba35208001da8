#include "model/decoder_layer.h"

#include <utility>

#include "tensor/ops.h"

namespace llmem {

Tensor DecoderLayer::forward(const Tensor& input, const LayerContext& context) const {
  Device& device = input.device();
  const auto normed = [&](const char* name, const RmsNorm& norm, const Tensor& states) {
    const ModuleScope scope(device, name, Category::norms);
    return norm.forward(states);
  };
  Tensor residual = input;
  Tensor hidden_states = normed("input_layernorm", input_layernorm, input);
  AttentionResult attended = self_attn.forward(hidden_states, context);
  hidden_states = std::exchange(attended.output, {});
  hidden_states = add(residual, hidden_states);

  residual = hidden_states;
  hidden_states = normed("post_attention_layernorm", post_attention_layernorm, hidden_states);
  hidden_states = mlp.forward(hidden_states);
  hidden_states = add(residual, hidden_states);
  return hidden_states;
}

}  // namespace llmem
