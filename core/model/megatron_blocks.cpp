#include <algorithm>
#include <memory>
#include <utility>

#include "model/megatron_model.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// The parts of a Megatron-Core layer that not every model has: latent attention and experts.
namespace llmem {

// multi_latent_attention.py, MLASelfAttention.__init__
MegatronModel::Attention MegatronModel::make_latent_attention(const std::string& name) {
  const LatentAttention& latent = shape_.latent;
  const bool engine = training_.megatron.transformer_engine;
  const std::int64_t query = shape_.heads * (latent.nope_dim + latent.rope_dim);
  Attention made;
  made.proj = make_linear(name + ".linear_proj", shape_.heads * latent.value_dim, shape_.hidden, Split::rows, shape_.linear_bias);
  if (latent.query_rank > 0) {
    made.q_down = make_linear(name + ".linear_q_down_proj", shape_.hidden, latent.query_rank, Split::none, false);
    made.q_up = make_linear(name + ".linear_q_up_proj", latent.query_rank, query, Split::columns, false, engine && shape_.qk_norm);
  } else {
    made.q = make_linear(name + ".linear_q_proj", shape_.hidden, query, Split::columns, false);
  }
  made.kv_down = make_linear(name + ".linear_kv_down_proj", shape_.hidden, latent.key_value_rank + latent.rope_dim, Split::none, false);
  made.kv_up = make_linear(name + ".linear_kv_up_proj", latent.key_value_rank, shape_.heads * (latent.nope_dim + latent.value_dim),
                           Split::columns, false, engine && shape_.qk_norm);
  return made;
}

// get_query_key_value_tensors, qkv_up_proj_and_rope_apply and forward
Tensor MegatronModel::run_latent_attention(const Attention& attention, const Tensor& hidden_states) const {
  const LatentAttention& latent = shape_.latent;
  const std::int64_t heads = shape_.heads / rank_.tensor;
  const bool in_parts = rank_.sequence && rank_.tensor > 1;
  struct Parts {
    Tensor query, key, value;
  };
  const auto parts = std::make_shared<Parts>();
  {
    const Tensor q_input = latent.query_rank == 0 ? hidden_states : plain(attention.q_down, hidden_states);
    const Tensor combined = plain(attention.kv_down, hidden_states);
    const Tensors halves = split_last(combined, {latent.key_value_rank, latent.rope_dim});
    const Tensor turned = in_parts ? gather_from_sequence(kernels_, halves[1], true) : halves[1];
    const Tensor compressed = contiguous(halves[0]);
    parts->query = recomputed("mla_up_proj", [this, &attention, &latent, heads, q_input, turned, compressed, parts] {
      const Tensor q = column(latent.query_rank == 0 ? attention.q : attention.q_up, q_input, true);
      const Tensor q_heads = view(q, {q.size(0), q.size(1), heads, latent.nope_dim + latent.rope_dim});
      const Tensor kv = column(attention.kv_up, compressed, true);
      const Tensor kv_heads = view(kv, {kv.size(0), kv.size(1), heads, latent.nope_dim + latent.value_dim});
      const Tensors q_parts = split_last(q_heads, {latent.nope_dim, latent.rope_dim});
      const Tensors kv_parts = split_last(kv_heads, {latent.nope_dim, latent.value_dim});
      const Tensor q_turned = fused_rotary(q_parts[1]);
      const Tensor k_turned = fused_rotary(unsqueeze(turned, 2));
      const Tensor query = cat({q_parts[0], q_turned}, 3);
      parts->key = cat({kv_parts[0], expand(k_turned, q_turned.sizes())}, 3);
      parts->value = contiguous(kv_parts[1]);
      return query;
    });
  }
  const Parts made = std::exchange(*parts, Parts());
  const Tensor context =
      recomputed("core_attn", [this, query = made.query, key = made.key, value = made.value] { return core_attention(query, key, value); });
  for (const Tensor* each : {&made.query, &made.key, &made.value}) discard("mla_up_proj", *each, context);
  return row(attention.proj, context);
}

// moe_layer.py and experts.py: a rank's experts, of which each matrix may be split again. All of one kind are one parameter here.
MegatronModel::Experts MegatronModel::make_experts(const std::string& name) {
  const llmem::Experts& experts = shape_.experts;
  const std::int64_t local = experts.count / rank_.expert, width = experts.width / rank_.expert_tensor;
  Experts made;
  made.router = make(name + ".router.weight", {experts.count, shape_.hidden});
  made.fc1.weight = make(name + ".experts.linear_fc1.weight", {local, shape_.gated ? 2 * width : width, shape_.hidden}, true);
  if (shape_.linear_bias) made.fc1.bias = make(name + ".experts.linear_fc1.bias", {local, shape_.gated ? 2 * width : width}, true);
  made.fc2.weight = make(name + ".experts.linear_fc2.weight", {local, shape_.hidden, width}, true);
  if (shape_.linear_bias) made.fc2.bias = make(name + ".experts.linear_fc2.bias", {local, shape_.hidden}, true);
  if (experts.shared_width == 0) return made;
  const std::int64_t up = shape_.gated ? 2 * experts.shared_width : experts.shared_width;
  made.shared_fc1 = make_linear(name + ".shared_experts.linear_fc1", shape_.hidden, up, Split::columns, false);
  made.shared_fc2 = make_linear(name + ".shared_experts.linear_fc2", experts.shared_width, shape_.hidden, Split::rows, false);
  return made;
}

// experts.py, TEGroupedMLP.forward and SequentialMLP.forward, whose results are put together by a copy
Tensor MegatronModel::run_routed(const Experts& experts, const Tensor& tokens, const Tensor& factors) const {
  Tensor activated;
  {
    const Tensor intermediate = te_grouped_linear(kernels_, tokens, experts.fc1.weight, training_.megatron.grouped_gemm);
    activated = recomputed("moe_act", [this, intermediate, factors] { return weighted_activation(intermediate, factors, shape_.gated); });
  }
  const Tensor output = te_grouped_linear(kernels_, activated, experts.fc2.weight, training_.megatron.grouped_gemm);
  discard("moe_act", activated, output);
  if (training_.megatron.grouped_gemm || shape_.experts.count == rank_.expert) return output;
  return clone(output);
}

namespace {

// What permuting keeps: one index a copy of a token.
Tensor index_of(Device& device, std::int64_t count) {
  const OpScope op(device, "permutation");
  return device.empty({count}, Dtype::int64);
}

}  // namespace

// token_dispatcher.py. Tokens are taken to be shared out evenly among the experts.
Tensor MegatronModel::run_experts(const Experts& experts, const Tensor& hidden_states) const {
  const Routing routing = route_tokens(kernels_, hidden_states, experts.router, training_.megatron.float_router);
  Tensor shared;
  if (experts.shared_fc1.weight) {
    const ModuleScope scope(device_, "shared_experts");
    const auto run = [this, &experts](const Tensor& states) {
      const auto activated = [&] {
        const Tensor intermediate = column(experts.shared_fc1, states, false);
        return fused_activation(intermediate, {}, shape_.gated);
      };
      return row(experts.shared_fc2, activated());
    };
    shared = recomputes("shared_experts") ? checkpoint_reentrant(run, hidden_states) : run(hidden_states);
  }
  const ModuleScope scope(device_, "experts");
  const Tensor tokens = view(hidden_states, {hidden_states.numel() / shape_.hidden, shape_.hidden});
  const Tensor combined =
      training_.megatron.all_to_all ? exchange_by_all_to_all(experts, tokens, routing) : exchange_by_gather(experts, tokens, routing);
  const Tensor output = view(combined, hidden_states.sizes());
  return shared ? add(output, shared) : output;
}

// MoEAllGatherTokenDispatcher
Tensor MegatronModel::exchange_by_gather(const Experts& experts, const Tensor& tokens, const Routing& routing) const {
  const std::int64_t ranks = rank_.expert * rank_.expert_tensor, all = tokens.size(0) * ranks;
  const std::int64_t chosen = all * shape_.experts.per_token / rank_.expert;
  const auto exchange = [&](const Tensor& each, bool global) {
    return exchange_tokens(kernels_, each, all, Collective::all_gather, Collective::reduce_scatter, ranks, global);
  };
  const Tensor map = exchange(routing.map, false), probabilities = exchange(routing.probabilities, false);
  const Tensor everybody = exchange(tokens, true);
  const Tensor index = index_of(device_, chosen);
  const Tensor permuted = permute_tokens(everybody, index);
  const Tensor factors = permute_tokens(view(narrow(probabilities, 1, 0, 1), {all, 1}), index);
  const auto unpermuted = [&] {
    const Tensor results = run_routed(experts, permuted, factors);
    return unpermute_tokens(results, index, all);
  };
  const auto summed = [&] {
    const Tensor results = unpermuted();
    return to(results, routing.probabilities.dtype());
  };
  const Tensor results = exchange_tokens(kernels_, summed(), tokens.size(0), Collective::reduce_scatter, Collective::all_gather, ranks);
  return to(results, tokens.dtype());
}

// MoEAlltoAllTokenDispatcher
Tensor MegatronModel::exchange_by_all_to_all(const Experts& experts, const Tensor& tokens, const Routing& routing) const {
  const std::int64_t chosen = tokens.size(0) * shape_.experts.per_token, split = rank_.expert_tensor;
  const bool several = shape_.experts.count > rank_.expert;
  const Tensor index = index_of(device_, chosen);
  const auto swapped = [&](const Tensor& each) {
    return exchange_tokens(kernels_, each, chosen, Collective::all_gather, Collective::all_gather, rank_.expert);
  };
  const auto gathered = [&](const Tensor& each) {
    return exchange_tokens(kernels_, each, chosen * split, Collective::all_gather, Collective::reduce_scatter, split);
  };
  const auto sorted = [&](const Tensor& each) { return several ? sort_chunks(each) : each; };
  const auto dispatched = [&](const Tensor& permuted) { return sorted(gathered(swapped(permuted))); };
  const Tensor mine = dispatched(permute_tokens(tokens, index));
  const Tensor factors = dispatched(permute_tokens(view(narrow(routing.probabilities, 1, 0, 1), {tokens.size(0), 1}), index));
  const auto returned = [&] {
    const Tensor results = sorted(run_routed(experts, mine, factors));
    return exchange_tokens(kernels_, results, chosen, Collective::reduce_scatter, Collective::all_gather, split);
  };
  const auto home = [&] {
    const Tensor results = returned();
    return swapped(results);
  };
  return unpermute_tokens(home(), index, tokens.size(0));
}

}  // namespace llmem
