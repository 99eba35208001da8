#include "trace/turns.h"

#include <algorithm>
#include <utility>

namespace llmem {
namespace {

constexpr std::int64_t kTemplate = 3;  // the turn that is repeated; it must be as the one before it and the one after it
constexpr std::size_t none = ~std::size_t{0};

// A stretch of the history: one microbatch's forward or backward, or what lies outside of them.
struct Stretch {
  Turn::To to = Turn::To::rest;
  std::int64_t step = -1;       // of the schedules, the how manieth
  std::int64_t microbatch = 0;  // as played
  Turn begin, end;              // what was before, and before what follows
  std::size_t allocations() const { return end.allocation - begin.allocation; }
  std::size_t events() const { return end.event - begin.event; }
  std::size_t works() const { return end.work - begin.work; }
};

bool same(const Allocation& a, const Allocation& b) {
  return a.bytes == b.bytes && a.category == b.category && a.stream == b.stream && a.op == b.op && a.module == b.module;
}

bool same(const Work& a, const Work& b) {
  return a.doing == b.doing && a.dtype == b.dtype && a.collective == b.collective && a.group == b.group && a.stream == b.stream &&
         a.again == b.again && a.phase == b.phase && a.kernels == b.kernels && a.ranks == b.ranks && a.flops == b.flops &&
         a.bytes == b.bytes && a.outer == b.outer;
}

using To = Turn::To;

class Repetition {
 public:
  Repetition(Trace few, const std::vector<Turn>& turns, std::int64_t more) : few_(std::move(few)), turns_(turns), more_(more) {}

  std::optional<Trace> made() {
    if (!find_stretches() || !all_alike()) return std::nullopt;
    reserve();
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      const Stretch& stretch = stretches_[i];
      emit(i, is_late(stretch) ? more_ : 0);
      if (stretch.to != Turn::To::forward || stretch.microbatch != warmup_ + kTemplate) continue;
      for (std::int64_t n = 1; n <= more_; ++n) {
        emit(i - 1, n);
        emit(i, n);
      }
    }
    if (failed_) return std::nullopt;
    finish();
    return std::move(out_);
  }

 private:
  // The schedule of each step: forwards that fill the pipeline, backward and forward by turns, backwards that empty it.
  bool find_stretches() {
    Turn start;
    std::int64_t step = 0, forwards = 0, backwards = 0, before_backward = 0;
    const auto close = [&](const Turn& at) {
      if (!stretches_.empty()) stretches_.back().end = at;
    };
    stretches_.push_back({Turn::To::rest, -1, 0, start, {}});
    for (const Turn& turn : turns_) {
      close(turn);
      Stretch next{turn.to, step, 0, turn, {}};
      if (turn.to == Turn::To::forward) {
        next.microbatch = forwards++;
      } else if (turn.to == Turn::To::backward) {
        if (backwards == 0) before_backward = forwards;
        next.microbatch = backwards++;
      } else {
        if (step > 0 && (before_backward != warmup_ || forwards != played_)) return false;
        if (forwards != backwards) return false;
        warmup_ = before_backward;
        played_ = forwards;
        forwards = backwards = 0;
        ++step;
      }
      stretches_.push_back(next);
    }
    close({Turn::To::rest, few_.events.size(), few_.allocations.size(), few_.work.size()});
    if (step == 0 || forwards > 0 || played_ < warmup_ + turns_to_repeat) return false;
    stretch_of_.resize(few_.allocations.size());
    for (std::size_t i = 0; i < stretches_.size(); ++i)
      for (std::size_t a = stretches_[i].begin.allocation; a < stretches_[i].end.allocation; ++a) stretch_of_[a] = i;
    for (const To to : {To::forward, To::backward}) {
      first_[static_cast<std::size_t>(to)].assign(static_cast<std::size_t>(step * (played_ + more_)), none);
    }
    return true;
  }

