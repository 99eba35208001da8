#include "report/report.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/adapt.h"
#include "report/notes.h"
#include "report/verdict.h"
#include "report/words.h"

namespace llmem {
namespace {

struct Run {
  Outside outside;
  std::optional<Bytes> memory;  // for the allocator
  Replays replays;
  std::optional<Replays> late;  // Return::as_late_as_can_be; none: it makes no difference
};

std::vector<PointRow> points_of(const Trace& trace, const Replay& run) {
  std::vector<PointRow> rows;
  rows.reserve(run.points.size());
  for (std::size_t i = 0; i < run.points.size(); ++i) rows.push_back({trace.points[i].at, run.points[i]});
  return rows;
}

Peak peak_of(const Trace& trace, const Replay& run) {
  Peak peak;
  peak.event = run.peak_event;
  for (const Point& point : trace.points)
    if (point.event <= run.peak_event) peak.after = point.at;
  if (run.peak_event < trace.events.size()) {
    const Allocation& a = trace.allocations[allocation_of(trace.events[run.peak_event])];
    peak.phase = trace.phases[a.phase];
    peak.module = trace.modules[a.module];
    peak.op = trace.ops[a.op];
  }
  return peak;
}

OutOfMemoryReport failure_of(const Trace& trace, const OutOfMemory& failure) {
  OutOfMemoryReport out;
  if (failure.last_point) out.after = trace.points[*failure.last_point].at;
  out.tried = failure.tried;
  out.allocated = failure.allocated;
  out.reserved = failure.reserved;
  const Allocation& a = trace.allocations[failure.allocation];
  out.phase = trace.phases[a.phase];
  out.what = what_in_words(trace, a);
  return out;
}

// What the allocator holds without using it at the peak, and what it does not see.
void add_rest(std::vector<LedgerEntry>& ledger, const Replay& run, const Outside& outside) {
  LedgerEntry overhead{"allocator_overhead", run.peak_reserved - run.peak_allocated, {}};
  if (const Bytes cached = run.reserved_at_peak - run.peak_allocated; cached.count > 0)
    overhead.rows.push_back({"", "free blocks in segments", 1, cached});
  if (const Bytes later = run.peak_reserved - run.reserved_at_peak; later.count > 0)
    overhead.rows.push_back({"", "segments added at another moment", 1, later});
  if (overhead.bytes.count > 0) ledger.push_back(std::move(overhead));
  LedgerEntry rest{"outside", outside.used, {}};
  for (const OutsideItem& item : outside.what) rest.rows.push_back({"", std::string(item.name), 1, item.used});
  if (rest.bytes.count > 0) ledger.push_back(std::move(rest));
}

std::optional<OutOfMemoryReport> failure_of(const Trace& trace, const Replays& runs) {
  const auto& failure = runs.on_device().out_of_memory;
  return failure ? std::optional(failure_of(trace, *failure)) : std::nullopt;
}

// An allocator that has to wait for memory asks for more of it, as a rule; where its blocks happen to lie better then, the other order is the worst.
RankReport::Late late_report(const Trace& trace, const Run& found) {
  const Replays& late = *found.late;
  const Bytes reserved = std::max(late.unlimited.peak_reserved, found.replays.unlimited.peak_reserved);
  return {{}, reserved, reserved + found.outside.used, late.on_device().retries, failure_of(trace, late)};
}

RankReport rank_report(const Played& played, const Run& found) {
  const Trace& trace = played.trace;
  const Replays& runs = found.replays;
  const Replay& run = runs.unlimited;
  const Outside& outside = found.outside;
  RankReport rank;
  const std::int64_t same = played.spec.world() / played.spec.pipeline.degree;  // ranks of one stage
  rank.stage = played.spec.rank / same;
  for (std::int64_t r = 0; r < same; ++r) rank.ranks.push_back(rank.stage * same + r);
  // A limit that the spec names is a device to be simulated; a GPU's own memory is what the need is held against.
  rank.points = points_of(trace, played.spec.cluster.memory ? runs.on_device() : run);
  rank.peak_allocated = run.peak_allocated;
  rank.peak_reserved = run.peak_reserved;
  rank.device_total = run.peak_reserved + outside.used;
  rank.peak = peak_of(trace, run);
  rank.ledger = ledger_after(trace, run.block_sizes, run.peak_event);
  add_rest(rank.ledger, run, outside);
  rank.outside = outside;
  rank.retries = runs.on_device().retries;
  rank.out_of_memory = failure_of(trace, runs);
  if (found.late) {
    rank.late = late_report(trace, found);
    rank.late->points = points_of(trace, played.spec.cluster.memory ? found.late->on_device() : found.late->unlimited);
  }
  return rank;
}

}  // namespace

AllocatorSettings settings_of(const Spec& spec) {
  AllocatorSettings settings;
  settings.expandable_segments = spec.allocator.expandable_segments;
  settings.max_split_size_mb = spec.allocator.max_split_size_mb;
  settings.roundup_power2_divisions = spec.allocator.roundup_power2_divisions;
  return settings;
}

std::optional<Bytes> memory_for_allocator(const Spec& spec, const Outside& outside) {
  if (spec.cluster.memory) return spec.cluster.memory;
  if (!spec.cluster.gpu.memory) return std::nullopt;
  return std::max(Bytes{0}, *spec.cluster.gpu.memory - outside.used);
}

namespace {

Result<Run> run_of(const Spec& spec, const Trace& trace) {
  Run run{outside_of(spec.cluster.gpu.compute_capability, communicators_of(spec)), {}, {}, {}};
  run.memory = memory_for_allocator(spec, run.outside);
  AllocatorSettings settings = settings_of(spec);
  settings.memory = run.memory;
  run.replays = replay_with_and_without_limit(trace, settings);
  if (run.replays.unlimited.out_of_memory)
    return tl::unexpected(Problems{{"/training", "range", "each GPU would need more than 8 PiB: that is beyond what is counted here"}});
  if (returns_matter(trace)) run.late = replay_with_and_without_limit(trace, settings, Return::as_late_as_can_be);
  return run;
}

std::optional<StepTime> time_of(const Spec& spec, const Trace& trace) {
  if (spec.training.stack == Stack::megatron) return std::nullopt;  // of whose kernels no efficiency is known
  const std::optional<Machine> machine = machine_of(spec.cluster);
  if (!machine) return std::nullopt;
  const StepTime time = step_time(spec, trace, *machine);
  if (!std::isfinite(time.seconds)) return std::nullopt;  // some boards have no link to others
  return time;
}

}  // namespace

Result<Report> report_on(const Played& played) {
  const Spec& spec = played.spec;
  const Architecture& architecture = played.architecture;
  Report report;
  report.model.name = spec.model.name;
  report.model.type = architecture.model_type;
  report.model.model_class = architecture.model_class;
  report.model.layers = architecture.layers;
  report.model.hidden_size = architecture.hidden_size;
  report.model.vocab_size = architecture.vocab_size;
  for (const Parameter& parameter : parameters_of(architecture)) report.parameters.total += parameter.count();
  report.parameters.trainable = trained_count(spec.training, architecture);

  Result<Run> run = run_of(spec, played.trace);
  if (!run) return tl::unexpected(std::move(run.error()));
  report.ranks.push_back(rank_report(played, *run));
  report.step_time = time_of(spec, played.trace);
  report.verdict = verdict_on(spec, report.ranks.front(), run->memory);
  report.host = host_of(spec, architecture, report.parameters.trainable);
  report.host_capacity = spec.cluster.host_memory;
  report.assumptions = assumptions_of(played, report.ranks.front());
  report.warnings = warnings_of(played, report.ranks.front(), run->memory, report.host);
  return report;
}

Result<Outcome> outcome_of(const Spec& spec, const Trace& trace) {
  Result<Run> run = run_of(spec, trace);
  if (!run) return tl::unexpected(std::move(run.error()));
  RankReport rank;
  rank.device_total = run->replays.unlimited.peak_reserved + run->outside.used;
  if (run->late) rank.late = late_report(trace, *run);
  if (run->replays.on_device().out_of_memory) rank.out_of_memory.emplace();
  rank.outside = std::move(run->outside);
  const Verdict verdict = numbers_of(spec, rank, run->memory);
  return Outcome{verdict.status, verdict.needed, verdict.capacity, time_of(spec, trace)};
}

std::string_view name_of(Status status) {
  static constexpr std::string_view names[] = {"fits", "fits_barely", "fits_after_retry", "may_not_fit", "does_not_fit", "unknown"};
  return names[static_cast<int>(status)];
}

}  // namespace llmem
