#include "model/mixture.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "model/activation.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

using Chosen = Mixture::Chosen;

// MixtralTopKRouter
Chosen choose_of_mixtral(const Tensor& hidden, const Tensor& weight, std::int64_t k) {
  const Tensor rows = view(hidden, hidden.sizes());
  Chosen chosen;
  chosen.logits = linear(rows, weight, {});
  const Tensor probabilities = softmax_last(to(chosen.logits, Dtype::float32));
  TopK top = topk(probabilities, k);
  const Tensor sum = sum_dim(top.values, 1, true);
  chosen.weights = div_in_place(top.values, sum);
  chosen.indices = top.indices;
  return chosen;
}

// Qwen2MoeTopKRouter
Chosen choose_of_qwen(const Tensor& hidden, const Tensor& weight, std::int64_t k, bool normed) {
  const Tensor rows = view(hidden, hidden.sizes());
  Chosen chosen;
  chosen.logits = linear(rows, weight, {});
  const Tensor probabilities = softmax_float(chosen.logits);
  const TopK top = topk(probabilities, k);
  Tensor values = top.values;
  if (normed) {
    const Tensor sum = sum_dim(values, 1, true);
    values = div_in_place(values, sum);
  }
  chosen.weights = to(values, chosen.logits.dtype());
  chosen.indices = top.indices;
  return chosen;
}

// JambaTopKRouter
Chosen choose_of_jamba(const Tensor& rows, const Tensor& weight, std::int64_t k) {
  Chosen chosen;
  chosen.logits = linear(rows, weight, {});
  const Tensor probabilities = softmax_float(chosen.logits);
  const TopK top = topk(probabilities, k);
  chosen.weights = to(top.values, rows.dtype());
  chosen.indices = top.indices;
  return chosen;
}

// GraniteMoeTopKRouter
Chosen choose_of_granite(const Tensor& rows, const Tensor& weight, std::int64_t k) {
  Chosen chosen;
  const auto logits = [&] { return linear(rows, weight, {}); };
  chosen.logits = to(logits(), Dtype::float32);
  const TopK top = topk(chosen.logits, k);
  const auto weights = [&] { return softmax_last(top.values); };
  chosen.weights = to(weights(), rows.dtype());
  chosen.indices = top.indices;
  return chosen;
}

// HunYuanMoEV1Gate: in fp32 where its weight is
Chosen choose_of_hunyuan(const Tensor& hidden, const Linear& wg, std::int64_t k) {
  const Tensor input = view(hidden, hidden.sizes());
  const Tensor rows = wg.weight.dtype() == Dtype::float32 ? to(input, Dtype::float32) : input;
  Chosen chosen;
  chosen.logits = wg.forward(rows);
  Tensor weights = softmax_float(chosen.logits);
  TopK top = topk(weights, k);
  weights = top.values;
  const auto normed = [&] {
    const Tensor sum = sum_dim(weights, 1, true);
    return div_in_place(weights, sum);
  };
  weights = normed();
  chosen.weights = to(weights, chosen.logits.dtype());
  chosen.indices = top.indices;
  return chosen;
}

// GptOssTopKRouter
Chosen choose_of_gpt_oss(const Tensor& rows, const Tensor& weight, const Tensor& bias, std::int64_t k) {
  Chosen chosen;
  chosen.logits = linear(rows, weight, bias);
  const TopK top = topk(chosen.logits, k);
  chosen.weights = softmax_in(top.values, top.values.dtype());
  chosen.indices = top.indices;
  return chosen;
}

// The groups of experts whose scores are kept: [N, E] of booleans' worth, and scores with -inf elsewhere.
// `locals`: the router's own variables, which live until it returns.
Tensor kept_groups(const Tensor& scores, const Experts& e, bool by_two, std::vector<Tensor>& locals) {
  const std::int64_t rows = scores.size(0), of_group = e.count / e.groups;
  Device& device = scores.device();
  const Tensor grouped = view(scores, {rows, e.groups, of_group});
  Tensor group_scores;
  if (by_two) {
    const auto best = [&] { return topk(grouped, 2).values; };
    group_scores = sum_dim(best(), 2, false);
  } else {
    const auto best = [&] { return topk(grouped, 1).values; };  // max(dim): values and indices
    group_scores = view(best(), {rows, e.groups});
  }
  const auto index = [&] { return topk(group_scores, e.groups_kept).indices; };
  const Tensor group_index = index();
  const Tensor group_mask = device.empty(group_scores.sizes(), scores.dtype());
  const Tensor score_mask = reshape(expand(unsqueeze(group_mask, 2), {rows, e.groups, of_group}), {rows, e.count});
  const auto excluded = [&] {
    const Tensor booleans = device.empty({rows, e.count}, Dtype::boolean);
    return device.empty({rows, e.count}, Dtype::boolean);
  };
  const Tensor kept = masked_fill(scores, excluded());
  locals = {group_scores, group_index, group_mask, score_mask};
  return kept;
}

