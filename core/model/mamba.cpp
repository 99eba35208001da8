#include <utility>
#include <vector>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/build.h"
#include "model/mamba2.h"
#include "model/mamba_body.h"
#include "tensor/delta.h"
#include "tensor/ops.h"

// modeling_mamba.py, modeling_falcon_mamba.py and modeling_jamba.py, without the packages mamba-ssm and causal-conv1d: the state goes from
// token to token in a loop of Python.
namespace llmem {

namespace {

// What is normed of B, C and the time step: nothing, without weights (FalconMambaWeightlessRMSNorm), or with them (JambaRMSNorm).
enum class Normed : std::uint8_t { no, bare, weighted };

struct MambaMixer {
  const Architecture* architecture = nullptr;
  std::string name;
  DenseModule in_proj, x_proj, out_proj;
  Tensor dt_weight, dt_bias, conv_weight, conv_bias, A_log, D;
  Normed normed = Normed::no;
  NormModule dt_layernorm, b_layernorm, c_layernorm;
  bool asks_for_kernel = true;  // mamba_inner_fn is called, which without its package gives nothing

  Tensor forward(const Tensor& hidden_states) const;
};

MambaMixer made_mixer(const Architecture& a, const MadeModule& module, std::string_view name, Normed normed) {
  MambaMixer mixer;
  mixer.architecture = &a;
  mixer.name = name;
  mixer.in_proj = module.dense("in_proj");
  mixer.x_proj = module.dense("x_proj");
  const DenseModule dt = module.dense("dt_proj");
  mixer.dt_weight = dt.linear.weight;
  mixer.dt_bias = dt.linear.bias;
  mixer.out_proj = module.dense("out_proj");
  mixer.conv_weight = module.tensor("conv1d.weight");
  mixer.conv_bias = module.tensor("conv1d.bias");
  mixer.A_log = module.tensor("A_log");
  mixer.D = module.tensor("D");
  mixer.normed = normed;
  mixer.asks_for_kernel = normed != Normed::weighted;
  if (normed == Normed::weighted) {
    mixer.dt_layernorm = module.norm("dt_layernorm", NormKind::rms);
    mixer.b_layernorm = module.norm("b_layernorm", NormKind::rms);
    mixer.c_layernorm = module.norm("c_layernorm", NormKind::rms);
  }
  return mixer;
}

// FalconMambaWeightlessRMSNorm
Tensor bare_norm(const Tensor& x) {
  const Tensor as_float = to(x, Dtype::float32);
  const auto normed = [&] {
    const auto scale = [&] {
      const auto shifted = [&] {
        const auto mean_square = [&] { return mean_last(square(as_float)); };
        const Tensor mean = mean_square();
        return add_scalar(mean);
      };
      return rsqrt(shifted());
    };
    return mul(as_float, scale());
  };
  return to(normed(), x.dtype());
}

// mamba_selective_scan. hidden_states and dt [B, I, S], A [I, n], B and C [B, S, n], z [B, I, S]
Tensor selective_scan(const Tensor& hidden_states, Tensor dt, const Tensor& A, const Tensor& B, const Tensor& C, const Tensor& D,
                      const Tensor& z, const Tensor& delta_bias) {
  Device& device = hidden_states.device();
  const std::int64_t rows = hidden_states.size(0), inner = hidden_states.size(1), sequence = hidden_states.size(2);
  const Dtype input_dtype = hidden_states.dtype();
  {
    const Tensor bias = unsqueeze(to(delta_bias, dt.dtype()), 1);
    dt = add(dt, bias);
  }
  dt = softplus(dt);
  const auto exponential = [&] {
    const Tensor product = mul(unsqueeze(unsqueeze(A, 0), 2), unsqueeze(dt, 3));
    return exp_of(product);
  };
  const Tensor discrete_A = exponential();
  const auto discrete = [&] { return mul(unsqueeze(dt, 3), to(unsqueeze(B, 1), Dtype::float32)); };
  const Tensor discrete_B = discrete();
  const auto times_input = [&] { return mul(discrete_B, to(unsqueeze(hidden_states, 3), Dtype::float32)); };
  const Tensor deltaB_u = times_input();

  Tensor ssm_state = device.empty({rows, inner, A.size(1)}, input_dtype);
  std::vector<Tensor> scan_outputs;
  Tensor scan_output;
  for (std::int64_t index = 0; index < sequence; ++index) {
    const auto next = [&] {
      const Tensor decayed = mul(select(discrete_A, 2), ssm_state);
      return add(decayed, select(deltaB_u, 2));
    };
    ssm_state = next();
    const auto read = [&] {
      const Tensor cast = to(ssm_state, input_dtype);
      return matmul_of_batches(cast, unsqueeze(select(C, 1), 2));
    };
    scan_output = read();
    scan_outputs.push_back(select(scan_output, 2));
  }
  scan_output = stack_of(scan_outputs);
  const auto with_input = [&] {
    const Tensor skipped = mul(hidden_states, unsqueeze(unsqueeze(D, 0), 2));
    return add(scan_output, skipped);
  };
  scan_output = with_input();
  const auto gated = [&] { return mul(scan_output, silu(z)); };
  scan_output = gated();
  return scan_output;
}

Tensor MambaMixer::forward(const Tensor& input) const {
  const ModuleScope scope(input.device(), name, Category::mlp);
  const StateSpace& s = architecture->state_space;
  const std::int64_t inner = s.inner();
  const Dtype dtype = input.dtype();
  const Tensor projected_states = transpose(in_proj(input), 1, 2);
  const auto negative = [&] {
    const auto exponential = [&] { return exp_of(to(A_log, Dtype::float32)); };
    return neg(exponential());
  };
  const Tensor A = negative();
  if (asks_for_kernel) {
    const Tensor out_bias = out_proj.linear.bias ? to(out_proj.linear.bias, Dtype::float32) : Tensor();
    const Tensor D_float = to(D, Dtype::float32), bias = to(dt_bias, Dtype::float32);
  }
  const Tensors parts = split_along(projected_states, 1, {inner, inner});
  Tensor hidden_states = activated_causal_conv(parts[0], conv_weight, conv_bias, architecture->activation);
  hidden_states = transpose(hidden_states, 1, 2);
  Tensor time_step, B, C;
  {
    const Tensor projected = x_proj(hidden_states);
    const Tensors three = split_last(projected, {s.rank, s.states, s.states});
    time_step = three[0];
    B = three[1];
    C = three[2];
  }
  if (normed == Normed::bare) {
    time_step = bare_norm(time_step);
    B = bare_norm(B);
    C = bare_norm(C);
  } else if (normed == Normed::weighted) {
    time_step = dt_layernorm(time_step);
    B = b_layernorm(B);
    C = c_layernorm(C);
  }
  time_step = matmul_of_weight(dt_weight, transpose(time_step, 1, 2));
  const Tensor time_proj_bias = to(dt_bias, Dtype::float32);
  const auto scan = [&] {
    const Tensor D_float = to(D, Dtype::float32);
    return selective_scan(transpose(hidden_states, 1, 2), time_step, A, B, C, D_float, parts[1], time_proj_bias);
  };
  const Tensor scan_output = scan();
  return out_proj(to(transpose(scan_output, 1, 2), dtype));
}

class Jamba : public Body {
 public:
  Jamba(const Architecture& a, const MadeModule& root) {
    const MadeModule model = root.child("model");
    embed_tokens_ = model.tensor("embed_tokens.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule module = model.child("layers", i);
      Layer layer;
      layer.attends = a.attends[static_cast<std::size_t>(i)];
      if (layer.attends)
        layer.attention = build_attention(module.tensors(), module.path("self_attn"), a, static_cast<int>(i));
      else
        layer.mamba = made_mixer(a, module.child("mamba"), "mamba", Normed::weighted);
      if (a.experts.at(i))
        layer.mixture = build_mixture(module.tensors(), module.path("feed_forward"), a);
      else
        layer.mlp = build_mlp(module.tensors(), module.path("feed_forward"), a);
      layer.input_layernorm = module.norm("input_layernorm", NormKind::rms);
      layer.pre_ff_layernorm = module.norm("pre_ff_layernorm", NormKind::rms);
      layers_.push_back(std::move(layer));
    }
    norm_ = model.norm("final_layernorm", NormKind::rms);
  }

