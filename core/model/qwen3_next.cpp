#include <array>
#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/build.h"
#include "model/mamba2.h"
#include "model/rotary.h"
#include "tensor/delta.h"
#include "tensor/ops.h"

// modeling_qwen3_next.py and modeling_qwen3_5.py, without the packages flash-linear-attention and causal-conv1d.
namespace llmem {

namespace {

constexpr std::int64_t kChunk = 64;

Tensor l2norm(const Tensor& x) {
  const auto inverse = [&] {
    const auto shifted = [&] {
      const auto sum = [&] {
        const Tensor squares = mul(x, x);
        return sum_dim(squares, x.dim() - 1, true);
      };
      const Tensor summed = sum();
      return add_scalar(summed);
    };
    return rsqrt(shifted());
  };
  const Tensor inv_norm = inverse();
  return mul(x, inv_norm);
}

Tensor with_last(const Tensor& self) { return unsqueeze(self, self.dim()); }

// torch_chunk_gated_delta_rule. query and key [B, S, key heads, dim], value [B, S, heads, dim], decay and beta [B, S, heads]
Tensor chunk_gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor decay, Tensor beta) {
  const Dtype initial_dtype = query.dtype();
  Device& device = query.device();
  const std::int64_t rows = value.size(0), sequence = value.size(1), heads = value.size(2), value_dim = value.size(3);
  const std::int64_t key_heads = key.size(2), key_dim = key.size(3);
  if (key_heads != heads) {
    query = repeat_interleave(query, 2, heads / key_heads);
    key = repeat_interleave(key, 2, heads / key_heads);
  }
  {
    std::array<Tensor, 5> made;
    std::size_t i = 0;
    for (const Tensor* each : {&query, &key, &value, &beta, &decay}) made[i++] = to_contiguous(transpose(*each, 1, 2), Dtype::float32);
    query = std::move(made[0]);
    key = std::move(made[1]);
    value = std::move(made[2]);
    beta = std::move(made[3]);
    decay = std::move(made[4]);
  }
  query = l2norm(query);
  key = l2norm(key);
  query = mul_scalar(query);

  const std::int64_t pad = (kChunk - sequence % kChunk) % kChunk, chunks = (sequence + pad) / kChunk;
  {
    const Tensor q = pad_along(query, 2, pad), k = pad_along(key, 2, pad);
    value = pad_along(value, 2, pad);
    query = q;
    key = k;
  }
  {
    const Tensor b = pad_along(beta, 2, pad);
    decay = pad_along(decay, 2, pad);
    beta = b;
  }
  Tensor v_beta = mul(value, with_last(beta));
  Tensor k_beta = mul(key, with_last(beta));
  const auto in_chunks = [&](const Tensor& x) { return reshape(x, {rows, heads, chunks, kChunk, x.size(-1)}); };
  query = in_chunks(query);
  key = in_chunks(key);
  k_beta = in_chunks(k_beta);
  v_beta = in_chunks(v_beta);
  decay = reshape(decay, {rows, heads, chunks, kChunk});

  const auto upper = [&] {
    const Tensor ones = device.empty({kChunk, kChunk}, Dtype::boolean);
    return device.empty({kChunk, kChunk}, Dtype::boolean);
  };
  const Tensor strictly_upper_mask = upper();
  const Tensor cum_decay = cumsum_along(decay, 3);
  Tensor pairwise_decay = sub(unsqueeze(cum_decay, 4), unsqueeze(cum_decay, 3));
  pairwise_decay = masked_fill_expanded(pairwise_decay, strictly_upper_mask);
  pairwise_decay = exp_of(pairwise_decay);

  const auto product = [&](const Tensor& left) {
    const Tensor scores = matmul_of_batches(left, transpose(key, 3, 4));
    return mul(scores, pairwise_decay);
  };
  const Tensor ut_system = product(k_beta);
  const Tensor intra_chunk_attn = product(query);
  const auto decayed = [&](const Tensor& states, const Tensor& log_decay) {
    const Tensor factor = with_last(exp_of(log_decay));
    return mul(states, factor);
  };
  const Tensor decayed_k_beta = decayed(k_beta, cum_decay);
  const Tensor new_values = solve_triangular(ut_system, v_beta);
  const Tensor k_cumdecay = solve_triangular(ut_system, decayed_k_beta);

  Tensor last_recurrent_state = device.empty({rows, heads, key_dim, value_dim}, new_values.dtype());
  Tensor core_attn_out = unary_no_grad(new_values, "zeros_like", new_values.dtype());
  query = decayed(query, cum_decay);
  const auto key_decayed = [&] {
    const auto factor = [&] {
      const Tensor difference = sub(narrow(cum_decay, 3, kChunk - 1, 1), cum_decay);
      return exp_of(difference);
    };
    const Tensor decay_left = with_last(factor());
    return mul(key, decay_left);
  };
  key = key_decayed();
  const Tensor chunk_decay = with_last(with_last(exp_of(select(cum_decay, 3))));

  Tensor v_new, inter_chunk_attn;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const auto corrected = [&] {
      const Tensor values = select(new_values, 2);
      const Tensor read = matmul_of_batches(select(k_cumdecay, 2), last_recurrent_state);
      return sub(values, read);
    };
    v_new = corrected();
    inter_chunk_attn = matmul_of_batches(select(query, 2), last_recurrent_state);
    {
      const Tensor within = matmul_of_batches(select(intra_chunk_attn, 2), v_new);
      const Tensor output = add(inter_chunk_attn, within);
      core_attn_out = copy_into_slice(core_attn_out, output);
    }
    const auto next_state = [&] {
      const Tensor kept = mul(last_recurrent_state, select(chunk_decay, 2));
      const Tensor update = matmul_of_batches(transpose(select(key, 2), 2, 3), v_new);
      return add(kept, update);
    };
    last_recurrent_state = next_state();
  }
  last_recurrent_state = {};
  core_attn_out = reshape(core_attn_out, {rows, heads, chunks * kChunk, value_dim});
  if (pad > 0) core_attn_out = narrow(core_attn_out, 2, 0, sequence);
  core_attn_out = to_contiguous(transpose(core_attn_out, 1, 2), initial_dtype);
  return core_attn_out;
}