  // Forwards among themselves in what they allocate, for others find it by its number; and the turns before and after that which is repeated in
  // everything, but for the microbatches that they are about.
  bool all_alike() const {
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      const Stretch& one = stretches_[i];
      if (one.to == To::rest || one.microbatch == 0) continue;
      const bool last_backward = one.to == To::backward && one.microbatch + 1 == played_;
      const std::size_t other = template_of(one);
      if (!last_backward && !allocate_alike(one, stretches_[other])) return false;
      const std::int64_t turn = one.microbatch - (one.to == To::forward ? warmup_ : 0);
      const bool compared = turn == kTemplate - 1 || (turn == kTemplate + 1 && turn + warmup_ < played_);
      if (compared && !do_alike(one, stretches_[other])) return false;
    }
    return true;
  }

  bool allocate_alike(const Stretch& a, const Stretch& b) const {
    if (a.allocations() != b.allocations()) return false;
    for (std::size_t i = 0; i < a.allocations(); ++i)
      if (!same(few_.allocations[a.begin.allocation + i], few_.allocations[b.begin.allocation + i])) return false;
    return true;
  }

  bool do_alike(const Stretch& a, const Stretch& b) const {
    if (a.events() != b.events() || a.works() != b.works()) return false;
    for (std::size_t i = 0; i < a.events(); ++i)
      if (!same_event(a, few_.events[a.begin.event + i], b, few_.events[b.begin.event + i])) return false;
    for (std::size_t i = 0; i < a.works(); ++i)
      if (!same(few_.work[a.begin.work + i], few_.work[b.begin.work + i])) return false;
    return true;
  }

  bool same_event(const Stretch& a, std::int32_t in_a, const Stretch& b, std::int32_t in_b) const {
    if (is_free(in_a) != is_free(in_b)) return false;
    const std::size_t freed_a = allocation_of(in_a), freed_b = allocation_of(in_b);
    const Stretch &from_a = stretches_[stretch_of_[freed_a]], &from_b = stretches_[stretch_of_[freed_b]];
    return from_a.to == from_b.to && from_a.to != To::rest && from_a.step == a.step && from_b.step == b.step &&
           a.microbatch - from_a.microbatch == b.microbatch - from_b.microbatch &&
           freed_a - from_a.begin.allocation == freed_b - from_b.begin.allocation;
  }

  std::int64_t template_microbatch(To to) const { return kTemplate + (to == To::forward ? warmup_ : 0); }
  bool is_late(const Stretch& stretch) const { return stretch.to != To::rest && stretch.microbatch > template_microbatch(stretch.to); }
  std::size_t template_of(const Stretch& stretch) const {
    const auto found = std::find_if(stretches_.begin(), stretches_.end(), [&](const Stretch& other) {
      return other.to == stretch.to && other.step == stretch.step && other.microbatch == template_microbatch(stretch.to);
    });
    return static_cast<std::size_t>(found - stretches_.begin());
  }

  void reserve() {
    std::size_t events = few_.events.size(), allocations = few_.allocations.size(), works = few_.work.size();
    for (const Stretch& stretch : stretches_) {
      if (stretch.to == To::rest || stretch.microbatch != template_microbatch(stretch.to)) continue;
      const auto times = static_cast<std::size_t>(more_);
      events += times * (stretch.events() + 1);
      allocations += times * stretch.allocations();
      works += times * stretch.works();
    }
    out_.events.reserve(events);
    out_.allocations.reserve(allocations);
    out_.work.reserve(works);
    freed_.reserve(allocations);
    moved_.resize(few_.events.size() + 1);
    first_of_rest_.resize(stretches_.size(), none);
  }

  // Where the first allocation of a microbatch's forward or backward is.
  std::size_t& first(To to, std::int64_t step, std::int64_t microbatch) {
    return first_[static_cast<std::size_t>(to)][static_cast<std::size_t>(step * (played_ + more_) + microbatch)];
  }

