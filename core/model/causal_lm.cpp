#include "model/causal_lm.h"

#include <utility>

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

std::string_view module_of(std::string_view tensor_name) { return tensor_name.substr(0, tensor_name.rfind('.')); }

AttentionResult AttentionBlock::forward(const Tensor& hidden_states, const LayerContext& context) const {
  Device& device = hidden_states.device();
  const ModuleScope scope(device, "self_attn", Category::attention);
  const Dims by_head{hidden_states.size(0), hidden_states.size(1), -1, head_dim};
  const auto projected = [&](const char* name, const Linear& projection) {
    const ModuleScope inner(device, name);
    const Tensor out = projection.forward(hidden_states);
    return view(out, {by_head[0], by_head[1], out.size(-1) / head_dim, head_dim});
  };
  const auto normed = [&](const char* name, const RmsNorm& norm, Tensor states) {
    if (!norm.weight) return states;
    const ModuleScope inner(device, name, Category::norms);
    return norm.forward(states);
  };
  Tensor query = transpose(normed("q_norm", q_norm, projected("q_proj", q_proj)), 1, 2);
  Tensor key = transpose(normed("k_norm", k_norm, projected("k_proj", k_proj)), 1, 2);
  const Tensor value = transpose(projected("v_proj", v_proj), 1, 2);

  {
    QueryAndKey turned = apply_rotary(query, key, context.position_embeddings);
    query = std::move(turned.query);
    key = std::move(turned.key);
  }

  AttentionResult result =
      context.attention == Attention::sdpa ? sdpa_attention(query, key, value) : eager_attention(query, key, value, context.attention_mask);
  result.output = reshape(result.output, {by_head[0], by_head[1], result.output.size(2) * head_dim});
  const ModuleScope inner(device, "o_proj");
  result.output = o_proj.forward(result.output);
  return result;
}

Tensor Mlp::forward(const Tensor& x) const {
  Device& device = x.device();
  const ModuleScope scope(device, "mlp", Category::mlp);
  const auto named = [&](const char* name, const Linear& projection, const Tensor& input) {
    const ModuleScope inner(device, name);
    return projection.forward(input);
  };
  Tensor product;
  {
    const Tensor activated = silu(named("gate_proj", gate_proj, x));
    const Tensor up = named("up_proj", up_proj, x);
    product = mul(activated, up);
  }
  return named("down_proj", down_proj, product);
}

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

namespace {

// Makes a model's tensors one after the other and keeps the list of those that are parameters.
class Builder {
 public:
  Builder(const CausalLm::Make& make, Dtype dtype, std::vector<NamedTensor>& parameters)
      : make_(make), dtype_(dtype), parameters_(parameters) {}

  int unit = -1;

  Tensor parameter(const std::string& name, const Dims& sizes) {
    parameters_.push_back({name, make_({name, TensorRequest::parameter, sizes, dtype_, unit}), unit});
    return parameters_.back().tensor;
  }
  Linear linear(const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    Linear made;
    made.weight = parameter(name + ".weight", {out, in});
    if (bias) made.bias = parameter(name + ".bias", {out});
    return made;
  }
  RmsNorm norm(const std::string& name, std::int64_t features) { return {parameter(name + ".weight", {features})}; }
  Tensor buffer(const std::string& name, const Dims& sizes) { return make_({name, TensorRequest::buffer, sizes, Dtype::float32, unit}); }

 private:
  const CausalLm::Make& make_;
  Dtype dtype_;
  std::vector<NamedTensor>& parameters_;
};

AttentionBlock build_attention(Builder& build, const std::string& name, const Architecture& a) {
  AttentionBlock block;
  block.head_dim = a.head_dim;
  block.q_proj = build.linear(name + ".q_proj", a.heads * a.head_dim, a.hidden_size, a.qkv_bias);
  block.k_proj = build.linear(name + ".k_proj", a.kv_heads * a.head_dim, a.hidden_size, a.qkv_bias);
  block.v_proj = build.linear(name + ".v_proj", a.kv_heads * a.head_dim, a.hidden_size, a.qkv_bias);
  block.o_proj = build.linear(name + ".o_proj", a.hidden_size, a.heads * a.head_dim, a.output_bias);
  if (a.qk_norm) {
    block.q_norm = build.norm(name + ".q_norm", a.head_dim);
    block.k_norm = build.norm(name + ".k_norm", a.head_dim);
  }
  return block;
}

Mlp build_mlp(Builder& build, const std::string& name, const Architecture& a) {
  Mlp mlp;
  mlp.gate_proj = build.linear(name + ".gate_proj", a.intermediate_size, a.hidden_size, a.mlp_bias);
  mlp.up_proj = build.linear(name + ".up_proj", a.intermediate_size, a.hidden_size, a.mlp_bias);
  mlp.down_proj = build.linear(name + ".down_proj", a.hidden_size, a.intermediate_size, a.mlp_bias);
  return mlp;
}

}  // namespace