// Qwen3NextGatedDeltaNet, and Qwen3_5GatedDeltaNet, which has four projections in place of two
struct GatedDeltaNet {
  const Architecture* architecture = nullptr;
  DenseModule in_proj_qkvz, in_proj_ba, in_proj_qkv, in_proj_z, in_proj_b, in_proj_a, out_proj;
  Tensor conv_weight, dt_bias, A_log, norm;

  Tensor forward(const Tensor& input) const;

 private:
  struct Projected {
    Tensor mixed_qkv, z, b, a;
    std::vector<Tensor> held;  // the results that forward has names for
  };
  Projected projected_in_two(const Tensor& input) const;
  Projected projected_in_four(const Tensor& input) const;
  Tensor gated_norm(const Tensor& states, const Tensor& gate) const;
};

GatedDeltaNet::Projected GatedDeltaNet::projected_in_two(const Tensor& input) const {
  const DeltaNet& d = architecture->delta_net;
  const std::int64_t rows = input.size(0), sequence = input.size(1), times = d.value_heads / d.key_heads, values = times * d.value_dim;
  const Tensor qkvz = in_proj_qkvz(input), ba = in_proj_ba(input);
  const Tensors parts =
      split_last(view(qkvz, {rows, sequence, d.key_heads, 2 * d.key_dim + 2 * values}), {d.key_dim, d.key_dim, values, values});
  const Tensors gates = split_last(view(ba, {rows, sequence, d.key_heads, 2 * times}), {times, times});
  Projected made;
  Tensor value = reshape(parts[2], {rows, sequence, d.value_heads, d.value_dim});
  made.z = reshape(parts[3], {rows, sequence, d.value_heads, d.value_dim});
  made.b = reshape(gates[0], {rows, sequence, d.value_heads});
  made.a = reshape(gates[1], {rows, sequence, d.value_heads});
  const Tensor query = reshape(parts[0], {rows, sequence, d.keys()}), key = reshape(parts[1], {rows, sequence, d.keys()});
  value = reshape(value, {rows, sequence, d.values()});
  made.mixed_qkv = cat({query, key, value}, query.dim() - 1);
  made.held = {qkvz, ba, query, key, value};
  return made;
}

