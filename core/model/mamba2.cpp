#include "model/mamba2.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/mamba_body.h"
#include "tensor/ops.h"

// modeling_mamba2.py, and what modeling_granitemoehybrid.py, modeling_bamba.py and others have of it word by word.
namespace llmem {

namespace {

// torch.tril(torch.ones(n, n, dtype=bool), diagonal)
Tensor lower_triangle(Device& device, std::int64_t n) {
  const Tensor ones = device.empty({n, n}, Dtype::boolean);
  return device.empty({n, n}, Dtype::boolean);
}

// What only this function was given dies where its name is bound anew.
Tensor segment_sum(Tensor input_tensor) {
  const std::int64_t n = input_tensor.size(-1);
  Dims square = input_tensor.sizes();
  square.push_back(n);
  input_tensor = expand(unsqueeze(input_tensor, input_tensor.dim()), square);
  Tensor mask = lower_triangle(input_tensor.device(), n);
  const auto outside = [&] { return unary_no_grad(mask, "bitwise_not", Dtype::boolean); };
  input_tensor = masked_fill_expanded(input_tensor, outside());
  Tensor tensor_segsum = cumsum_along(input_tensor, input_tensor.dim() - 2);
  mask = lower_triangle(input_tensor.device(), n);
  tensor_segsum = masked_fill_expanded(tensor_segsum, outside());
  return tensor_segsum;
}

// reshape_into_chunks: [B, S, …] to [B, chunks, chunk, …]
Tensor in_chunks(const Tensor& input, std::int64_t pad, std::int64_t chunk) {
  const Tensor padded = pad_along(input, 1, pad);
  Dims sizes = padded.sizes();
  sizes[1] = chunk;
  sizes.insert(1, padded.size(1) / chunk);
  return reshape(padded, sizes);
}

// mamba2_chunk_scan. hidden_states [B, S, heads, dim], dt [B, S, heads], A [heads], B and C [B, S, groups, states]
Tensor chunk_scan(const StateSpace& s, Tensor hidden_states, Tensor dt, Tensor A, Tensor B, Tensor C, const Tensor& D,
                  const Tensor& dt_bias) {
  const std::int64_t rows = hidden_states.size(0), sequence = hidden_states.size(1);
  {
    const Tensor bias = to(dt_bias, dt.dtype());
    dt = add(dt, bias);
  }
  dt = softplus(dt);
  dt = clamp_both(dt);
  hidden_states = to(hidden_states, Dtype::float32);
  const auto of_heads = [&](const Tensor& states) { return repeat_interleave(to(states, Dtype::float32), 2, s.heads / s.groups); };
  B = of_heads(B);
  C = of_heads(C);
  const std::int64_t pad = (s.chunk - sequence % s.chunk) % s.chunk;
  const auto residual = [&] {
    const Tensor padded = pad_along(hidden_states, 1, pad);
    return mul(unsqueeze(D, 1), padded);
  };
  const Tensor D_residual = residual();
  const auto discrete = [&] { return mul(hidden_states, to(unsqueeze(dt, 3), Dtype::float32)); };
  hidden_states = discrete();
  const auto discrete_A = [&] {
    const Tensor cast = to(A, Dtype::float32);
    return mul(cast, to(dt, Dtype::float32));
  };
  A = discrete_A();
  {
    std::array<Tensor, 4> chunks;
    for (std::size_t i = 0; const Tensor* each : {&hidden_states, &A, &B, &C}) chunks[i++] = in_chunks(*each, pad, s.chunk);
    hidden_states = std::move(chunks[0]);
    A = std::move(chunks[1]);
    B = std::move(chunks[2]);
    C = std::move(chunks[3]);
  }
  A = permute(A, {0, 3, 1, 2});
  const Tensor A_cumsum = cumsum_along(A, 3);

  const auto exp_of_sums = [](Tensor sums) {
    const Tensor summed = segment_sum(std::move(sums));
    return exp_of(summed);
  };
  const Tensor L = exp_of_sums(A);
  const Tensor G = einsum("bclhn", C, "bcshn", B, "bclsh");
  const Tensor M = mul(G, permute(L, {0, 2, 3, 4, 1}));
  const Tensor Y_diag = einsum("bclsh", M, "bcshp", hidden_states, "bclhp");

  const auto decays = [&] {
    const Tensor rest = sub(narrow(A_cumsum, 3, s.chunk - 1, 1), A_cumsum);
    return exp_of(rest);
  };
  const Tensor decay_states = decays();
  const Tensor B_decay = mul(B, unsqueeze(permute(decay_states, {0, 2, 3, 1}), 4));
  Tensor states = einsum("bclhn", B_decay, "bclhp", hidden_states, "bchpn");

  const auto zeros = [&] {
    const Tensor first = narrow(states, 1, 0, 1);
    return unary_no_grad(first, "zeros_like", first.dtype());
  };
  const Tensor previous_states = zeros();
  states = cat({previous_states, states}, 1);
  const auto decays_of_chunks = [&] { return exp_of_sums(pad_along(select(A_cumsum, 3), 2, 1)); };
  const Tensor decay_chunk = transpose(decays_of_chunks(), 1, 3);
  const Tensor new_states = einsum("bzch", decay_chunk, "bzhpn", states, "bchpn");
  states = narrow(new_states, 1, 0, new_states.size(1) - 1);
  const Tensor final_state = select(new_states, 1);

  const Tensor state_decay_out = exp_of(A_cumsum);
  const Tensor C_times_states = einsum("bclhn", C, "bchpn", states, "bclhp");
  const Tensor Y_off = mul(C_times_states, unsqueeze(permute(state_decay_out, {0, 2, 3, 1}), 4));
  const auto summed = [&] { return contiguous(add(Y_diag, Y_off)); };
  Tensor output = summed();
  output = reshape(output, {rows, sequence + pad, s.heads, s.head_dim});
  output = add(output, D_residual);
  if (pad > 0) output = narrow(output, 1, 0, sequence);
  return output;
}

// MambaRMSNormGated
// `by_group`: the weight is applied before the groups are put together again (FalconH1RMSNormGated)
Tensor gated_norm(const Tensor& weight, std::int64_t groups, Tensor hidden_states, const Tensor& gate, bool by_group) {
  const ModuleScope scope(gate.device(), "norm", Category::norms);
  const Dtype input_dtype = hidden_states.dtype();
  const Dims sizes = hidden_states.sizes();
  hidden_states = to(hidden_states, Dtype::float32);
  const auto opened = [&] {
    const auto open = [&] { return silu(to(gate, Dtype::float32)); };
    return mul(hidden_states, open());
  };
  hidden_states = opened();
  Dims grouped = sizes;
  grouped[sizes.size() - 1] = groups;
  grouped.push_back(sizes.back() / groups);
  Tensor group = view(hidden_states, grouped);
  const auto mean_square = [&] { return mean_last(square(group)); };
  const Tensor variance = mean_square();
  {
    const auto scale = [&] { return rsqrt(add_scalar(variance)); };
    group = mul(group, scale());
  }
  if (by_group) return view(mul(view(weight, {groups, sizes.back() / groups}), group), sizes);
  hidden_states = view(group, sizes);
  return mul(weight, to(hidden_states, input_dtype));
}

// FalconH1RMSNormGated with norm_before_gate
Tensor norm_then_gate(const Tensor& weight, std::int64_t groups, Tensor hidden_states, const Tensor& gate) {
  const ModuleScope scope(gate.device(), "norm", Category::norms);
  const Dims sizes = hidden_states.sizes();
  const std::int64_t size = sizes.back() / groups;
  hidden_states = view(hidden_states, {sizes[0], sizes[1], groups, size});
  const auto mean_square = [&] { return mean_last(square(hidden_states)); };
  const Tensor variance = mean_square();
  const auto scaled = [&] { return mul(hidden_states, rsqrt(add_scalar(variance))); };
  hidden_states = scaled();
  hidden_states = mul(view(weight, {groups, size}), hidden_states);
  hidden_states = view(hidden_states, sizes);
  const auto opened = [&] {
    const auto open = [&] { return silu(to(gate, Dtype::float32)); };
    return mul(hidden_states, open());
  };
  hidden_states = opened();
  return hidden_states;
}

}  // namespace

Tensor activated_causal_conv(const Tensor& hidden_states, const Tensor& whole_weight, const Tensor& bias, Activation activation) {
  const auto whole = [&] {
    const Tensor weight = unsqueeze(view(whole_weight, {whole_weight.size(0), whole_weight.size(2)}), 1);
    const Tensor cast = to(hidden_states, weight.dtype());
    return narrow(depthwise_conv1d(cast, weight, bias), 2, 0, hidden_states.size(2));
  };
  Tensor out = whole();
  out = activate(activation, out);
  return to(out, hidden_states.dtype());
}

Tensor Mamba2Mixer::forward(const Tensor& input) const {
  const StateSpace& s = architecture->state_space;
  const ModuleScope scope(input.device(), name, Category::mlp);
  const std::int64_t rows = input.size(0), sequence = input.size(1), states_of_all = s.groups * s.states;
  const Dtype dtype = input.dtype();
  Tensor projected_states;
  if (mup_vector) {  // FalconH1Mixer
    const Tensor scaled = mul_scalar(input);
    projected_states = in_proj(scaled);
    projected_states = mul(projected_states, mup_vector);
  } else {
    projected_states = in_proj(input);
  }
  const auto negative = [&] {
    const auto exponential = [&] { return exp_of(to(A_log, Dtype::float32)); };
    return neg(exponential());
  };
  const Tensor A = negative();
  const Tensors parts = split_last(projected_states, {s.inner(), s.channels(), s.heads});
  Tensor mixed = transpose(parts[1], 1, 2);
  mixed = activated_causal_conv(mixed, conv_weight, conv_bias, activation);
  mixed = transpose(mixed, 1, 2);
  const Tensors xbc = split_last(mixed, {s.inner(), states_of_all, states_of_all});
  const auto by_group = [&](const Tensor& each) { return view(each, {rows, sequence, s.groups, s.states}); };
  Tensor scan_output =
      chunk_scan(s, view(xbc[0], {rows, sequence, s.heads, s.head_dim}), parts[2], A, by_group(xbc[1]), by_group(xbc[2]), D, dt_bias);
  scan_output = reshape(scan_output, {rows, sequence, s.inner()});
  const auto gated = [&] {
    if (mup_vector && norm && s.norm_first) return norm_then_gate(norm, s.groups, scan_output, parts[0]);
    if (norm) return gated_norm(norm, s.groups, scan_output, parts[0], static_cast<bool>(mup_vector));
    return mul(scan_output, silu(parts[0]));
  };
  scan_output = gated();
  return out_proj(to(scan_output, dtype));
}

Mamba2Mixer made_mamba2_mixer(const Architecture& a, const MadeModule& module, std::string_view name) {
  return {&a,
          std::string(name),
          module.dense("in_proj"),
          module.dense("out_proj"),
          module.tensor("conv1d.weight"),
          module.tensor("conv1d.bias"),
          module.tensor("dt_bias"),
          module.tensor("A_log"),
          module.tensor("D"),
          module.tensor("norm.weight"),
          module.tensor("mup_vector"),
          a.activation};
}

// validate_architecture: the widened hidden states are those of all heads together, and heads are shared out among groups
void check_heads_of_state_space(ConfigReader& c, const Architecture& a, std::string_view heads, std::string_view hidden,
                                std::int64_t inner) {
  const StateSpace& s = a.state_space;
  if (inner != s.inner())
    c.file().problem(c.in_file(hidden), "conflict",
                     "widened it has " + std::to_string(inner) + " channels, and the state space's heads have " + std::to_string(s.heads) +
                         " * " + std::to_string(s.head_dim));
  else if (s.heads % s.groups != 0 || s.inner() % s.groups != 0)
    c.file().problem(c.in_file(heads), "conflict",
                     std::to_string(s.heads) + " heads cannot be shared out among " + std::to_string(s.groups) + " groups");
}

// mamba_* fields, as granitemoehybrid, bamba and falcon_h1 call them
void read_mamba_fields(ConfigReader& c, Architecture& a, std::int64_t inner) {
  StateSpace& s = a.state_space;
  s.heads = c.count("mamba_n_heads", 128);
  const nlohmann::json* head_dim = c.file().find("mamba_d_head");
  s.head_dim = head_dim && head_dim->is_number_integer() ? c.count("mamba_d_head", 1) : inner / s.heads;  // "auto"
  s.groups = c.count("mamba_n_groups", 1);
  s.states = c.count("mamba_d_state", 256);
  s.kernel = c.count("mamba_d_conv", 4);
  s.chunk = c.count("mamba_chunk_size", 256);
  s.conv_bias = c.flag("mamba_conv_bias");
  s.bias = s.out_bias = c.flag("mamba_proj_bias");
  check_heads_of_state_space(c, a, "mamba_n_heads", "hidden_size", inner);
}

void declare_mamba2_mixer(const StateSpace& s, const Module& mixer, std::int64_t hidden_size, bool normed) {
  for (const char* name : {"dt_bias", "A_log", "D"}) mixer.parameter(name, {s.heads});
  mixer.child("conv1d").parameter("weight", {s.channels(), 1, s.kernel});
  if (s.conv_bias) mixer.child("conv1d").parameter("bias", {s.channels()});
  mixer.linear("in_proj", hidden_size, s.inner() + s.channels() + s.heads, s.bias);
  if (normed) mixer.norm("norm", s.inner());
  mixer.linear("out_proj", s.inner(), hidden_size, s.out_bias);
}

namespace {}  // namespace

std::unique_ptr<const Body> mamba2_body(const Architecture& a, const MadeModule& root) {
  const auto mixer = [&](const MadeModule& module) { return made_mamba2_mixer(a, module, "mixer"); };
  return std::make_unique<MambaBody<Mamba2Mixer>>(a, root, mixer);
}

}  // namespace llmem
