#include "search/probe.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "step/play.h"

namespace llmem {
namespace {

using To = Turn::To;

// Those whose second step does what the first does.
bool repeats_first_step(const Spec& spec) {
  const DataKind kind = spec.data.kind;
  const Training& training = spec.training;
  const bool same = kind == DataKind::none || kind == DataKind::fsdp2;
  return same && training.loop == Loop::plain && training.stack != Stack::megatron && !training.optimizer.in_backward;
}

// Where a phase begins: at the point before its own.
std::size_t begin_of_update(const Trace& trace) {
  std::size_t before = 0;
  for (const Point& point : trace.points) {
    if (point.at == "step0.optimizer") break;
    before = point.event;
  }
  return before;
}

// The parts' peaks. The first step holds what the second does, less the optimizer's states until its update.
void measure(ShortPlay& play) {
  constexpr std::int64_t block = 512;  // the allocator's smallest
  const auto rounded = [&](std::size_t allocation) { return (play.bytes[allocation] + block - 1) / block * block; };
  std::int64_t missing = 0, held = 0;
  for (const std::uint32_t state : play.states) missing += rounded(state);
  std::size_t i = 0;
  const auto until = [&](std::size_t end, std::int64_t& peak) {
    for (; i < end; ++i) {
      const std::int32_t event = play.events[i];
      held += is_free(event) ? -rounded(allocation_of(event)) : rounded(allocation_of(event));
      peak = std::max(peak, held);
    }
  };
  until(play.loaded, play.before);
  std::int64_t unseen = 0;
  until(play.parts.front().begin.event, unseen);
  held += missing;
  for (std::size_t e = i; play.parts.size() > 1 && e < play.parts[1].begin.event; ++e)
    if (!is_free(play.events[e])) play.prepared += rounded(allocation_of(play.events[e]));
  for (std::size_t p = 0; p < play.parts.size(); ++p) {
    ShortPlay::Part& part = play.parts[p];
    const std::size_t end = p + 1 < play.parts.size() ? play.parts[p + 1].begin.event : play.events.size();
    if (play.forward > i && play.forward <= end) {
      until(play.forward, part.peak);
      play.forward_peak = part.peak;
    }
    if (missing > 0 && play.update >= i && play.update < end) {
      until(play.update, part.peak);
      held -= std::exchange(missing, 0);
    }
    until(end, part.peak);
    part.held = held;
  }
}

bool same_but_size(const Work& a, const Work& b) {
  return a.doing == b.doing && a.dtype == b.dtype && a.collective == b.collective && a.group == b.group && a.stream == b.stream &&
         a.again == b.again && a.phase == b.phase && a.kernels == b.kernels && a.ranks == b.ranks;
}

bool same_begin(const ShortPlay::Part& a, const ShortPlay::Part& b) {
  return a.begin.to == b.begin.to && a.begin.event == b.begin.event && a.begin.work == b.begin.work;
}

bool do_alike(const ShortPlay& a, const ShortPlay& b) {
  return a.events == b.events && a.states == b.states && a.forward == b.forward && a.update == b.update && a.work.phases == b.work.phases &&
         a.work.work.size() == b.work.work.size() && a.parts.size() == b.parts.size() &&
         std::equal(a.parts.begin(), a.parts.end(), b.parts.begin(), same_begin) &&
         std::equal(a.work.work.begin(), a.work.work.end(), b.work.work.begin(), same_but_size);
}

// A line over rows.
class RowsLine {
 public:
  RowsLine(std::int64_t few, std::int64_t more, std::int64_t there) : run_(more - few), there_(there - few) {}
  std::int64_t at(std::int64_t few, std::int64_t more) const { return few + (more - few) * there_ / run_; }
  // Of bytes that grow by steps, as the scratch of a sort does, no more than there are: those of few rows.
  std::int64_t least_at(std::int64_t few, std::int64_t more) const { return (more - few) * there_ % run_ == 0 ? at(few, more) : few; }