  Tensor embedding() const override { return embed_tokens_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(embed_tokens_, "embed_tokens", ids, options);
    context.position_ids = arange_positions(inputs_embeds, options);
    context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
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
      mixed.output = layer.mamba.forward(hidden_states);
    hidden_states = std::exchange(mixed.output, {});
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer.pre_ff_layernorm(hidden_states);
    hidden_states = layer.mixture.present() ? layer.mixture.forward(hidden_states) : layer.mlp.forward(hidden_states);
    hidden_states = add(residual, hidden_states);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return norm_(hidden_states); }

  std::vector<NamedMixture> mixtures() const override {
    std::vector<NamedMixture> found;
    for (std::size_t i = 0; i < layers_.size(); ++i)
      if (layers_[i].mixture.present()) found.push_back({"model.layers." + std::to_string(i) + ".feed_forward", &layers_[i].mixture});
    return found;
  }

 private:
  struct Layer {
    bool attends = false;
    AttentionBlock attention;
    MambaMixer mamba;
    Mixture mixture;
    Mlp mlp;
    NormModule input_layernorm, pre_ff_layernorm;
  };

  Tensor embed_tokens_;
  std::vector<Layer> layers_;
  NormModule norm_;
};

MadeBody plain_mamba(const Architecture& a, const MadeModule& root, Normed normed) {
  const auto mixer = [&](const MadeModule& module) { return made_mixer(a, module, "mixer", normed); };
  return std::make_unique<MambaBody<MambaMixer>>(a, root, mixer);
}

}  // namespace

MadeBody mamba_body(const Architecture& a, const MadeModule& root) { return plain_mamba(a, root, Normed::no); }
MadeBody falcon_mamba_body(const Architecture& a, const MadeModule& root) { return plain_mamba(a, root, Normed::bare); }
MadeBody jamba_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Jamba>(a, root); }

}  // namespace llmem
