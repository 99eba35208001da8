#pragma once

#include <cstdint>
#include <functional>

namespace llmem {

// The largest n in [1, most] for which `fits` holds, where larger ones need more; 0: not even 1. Doubles, then halves what is between. The
// allocator rounds, so a little more may fit again after something did not: the next two are asked as well.
std::int64_t largest_that_fits(std::int64_t most, const std::function<bool(std::int64_t)>& fits);

}  // namespace llmem
