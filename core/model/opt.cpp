#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// modeling_opt.py and modeling_biogpt.py.
namespace llmem {

namespace {

struct Layer {
  DenseModule k_proj, v_proj, q_proj, out_proj;
  NormModule self_attn_layer_norm;
  DenseModule fc1, fc2;
  NormModule final_layer_norm;
};

Layer made_layer(const MadeModule& layer) {
  const MadeModule attention = layer.child("self_attn");
  Layer made;
  made.k_proj = attention.dense("k_proj");
  made.v_proj = attention.dense("v_proj");
  made.q_proj = attention.dense("q_proj");
  made.out_proj = attention.dense("out_proj");
  made.self_attn_layer_norm = layer.norm("self_attn_layer_norm");
  made.fc1 = layer.dense("fc1");
  made.fc2 = layer.dense("fc2");
  made.final_layer_norm = layer.norm("final_layer_norm");
  return made;
}

// BioGptAttention's: softmax in the dtype of the scores
AttentionResult eager_of_biogpt(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double probability) {
  Tensor weights = mul_scalar(matmul(query, transpose(key, 2, 3)));
  weights = add(weights, mask);
  weights = softmax_last(weights);
  weights = dropout(weights, probability);
  Tensor output = matmul(weights, value);
  output = contiguous(transpose(output, 1, 2));
  return {output, weights};
}

class Opt : public Body {
 public:
  Opt(const Architecture& a, const MadeModule& root, bool biogpt) : a_(a), biogpt_(biogpt) {
    const MadeModule decoder = biogpt ? root.child("biogpt") : root.child("model").child("decoder");
    embed_tokens_ = decoder.tensor("embed_tokens.weight");
    embed_positions_ = decoder.tensor("embed_positions.weight");
    project_out_ = decoder.dense("project_out");
    project_in_ = decoder.dense("project_in");
    final_norm_ = decoder.norm(biogpt ? "layer_norm" : "final_layer_norm");
    for (std::int64_t i = 0; i < a.layers; ++i) layers_.push_back(made_layer(decoder.child("layers", i)));
  }