GatedDeltaNet::Projected GatedDeltaNet::projected_in_four(const Tensor& input) const {
  const DeltaNet& d = architecture->delta_net;
  Projected made;
  made.mixed_qkv = in_proj_qkv(input);
  made.z = view(in_proj_z(input), {input.size(0), input.size(1), d.value_heads, d.value_dim});
  made.b = in_proj_b(input);
  made.a = in_proj_a(input);
  return made;
}

// Qwen3NextRMSNormGated
Tensor GatedDeltaNet::gated_norm(const Tensor& states, const Tensor& gate) const {
  const ModuleScope scope(states.device(), "norm", Category::norms);
  const Dtype input_dtype = states.dtype();
  Tensor hidden_states = to(states, Dtype::float32);
  const auto mean_square = [&] { return mean_last(square(hidden_states)); };
  const Tensor variance = mean_square();
  const auto scaled = [&] { return mul(hidden_states, rsqrt(add_scalar(variance))); };
  hidden_states = scaled();
  const auto weighted = [&] { return mul(norm, to(hidden_states, input_dtype)); };
  hidden_states = weighted();
  const auto opened = [&] {
    const auto open = [&] { return silu(to(gate, Dtype::float32)); };
    return mul(hidden_states, open());
  };
  hidden_states = opened();
  return to(hidden_states, input_dtype);
}

Tensor GatedDeltaNet::forward(const Tensor& input) const {
  const DeltaNet& d = architecture->delta_net;
  const ModuleScope scope(input.device(), "linear_attn", Category::attention);
  const std::int64_t rows = input.size(0), sequence = input.size(1);
  Projected in = in_proj_qkvz.present() ? projected_in_two(input) : projected_in_four(input);
  Tensor mixed_qkv = transpose(in.mixed_qkv, 1, 2);
  in.mixed_qkv = {};
  mixed_qkv = activated_causal_conv(mixed_qkv, conv_weight, {}, architecture->activation);
  mixed_qkv = transpose(mixed_qkv, 1, 2);
  const Tensors parts = split_last(mixed_qkv, {d.keys(), d.keys(), d.values()});
  in.held.resize(std::min<std::size_t>(in.held.size(), 2));  // query, key and value are now others
  const auto by_head = [&](const Tensor& states, std::int64_t dim) { return reshape(states, {rows, sequence, states.size(2) / dim, dim}); };
  const Tensor query = by_head(parts[0], d.key_dim), key = by_head(parts[1], d.key_dim), value = by_head(parts[2], d.value_dim);
  const Tensor beta = sigmoid(in.b);
  const auto decay = [&] {
    const auto negative = [&] {
      const auto exponential = [&] { return exp_of(to(A_log, Dtype::float32)); };
      return neg(exponential());
    };
    const Tensor A = negative();
    const auto step = [&] {
      const auto shifted = [&] { return add(to(in.a, Dtype::float32), dt_bias); };
      return softplus(shifted());
    };
    return mul(A, step());
  };
  const Tensor g = decay();
  Tensor core_attn_out = chunk_gated_delta_rule(query, key, value, g, beta);
  core_attn_out = reshape(core_attn_out, {rows * sequence * d.value_heads, d.value_dim});
  in.z = reshape(in.z, {rows * sequence * d.value_heads, d.value_dim});
  core_attn_out = gated_norm(core_attn_out, in.z);
  core_attn_out = reshape(core_attn_out, {rows, sequence, d.values()});
  return out_proj(core_attn_out);
}

