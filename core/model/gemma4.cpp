#include <algorithm>
#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/build.h"
#include "model/masks.h"
#include "model/rotary.h"
#include "tensor/autograd.h"
#include "tensor/heads.h"
#include "tensor/ops.h"

// modeling_gemma4.py: heads of two sizes, late layers that take the keys and values of earlier ones, inputs of every layer's own, experts beside
// the MLP.
namespace llmem {

namespace {

using SharedKeys = LayerContext::SharedKeys;

// Gemma4TextScaledWordEmbedding
struct ScaledEmbeddingModule {
  std::string name;
  Tensor weight, scale;

  Tensor operator()(const Tensor& ids) const {
    const ModuleScope scope(ids.device(), name);
    const Tensor embeds = llmem::embedding(weight, ids);
    return mul(embeds, to(scale, weight.dtype()));
  }
};

ScaledEmbeddingModule scaled_embedding(const MadeModule& model, std::string_view name) {
  const MadeModule module = model.child(name);
  return {std::string(name), module.tensor("weight"), module.tensor("embed_scale")};
}

struct Attention4 {
  DenseModule q_proj, k_proj, v_proj, o_proj;
  NormModule q_norm, k_norm, v_norm;
  bool stores = false;

  AttentionResult forward(const Tensor& input, const RotaryEmbedding::Angles& angles, const Tensor& mask, SharedKeys& shared,
                          const LayerContext& context, double dropout) const {
    const ModuleScope scope(input.device(), "self_attn", Category::attention);
    const std::int64_t rows = input.size(0), sequence = input.size(1), head_dim = q_norm.norm.weight.size(0);
    const auto by_head = [&](const Tensor& states) { return view(states, {rows, sequence, states.size(2) / head_dim, head_dim}); };
    const auto turned = [&](const Tensor& states) { return turned_halves(states, unsqueeze(angles.cos, 2), unsqueeze(angles.sin, 2)); };
    Tensor query = by_head(q_proj(input));
    query = q_norm(query);
    query = turned(query);
    query = transpose(query, 1, 2);
    Tensor key, value;
    if (!k_proj.present()) {
      key = shared.key;
      value = shared.value;
    } else {
      key = by_head(k_proj(input));
      value = v_proj.present() ? by_head(v_proj(input)) : key;
      key = k_norm(key);
      key = turned(key);
      key = transpose(key, 1, 2);
      value = v_norm(value);
      value = transpose(value, 1, 2);
    }
    if (stores) shared = {key, value};
    AttentionResult result = context.attention == llmem::Attention::eager ? eager_attention(query, key, value, mask, dropout, false)
                                                                          : sdpa_attention(query, key, value, mask, dropout);
    result.output = contiguous(reshape(result.output, {rows, sequence, query.size(1) * head_dim}));
    result.output = o_proj(result.output);
    return result;
  }
};

// Gemma4TextRouter
struct Router {
  NormModule norm;
  DenseModule proj;
  Tensor scale, per_expert_scale;

  bool present() const { return static_cast<bool>(scale); }
  Mixture::Chosen forward(Tensor hidden_states, std::int64_t k) const {
    const ModuleScope scope(hidden_states.device(), "router");
    hidden_states = norm(hidden_states);
    const auto scaled = [&] {
      const Tensor product = mul(hidden_states, scale);
      return mul_scalar(product);
    };
    hidden_states = scaled();
    const Tensor scores = proj(hidden_states);
    Mixture::Chosen chosen;
    chosen.logits = softmax_float(scores);
    const TopK top = topk(chosen.logits, k);
    Tensor weights = top.values;
    const auto normed = [&] {
      const Tensor sum = sum_dim(weights, 1, true);
      return div_in_place(weights, sum);
    };
    weights = normed();
    const auto by_expert = [&] {
      const Tensor of_chosen = index_along(per_expert_scale, 0, view(top.indices, {top.indices.numel()}));
      return mul(weights, view(of_chosen, top.indices.sizes()));
    };
    chosen.weights = by_expert();
    chosen.indices = top.indices;
    return chosen;
  }
};

class Gemma4 : public Body {
 public:
  Gemma4(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child(a.names.model);
    embed_tokens_ = scaled_embedding(model, "embed_tokens");
    for (std::int64_t i = 0; i < a.layers; ++i) layers_.push_back(made(model.child("layers", i)));
    // The last layer of each kind with keys of its own leaves them to those that have none.
    for (const bool slides : {true, false}) {
      for (std::size_t i = layers_.size(); i-- > 0;) {
        if (a.sliding[i] != slides || !layers_[i].attention.k_proj.present()) continue;
        layers_[i].attention.stores = true;
        break;
      }
    }
    norm_ = model.norm("norm", NormKind::rms_by_power);
    const MadeModule rotary = model.child("rotary_emb");
    rotary_emb_ = {rotary.tensor("full_attention_inv_freq"), {}};
    sliding_rotary_emb_ = {rotary.tensor("sliding_attention_inv_freq"), {}};
    embed_tokens_per_layer_ = scaled_embedding(model, "embed_tokens_per_layer");
    per_layer_model_projection_ = model.dense("per_layer_model_projection");
    per_layer_projection_norm_ = model.norm("per_layer_projection_norm", NormKind::rms_by_power);
  }

