#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "report/report.h"
#include "spec/presets.h"

// What happens along a step, thinned to as many instants as a chart can show: core/report/README.md has the JSON.
namespace llmem {

struct TimelineQuestion {
  std::int64_t from = 0;                  // events
  std::optional<std::int64_t> to;         // before this one; none: the end
  std::int64_t samples = 600;             // at most
  std::optional<std::int64_t> ledger_at;  // after which event the rows of the ledger are wanted; none: of no event
};

// `played` with its shapes kept.
std::string timeline_of(const Played& played, const TimelineQuestion& question);

// The pipe from a spec's text and a question's to one envelope, {"ok": true, "value": TIMELINE} or {"ok": false, "problems": […]}.
std::string timeline(std::string_view spec_text, std::string_view question_text, const ModelPresets& presets);

}  // namespace llmem
