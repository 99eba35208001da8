#include "allocator/replay.h"

#include <algorithm>

namespace llmem {
namespace {

class Player {
 public:
  Player(const Trace& trace, const AllocatorSettings& settings) : trace_(trace), allocator_(settings, trace.allocations.size()) {
    result_.points.reserve(trace.points.size());
    result_.block_sizes.resize(trace.allocations.size());
  }

  Replay play() {
    std::size_t event = 0;
    // Between two stops there is nothing to look at but the events themselves.
    while (event < trace_.events.size()) {
      stop_at(event);
      for (const std::size_t until = next_stop(event); event < until; ++event)
        if (!step(event)) return finish();
    }
    stop_at(event);
    return finish();
  }

 private:
  // The cache is emptied, peaks start anew, counters are read before event `event`.
  void stop_at(std::size_t event) {
    for (;;) {
      const bool reset_is_due = reset_ < trace_.peak_resets.size() && trace_.peak_resets[reset_] <= event;
      const bool point_is_due = point_ < trace_.points.size() && trace_.points[point_].event <= event;
      const bool flush_is_due = flush_ < trace_.cache_flushes.size() && trace_.cache_flushes[flush_] <= event;
      if (point_is_due && !(reset_is_due && reset_comes_first()) && !(flush_is_due && flush_comes_first())) {
        result_.points.push_back(allocator_.counters());
        ++point_;
      } else if (flush_is_due) {
        allocator_.empty_cache();
        note_reserved(event);
        ++flush_;
      } else if (reset_is_due) {
        allocator_.reset_peaks();
        ++reset_;
      } else {
        return;
      }
    }
  }

  // A point and a reset after the same event: the point before it closes the step before ("loaded", then the reset of step 0).
  bool reset_comes_first() const { return trace_.peak_resets[reset_] < trace_.points[point_].event; }

  bool flush_comes_first() const { return trace_.cache_flushes[flush_] < trace_.points[point_].event; }

  std::size_t next_stop(std::size_t event) const {
    std::size_t stop = trace_.events.size();
    if (point_ < trace_.points.size()) stop = std::min(stop, trace_.points[point_].event);
    if (reset_ < trace_.peak_resets.size()) stop = std::min(stop, trace_.peak_resets[reset_]);
    if (flush_ < trace_.cache_flushes.size()) stop = std::min(stop, trace_.cache_flushes[flush_]);
    return std::max(stop, event);
  }

  bool step(std::size_t event) {
    const std::int32_t what = trace_.events[event];
    const std::size_t key = allocation_of(what);
    if (is_free(what)) {
      allocator_.release(key);
      return true;
    }
    const Allocation& allocation = trace_.allocations[key];
    const Bytes before = allocator_.counters().allocated;
    if (!allocator_.allocate(key, allocation.bytes, allocation.stream)) return fail(key);
    const Counters& now = allocator_.counters();
    result_.block_sizes[key] = now.allocated - before;
    note_reserved(event);
    if (now.allocated > result_.peak_allocated) {
      result_.peak_allocated = now.allocated;
      result_.reserved_at_peak = now.reserved;
      result_.peak_event = event;
    }
    if (now.peak_reserved > result_.peak_reserved) {
      result_.peak_reserved = now.peak_reserved;
      result_.peak_reserved_event = event;
    }
    return true;
  }

  void note_reserved(std::size_t event) {
    const Bytes now = allocator_.counters().reserved;
    if (result_.reserved.empty() || result_.reserved.back().bytes != now) result_.reserved.push_back({event, now});
  }

  bool fail(std::size_t key) {
    OutOfMemory out;
    if (!result_.points.empty()) out.last_point = result_.points.size() - 1;
    out.allocation = key;
    out.tried = allocator_.segment_size_for(trace_.allocations[key].bytes);
    out.allocated = allocator_.counters().allocated;
    out.reserved = allocator_.counters().reserved;
    result_.out_of_memory = out;
    return false;
  }

  Replay finish() {
    result_.retries = allocator_.retries();
    return std::move(result_);
  }

  const Trace& trace_;
  CachingAllocator allocator_;
  Replay result_;
  std::size_t point_ = 0, reset_ = 0;
  std::size_t flush_ = 0;
};

}  // namespace

Replay replay(const Trace& trace, const AllocatorSettings& settings) { return Player(trace, settings).play(); }

}  // namespace llmem
