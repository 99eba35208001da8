#include "time/links.h"

#include <algorithm>

#include "base/bytes.h"

namespace llmem {
namespace {

// What of the line rate large messages reach. NVLink: all-reduce on 8 A100 235 of 300 GB/s, all-gather and reduce-scatter on 8 H200 361 to 368
// of 450 (stas00/ml-engineering, network benchmarks). Network: 382 of 400 x 8 Gb/s by bus bandwidth on 4 x 8 B200, 0.74 of the NICs (same).
constexpr double kNvlink = 0.80, kNetwork = 0.78;
// PCIe switch or host bridge: 0.69 of the line rate among 2 to 4 GPUs, 0.42 among 8 (MooreThreads/SimuMax, A100 PCIe).
constexpr double kPcieFew = 0.69, kPcieMany = 0.42;
// Pinned copies between host and GPU: 55.4 of 63 GB/s (Azure guide, PCIe 5 x16).
constexpr double kHostCopy = 0.88;
// What a ring takes however small the message, a step (there are as many as ranks but one, in each pass): 1 MiB all-reduce on 8 H200 46 us, on 8
// A100 102 us; on 4 x 8 B200 376 us (stas00/ml-engineering).
constexpr double kStep = 3e-6, kStepNetwork = 6e-6;
// All-reduce over many ranks goes along trees: a depth of log2(nodes), up and down.
constexpr double kTreeStep = 40e-6;
constexpr double kPoint = 15e-6;

// A board of four GPUs without a switch: each has as many links to each of the three others (Tesla V100 SXM2: 2 of 6; PowerEdge C4140 and DGX-1,
// NVIDIA DGX-1 whitepaper, figure 4).
constexpr double kMeshNeighbours = 3;

double start_of(Collective collective, const Placement& placement) {
  const auto steps = static_cast<double>(placement.ranks - 1);
  if (!placement.crosses_nodes()) return kStep * steps;
  double start = kStepNetwork * steps;
  if (collective != Collective::all_reduce) return start;
  double tree = kTreeStep;
  for (std::int64_t nodes = divide_up(placement.ranks, placement.in_node); nodes > 1; nodes = divide_up(nodes, 2)) tree += kTreeStep;
  return std::min(start, tree);
}

}  // namespace

double seconds_of(Collective collective, std::int64_t bytes, const Placement& placement, const Links& links) {
  const auto size = static_cast<double>(bytes);
  if (collective == Collective::host_copy) return links.host > 0 ? kPoint + size / (kHostCopy * links.host) : 0;
  const auto ranks = static_cast<double>(placement.ranks), near = static_cast<double>(placement.in_node);
  const double reached = links.meshed ? std::min(1.0, (near - 1) / kMeshNeighbours) : 1;
  const double local = links.within_node * (links.switched ? kNvlink * reached : (placement.in_node > 4 ? kPcieMany : kPcieFew));
  if (collective == Collective::send) {
    const double rate = placement.crosses_nodes() ? kNetwork * links.network : local;
    return kPoint + size / rate;
  }
  // A ring passes (n - 1) / n of the tensor over every link; the rings of a node share its network adapters.
  const double passes = collective == Collective::all_reduce ? 2 : 1, share = (ranks - 1) / ranks;
  const double rate = placement.crosses_nodes() ? std::min(placement.in_node > 1 ? local : 1e30, kNetwork * links.network * near) : local;
  return passes * (start_of(collective, placement) + share * size / rate);
}

}  // namespace llmem
