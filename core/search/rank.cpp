#include "search/rank.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace llmem {
namespace {

bool dominates(const Candidate& a, const Candidate& b) {
  const bool as_good = a.microseconds <= b.microseconds && a.needed <= b.needed && a.gpus <= b.gpus;
  return as_good && (a.microseconds < b.microseconds || a.needed < b.needed || a.gpus < b.gpus);
}

}  // namespace

Ranking ranked(const std::vector<Candidate>& candidates) {
  Ranking ranking;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].fits) ranking.order.push_back(i);
  const auto key = [&](std::size_t i) {
    const Candidate& c = candidates[i];
    return std::tuple(c.microseconds, c.gpus, c.needed.count, i);
  };
  std::sort(ranking.order.begin(), ranking.order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  for (const std::size_t i : ranking.order) {
    // Whatever dominates comes before, or is dominated by what does.
    const bool dominated = std::any_of(ranking.front.begin(), ranking.front.end(),
                                       [&](std::size_t other) { return dominates(candidates[other], candidates[i]); });
    if (!dominated) ranking.front.push_back(i);
    if (!ranking.fewest || candidates[i].gpus < candidates[*ranking.fewest].gpus) ranking.fewest = i;
    const auto cost = [&](std::size_t at) { return candidates[at].gpus * candidates[at].microseconds; };
    if (candidates[i].microseconds > 0 && (!ranking.cheapest || cost(i) < cost(*ranking.cheapest))) ranking.cheapest = i;
  }
  return ranking;
}

}  // namespace llmem
