#include "allocator/replay.h"

#include <algorithm>
#include <functional>

#include "allocator/stream_clocks.h"

namespace llmem {
namespace {

class Player {
 public:
  Player(const Trace& trace, const AllocatorSettings& settings, Return returns = Return::at_once)
      : trace_(trace), allocator_(settings, trace.allocations.size()), late_(returns == Return::as_late_as_can_be) {
    result_.points.reserve(trace.points.size());
    result_.block_sizes.resize(trace.allocations.size());
  }

  Replay play() {
    play_while(&Player::step);
    return finish();
  }

  // Whether the end was reached without the device having too little for an allocation. If not, the player stands before that one.
  bool play_undisturbed() { return play_while(&Player::step_undisturbed); }

  void lift_limit() { allocator_.lift_limit(); }

  using Watch = std::function<void(std::size_t point, const CachingAllocator&)>;
  void watch(Watch watch) { watch_ = std::move(watch); }

  Replay finish() {
    result_.retries = allocator_.retries();
    return std::move(result_);
  }

 private:
  // Event by event, to the end or to the first of which `one` says no.
  bool play_while(bool (Player::*one)()) {
    // Between two stops there is nothing to look at but the events themselves.
    while (event_ < trace_.events.size()) {
      stop_at(event_);
      for (const std::size_t until = next_stop(event_); event_ < until; ++event_)
        if (!(this->*one)()) return false;
    }
    stop_at(event_);
    return true;
  }