  Tensor embedding() const override { return embed_tokens_.weight; }

  Tensor begin(const Tensor& given_ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const bool whole = a_.model_type != a_.decoder_type;
    const Placeholders placeholders = whole ? placeholders_of(given_ids) : Placeholders();
    const Tensor ids = whole ? placeholders.ids : given_ids;
    Tensor inputs_embeds = embed_tokens_(ids);
    if (options.inputs_require_grad && !inputs_embeds.requires_grad()) require_grad_of_activation(inputs_embeds);
    Tensor of_tokens, without_images;
    if (embed_tokens_per_layer_.weight) {
      if (whole) without_images = where(unsqueeze(placeholders.mask, 2), inputs_embeds, {});
      of_tokens = of_each_layer(ids);
      if (!whole) context.per_layer_inputs = projected(inputs_embeds, std::exchange(of_tokens, {}));
    }
    Device& device = inputs_embeds.device();
    const std::int64_t rows = inputs_embeds.size(0), sequence = inputs_embeds.size(1);
    context.position_ids = arange_positions(inputs_embeds, options);
    context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
    if (options.attention == llmem::Attention::eager)
      context.sliding_attention_mask =
          eager_causal_mask(device, context.position_ids, rows, sequence, inputs_embeds.dtype(), true, options.padding);
    else if (a_.sliding_window > 0 && sequence >= a_.sliding_window)
      context.sliding_attention_mask = sdpa_causal_mask_always(device, context.position_ids, rows, sequence, true, options.padding);
    else
      context.sliding_attention_mask = sdpa_causal_mask(device, context.position_ids, rows, sequence, options.padding);
    if (of_tokens) context.per_layer_inputs = projected(inputs_embeds, of_tokens);
    const auto angles = [&](const RotaryEmbedding& of) {
      return of.inverse_frequencies ? of.forward(context.position_ids, inputs_embeds.dtype()) : RotaryEmbedding::Angles();
    };
    context.position_embeddings = angles(rotary_emb_);
    context.sliding_position_embeddings = angles(sliding_rotary_emb_);
    context.shared_keys = std::make_shared<SharedKeys>();
    context.sliding_shared_keys = std::make_shared<SharedKeys>();
    locals = {inputs_embeds,     of_tokens,          without_images,     placeholders.ids,
              placeholders.mask, placeholders.image, placeholders.video, placeholders.audio};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const auto i = static_cast<std::size_t>(index);
    const Layer& layer = layers_[i];
    const bool slides = a_.sliding[i];
    const Tensor per_layer_input = context.per_layer_inputs ? select(context.per_layer_inputs, 2) : Tensor();
    Tensor residual = input;
    Tensor hidden_states = layer.input_layernorm(input);
    AttentionResult attended =
        layer.attention.forward(hidden_states, slides ? context.sliding_position_embeddings : context.position_embeddings,
                                slides ? context.sliding_attention_mask : context.attention_mask,
                                slides ? *context.sliding_shared_keys : *context.shared_keys, context, a_.attention_dropout);
    hidden_states = std::exchange(attended.output, {});
    hidden_states = layer.post_attention_layernorm(hidden_states);
    hidden_states = add(residual, hidden_states);

    residual = hidden_states;
    hidden_states = layer.pre_feedforward_layernorm(hidden_states);
    hidden_states = layer.mlp.forward(hidden_states);
    Tensor from_mlp, from_experts;
    Mixture::Chosen chosen;
    if (layer.router.present()) {
      from_mlp = layer.post_feedforward_layernorm_1(hidden_states);
      const Tensor flat = view(residual, {residual.size(0) * residual.size(1), residual.size(2)});
      chosen = layer.router.forward(flat, a_.experts.per_token);
      chosen.logits.reset();
      from_experts = layer.pre_feedforward_layernorm_2(flat);
      from_experts = layer.experts.run_experts(from_experts, chosen.weights, chosen.indices);
      from_experts = view(from_experts, residual.sizes());
      from_experts = layer.post_feedforward_layernorm_2(from_experts);
      hidden_states = add(from_mlp, from_experts);
    }
    hidden_states = layer.post_feedforward_layernorm(hidden_states);
    hidden_states = add(residual, hidden_states);
    if (per_layer_input) {
      residual = hidden_states;
      hidden_states = layer.per_layer_input_gate(hidden_states);
      hidden_states = activate(a_.activation, hidden_states);
      hidden_states = mul(hidden_states, per_layer_input);
      hidden_states = layer.per_layer_projection(hidden_states);
      hidden_states = layer.post_per_layer_input_norm(hidden_states);
      hidden_states = add(residual, hidden_states);
    }
    return mul_in_place_by(hidden_states, layer.layer_scalar);
  }