  Tensor embedding() const override { return embed_tokens_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    return biogpt_ ? begin_biogpt(ids, options, context, locals) : begin_opt(ids, options, context, locals);
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor residual = input;
    Tensor hidden_states = a_.norms_first ? layer.self_attn_layer_norm(input) : input;
    AttentionResult attended = attention(layer, hidden_states, context);
    hidden_states = std::exchange(attended.output, {});
    hidden_states = dropout(hidden_states, a_.dropout);
    hidden_states = add(residual, hidden_states);
    if (!a_.norms_first) hidden_states = layer.self_attn_layer_norm(hidden_states);
    const Dims sizes = hidden_states.sizes();
    if (!biogpt_) hidden_states = reshape(hidden_states, {sizes[0] * sizes[1], sizes[2]});
    residual = hidden_states;
    if (a_.norms_first) hidden_states = layer.final_layer_norm(hidden_states);
    hidden_states = layer.fc1(hidden_states);
    hidden_states = activate(a_.activation, hidden_states);
    hidden_states = dropout(hidden_states, a_.activation_dropout);
    hidden_states = layer.fc2(hidden_states);
    hidden_states = dropout(hidden_states, a_.dropout);
    hidden_states = add(residual, hidden_states);
    if (!biogpt_) hidden_states = view(hidden_states, sizes);
    if (!a_.norms_first) hidden_states = layer.final_layer_norm(hidden_states);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override {
    if (final_norm_.norm.weight || a_.final_norm) hidden_states = final_norm_(hidden_states);
    if (project_out_.present()) hidden_states = project_out_(hidden_states);
    return hidden_states;
  }

 private:
  Tensor begin_opt(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const {
    Tensor inputs_embeds = embedded_ids(embed_tokens_, "embed_tokens", ids, options);
    Device& device = ids.device();
    const std::int64_t rows = ids.size(0), sequence = ids.size(1);
    const Tensor position_mask = options.padding.mask ? options.padding.mask : device.empty({rows, sequence}, Dtype::float32);
    Tensor position_ids = options.position_ids;
    if (!position_ids) {
      position_ids = cumulative_sum(position_mask);
      const auto shifted = [&] {
        const Tensor product = device.empty({rows, sequence}, position_ids.dtype());
        return device.empty({rows, sequence}, position_ids.dtype());
      };
      position_ids = to(shifted(), Dtype::int64);
    }
    context.position_ids = position_ids;
    context.attention_mask = causal_mask(inputs_embeds, {}, options);
    const Tensor positions = learned_positions(position_ids);
    if (project_in_.present()) inputs_embeds = project_in_(inputs_embeds);
    locals = {inputs_embeds, position_mask, positions};
    return add(inputs_embeds, positions);
  }

  Tensor begin_biogpt(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const {
    const Tensor inputs_embeds = scaled_embedding(ids, options);
    Device& device = ids.device();
    // The model makes a mask of ones and asks whether all of it is ones. What is recorded is the answer no, and a mask that is built.
    ForwardOptions masked = options;
    masked.padding.padding = true;
    if (!masked.padding.mask) masked.padding.mask = device.empty({ids.size(0), ids.size(1)}, Dtype::float32);
    context.attention_mask = causal_mask(inputs_embeds, {}, masked);
    context.position_ids = arange_positions(inputs_embeds, options);
    const Tensor positions = learned_positions(context.position_ids);
    Tensor hidden_states = add(inputs_embeds, positions);
    hidden_states = dropout(hidden_states, a_.dropout);
    locals = {inputs_embeds, masked.padding.mask, positions};
    return hidden_states;
  }

  // BioGptScaledWordEmbedding
  Tensor scaled_embedding(const Tensor& ids, const ForwardOptions& options) const {
    const ModuleScope scope(ids.device(), "embed_tokens");
    ForwardOptions none;
    Tensor embeds = mul_scalar(llmem::embedding(embed_tokens_, ids));
    if (options.inputs_require_grad && !embeds.requires_grad()) require_grad_of_activation(embeds);
    return embeds;
  }

  Tensor learned_positions(const Tensor& position_ids) const {
    const ModuleScope scope(position_ids.device(), "embed_positions");
    const Tensor shifted = add_scalar(position_ids);
    return llmem::embedding(embed_positions_, shifted);
  }

  Tensor by_head(const Tensor& states) const {
    return transpose(view(states, {states.size(0), states.size(1), a_.heads, a_.head_dim}), 1, 2);
  }

  AttentionResult attention(const Layer& layer, const Tensor& input, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "self_attn", Category::attention);
    Tensor query = layer.q_proj(input);
    if (!biogpt_) query = mul_scalar(query);
    query = by_head(query);
    Tensor key = layer.k_proj(input), value = layer.v_proj(input);
    key = by_head(key);
    value = by_head(value);
    const auto attended = [&] {
      if (context.attention == Attention::sdpa) return sdpa_attention(query, key, value, context.attention_mask, a_.attention_dropout);
      if (context.attention == Attention::flash_attention_2) return flash_attention(query, key, value, context.attention_mask, context);
      if (biogpt_) return eager_of_biogpt(query, key, value, context.attention_mask, a_.attention_dropout);
      return eager_attention(query, key, value, context.attention_mask, a_.attention_dropout, false);
    };
    AttentionResult result = attended();
    result.output = merged_heads(result.output, input.size(0), input.size(1));
    result.output = layer.out_proj(result.output);
    return result;
  }

  const Architecture& a_;
  bool biogpt_;
  Tensor embed_tokens_, embed_positions_;
  DenseModule project_out_, project_in_;
  NormModule final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace

std::unique_ptr<const Body> opt_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Opt>(a, root, false); }
std::unique_ptr<const Body> biogpt_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Opt>(a, root, true); }

}  // namespace llmem
