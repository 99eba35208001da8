#pragma once

#include <cstdint>
#include <optional>

#include "model/architecture.h"
#include "spec/spec.h"
#include "step/play.h"
#include "trace/trace.h"

namespace llmem {

// What `play` returns, made from plays of the model with few layers where they come again and again: the others in their likeness, event by event. None:
// that is no work saved, or the two plays do not say what the others do.
std::optional<Trace> play_few_layers(const Spec& spec, const Architecture& architecture, std::int64_t micro_batches = all_micro_batches);

}  // namespace llmem