CausalLm::CausalLm(const Architecture& a, Dtype weights, const Make& make) {
  Builder build(make, weights, parameters_);
  embed_tokens_ = build.parameter("model.embed_tokens.weight", {a.vocab_size, a.hidden_size});
  for (int i = 0; i < a.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i);
    build.unit = i;
    DecoderLayer layer;
    layer.self_attn = build_attention(build, name + ".self_attn", a);
    layer.mlp = build_mlp(build, name + ".mlp", a);
    layer.input_layernorm = build.norm(name + ".input_layernorm", a.hidden_size);
    layer.post_attention_layernorm = build.norm(name + ".post_attention_layernorm", a.hidden_size);
    layers_.push_back(std::move(layer));
  }
  build.unit = -1;
  norm_ = build.norm("model.norm", a.hidden_size);
  rotary_emb_.inverse_frequencies = build.buffer("model.rotary_emb.inv_freq", {a.head_dim / 2});
  rotary_emb_.original_inverse_frequencies = build.buffer("model.rotary_emb.original_inv_freq", {a.head_dim / 2});
  lm_head_.weight = a.tied_embeddings ? embed_tokens_ : build.parameter("lm_head.weight", {a.vocab_size, a.hidden_size});
}

Tensor CausalLm::run_layer(int index, const Tensor& input, const LayerContext& context, const UnitHooks& hooks) const {
  const ModuleScope scope(input.device(), std::to_string(index));
  const DecoderLayer& layer = layers_[static_cast<std::size_t>(index)];
  if (!hooks.before) return layer.forward(input, context);
  const Tensor entered = hooks.before(index, input);
  return hooks.after(index, layer.forward(entered, context));
}

Tensor CausalLm::hidden_states(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const {
  Device& device = ids.device();
  const ModuleScope scope(device, "model");
  const auto embed = [&] {
    const ModuleScope inner(device, "embed_tokens");
    return embedding(embed_tokens_, ids);
  };
  const Tensor inputs_embeds = embed();
  const Tensor position_ids = unsqueeze(add_scalar(device.empty({ids.size(1)}, Dtype::int64)), 0);
  LayerContext context;
  context.position_ids = position_ids;
  context.attention = options.attention;
  context.attention_mask = options.attention == Attention::sdpa ? sdpa_causal_mask(position_ids, ids.size(0))
                                                                : eager_causal_mask(position_ids, ids.size(0), inputs_embeds.dtype());
  context.position_embeddings = rotary_emb_.forward(position_ids, inputs_embeds.dtype());

  Tensor hidden = inputs_embeds;
  {
    const ModuleScope layers(device, "layers");
    for (int i = 0; i < layer_count(); ++i) {
      const auto run = [this, i, hidden, context, &hooks] { return run_layer(i, hidden, context, hooks); };
      hidden = options.checkpointing ? checkpoint(device, run) : run();
    }
  }
  const ModuleScope last(device, "norm", Category::norms);
  hidden = norm_.forward(hidden);
  return hidden;
}

namespace {

// transformers loss_utils.ForCausalLMLoss
Tensor causal_lm_loss(Tensor logits, Tensor labels) {
  Device& device = logits.device();
  logits = to(logits, Dtype::float32);
  const std::int64_t rows = labels.size(0), sequence = labels.size(1);
  labels = device.empty({rows, sequence + 1}, Dtype::int64);
  const Tensor shifted = contiguous(narrow(labels, 1, 1, sequence));
  return cross_entropy(view(logits, {rows * sequence, logits.size(-1)}), view(shifted, {rows * sequence}));
}

}  // namespace

Tensor CausalLm::loss(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const {
  Device& device = ids.device();
  if (hooks.before) hooks.before(-1, ids);
  const Tensor hidden = hidden_states(ids, options, hooks);
  const ModuleScope scope(device, "lm_head", Category::logits_and_loss);
  const Tensor logits = lm_head_.forward(hidden);
  Tensor loss = causal_lm_loss(logits, labels);
  return hooks.after ? hooks.after(-1, loss) : loss;
}

}  // namespace llmem
