#include "model/decoder_layer.h"

#include <utility>

#include "tensor/module_hooks.h"
#include "tensor/ops.h"

namespace llmem {

Tensor DecoderLayer::normed(char role, const Norm& norm, const Tensor& states) const {
  if (!norm.present) return states;
  const ModuleScope scope(states.device(), name_of(architecture->names.layer, role), Category::norms);
  return norm.forward(states);
}

// Attention is called by keywords, so that hooks do not see its input.
AttentionResult DecoderLayer::attend(const Tensor& states, const LayerContext& context) const {
  AttentionResult result;
  result.output = call_module(states.device(), {}, attention_block, {}, [&](const Tensor&) {
    AttentionResult made = latent.present() ? latent.forward(states, context) : attention.forward(states, context);
    result.weights = std::move(made.weights);
    return std::move(made.output);
  });
  return result;
}

Tensor DecoderLayer::feed_forward(const Tensor& states, Tensor* scores) const {
  return call_module(states.device(), states, mlp_block, {}, [this, scores](const Tensor& input) {
    return mixture.present() ? mixture.forward(input, scores) : mlp.forward(input);
  });
}

Tensor DecoderLayer::one_after_the_other(const Tensor& input, const LayerContext& context) const {
  const Architecture& a = *architecture;
  const double dropped = a.dropout_in_blocks ? 0 : a.dropout;
  const auto added = [&](const Tensor& residual, const Tensor& states) {
    return add(residual, a.scaled_residual ? mul_scalar(states) : dropout(states, dropped));
  };
  Tensor residual = input;
  Tensor hidden_states = normed('1', before_attention, input);
  const Tensor lives_on = a.normed_lives_on ? hidden_states : Tensor();
  AttentionResult attended = attend(hidden_states, context);
  const Tensor output_lives_on = a.normed_lives_on ? attended.output : Tensor();
  hidden_states = std::exchange(attended.output, {});
  hidden_states = normed('2', after_attention, hidden_states);
  hidden_states = added(residual, hidden_states);

  residual = hidden_states;
  hidden_states = normed('3', before_mlp, hidden_states);
  Tensor scores;
  hidden_states = feed_forward(hidden_states, &scores);
  if (scores) attended.weights = std::move(scores);  // GptOssDecoderLayer calls both `_`
  hidden_states = normed('4', after_mlp, hidden_states);
  hidden_states = added(residual, hidden_states);
  return hidden_states;
}

// CohereDecoderLayer: residual + attention + mlp; PhiDecoderLayer: attention + mlp + residual
Tensor DecoderLayer::side_by_side(const Tensor& input, const LayerContext& context) const {
  const Architecture& a = *architecture;
  Tensor hidden_states = normed('1', before_attention, input);
  AttentionResult attended = attend(hidden_states, context);
  if (a.residual_last) attended.output = dropout(attended.output, a.dropout);
  const Tensor mlp_output = dropout(feed_forward(hidden_states), a.dropout);
  if (a.residual_last) {
    const Tensor sum = add(attended.output, mlp_output);
    hidden_states = add(sum, input);
  } else {
    const Tensor sum = add(input, attended.output);
    hidden_states = add(sum, mlp_output);
  }
  return hidden_states;
}

Tensor DecoderLayer::forward(const Tensor& input, const LayerContext& context) const {
  return architecture->parallel_residual ? side_by_side(input, context) : one_after_the_other(input, context);
}

}  // namespace llmem
