#include <algorithm>
#include <tuple>
#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/build.h"
#include "model/masks.h"
#include "tensor/complex.h"
#include "tensor/ops.h"

// modeling_llama4.py, its decoder: every expert computes on every token, weighted by what the router leaves of its scores.
namespace llmem {

namespace {

// Llama4TextMoe
struct Experts4 {
  DenseModule router;
  Tensor gate_up, down;
  Mlp shared;

  bool present() const { return static_cast<bool>(gate_up); }
  // `logits`: the router's, which the caller gets as well
  Tensor forward(const Tensor& input, const Architecture& a, Tensor& logits) const {
    const std::int64_t hidden = input.size(2), count = a.experts.count;
    const Tensor states = view(input, {input.size(0) * input.size(1), hidden});
    const Tensor scores = router_scores(states, a, logits);
    const auto weighted = [&] {
      const Tensor repeated = repeat_rows(states, count);
      const Tensor by_expert = reshape(transpose(scores, 0, 1), {count * states.size(0), 1});
      return mul(repeated, by_expert);
    };
    const Tensor routed_in = weighted();
    const Tensor routed_out = run_experts(routed_in, a);
    const Tensor out = shared.forward(states);
    const Tensor sum = sum_dim(view(routed_out, {count, states.size(0), hidden}), 0, false);
    return add_in_place(out, sum);
  }

 private:
  // Llama4Router
  Tensor router_scores(const Tensor& states, const Architecture& a, Tensor& logits) const {
    logits = router(states);
    const TopK top = topk(logits, a.experts.per_token);
    Tensor scores = scatter_columns(top.values, top.indices, a.experts.count);
    const auto opened = [&] {
      const auto probabilities = [&] { return sigmoid(to(scores, Dtype::float32)); };
      const Tensor made = probabilities();
      return to(made, logits.dtype());
    };
    scores = opened();
    return scores;
  }

  static Tensor product_of(const Tensor& states, const Tensor& weights) {
    const Tensor matrices = autocast(weights);
    return bmm(autocast(states), matrices);
  }

  Tensor run_experts(const Tensor& rows, const Architecture& a) const {
    const ModuleScope scope(rows.device(), "experts");
    const Tensor states = view(rows, {a.experts.count, rows.size(0) / a.experts.count, rows.size(1)});
    const Tensor gate_and_up = product_of(states, gate_up);
    const auto [gate, up] = halves_of(gate_and_up);
    const auto product = [&, &gate_states = gate, &up_states = up] { return mul(up_states, activate(a.activation, gate_states)); };
    const auto next_states = [&] {
      const Tensor opened = product();
      return product_of(opened, down);
    };
    return view(next_states(), rows.sizes());
  }
};

// Llama4TextAttention
struct Attention4 {
  DenseModule q_proj, k_proj, v_proj, o_proj;
  bool turns = true, tuned = false;

  AttentionResult forward(const Tensor& input, const LayerContext& context, const Tensor& mask, const Architecture& a) const {
    const ModuleScope scope(input.device(), "self_attn", Category::attention);
    const std::int64_t rows = input.size(0), sequence = input.size(1);
    const auto by_head = [&](const Tensor& states) { return view(states, {rows, sequence, states.size(2) / a.head_dim, a.head_dim}); };
    Tensor query = by_head(q_proj(input)), key = by_head(k_proj(input));
    const Tensor value = transpose(by_head(v_proj(input)), 1, 2);
    if (turns) {
      const Tensor numbers = unsqueeze(context.position_embeddings.cos, 2);
      const auto turned = [&] {
        const Tensor float_query = to(query, Dtype::float32), float_key = to(key, Dtype::float32);
        const Tensor turned_query = mul_complex(float_query, numbers), turned_key = mul_complex(float_key, numbers);
        const Tensor cast = to(turned_query, query.dtype());
        return std::pair(cast, to(turned_key, key.dtype()));
      };
      std::tie(query, key) = turned();
      if (a.qk_norm) {
        const Norm norm{true, NormKind::l2, {}, {}};
        const ModuleScope inner(input.device(), "qk_norm", Category::norms);
        query = norm.forward(query);
        key = norm.forward(key);
      }
    }
    Tensor scales;
    if (tuned && !turns) {
      scales = temperature(input);
      const auto scaled = [&] {
        const Tensor product = mul(query, scales);
        return to(product, query.dtype());
      };
      query = scaled();
    }
    query = transpose(query, 1, 2);
    key = transpose(key, 1, 2);
    AttentionResult result = sdpa_attention(query, key, value, mask, a.attention_dropout);
    result.output = contiguous(reshape(result.output, {rows, sequence, a.heads * a.head_dim}));
    result.output = o_proj(result.output);
    return result;
  }

