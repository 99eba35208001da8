#include "plan/context_parallel.h"

#include "tensor/autograd.h"
#include "tensor/device.h"

namespace llmem {

namespace {

// The tokens of a rank, in the memory of the whole.
Tensor shortened(const Tensor& whole, std::int64_t rows, std::int64_t tokens) {
  const Tensor part = detach(whole);
  part->layout = {{rows, tokens}, contiguous_strides({rows, tokens})};
  return part;
}

// _load_balancer.py, _HeadTailLoadBalancer._generate_indices
Tensor balanced_indices(Device& device, std::int64_t tokens, std::int64_t ranks) {
  const Tensor all = device.empty({tokens}, Dtype::int32);
  const Tensor head = device.empty({ranks}, Dtype::int64), tail = device.empty({ranks}, Dtype::int64);
  const Tensor heads = device.empty({tokens / 2}, Dtype::int32), tails = device.empty({tokens / 2}, Dtype::int32);
  return device.empty({tokens}, Dtype::int32);
}

}  // namespace

Ring ring_of(const Spec& spec) {
  return {spec.context.degree, spec.rank / spec.tensor.degree % spec.context.degree, spec.context.all_to_all, spec.context.load_balance,
          spec.context.ulysses};
}

// context_parallel and _context_parallel_buffers: each buffer is rearranged, cut, and copied back into its own memory.
std::vector<Tensor> split_batch(const Ring& ring, const Tensor& ids, const Tensor& labels, Tensor& own_ids, Tensor& own_labels,
                                Tensor& positions) {
  Device& device = ids.device();
  const OpScope op(device, "context_parallel");
  const std::int64_t rows = ids.size(0), tokens = ids.size(1), own = tokens / ring.ranks;
  positions = device.empty({1, tokens}, Dtype::int64);
  Tensor shifted = device.empty({rows, tokens + 1}, Dtype::int64);
  if (rows > 1) shifted = device.empty(labels.sizes(), Dtype::int64);
  std::vector<Tensor> kept;
  {
    const Tensor indices = ring.load_balance ? balanced_indices(device, tokens, ring.ranks) : Tensor();
    for (const std::int64_t r : {rows, std::int64_t{1}, rows}) {
      const Tensor rearranged = ring.load_balance ? device.empty({r, tokens}, Dtype::int64) : Tensor();
      kept.push_back(device.empty({r, own}, Dtype::int64));
    }
  }
  for (int i = 0; i < 2; ++i) device.scratch(kept[static_cast<std::size_t>(i)]->storage->bytes);
  kept.push_back(device.empty(kept.back().sizes(), Dtype::int64));
  own_ids = shortened(ids, rows, own);
  own_labels = shortened(shifted, rows, own);
  positions = shortened(positions, 1, own);
  return kept;
}

}  // namespace llmem
