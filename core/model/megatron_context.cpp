#include "model/megatron_model.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py: each context rank has a part of the tokens.
namespace llmem {

namespace {

// flash_attn_a2a_communicate of [s, b, heads, d]: put in the order of the ranks, exchanged, tokens put in order again.
Tensor exchanged(const Tensor& states, const Dims& sizes, std::int64_t ranks) {
  Recorder grad("context_all_to_all", {&states});
  const auto exchange = [ranks](const Tensor& from, const Dims& to) {
    Device& on = from.device();
    const Meter::Muted no_kernel(on.meter);
    if (!on.stopped) on.meter.communicate_and_wait(Collective::all_gather, Among::shards, ranks, from.bytes_read());
    Tensor sent = on.empty(from.sizes(), from.dtype());
    const Tensor received = on.empty(to, from.dtype());
    sent.reset();
    return on.empty(to, from.dtype());
  };
  const Tensor result = exchange(states, sizes);
  grad.attach(result);
  grad.backward([exchange, own = states.sizes()](Tensors& gradients) { return Tensors{exchange(gradients[0], own)}; });
  return result;
}

}  // namespace

// AttnFuncWithCPAndQKVOA2A: all tokens of a part of the heads
Tensor MegatronModel::attention_of_all_to_all(const Tensor& query, const Tensor& key, const Tensor& value) const {
  const auto of_heads = [&](const Tensor& states) {
    const Dims& s = states.sizes();
    return exchanged(states, {s[0] * rank_.context, s[1], s[2] / rank_.context, s[3]}, rank_.context);
  };
  const Tensor context = local_attention(of_heads(query), of_heads(key), of_heads(value));
  const Dims sizes{query.size(0), query.size(1), query.size(2), value.size(3)};
  const Tensor heads = view(context, {context.size(0), context.size(1), query.size(2) / rank_.context, value.size(3)});
  const Tensor back = exchanged(heads, sizes, rank_.context);
  return view(back, {sizes[0], sizes[1], sizes[2] * sizes[3]});
}

// AttnFuncWithCPAndKVP2P: keys and values go round, one buffer for each rank's until forward is over, and the result of every step until all
// are added up.
Tensor MegatronModel::attention_of_ring(const Tensor& query, const Tensor& key, const Tensor& value) const {
  std::vector<Tensor> buffers, steps;
  {
    const OpScope op(device_, "context_ring");
    const Meter::Muted no_kernel(device_.meter);
    for (std::int64_t i = 0; i < rank_.context; ++i) {
      buffers.push_back(device_.empty({key.numel() + value.numel()}, key.dtype()));
      steps.push_back(device_.empty({query.numel() / query.size(3) * value.size(3)}, query.dtype()));
      if (!device_.stopped)
        device_.meter.communicate(Collective::send, Among::shards, 2, buffers.back().bytes_read(), Meter::blocking_stream);
    }
  }
  return local_attention(query, key, value);
}

}  // namespace llmem
