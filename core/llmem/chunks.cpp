#include "llmem/chunks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/bytes.h"

namespace llmem {
namespace {

constexpr std::int64_t least = std::int64_t{32} << 20, range = least, interval = 1024;

// search_utils.py, _filter_exlarge_params: what is larger than mean + 3 standard deviations gets a chunk of its own and does not vote.
std::vector<std::int64_t> without_outliers(std::span<const std::int64_t> tensors) {
  const double n = static_cast<double>(tensors.size());
  const double mean = static_cast<double>(std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0})) / n;
  double squares = 0.0;
  for (const std::int64_t each : tensors) squares += (static_cast<double>(each) - mean) * (static_cast<double>(each) - mean);
  const double limit = mean + 3.0 * std::sqrt(squares / n);
  std::vector<std::int64_t> kept;
  for (const std::int64_t each : tensors)
    if (static_cast<double>(each) <= limit) kept.push_back(each);
  return kept;
}

// search_utils.py, _get_unused_byte: a tensor that does not fit closes the chunk.
std::int64_t waste(std::span<const std::int64_t> tensors, std::int64_t size) {
  std::int64_t wasted = 0, left = 0;
  for (const std::int64_t each : tensors) {
    if (each > left) {
      wasted += left;
      left = size;
    }
    left -= each;
  }
  return wasted + left;
}

std::int64_t padded(std::int64_t count, std::int64_t ranks) { return divide_up(count, ranks) * ranks; }

}  // namespace

std::int64_t chunk_size(std::span<const std::int64_t> tensors) {
  const std::int64_t total = std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0});
  if (total < least) return total;
  const std::vector<std::int64_t> voters = without_outliers(tensors);
  const std::int64_t largest = *std::max_element(voters.begin(), voters.end());
  const std::int64_t start = divide_up(std::max(least, largest), interval) * interval;
  std::int64_t best = start, least_waste = waste(voters, start);
  for (std::int64_t size = start + interval; size <= start + range; size += interval) {
    const std::int64_t wasted = waste(voters, size);
    if (wasted >= least_waste) continue;
    best = size;
    least_waste = wasted;
  }
  return best;
}

std::vector<std::int64_t> pack(std::span<const std::int64_t> tensors, std::int64_t size, std::int64_t ranks) {
  std::vector<std::int64_t> chunks;
  std::int64_t left = 0;
  for (const std::int64_t each : tensors) {
    if (chunks.empty() || each > left) {
      left = padded(std::max(size, each), ranks);
      chunks.push_back(left);
    }
    left -= each;
  }
  return chunks;
}

}  // namespace llmem
