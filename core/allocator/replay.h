#pragma once

#include <optional>
#include <vector>

#include "allocator/caching_allocator.h"
#include "trace/trace.h"

namespace llmem {

// The four numbers torch.cuda reports at a point of the step; peaks since the step began.
struct Counters {
  Bytes allocated, peak_allocated, reserved, peak_reserved;
};

// Where a run ended for want of memory.
struct OutOfMemory {
  std::optional<std::size_t> last_point;   // index into Trace::points of the last one reached
  std::size_t allocation = 0;              // index into Trace::allocations of the request that failed
  Bytes tried, allocated, reserved;        // tried: the request, rounded as the allocator rounds it
};

struct Replay {
  std::vector<Counters> points;            // as many of Trace::points as were reached
  Bytes peak_allocated, peak_reserved;     // over the whole run
  std::size_t peak_event = 0;              // index of the event that first reached peak_allocated
  std::vector<Bytes> block_sizes;          // of each allocation: what it counts for in `allocated`
  int retries = 0;                         // times the cache was given back to the device and asked again
  std::optional<OutOfMemory> out_of_memory;
};

Replay replay(const Trace& trace, const AllocatorSettings& settings);

}  // namespace llmem
