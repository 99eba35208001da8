#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "spec/spec.h"

// Memory of a GPU that PyTorch's caching allocator does not count. Estimates from measurements, never exact.
namespace llmem {

struct OutsideItem {
  std::string_view name;
  Bytes low, high, used;  // used: what the totals reckon with
  std::string_view source;
};

struct Outside {
  Bytes low, high, used;
  std::vector<OutsideItem> what;
};

// How many ranks each process group has that this run's collectives go over: a communicator each.
std::vector<std::int64_t> communicators_of(const Spec& spec);

// For one process on a GPU of this compute capability (90 is 9.0), with communicators of so many ranks.
Outside outside_of(int compute_capability, const std::vector<std::int64_t>& communicators);

}  // namespace llmem
