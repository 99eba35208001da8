#include "report/repeated.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "allocator/replay.h"
#include "report/report.h"
#include "step/few_layers.h"
#include "step/play.h"
#include "trace/turns.h"

namespace llmem {
namespace {

constexpr std::int64_t kFirstTry = 12, kTimesMore = 4, kMost = 384;  // micro-batches of a step
constexpr std::int64_t kLongestPeriod = 10;  // micro-batches: what is bound anew while the old still lives takes turns between places

// Where backward of micro-batch `a` ends.
std::size_t end_of(const Trace& trace, int step, std::int64_t a) {
  const std::string name = "step" + std::to_string(step) + ".backward" + std::to_string(a);
  const auto found = std::find_if(trace.points.begin(), trace.points.end(), [&](const Point& point) { return point.at == name; });
  return static_cast<std::size_t>(found - trace.points.begin());
}

// After how many micro-batches everything is as before, in every step: [p] is whether it is so after p.
using Periods = std::vector<bool>;
void keep_periods(Periods& periods, const Trace& trace, const AllocatorSettings& settings, std::int64_t played) {
  for (int step = 0; step < steps_played; ++step) {
    std::vector<std::size_t> points;  // from the last micro-batch but one, which is the last of its kind, backwards
    for (std::int64_t p = 0; p <= kLongestPeriod; ++p) points.push_back(end_of(trace, step, played - 2 - p));
    const std::vector<Standing> standings = standings_at(trace, settings, points);
    for (std::size_t p = 1; p < periods.size(); ++p) periods[p] = periods[p] && (!standings[0] || standings[0] == standings[p]);
  }
}

// The shortest period, or 0 where there is none.
std::int64_t period_of(const Spec& spec, const Trace& trace, std::int64_t played) {
  Periods periods(kLongestPeriod + 1, true);
  AllocatorSettings settings = settings_of(spec);
  keep_periods(periods, trace, settings, played);
  settings.memory = memory_for_allocator(spec, outside_of(spec.cluster.gpu.compute_capability, communicators_of(spec)));
  if (settings.memory) keep_periods(periods, trace, settings, played);
  const auto found = std::find(periods.begin() + 1, periods.end(), true);
  return found == periods.end() ? 0 : found - periods.begin();
}

// Of a pipeline's microbatches those that fill it and a few more, the others in their likeness; none: that is no work saved, or not known to be
// the same.
std::optional<Trace> play_turns(const Spec& spec, const Architecture& architecture, bool keep_shapes) {
  const PipelineParallel& pipeline = spec.pipeline;
  const bool one_by_one = pipeline.schedule == PipelineSchedule::one_forward_one_backward && pipeline.virtual_stages == 1;
  const std::int64_t filling = pipeline.degree - spec.rank / (spec.world() / pipeline.degree);
  const std::int64_t more = pipeline.microbatches - filling - turns_to_repeat;
  if (pipeline.degree == 1 || !one_by_one || spec.training.stack == Stack::megatron || more <= 0) return std::nullopt;
  std::vector<Turn> turns;
  Trace few = play_few_turns(spec, architecture, keep_shapes, turns);
  return with_more_turns(std::move(few), turns, more);
}

Trace play_layers(const Spec& spec, const Architecture& architecture, bool keep_shapes, std::int64_t micro_batches = all_micro_batches) {
  if (!keep_shapes)
    if (std::optional<Trace> trace = play_few_layers(spec, architecture, micro_batches)) return std::move(*trace);
  return play(spec, architecture, keep_shapes, micro_batches);
}

}  // namespace

RepeatedPlay play_repeated(const Spec& spec, const Architecture& architecture, bool keep_shapes) {
  if (spec.training.stack == Stack::megatron) return {play(spec, architecture, keep_shapes), true};  // which knows what repeats
  if (std::optional<Trace> trace = play_turns(spec, architecture, keep_shapes)) return {std::move(*trace), true};
  const std::int64_t all = spec.training.accumulation;
  for (std::int64_t played = kFirstTry; played < all;) {
    RepeatedPlay result{play_layers(spec, architecture, keep_shapes, played), false};
    const std::int64_t period = period_of(spec, result.trace, played);
    // The last micro-batch must find what it would find: whole periods are left out.
    const std::int64_t more = period > 0 ? (all - played) % period : 0;
    result.settled = period > 0 && more == 0;
    if (result.settled || played >= kMost) return result;
    played = more > 0 ? played + more : played * kTimesMore;
  }
  return {play_layers(spec, architecture, keep_shapes), true};
}

}  // namespace llmem
