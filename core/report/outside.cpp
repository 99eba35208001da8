#include "report/outside.h"

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
// ml-engineering saw 1.45 GiB come with a first barrier, kernels included.
constexpr Bytes nccl_two = 342_MiB, nccl_more = 392_MiB, nccl_high = 1485_MiB;

}  // namespace

Outside outside_of(int compute_capability, std::int64_t ranks) {
  Outside outside;
  for (const ContextRow& row : contexts) {
    if (compute_capability < row.from_capability) continue;
    outside.what.push_back({"CUDA context and loaded kernels", row.low, every_kernel, row.used, row.source});
    break;
  }
  if (ranks > 1) {
    const Bytes used = ranks > 2 ? nccl_more : nccl_two;
    outside.what.push_back(
        {"NCCL buffers", nccl_two, nccl_high, used,
         "NVIDIA aiconfigurator: 342 MiB for 2 GPUs, 392 MiB for 4 and 8; 1.45 GiB with a first barrier (ml-engineering)"});
  }
  for (const OutsideItem& item : outside.what) {
    outside.low += item.low;
    outside.high += item.high;
    outside.used += item.used;
  }
  return outside;
}

}  // namespace llmem