 private:
  std::int64_t run_, there_;
};

// Where the parts of a stage of a pipeline are: forwards that fill it, backward and forward by turns, backwards that empty it.
struct Parts {
  explicit Parts(const ShortPlay& play) : filling(0), rest(play.parts.size() - 1) {
    while (play.parts[static_cast<std::size_t>(filling) + 1].begin.to == To::forward) ++filling;
  }
  std::int64_t microbatches() const { return static_cast<std::int64_t>(rest - 1) / 2; }
  std::size_t last_of_filling() const { return static_cast<std::size_t>(filling); }
  // Backwards. Those of a turn come after a forward, and are followed by one.
  std::size_t first_turn() const { return last_of_filling() + 1; }
  std::size_t last_turn() const { return first_of_emptying() - 2; }
  std::size_t first_of_emptying() const { return rest - last_of_filling(); }
  std::size_t second_of_emptying() const { return first_of_emptying() + 1; }
  // Not the first of the step, and after a forward; the last only where all are alike.
  std::size_t middle_backward() const { return filling > 1 || last_turn() == first_turn() ? first_of_emptying() : last_turn(); }

  std::int64_t filling;
  std::size_t rest;
};

}  // namespace

// DDP reduces at the last; FSDP2 after it (plan/pipeline.cpp, run_alone).
bool backwards_are_alike(const Spec& spec) { return spec.data.kind == DataKind::none || spec.data.kind == DataKind::fsdp2; }

std::shared_ptr<const ShortPlay> short_play(const Spec& spec, const Architecture& architecture) {
  const bool first_step = repeats_first_step(spec);
  std::vector<Turn> turns;
  Trace trace = first_step ? play_first_step(spec, architecture, turns) : play_turns(spec, architecture, turns);
  const auto made = std::make_shared<ShortPlay>();
  const std::size_t step = trace.peak_resets.empty() ? 0 : trace.peak_resets.back();
  const auto end = std::find_if(trace.points.begin(), trace.points.end(), [&](const Point& point) { return point.event > step; });
  made->forward = end == trace.points.end() ? step : end->event;
  made->loaded = turns.empty() ? step : trace.peak_resets.front();
  made->first_step = first_step;
  made->parts.push_back({{To::rest, step, 0, 0}});
  for (const Turn& turn : turns)
    if (turn.event >= step) made->parts.push_back({turn});
  made->bytes.reserve(trace.allocations.size());
  const auto received = static_cast<std::size_t>(std::find(trace.ops.begin(), trace.ops.end(), "receive_buffer") - trace.ops.begin());
  for (const Allocation& allocation : trace.allocations) {
    made->bytes.push_back(allocation.bytes.count);
    if (allocation.op == received) made->receive_bytes += allocation.bytes.count;
  }
  if (first_step) {
    made->update = begin_of_update(trace);
    for (std::size_t i = made->update; i < trace.events.size(); ++i) {
      const std::int32_t event = trace.events[i];
      if (!is_free(event) && trace.allocations[allocation_of(event)].category == Category::optimizer_states)
        made->states.push_back(static_cast<std::uint32_t>(event));
    }
  }
  made->events = std::move(trace.events);
  made->work.work = std::move(trace.work);
  made->work.phases = std::move(trace.phases);
  made->work.micro_batches_left_out = trace.micro_batches_left_out;
  measure(*made);
  return made;
}

Probe peaks_of(const ShortPlay& play) {
  std::int64_t peak = play.before;
  for (const ShortPlay::Part& part : play.parts) peak = std::max(peak, part.peak);
  return {static_cast<double>(peak), 0, static_cast<double>(play.forward_peak)};
}

double held_of_stage(const ShortPlay& play, std::int64_t in_flight, std::int64_t microbatches) {
  const Parts at(play);
  const std::int64_t turns = microbatches - in_flight;
  // The second forward adds what each that is in flight holds; what the first gathers stays or is gathered anew.
  const std::int64_t each = at.filling > 1 ? play.parts[2].held - play.parts[1].held : 0;
  const std::int64_t others = (in_flight - at.filling) * each;
  std::int64_t peak = 0;
  const auto at_least = [&](std::size_t part, std::int64_t more) { peak = std::max(peak, play.parts[part].peak + more); };
  at_least(0, 0);
  at_least(1, 0);
  at_least(at.rest, 0);
  if (in_flight > 1) {
    at_least(at.last_of_filling(), others);
    at_least(at.second_of_emptying(), others);
    at_least(at.rest - 1, 0);
  }
  at_least(at.first_turn(), others);
  if (turns > 0) {
    at_least(at.first_turn() + 1, others);
    at_least(at.first_of_emptying(), others);
  }
  const std::int64_t more = microbatches - at.microbatches();
  // All that is made before the first forward, the buffers and the batch, is for each; what else there may be is little, and not counted on.
  // The batch of the step before is still there when the next is made.
  const std::int64_t prepared = play.first_step ? play.prepared : 2 * play.prepared + play.receive_bytes;
  const std::int64_t kept = at.filling > 1 ? 0 : play.parts[at.first_turn() + 2].held - play.parts[at.first_turn()].held;  // losses
  const std::int64_t made = more > 0 ? play.receive_bytes / at.microbatches() : divide_up(prepared, at.microbatches()) + kept;
  return static_cast<double>(std::max(play.before, peak + more * made));
}

double seconds_of_stage(const ShortPlay& play, const std::vector<double>& moments, std::int64_t in_flight, std::int64_t microbatches) {
  const Parts at(play);
  const std::int64_t turns = microbatches - in_flight;
  const auto of = [&](std::size_t part) { return moments[part] - (part > 0 ? moments[part - 1] : 0); };
  const auto times = [&](std::int64_t count, std::size_t part) { return static_cast<double>(count) * of(part); };
  double all = of(0) + of(1) + of(at.rest) + of(at.first_turn());
  if (in_flight > 1) {
    all += of(2) + times(in_flight - 2, at.last_of_filling());
    all += times(in_flight - 2, at.second_of_emptying()) + of(at.rest - 1);
  }
  if (turns > 0) all += times(turns, at.last_turn() + 1) + times(turns - 1, at.middle_backward()) + of(at.first_of_emptying());
  return all;
}

bool PlaysOfRows::has_few(std::int64_t rows) const {
  const auto there = played_.lower_bound(rows);
  return there != played_.begin() && std::prev(there)->first > 1;
}

std::shared_ptr<const ShortPlay> PlaysOfRows::add(std::int64_t rows, std::shared_ptr<const ShortPlay> play) {
  if (play) known_[rows] = played_[rows] = play;
  return play;
}

std::shared_ptr<const ShortPlay> PlaysOfRows::between(std::int64_t rows) {
  const auto there = played_.lower_bound(rows);
  if (there == played_.end() || there == played_.begin()) return nullptr;
  const ShortPlay &few = *std::prev(there)->second, &more = *there->second;
  if (!do_alike(few, more)) return nullptr;
  const RowsLine line(std::prev(there)->first, there->first, rows);
  ShortPlay made;
  made.bytes.resize(few.bytes.size());
  for (std::size_t i = 0; i < made.bytes.size(); ++i) made.bytes[i] = line.least_at(few.bytes[i], more.bytes[i]);
  made.work = few.work;
  for (std::size_t i = 0; i < made.work.work.size(); ++i) {
    Work& work = made.work.work[i];
    const Work& other = more.work.work[i];
    work.flops = line.at(work.flops, other.flops);
    work.bytes = line.at(work.bytes, other.bytes);
    work.outer = line.at(work.outer, other.outer);
  }
  made.receive_bytes = line.at(few.receive_bytes, more.receive_bytes);
  made.events = few.events;
  made.states = few.states;
  made.forward = few.forward;
  made.update = few.update;
  made.loaded = few.loaded;
  made.first_step = few.first_step;
  for (const ShortPlay::Part& part : few.parts) made.parts.push_back({part.begin});
  measure(made);
  made.events = {};
  made.bytes = {};
  return known_[rows] = std::make_shared<const ShortPlay>(std::move(made));
}

}  // namespace llmem