 private:
  // log1p(floor((positions.float() + 1.0) / floor_scale)) * attn_scale + 1.0, for every row
  static Tensor temperature(const Tensor& input) {
    const std::int64_t sequence = input.size(1);
    const Tensor positions = add_scalar(input.device().empty({sequence}, Dtype::int64));
    Tensor scale = unary_no_grad(positions, "float", Dtype::float32);
    for (const char* op : {"add", "div", "floor", "log1p", "mul", "add"}) scale = unary_no_grad(scale, op, Dtype::float32);
    return expand(view(scale, {1, sequence, 1, 1}), {input.size(0), sequence, 1, 1});
  }
};

class Llama4 : public Body {
 public:
  Llama4(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child(a.names.model);
    embed_tokens_ = model.tensor("embed_tokens.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) layers_.push_back(made(model.child("layers", i), static_cast<std::size_t>(i)));
    norm_ = model.norm("norm", NormKind::rms_after);
    rotary_emb_ = {model.tensor("rotary_emb.inv_freq"), model.tensor("rotary_emb.original_inv_freq")};
  }

  Tensor embedding() const override { return embed_tokens_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(embed_tokens_, "embed_tokens", ids, options);
    context.position_ids = arange_positions(inputs_embeds, options);
    const auto has = [&](bool chunked) { return std::find(a_.sliding.begin(), a_.sliding.end(), chunked) != a_.sliding.end(); };
    if (has(false)) context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
    if (has(true)) {  // chunks no shorter than the sequence: the same mask
      context.sliding_attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
      const Tensor left_padding = inputs_embeds.device().empty({inputs_embeds.size(0)}, Dtype::int64);
    }
    context.position_embeddings = rotary_emb_.forward(context.position_ids, inputs_embeds.dtype(), Rotary::complex);
    locals = {inputs_embeds};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const auto i = static_cast<std::size_t>(index);
    const Layer& layer = layers_[i];
    Tensor residual = input;
    Tensor hidden_states = layer.input_layernorm(input);
    const AttentionResult attended =
        layer.attention.forward(hidden_states, context, a_.sliding[i] ? context.sliding_attention_mask : context.attention_mask, a_);
    hidden_states = add(residual, attended.output);
    residual = hidden_states;
    hidden_states = layer.post_attention_layernorm(hidden_states);
    Tensor router_logits;
    const ModuleScope scope(input.device(), "feed_forward", Category::mlp);
    hidden_states = layer.experts.present() ? layer.experts.forward(hidden_states, a_, router_logits) : layer.mlp.forward(hidden_states);
    hidden_states = add(residual, view(hidden_states, residual.sizes()));
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return norm_(hidden_states); }

 private:
  struct Layer {
    Attention4 attention;
    Experts4 experts;
    Mlp mlp;
    NormModule input_layernorm, post_attention_layernorm;
  };

  Layer made(const MadeModule& module, std::size_t index) const {
    Layer layer;
    const MadeModule at = module.child("self_attn"), feed = module.child("feed_forward");
    layer.attention = {at.dense("q_proj"), at.dense("k_proj"),  at.dense("v_proj"),
                       at.dense("o_proj"), !a_.unturned[index], a_.scaled_queries};
    if (a_.experts.at(static_cast<std::int64_t>(index))) {
      layer.experts.gate_up = feed.tensor("experts.gate_up_proj");
      layer.experts.down = feed.tensor("experts.down_proj");
      layer.experts.router = feed.dense("router");
      layer.experts.shared = build_mlp(module.tensors(), feed.path("shared_expert"), a_);
      layer.experts.shared.name = "shared_expert";
    } else {
      layer.mlp = build_mlp(module.tensors(), module.path("feed_forward"), a_);
    }
    layer.input_layernorm = module.norm("input_layernorm", NormKind::rms_after);
    layer.post_attention_layernorm = module.norm("post_attention_layernorm", NormKind::rms_after);
    return layer;
  }

  const Architecture& a_;
  Tensor embed_tokens_;
  std::vector<Layer> layers_;
  NormModule norm_;
  RotaryEmbedding rotary_emb_;
};

}  // namespace

MadeBody llama4_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Llama4>(a, root); }

}  // namespace llmem