  Tensor end(Tensor hidden_states) const override { return norm_(hidden_states); }

 private:
  struct Layer {
    Attention4 attention;
    Mlp mlp;
    Tensor layer_scalar;
    NormModule input_layernorm, post_attention_layernorm, pre_feedforward_layernorm, post_feedforward_layernorm;
    DenseModule per_layer_input_gate, per_layer_projection;
    NormModule post_per_layer_input_norm;
    Router router;
    Mixture experts;
    NormModule post_feedforward_layernorm_1, post_feedforward_layernorm_2, pre_feedforward_layernorm_2;
  };

  Layer made(const MadeModule& module) const {
    constexpr NormKind kind = NormKind::rms_by_power;
    Layer layer;
    const MadeModule at = module.child("self_attn");
    // Linears in the order of their modules
    layer.attention = {at.dense("q_proj"),      at.dense("k_proj"),      at.dense("v_proj"),     at.dense("o_proj"),
                       at.norm("q_norm", kind), at.norm("k_norm", kind), at.norm("v_norm", kind)};
    layer.mlp = build_mlp(module.tensors(), module.path("mlp"), a_);
    layer.layer_scalar = module.tensor("layer_scalar");
    layer.input_layernorm = module.norm("input_layernorm", kind);
    layer.post_attention_layernorm = module.norm("post_attention_layernorm", kind);
    layer.pre_feedforward_layernorm = module.norm("pre_feedforward_layernorm", kind);
    layer.post_feedforward_layernorm = module.norm("post_feedforward_layernorm", kind);
    layer.per_layer_input_gate = module.dense("per_layer_input_gate");
    layer.per_layer_projection = module.dense("per_layer_projection");
    layer.post_per_layer_input_norm = module.norm("post_per_layer_input_norm", kind);
    const MadeModule router = module.child("router");
    if (router.tensor("scale")) {
      layer.router = {router.norm("norm", kind), router.dense("proj"), router.tensor("scale"), router.tensor("per_expert_scale")};
      layer.experts.architecture = &a_;
      layer.experts.gate_up = module.tensor("experts.gate_up_proj");
      layer.experts.down = module.tensor("experts.down_proj");
      layer.post_feedforward_layernorm_1 = module.norm("post_feedforward_layernorm_1", kind);
      layer.post_feedforward_layernorm_2 = module.norm("post_feedforward_layernorm_2", kind);
      layer.pre_feedforward_layernorm_2 = module.norm("pre_feedforward_layernorm_2", kind);
    }
    return layer;
  }

  // Gemma4Model.forward: which words stand for images, videos and sounds, and the ids without them
  struct Placeholders {
    Tensor image, video, audio, mask, ids;
  };
  static Placeholders placeholders_of(const Tensor& ids) {
    Device& device = ids.device();
    const auto booleans = [&] { return device.empty(ids.sizes(), Dtype::boolean); };
    Placeholders found{booleans(), booleans(), booleans(), {}, {}};
    {
      const Tensor of_two = booleans();
      found.mask = booleans();
    }
    const Tensor copy = device.empty(ids.sizes(), Dtype::int64), pad = device.empty({}, Dtype::int64);
    found.ids = device.empty(ids.sizes(), Dtype::int64);
    return found;
  }

  Dims sizes_of_each_layer(const Tensor& of_rows) const {
    return {of_rows.size(0), of_rows.size(1), a_.layers, per_layer_projection_norm_.norm.weight.size(0)};
  }

  // get_per_layer_inputs
  Tensor of_each_layer(const Tensor& ids) const { return view(embed_tokens_per_layer_(ids), sizes_of_each_layer(ids)); }

  // project_per_layer_inputs
  Tensor projected(const Tensor& inputs_embeds, const Tensor& of_tokens) const {
    const Dims sizes = sizes_of_each_layer(inputs_embeds);
    const auto scaled = [&] {
      const Tensor of_all = per_layer_model_projection_(inputs_embeds);
      return mul_scalar(of_all);
    };
    Tensor projection = scaled();
    projection = view(projection, sizes);
    projection = per_layer_projection_norm_(projection);
    const Tensor sum = add(projection, of_tokens);
    return mul_scalar(sum);
  }

  const Architecture& a_;
  ScaledEmbeddingModule embed_tokens_, embed_tokens_per_layer_;
  std::vector<Layer> layers_;
  NormModule norm_;
  RotaryEmbedding rotary_emb_, sliding_rotary_emb_;
  DenseModule per_layer_model_projection_;
  NormModule per_layer_projection_norm_;
};

}  // namespace

MadeBody gemma4_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Gemma4>(a, root); }

}  // namespace llmem
