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
  std::int64_t price = 0;         // of a GPU and hour; 0: not given, all cost the same
  bool exact = true;              // else it may turn out not to fit, to need more, and so to be none of the below

  double cost() const { return static_cast<double>(gpus) * static_cast<double>(microseconds) * static_cast<double>(price > 0 ? price : 1); }
};

struct Ranking {
  std::vector<std::size_t> order;       // of those that fit: fastest first; then fewer GPUs, then less memory
  std::vector<std::size_t> front;       // of them: no other is as good in time, memory, GPUs and cost and better in one
  std::optional<std::size_t> fewest;    // GPUs; among equals the fastest
  std::optional<std::size_t> cheapest;  // GPUs x time x price
  // What is to be estimated in full before any of this is believed: what is not exact of the above and of the first in order.
  std::vector<std::size_t> unsettled;
};

Ranking ranked(const std::vector<Candidate>& candidates);

}  // namespace llmem