  // The cache is emptied, peaks start anew, counters are read before event `event`.
  void stop_at(std::size_t event) {
    if (late_) follow_waits(event);
    for (;;) {
      const bool reset_is_due = reset_ < trace_.peak_resets.size() && trace_.peak_resets[reset_] <= event;
      const bool point_is_due = point_ < trace_.points.size() && trace_.points[point_].event <= event;
      const bool flush_is_due = flush_ < trace_.cache_flushes.size() && trace_.cache_flushes[flush_] <= event;
      if (point_is_due && !(reset_is_due && reset_comes_first()) && !(flush_is_due && flush_comes_first())) {
        result_.points.push_back(allocator_.counters());
        if (watch_) watch_(point_, allocator_);
        ++point_;
      } else if (flush_is_due) {
        if (!retired_.empty()) synchronize_and_free_events();
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

  [[gnu::noinline]] void follow_waits(std::size_t event) {
    for (; wait_ < trace_.waits.size() && trace_.waits[wait_].event <= event; ++wait_) host_waited_ |= clocks_.follow(trace_.waits[wait_]);
  }

  // A point and a reset after the same event: the point before it closes the step before ("loaded", then the reset of step 0).
  bool reset_comes_first() const { return trace_.peak_resets[reset_] < trace_.points[point_].event; }

  bool flush_comes_first() const { return trace_.cache_flushes[flush_] < trace_.points[point_].event; }

  std::size_t next_stop(std::size_t event) const {
    std::size_t stop = trace_.events.size();
    if (point_ < trace_.points.size()) stop = std::min(stop, trace_.points[point_].event);
    if (reset_ < trace_.peak_resets.size()) stop = std::min(stop, trace_.peak_resets[reset_]);
    if (flush_ < trace_.cache_flushes.size()) stop = std::min(stop, trace_.cache_flushes[flush_]);
    if (late_ && wait_ < trace_.waits.size()) stop = std::min(stop, trace_.waits[wait_].event);
    return std::max(stop, event);
  }

  bool step() {
    const std::size_t key = allocation_of(trace_.events[event_]);
    if (step_undisturbed()) return true;
    const Allocation& allocation = trace_.allocations[key];
    const Bytes before = allocator_.counters().allocated;
    if (!retired_.empty()) synchronize_and_free_events();
    if (!allocator_.allocate_giving_back(key, allocation.bytes, allocation.stream)) return fail(key);
    note_allocated(key, before);
    return true;
  }

  bool step_undisturbed() {
    const std::int32_t what = trace_.events[event_];
    const std::size_t key = allocation_of(what);
    if (is_free(what)) {
      free(key);
      return true;
    }
    if (host_waited_) process_events();
    const Allocation& allocation = trace_.allocations[key];
    const Bytes before = allocator_.counters().allocated;
    if (!allocator_.try_allocate(key, allocation.bytes, allocation.stream)) return false;
    note_allocated(key, before);
    return true;
  }

  void free(std::size_t key) {
    const std::uint8_t used_by = trace_.allocations[key].used_by;
    if (!late_ || used_by == 0) return allocator_.release(key);
    retire(key, used_by);
  }

  [[gnu::noinline]] void retire(std::size_t key, std::uint8_t used_by) {
    allocator_.retire(key);
    Retired retired{key, {}};
    for (std::uint8_t s = 0; s < stream_count; ++s)
      if (used_by >> s & 1) retired.events[s] = clocks_.record(s);
    retired_.push_back(retired);
  }

  // Frees what no stream can be using any more.
  [[gnu::noinline]] void process_events() {
    host_waited_ = false;
    const auto is_over = [this](const Retired& retired) {
      for (std::uint8_t s = 0; s < stream_count; ++s)
        if (!clocks_.is_over(s, retired.events[s])) return false;
      return true;
    };
    const auto over = std::stable_partition(retired_.begin(), retired_.end(), [&](const Retired& retired) { return !is_over(retired); });
    for (auto retired = over; retired != retired_.end(); ++retired) allocator_.give_back(retired->key);
    retired_.erase(over, retired_.end());
  }

  // Before the cache goes back to the device the host waits for all events.
  [[gnu::noinline]] void synchronize_and_free_events() {
    for (const Retired& retired : retired_)
      for (std::uint8_t s = 0; s < stream_count; ++s)
        if (!clocks_.is_over(s, retired.events[s])) clocks_.host_waits(s);
    process_events();
  }

  void note_allocated(std::size_t key, Bytes before) {
    const Counters& now = allocator_.counters();
    result_.block_sizes[key] = now.allocated - before;
    note_reserved(event_);
    if (now.allocated > result_.peak_allocated) {
      result_.peak_allocated = now.allocated;
      result_.reserved_at_peak = now.reserved;
      result_.peak_event = event_;
    }
    if (now.peak_reserved > result_.peak_reserved) {
      result_.peak_reserved = now.peak_reserved;
      result_.peak_reserved_event = event_;
    }
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

  const Trace& trace_;
  CachingAllocator allocator_;
  Replay result_;
  Watch watch_;
  std::size_t event_ = 0, point_ = 0, reset_ = 0, flush_ = 0, wait_ = 0;

  // A freed block that other streams may still be using, and the event on each; 0: it does not.
  struct Retired {
    std::size_t key;
    std::array<StreamClocks::Time, stream_count> events;
  };
  bool late_, host_waited_ = false;
  StreamClocks clocks_;
  std::vector<Retired> retired_;
};

}  // namespace

Replay replay(const Trace& trace, const AllocatorSettings& settings, Return returns) { return Player(trace, settings, returns).play(); }

bool returns_matter(const Trace& trace) {
  return std::any_of(trace.allocations.begin(), trace.allocations.end(), [](const Allocation& a) { return a.used_by != 0; });
}

std::vector<Standing> standings_at(const Trace& trace, const AllocatorSettings& settings, const std::vector<std::size_t>& points) {
  std::vector<Standing> standings(points.size());
  Player player(trace, settings);
  player.watch([&](std::size_t point, const CachingAllocator& allocator) {
    for (std::size_t i = 0; i < points.size(); ++i)
      if (points[i] == point) standings[i] = allocator.standing();
  });
  player.play();
  return standings;
}

Replays replay_with_and_without_limit(const Trace& trace, const AllocatorSettings& settings, Return returns) {
  if (settings.expandable_segments) {  // how much address space a segment takes depends on the limit from the start
    AllocatorSettings without = settings;
    without.memory = std::nullopt;
    Replays both{replay(trace, without, returns), std::nullopt};
    if (settings.memory && both.unlimited.peak_reserved > *settings.memory) both.limited = replay(trace, settings, returns);
    return both;
  }
  Player limited(trace, settings, returns);
  if (limited.play_undisturbed()) return {limited.finish(), std::nullopt};
  Player unlimited = limited;
  unlimited.lift_limit();
  return {unlimited.play(), limited.play()};
}

}  // namespace llmem