// DeepseekV2TopkRouter
Chosen choose_of_deepseek_v2(const Tensor& rows, const Tensor& weight, const Experts& e) {
  Chosen chosen;
  const auto logits = [&] {
    const Tensor cast = to(rows, Dtype::float32);
    return linear(cast, to(weight, Dtype::float32), {});
  };
  chosen.logits = logits();
  Tensor scores = softmax_float(chosen.logits);
  std::vector<Tensor> locals;
  if (e.groups > 0) scores = kept_groups(scores, e, false, locals);
  const TopK top = topk(scores, e.per_token);
  chosen.weights = mul_scalar(top.values);
  chosen.indices = top.indices;
  return chosen;
}

// DeepseekV3TopkRouter
Chosen choose_of_deepseek_v3(const Tensor& rows, const Tensor& weight, const Tensor& correction, const Experts& e) {
  Chosen chosen;
  const auto logits = [&] {
    const Tensor cast = to(rows, Dtype::float32);
    return linear(cast, to(weight, Dtype::float32), {});
  };
  chosen.logits = logits();
  const Tensor scores = sigmoid(chosen.logits);
  Tensor for_choice = add(scores, correction);
  std::vector<Tensor> locals;
  for_choice = kept_groups(for_choice, e, true, locals);
  const auto indices = [&] { return topk(for_choice, e.per_token).indices; };
  chosen.indices = indices();
  Tensor weights = gather_columns(scores, chosen.indices);
  Tensor denominator;
  if (e.normed) {
    const auto sum = [&] { return sum_dim(weights, 1, true); };
    denominator = add_scalar(sum());
    weights = div_in_place(weights, denominator);
  }
  chosen.weights = mul_scalar(weights);
  return chosen;
}

// MiniMaxM2TopKRouter
Chosen choose_of_minimax(const Tensor& hidden, const Tensor& weight, const Tensor& correction, std::int64_t k) {
  const Tensor rows = view(hidden, hidden.sizes());
  Chosen chosen;
  chosen.logits = linear(to(rows, weight.dtype()), weight, {});
  const auto cast = [&] { return to(chosen.logits, Dtype::float32); };
  const Tensor probabilities = sigmoid(cast());
  const Tensor for_choice = add(probabilities, correction);
  chosen.indices = topk(for_choice, k).indices;
  Tensor weights = gather_columns(probabilities, chosen.indices);
  const auto normed = [&] {
    const Tensor sum = sum_dim(weights, 1, true);
    return div_in_place(weights, sum);
  };
  chosen.weights = normed();
  return chosen;
}

// HYV3TopKRouter
Chosen choose_of_hunyuan_v3(const Tensor& hidden, const Tensor& weight, const Tensor& correction, std::int64_t k) {
  const Tensor rows = view(hidden, hidden.sizes());
  Chosen chosen;
  const auto logits = [&] {
    const Tensor cast = to(rows, Dtype::float32);
    return linear(cast, to(weight, Dtype::float32), {});
  };
  chosen.logits = logits();
  const Tensor probabilities = sigmoid(chosen.logits);
  const Tensor for_choice = add(probabilities, correction);
  const TopK top = topk(for_choice, k);
  chosen.indices = top.indices;
  Tensor weights = gather_columns(probabilities, chosen.indices);
  const auto normed = [&] {
    const auto sum = [&] { return sum_dim(weights, 1, true); };
    const Tensor denominator = add_scalar(sum());
    return div_both(weights, denominator);
  };
  weights = normed();
  chosen.weights = mul_scalar(weights);
  return chosen;
}

