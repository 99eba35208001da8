#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/replay.h"
#include "base/result.h"
#include "model/architecture.h"
#include "report/host.h"
#include "report/ledger.h"
#include "report/outside.h"
#include "spec/spec.h"
#include "time/step_time.h"
#include "trace/trace.h"

// The answer, as core/report/README.md describes it.
namespace llmem {

// A question that was understood, and the step that was played for it.
struct Played {
  Spec spec;
  Architecture architecture;
  Trace trace;
  std::vector<Note> notes;  // what the readers had to say
};

enum class Status : std::uint8_t { fits, fits_barely, fits_after_retry, may_not_fit, does_not_fit, unknown };
std::string_view name_of(Status status);

struct Verdict {
  Status status = Status::unknown;
  std::string sentence;
  std::int64_t rank = 0;
  Bytes needed, needed_high;      // the rank's device_total, and where that depends on timing what it may be
  std::optional<Bytes> capacity;  // what the GPU has for `needed`; none: not known
  std::optional<Bytes> margin;    // capacity - needed
};

struct PointRow {
  std::string at;
  Counters counters;
};

struct Peak {
  std::optional<std::string> after;  // the last point before it
  std::string phase, module, op;     // of the allocation that reached it
  std::size_t event = 0;
};

struct OutOfMemoryReport {
  std::optional<std::string> after;  // the last point reached
  Bytes tried, allocated, reserved;
  std::string phase, what;
};

struct RankReport {
  std::vector<std::int64_t> ranks;  // that hold and do the same
  std::int64_t stage = 0;
  std::vector<PointRow> points;
  Bytes peak_allocated, peak_reserved;
  Outside outside;
  Bytes device_total;  // peak_reserved + outside.used
  Peak peak;
  std::vector<LedgerEntry> ledger;  // sums to device_total
  int retries = 0;
  std::optional<OutOfMemoryReport> out_of_memory;
  // The same where memory that other streams have used comes back as late as it can; none: no stream uses another's.
  struct Late {
    std::vector<PointRow> points;
    Bytes peak_reserved, device_total;  // at least those of memory that comes back at once
    int retries = 0;
    std::optional<OutOfMemoryReport> out_of_memory;
  };
  std::optional<Late> late;
  const Bytes& device_total_high() const { return late ? late->device_total : device_total; }
};

struct Report {
  struct {
    std::string name, type, model_class;
    std::int64_t layers = 0, hidden_size = 0, vocab_size = 0;
  } model;
  struct {
    std::int64_t total = 0, trainable = 0;
  } parameters;
  Verdict verdict;
  std::vector<RankReport> ranks;
  std::optional<StepTime> step_time;  // of the rank that was played; none: the GPU's speed is not known
  HostMemory host;
  std::optional<Bytes> host_capacity;  // of a node; none: not known
  std::vector<Note> assumptions, warnings;
};

AllocatorSettings settings_of(const Spec& spec);

// What the device has for the allocator: the spec's limit, else what the GPU shows less what lies outside; none: not known.
std::optional<Bytes> memory_for_allocator(const Spec& spec, const Outside& outside);

// A problem only if one GPU would have to hold more than can be counted exactly in JSON (no_memory_limit).
Result<Report> report_on(const Played& played);

// What decides between runs, without what explains it.
struct Outcome {
  Status status = Status::unknown;
  Bytes needed;
  std::optional<Bytes> capacity;
  std::optional<StepTime> step_time;
};
Result<Outcome> outcome_of(const Spec& spec, const Trace& trace);

std::string to_json(const Report& report);

// {"ok": false, "problems": […]}
std::string problems_to_json(const Problems& problems);

}  // namespace llmem
