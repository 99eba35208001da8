#include "search/largest.h"

#include <algorithm>

namespace llmem {

std::int64_t largest_that_fits(std::int64_t most, const std::function<bool(std::int64_t)>& fits) {
  std::int64_t good = 0, bad = most + 1;
  for (std::int64_t n = 1; n < bad; n = std::min(2 * n, most)) {
    if (!fits(n))
      bad = n;
    else if (good = n; n == most)
      return most;
  }
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  for (std::int64_t n = good + 2; n <= std::min(good + 3, most); ++n)
    if (fits(n)) good = n;
  return good;
}

}  // namespace llmem
