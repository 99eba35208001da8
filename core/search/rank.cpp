#include "search/rank.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace llmem {
namespace {

constexpr std::size_t kShown = 12;  // of the order, to a reader

bool dominates(const Candidate& a, const Candidate& b) {
  const bool as_good = a.microseconds <= b.microseconds && a.needed <= b.needed && a.gpus <= b.gpus && a.cost() <= b.cost();
  return as_good && (a.microseconds < b.microseconds || a.needed < b.needed || a.gpus < b.gpus || a.cost() < b.cost());
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
    const Candidate& one = candidates[i];
    if (one.microseconds > 0 && (!ranking.cheapest || one.cost() < candidates[*ranking.cheapest].cost())) ranking.cheapest = i;
  }
  std::vector<std::size_t> shown(ranking.order.begin(),
                                 ranking.order.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, ranking.order.size())));
  shown.insert(shown.end(), ranking.front.begin(), ranking.front.end());
  for (const std::optional<std::size_t>& one : {ranking.fewest, ranking.cheapest})
    if (one) shown.push_back(*one);
  std::sort(shown.begin(), shown.end());
  shown.erase(std::unique(shown.begin(), shown.end()), shown.end());
  for (const std::size_t i : shown)
    if (!candidates[i].exact) ranking.unsettled.push_back(i);
  return ranking;
}

}  // namespace llmem