// Ernie4_5_MoeTopKRouter: outside autocast
Chosen choose_of_ernie(const Tensor& rows, const Tensor& weight, const Tensor& correction, std::int64_t k) {
  Chosen chosen;
  Tensor weights;
  {
    Device& device = rows.device();
    const With no_autocast(device.autocast, std::optional<Dtype>());
    const auto logits = [&] {
      const Tensor cast = to(rows, Dtype::float32);
      return linear(cast, to(weight, Dtype::float32), {});
    };
    chosen.logits = logits();
    weights = softmax_float(chosen.logits);
    TopK top;
    {
      const Tensor corrected = add(weights, correction);
      top = topk(corrected, k);
    }
    chosen.indices = top.indices;
    weights = gather_columns(weights, chosen.indices);
    const auto normed = [&] {
      const auto clamped = [&] {
        const Tensor sum = sum_dim(weights, 1, true);
        return clamp(sum);
      };
      const Tensor denominator = clamped();
      return div_both(weights, denominator);
    };
    weights = normed();
  }
  chosen.weights = to(weights, rows.dtype());
  return chosen;
}

// _default_apply_gate, and GptOssExperts' own
Tensor gated(const Architecture& a, const Tensor& projected) {
  if (!a.experts.gated) return activate(a.activation, projected);
  if (!a.experts.biased) {
    const auto [gate, up] = halves_of(projected);
    const Tensor activated = activate(a.activation, gate);
    return mul(activated, up);
  }
  Tensor gate = every_second(projected), up = every_second(projected);
  gate = clamp(gate);
  up = clamp(up);
  const auto glu_of = [&] {
    const auto inner = [&] {
      const Tensor scaled = mul_scalar(gate);
      return sigmoid(scaled);
    };
    const Tensor opened = inner();
    return mul(gate, opened);
  };
  const Tensor glu = glu_of();
  const Tensor shifted = add_scalar(up);
  return mul(shifted, glu);
}

Tensor as_product_sees(const Architecture& a, const Tensor& weight) { return a.experts.biased ? weight : transpose(weight, 1, 2); }

}  // namespace

namespace {

// torch.baddbmm(W, lhs, rhs, alpha) of _LoraFactorsProxy, outside autocast. The first factor lies in memory as no BLAS takes it: it is copied.
struct Factors {
  Tensor lhs, rhs;
};
Factors factors_of(const LoraAdapter& adapter, const Tensor& weight) {
  const std::int64_t experts = weight.size(0), ranks = adapter.a.size(0) / experts;
  const Tensor a = view(adapter.a, {experts, ranks, adapter.a.size(1)});
  const Tensor b = transpose(transpose(view(adapter.b, {adapter.b.size(0), ranks, experts}), 0, 2), 1, 2);
  const Tensor lhs = to(b, weight.dtype());
  return {lhs, to(a, weight.dtype())};
}

Tensor folded(const Tensor& weight, const Factors& factors) {
  const With no_autocast(weight.device().autocast, std::optional<Dtype>());
  return baddbmm(weight, factors.lhs, factors.rhs);
}

// What register_parametrization asks at once and throws away.
template <class Compute>
void tried(Device& device, const Compute& compute) {
  const With no_grad(device.grad_enabled, false);
  const Tensor dropped = compute();
}

}  // namespace

// W + delta of ParamWrapper's _LoraParameterProxy, where the router is adapted
Tensor Mixture::adapted_router() const {
  if (!adapters->router || !adapters->router->enabled) return router;
  const LoraAdapter& adapter = *adapters->router;
  const auto delta_of = [&] {
    const auto scaled = [&] {
      const Tensor a = autocast(adapter.a);
      const Tensor product = mm(autocast(adapter.b), a);
      return mul_scalar(product);
    };
    return to(scaled(), router.dtype());
  };
  const Tensor delta = delta_of();
  tried(router.device(), [&] { return add(router, delta); });
  return add(router, delta);
}

