#include "report/outside.h"

#include <algorithm>

namespace llmem {
namespace {

// The context and the kernels that a training step loads, with CUDA's lazy loading (the default since CUDA 11.7). `high` is every kernel
// loaded, measured on an A100: 0.92 GiB (stas00/ml-engineering, training/performance, "Preloaded CUDA kernels", PyTorch 2.1).
struct ContextRow {
  int from_capability;
  Bytes low, used;
  std::string_view source;
};
constexpr ContextRow contexts[] = {
    {90, 500_MiB, 700_MiB,
     "Hopper and Blackwell: field reports of 500 to 700 MiB per process; 0.92 GiB with every kernel loaded (ml-engineering, A100)"},
    {80, 400_MiB, 500_MiB,
     "Ampere and Ada: 0.47 GiB on an A100 after the first kernel, 0.92 GiB with every kernel loaded (ml-engineering, PyTorch 2.1); "
     "426 MiB on an RTX 6000 Ada (unsloth-zoo #1053)"},
    {0, 300_MiB, 350_MiB, "Volta and Turing: 300 to 400 MB (pytorch #20532); 0.92 GiB with every kernel loaded (ml-engineering, A100)"},
};
constexpr Bytes every_kernel = 942_MiB;

// Buffers of one communicator. NVIDIA's aiconfigurator reckons with 342 MiB for 2 GPUs and 392 MiB for 4 and 8, on A100 to B200;
// ml-engineering saw 1.45 GiB come with a first barrier, kernels included. Memory grows with channels and communicators, not with ranks beyond a
// few (NVIDIA/nccl #864, #986). A connection of one channel has, by its source (2.30: init.cc, DEFAULT_*BUFFSIZE; p2p.cc), 4 MiB for Simple,
// 4.7 for LL128 and 0.5 for LL, 10 MiB rounded: the least of a further communicator are two channels with two peers.
constexpr Bytes nccl_two = 342_MiB, nccl_more = 392_MiB, nccl_high = 1485_MiB, nccl_least = 40_MiB;

}  // namespace

std::vector<std::int64_t> communicators_of(const Spec& spec) {
  const bool megatron = spec.training.stack == Stack::megatron;
  std::vector<std::int64_t> groups = {spec.tensor.degree, spec.pipeline.degree, spec.context.degree};
  // Gradients and shards go over data and context ranks together; copies of a shard have a group of their own.
  if (spec.data.degree > 1) groups.push_back(spec.data.shard_ranks() * spec.context.degree);
  groups.push_back(spec.data.replicate);
  if (megatron) groups.push_back(spec.expert.degree * spec.expert.tensor.value_or(spec.tensor.degree));
  std::erase_if(groups, [](std::int64_t ranks) { return ranks <= 1; });
  return groups;
}

Outside outside_of(int compute_capability, const std::vector<std::int64_t>& communicators) {
  Outside outside;
  for (const ContextRow& row : contexts) {
    if (compute_capability < row.from_capability) continue;
    outside.what.push_back({"CUDA context and loaded kernels", row.low, every_kernel, row.used, row.source});
    break;
  }
  OutsideItem nccl{
      "NCCL buffers",
      {},
      {},
      {},
      "for each communicator, NVIDIA aiconfigurator: 342 MiB for 2 GPUs, 392 MiB for 4 and 8; at least 40 MiB for a further one (nccl "
      "2.30, p2p.cc); 1.45 GiB with a first barrier (ml-engineering)"};
  for (const std::int64_t ranks : communicators) {
    if (ranks <= 1) continue;
    nccl.low += nccl.used.count == 0 ? nccl_two : nccl_least;
    nccl.high += nccl_high;
    nccl.used += ranks > 2 ? nccl_more : nccl_two;
  }
  if (nccl.used.count > 0) outside.what.push_back(nccl);
  for (const OutsideItem& item : outside.what) {
    outside.low += item.low;
    outside.high += item.high;
    outside.used += item.used;
  }
  return outside;
}

}  // namespace llmem