class Qwen3Next : public Body {
 public:
  Qwen3Next(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child(a.names.model);
    embed_tokens_ = model.tensor("embed_tokens.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) layers_.push_back(made(model.child("layers", i), static_cast<int>(i)));
    rotary_emb_ = {model.tensor("rotary_emb.inv_freq"), model.tensor("rotary_emb.original_inv_freq")};
    norm_ = model.norm("norm", NormKind::rms_one_plus);
  }

  Tensor embedding() const override { return embed_tokens_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(embed_tokens_, "embed_tokens", ids, options);
    context.position_ids = arange_positions(inputs_embeds, options);
    if (is_grid(a_.rotary)) {
      const GridPositions made = grid_positions(context.position_ids, inputs_embeds.size(0), a_.rotary);
      context.grid_positions = made.grid;
      context.position_ids = made.text;
    }
    context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
    context.position_embeddings =
        rotary_emb_.forward(is_grid(a_.rotary) ? context.grid_positions : context.position_ids, inputs_embeds.dtype(), a_.rotary);
    locals = {inputs_embeds};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor residual = input;
    Tensor hidden_states = layer.input_layernorm(input);
    AttentionResult mixed;
    if (layer.attends)
      mixed = layer.attention.forward(hidden_states, context);
    else
      mixed.output = layer.delta_net.forward(hidden_states);
    hidden_states = std::exchange(mixed.output, {});
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer.post_attention_layernorm(hidden_states);
    hidden_states = layer.mixture.present() ? layer.mixture.forward(hidden_states) : layer.mlp.forward(hidden_states);
    hidden_states = add(residual, hidden_states);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return norm_(hidden_states); }

  std::vector<NamedMixture> mixtures() const override {
    std::vector<NamedMixture> found;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (layers_[i].mixture.present())
        found.push_back({std::string(a_.names.model) + ".layers." + std::to_string(i) + ".mlp", &layers_[i].mixture});
    return found;
  }

 private:
  struct Layer {
    bool attends = false;
    GatedDeltaNet delta_net;
    AttentionBlock attention;
    Mixture mixture;
    Mlp mlp;
    NormModule input_layernorm, post_attention_layernorm;
  };

  Layer made(const MadeModule& module, int index) const {
    Layer layer;
    layer.attends = a_.attends[static_cast<std::size_t>(index)];
    if (layer.attends) {
      layer.attention = build_attention(module.tensors(), module.path("self_attn"), a_, index);
    } else {
      const MadeModule at = module.child("linear_attn");
      GatedDeltaNet& net = layer.delta_net;
      net.architecture = &a_;
      net.conv_weight = at.tensor("conv1d.weight");
      net.dt_bias = at.tensor("dt_bias");
      net.A_log = at.tensor("A_log");
      net.norm = at.tensor("norm.weight");
      if (at.tensor("in_proj_qkvz.weight")) {
        net.in_proj_qkvz = at.dense("in_proj_qkvz");
        net.in_proj_ba = at.dense("in_proj_ba");
        net.out_proj = at.dense("out_proj");
      } else {
        net.out_proj = at.dense("out_proj");
        net.in_proj_qkv = at.dense("in_proj_qkv");
        net.in_proj_z = at.dense("in_proj_z");
        net.in_proj_b = at.dense("in_proj_b");
        net.in_proj_a = at.dense("in_proj_a");
      }
    }
    if (a_.experts.at(index))
      layer.mixture = build_mixture(module.tensors(), module.path("mlp"), a_);
    else
      layer.mlp = build_mlp(module.tensors(), module.path("mlp"), a_);
    layer.input_layernorm = module.norm("input_layernorm", NormKind::rms_one_plus);
    layer.post_attention_layernorm = module.norm("post_attention_layernorm", NormKind::rms_one_plus);
    return layer;
  }

  const Architecture& a_;
  Tensor embed_tokens_;
  std::vector<Layer> layers_;
  RotaryEmbedding rotary_emb_;
  NormModule norm_;
};

}  // namespace

MadeBody qwen3_next_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Qwen3Next>(a, root); }

}  // namespace llmem
