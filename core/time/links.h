#pragma once

#include <cstdint>

#include "time/gpu_rates.h"
#include "trace/work.h"

namespace llmem {

// How the ranks of a group lie on the machines: `stride` ranks apart, so that only so many of them share a node.
struct Placement {
  std::int64_t ranks = 1;
  std::int64_t in_node = 1;
  bool crosses_nodes() const { return ranks > in_node; }
};

// The links of a cluster, bytes a second of one direction.
struct Links {
  double within_node = 0;  // of one GPU to the others of its node
  bool switched = true;    // NVLink; else PCIe, which the GPUs of a node share
  double network = 0;      // of one GPU to the network
  double host = 0;         // of one GPU to the host's memory
  bool meshed = false;     // NVLink without a switch: each other GPU is reached by its own links alone
};

// Seconds of one collective over `bytes` (gathered, or not yet reduced) among ranks so placed.
double seconds_of(Collective collective, std::int64_t bytes, const Placement& placement, const Links& links);

}  // namespace llmem