Chosen Mixture::choose(const Tensor& rows, const Tensor& weight) const {
  const Experts& e = architecture->experts;
  const ModuleScope scope(rows.device(), name_of(architecture->names.mixture, 'R'));
  switch (e.router) {
    case RouterKind::mixtral: return choose_of_mixtral(rows, weight, e.per_token);
    case RouterKind::qwen: return choose_of_qwen(rows, weight, e.per_token, e.normed);
    case RouterKind::jamba: return choose_of_jamba(rows, weight, e.per_token);
    case RouterKind::granite: return choose_of_granite(rows, weight, e.per_token);
    case RouterKind::hunyuan: return choose_of_hunyuan(rows, router_linear, e.per_token);
    case RouterKind::gpt_oss: return choose_of_gpt_oss(rows, weight, router_bias, e.per_token);
    case RouterKind::deepseek_v2: return choose_of_deepseek_v2(rows, weight, e);
    case RouterKind::deepseek_v3: return choose_of_deepseek_v3(rows, weight, correction, e);
    case RouterKind::minimax: return choose_of_minimax(rows, weight, correction, e.per_token);
    case RouterKind::phimoe: return choose_by_sparse_mixer(rows, router_linear);
    case RouterKind::hunyuan_v3: return choose_of_hunyuan_v3(rows, weight, correction, e.per_token);
    case RouterKind::ernie: return choose_of_ernie(rows, weight, correction, e.per_token);
    case RouterKind::other: break;
  }
  return {};
}

Tensor Mixture::run_experts(const Tensor& rows, const Tensor& top_weights, const Tensor& top_indices) const {
  Device& device = rows.device();
  const Architecture& a = *architecture;
  const ModuleScope scope(device, name_of(a.names.mixture, 'E'));
  const std::int64_t tokens = rows.size(0), hidden = rows.size(1), chosen = tokens * a.experts.per_token;
  // The wrapper of the second matrix is around that of the first.
  Factors of_down, of_gate_up;
  const auto begun = [&](const std::optional<LoraAdapter>& adapter, const Tensor& weight) {
    if (!adapter || !adapter->enabled) return Factors();
    const Factors factors = factors_of(*adapter, weight);
    tried(device, [&] { return folded(weight, factors); });
    return factors;
  };
  of_down = begun(adapters->down, down);
  of_gate_up = begun(adapters->gate_up, gate_up);
  const Tensor sample_weights = reshape(top_weights, {chosen});
  const auto [expert_ids, permutation] = sort_vector(reshape(top_indices, {chosen}));
  const auto selected_rows = [&, &order = permutation] {
    const Tensor token = unary_no_grad(order, "floor_divide", Dtype::int64);
    return index_along(rows, 0, token);
  };
  const Tensor selected = selected_rows();
  const Tensor weights = index_along(sample_weights, 0, permutation);
  const Tensor ids32 = unary_no_grad(expert_ids, "to", Dtype::int32);
  const Tensor per_expert = device.empty({a.experts.count}, Dtype::int32);
  const Tensor offsets = device.empty({a.experts.count}, Dtype::int32);
  device.scratch(scan_scratch_of(a.experts.count, 4));

  Tensor bias = gate_up_bias ? index_along(gate_up_bias, 0, expert_ids) : Tensor();
  const auto product = [&](const Tensor& states, const Tensor& weight) {
    const Tensor out = grouped_mm(to(states, weight.dtype()), as_product_sees(a, weight), offsets);
    return bias ? add_in_place(out, bias) : out;
  };
  const Tensor first_weight = of_gate_up.lhs ? folded(gate_up, of_gate_up) : gate_up;
  Tensor projected = product(selected, first_weight);
  projected = gated(a, projected);
  if (down_bias) bias = index_along(down_bias, 0, expert_ids);
  const Tensor second_weight = of_down.lhs ? folded(down, of_down) : down;
  projected = product(projected, second_weight);
  Tensor weighted = mul(projected, unsqueeze(weights, 1));
  const Tensor inverse = device.empty({chosen}, Dtype::int64);
  device.scratch(Bytes{8} * chosen);
  weighted = index_along(weighted, 0, inverse);
  const Tensor final_states = sum_dim(view(weighted, {tokens, a.experts.per_token, hidden}), 1, false);
  return to(final_states, rows.dtype());
}

bool peft_adapts_experts(const Architecture& a) {
  static constexpr std::string_view kConverted[] = {"minimax",      "minimax_m2",     "deepseek_v2",   "deepseek_v3", "deepseek_v32",
                                                    "ernie4_5_moe", "glm4_moe",       "glm4_moe_lite", "glm_moe_dsa", "qwen3_moe",
                                                    "qwen3_next",   "hunyuan_v1_moe", "olmoe",         "mixtral",     "dots1",
                                                    "solar_open",   "flex_olmo",      "exaone_moe"};
  const bool known = std::find(std::begin(kConverted), std::end(kConverted), a.model_type) != std::end(kConverted);
  return a.experts.count > 0 && known;
}

