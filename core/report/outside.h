#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"

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

// For one process on a GPU of this compute capability (90 is 9.0), one of `ranks`.
Outside outside_of(int compute_capability, std::int64_t ranks);

}  // namespace llmem
