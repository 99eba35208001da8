#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace llmem {

// A strategy that was estimated, as ranking sees it.
struct Candidate {
  bool fits = false;
  Bytes needed;
  std::int64_t gpus = 1;
  std::int64_t microseconds = 0;  // of one optimizer step over the same global batch; 0: not known
};

struct Ranking {
  std::vector<std::size_t> order;       // of those that fit: fastest first; then fewer GPUs, then less memory
  std::vector<std::size_t> front;       // of them: no other is as good in time, memory and GPUs and better in one
  std::optional<std::size_t> fewest;    // GPUs; among equals the fastest
  std::optional<std::size_t> cheapest;  // GPUs x time
};

Ranking ranked(const std::vector<Candidate>& candidates);

}  // namespace llmem
