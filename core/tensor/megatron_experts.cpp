#include <algorithm>

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/megatron.h"
#include "tensor/ops.h"

// megatron/core/transformer/moe: what happens between a layer's norm and its experts.
namespace llmem {

namespace {

Dims with_rows(Dims sizes, std::int64_t rows) {
  sizes[0] = rows;
  return sizes;
}

}  // namespace

// index_select; backward index_add_ into zeros
Tensor permute_tokens(const Tensor& tokens, const Tensor& index) {
  Recorder grad("permute", {&tokens});
  Saved index_ = grad.save_if(grad.recording(), index);
  const Tensor result = tokens.device().empty(with_rows(tokens.sizes(), index.numel()), tokens.dtype());
  grad.attach(result);
  grad.backward([index_ = std::move(index_), sizes = tokens.sizes()](Tensors& gradients) {
    const Tensor saved = index_.unpack();
    return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())};
  });
  return result;
}

// zeros, then index_add_ or scatter_add_; backward index_select
Tensor unpermute_tokens(const Tensor& permuted, const Tensor& index, std::int64_t tokens) {
  Recorder grad("unpermute", {&permuted});
  Saved index_ = grad.save_if(grad.recording(), index);
  const Tensor result = permuted.device().empty(with_rows(permuted.sizes(), tokens), permuted.dtype());
  grad.attach(result);
  grad.backward([index_ = std::move(index_), sizes = permuted.sizes()](Tensors& gradients) {
    const Tensor saved = index_.unpack();
    return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())};
  });
  return result;
}

Tensor exchange_tokens(MegatronKernels& kernels, const Tensor& tokens, std::int64_t count, Collective forward, Collective backward,
                       std::int64_t ranks, bool global) {
  if (ranks == 1) return tokens;
  Recorder grad("exchange_tokens", {&tokens});
  Device& device = tokens.device();
  const auto meter = [ranks](const Tensor& from, const Tensor& to, Collective how) {
    if (!from.device().stopped)
      from.device().meter.communicate_and_wait(how, Among::shards, ranks, std::max(from.bytes_read(), to.bytes_read()));
  };
  const Dims sizes = with_rows(tokens.sizes(), count);
  const Meter::Muted no_kernel(device.meter);
  const Tensor result = global ? global_buffer(device, kernels, "mpu", sizes, tokens.dtype()) : device.empty(sizes, tokens.dtype());
  meter(tokens, result, forward);
  grad.attach(result);
  grad.backward([meter, backward, own = tokens.sizes()](Tensors& gradients) {
    const Meter::Muted muted(gradients[0].device().meter);
    const Tensor made = gradients[0].device().empty(own, gradients[0].dtype());
    meter(gradients[0], made, backward);
    return Tensors{made};
  });
  return result;
}

Tensor sort_chunks(const Tensor& tokens) {
  Recorder grad("sort_chunks", {&tokens});
  const Tensor result = empty_like(tokens, tokens.dtype());
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{empty_like(gradients[0], gradients[0].dtype())}; });
  return result;
}

// router.py, TopKRouter.forward: the scores of every expert, their softmax, the probabilities of the chosen ones and which they are.
Routing route_tokens(MegatronKernels& kernels, const Tensor& hidden_states, const Tensor& weight, bool floats) {
  Routing made;
  const Tensor scores = [&] {
    const Tensor product = megatron_linear(kernels, hidden_states, weight, {}, Split::none);
    const Tensor rows = view(product, {product.numel() / weight.size(0), weight.size(0)});
    return floats ? to(rows, Dtype::float32) : rows;
  }();
  const Tensor softmax = softmax_float(scores);
  made.probabilities = to(softmax, scores.dtype());
  made.map = scores.device().empty(scores.sizes(), Dtype::boolean);
  return made;
}

}  // namespace llmem