bool names_a_part_of_experts(const Architecture& a, std::string_view module) {
  const std::string_view leaf = module.substr(module.rfind('.') + 1);
  const bool as_mixtral = a.model_type == "mixtral" || a.model_type == "minimax" || a.model_type == "minimax_m2";
  if (leaf == "gate") return true;
  if (as_mixtral) return leaf == "w1" || leaf == "w2" || leaf == "w3";
  return leaf == "gate_proj" || leaf == "up_proj" || leaf == "down_proj";
}

namespace {

std::string_view leaf_of(std::string_view module) { return module.substr(module.rfind('.') + 1); }

}  // namespace

ExpertTargets expert_targets(const Architecture& a, const AdapterOptions& options) {
  if (!peft_adapts_experts(a)) return {};
  if (options.all_linear) return {true, true, true};
  ExpertTargets result;
  for (const std::string& target : options.targets) {
    if (!names_a_part_of_experts(a, target)) continue;
    const std::string_view leaf = leaf_of(target);
    if (leaf == "gate")
      result.router = true;
    else if (leaf == "down_proj" || leaf == "w2")
      result.down = true;
    else
      result.gate_up = true;
  }
  return result;
}

bool names_half_of_experts(const Architecture& a, const AdapterOptions& options) {
  if (options.all_linear || !expert_targets(a, options).gate_up) return false;
  const auto named = [&](std::string_view one, std::string_view other) {
    return std::any_of(options.targets.begin(), options.targets.end(),
                       [&](const std::string& target) { return leaf_of(target) == one || leaf_of(target) == other; });
  };
  return !named("gate_proj", "w1") || !named("up_proj", "w3");
}

Tensor Mixture::forward(const Tensor& input, Tensor* scores) const {
  Device& device = input.device();
  const Architecture& a = *architecture;
  const ModuleScope scope(device, name_of(a.names.layer, 'm'), Category::mlp);
  const std::int64_t batch = input.size(0), sequence = input.size(1), hidden = input.size(2);
  const bool has_shared = shared.down.weight || shared.gate_up.weight;
  if (a.experts.shared_last) {  // Glm4MoeMoE, DeepseekV3MoE: the shared experts are run once the others are done
    const Chosen chosen = choose(view(input, {batch * sequence, hidden}), adapted_router());
    const auto run = [&] {
      Tensor rows = view(input, {batch * sequence, hidden});
      if (into_latent.weight) rows = into_latent.forward(rows);
      rows = run_experts(rows, chosen.weights, chosen.indices);
      if (out_of_latent.weight) rows = out_of_latent.forward(rows);
      return view(rows, input.sizes());
    };
    const Tensor routed = run();
    return has_shared ? add(routed, shared.forward(input)) : routed;
  }
  const Tensor rows = view(input, {batch * sequence, hidden});
  if (a.experts.router == RouterKind::hunyuan_v3) {
    const Chosen chosen = choose(rows, adapted_router());
    const Tensor routed = run_experts(rows, chosen.weights, chosen.indices);
    const auto combined = [&] {
      if (!a.experts.float_combine) return add(routed, shared.forward(rows));
      const auto sum = [&] {
        const Tensor first = to(routed, Dtype::float32);
        return add(first, to(shared.forward(rows), Dtype::float32));
      };
      return to(sum(), rows.dtype());
    };
    return reshape(combined(), input.sizes());
  }
  Tensor shared_output;
  if (has_shared) shared_output = shared.forward(a.experts.router == RouterKind::hunyuan ? input : rows);
  const Chosen chosen = choose(rows, adapted_router());
  Tensor output = run_experts(rows, chosen.weights, chosen.indices);
  if (scores && a.experts.router == RouterKind::gpt_oss) *scores = chosen.weights;
  if (shared_gate.weight) {  // Qwen2MoeSparseMoeBlock
    const auto opened = [&] {
      const ModuleScope inner(device, name_of(a.names.mixture, 'G'));
      const Tensor logits = shared_gate.forward(rows);
      return sigmoid(logits);
    };
    const auto gated_output = [&] {
      const Tensor open = opened();
      return mul(open, shared_output);
    };
    shared_output = gated_output();
  }
  if (a.experts.router == RouterKind::hunyuan) return add(reshape(output, input.sizes()), shared_output);
  if (has_shared) output = add(output, shared_output);
  return reshape(output, input.sizes());
}

}  // namespace llmem