  // A stretch, as that of the microbatch so many later.
  void emit(std::size_t index, std::int64_t later) {
    const Stretch& stretch = stretches_[index];
    const std::size_t begin = out_.allocations.size();
    if (stretch.to == To::rest)
      first_of_rest_[index] = begin;
    else
      first(stretch.to, stretch.step, stretch.microbatch + later) = begin;
    const bool as_played = later == 0 || is_late(stretch);
    for (std::size_t e = stretch.begin.event; e < stretch.end.event && !failed_; ++e) {
      if (as_played) moved_[e] = out_.events.size();
      const std::int32_t event = few_.events[e];
      if (is_free(event))
        emit_free(stretch, allocation_of(event), later);
      else
        emit_allocation(allocation_of(event));
    }
    for (std::size_t w = stretch.begin.work; w < stretch.end.work; ++w) out_.work.push_back(few_.work[w]);
  }

  void emit_allocation(std::size_t allocation) {
    out_.events.push_back(static_cast<std::int32_t>(out_.allocations.size()));
    out_.allocations.push_back(few_.allocations[allocation]);
    freed_.push_back(false);
    if (few_.keep_shapes) out_.shape_of.push_back(few_.shape_of[allocation]);
  }

  void emit_free(const Stretch& stretch, std::size_t allocation, std::int64_t later) {
    const std::size_t made_in = stretch_of_[allocation];
    const Stretch& maker = stretches_[made_in];
    const std::size_t number = allocation - maker.begin.allocation;
    if (maker.to == To::rest) return free_one(allocation, first_of_rest_[made_in], number);
    if (stretch.to != To::rest && stretch.step == maker.step)
      return free_one(allocation, first(maker.to, maker.step, maker.microbatch + later), number);
    // From outside: of each microbatch, the last first, as a list of Python lets go.
    if (maker.microbatch == template_microbatch(maker.to))
      for (std::int64_t n = more_; n >= 1; --n) free_one(allocation, first(maker.to, maker.step, maker.microbatch + n), number);
    free_one(allocation, first(maker.to, maker.step, maker.microbatch + (is_late(maker) ? more_ : 0)), number);
  }

  void free_one(std::size_t played, std::size_t first, std::size_t number) {
    const std::size_t made = first + number;
    if (first == none || made >= freed_.size() || freed_[made] || !same(out_.allocations[made], few_.allocations[played])) {
      failed_ = true;
      return;
    }
    freed_[made] = true;
    out_.events.push_back(~static_cast<std::int32_t>(made));
  }

  void finish() {
    moved_.back() = out_.events.size();
    const auto move_all = [&](std::vector<std::size_t>& positions) {
      for (std::size_t& position : positions) position = moved_[position];
    };
    for (Point& point : few_.points) point.event = moved_[point.event];
    move_all(few_.peak_resets);
    move_all(few_.cache_flushes);
    out_.points = std::move(few_.points);
    out_.peak_resets = std::move(few_.peak_resets);
    out_.cache_flushes = std::move(few_.cache_flushes);
    out_.micro_batches_left_out = few_.micro_batches_left_out;
    out_.modules = std::move(few_.modules);
    out_.ops = std::move(few_.ops);
    out_.phases = std::move(few_.phases);
    out_.keep_shapes = few_.keep_shapes;
    out_.shapes = std::move(few_.shapes);
  }

  Trace few_, out_;
  const std::vector<Turn>& turns_;
  std::int64_t more_;
  std::int64_t warmup_ = 0, played_ = 0;  // forwards before the first backward, microbatches
  std::vector<Stretch> stretches_;
  std::vector<std::size_t> stretch_of_;  // by allocation
  std::vector<std::size_t> first_[2];    // by step and microbatch of all: its first allocation
  std::vector<std::size_t> first_of_rest_;
  std::vector<bool> freed_;
  std::vector<std::size_t> moved_;  // by event of the few: where it is now
  bool failed_ = false;
};

}  // namespace

std::optional<Trace> with_more_turns(Trace few, const std::vector<Turn>& turns, std::int64_t more) {
  return Repetition(std::move(few), turns, more).made();
}

}  // namespace llmem
