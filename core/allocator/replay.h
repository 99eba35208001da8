#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/caching_allocator.h"
#include "trace/trace.h"

namespace llmem {

// Where a run ended for want of memory.
struct OutOfMemory {
  std::optional<std::size_t> last_point;  // index into Trace::points of the last one reached
  std::size_t allocation = 0;             // index into Trace::allocations of the request that failed
  Bytes tried, allocated, reserved;       // tried: what was asked of the device for it, as PyTorch's message says
};

// What is reserved from an event on.
struct Reserved {
  std::size_t event = 0;
  Bytes bytes;
};

// How the allocator stands (CachingAllocator::standing) at these points (indices into Trace::points), in their order; none where memory is out
// before.
using Standing = std::optional<std::vector<std::uint64_t>>;
std::vector<Standing> standings_at(const Trace& trace, const AllocatorSettings& settings, const std::vector<std::size_t>& points);

struct Replay {
  std::vector<Counters> points;         // as many of Trace::points as were reached; peaks since the last peak reset
  Bytes peak_allocated, peak_reserved;  // over the whole run
  std::size_t peak_event = 0;           // index of the event that first reached peak_allocated
  std::size_t peak_reserved_event = 0;
  Bytes reserved_at_peak;          // reserved when peak_allocated was first reached
  std::vector<Bytes> block_sizes;  // of each allocation: what it counts for in `allocated`
  std::vector<Reserved> reserved;  // each change of it, in order
  int retries = 0;                 // times the cache was given back to the device and asked again
  std::optional<OutOfMemory> out_of_memory;
};

// When memory that other streams have used can be given out again, after it was freed: at once, or only where the host has waited for something
// that comes after their last use of it (process_events, where no event is over before it must be). What happens on a GPU lies between.
enum class Return : std::uint8_t { at_once, as_late_as_can_be };

// Plays the trace through the allocator, until its end or until memory is out.
Replay replay(const Trace& trace, const AllocatorSettings& settings, Return returns = Return::at_once);

// The same on a device without a limit, and on that of the settings. `limited`: none if its limit is never felt.
struct Replays {
  Replay unlimited;
  std::optional<Replay> limited;
  const Replay& on_device() const { return limited ? *limited : unlimited; }
};
Replays replay_with_and_without_limit(const Trace& trace, const AllocatorSettings& settings, Return returns = Return::at_once);

// Whether it makes a difference.
bool returns_matter(const Trace& trace);

}  // namespace llmem
