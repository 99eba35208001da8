#pragma once

#include "model/architecture.h"
#include "model/causal_lm.h"
#include "spec/spec.h"
#include "trace/trace.h"

namespace llmem {

// Optimizer state appears in the first step, so two steps differ; the third is as the second.
inline constexpr int steps_played = 2;

// Plays the spec's training from loading to the end of the second step and returns the allocation history of spec.rank. The points are
// those of the wire format: "loaded", then for each step i "step{i}.forward{a}", "step{i}.backward{a}", "step{i}.clip", "step{i}.optimizer",
// "step{i}.zero_grad". Spec and architecture must be free of problems.
Trace play(const Spec& spec, const Architecture& architecture, bool keep_shapes = false);

// What a recipe asks of each forward.
ForwardOptions forward_options(const Spec& spec);

}  // namespace llmem
