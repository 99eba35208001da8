#pragma once

#include "model/architecture.h"
#include "model/causal_lm.h"
#include "spec/spec.h"
#include "trace/trace.h"
#include "trace/turns.h"

namespace llmem {

// Optimizer state appears in the first step, so two steps differ; the third is as the second.
inline constexpr int steps_played = 2;

// A step of more micro-batches than this is played with so many of them, the last one among them: they do the same from the second on, but
// for the last, which may synchronise. Whether that is all there is to the others only the allocator can say (report/repeated.h).
inline constexpr std::int64_t all_micro_batches = std::int64_t{1} << 62;

// The micro-batch after `a`, of which `played` are played out of `all`.
constexpr std::int64_t next_micro_batch(std::int64_t a, std::int64_t all, std::int64_t played) {
  return a + 2 == played && played < all ? all - 1 : a + 1;
}

// Plays the spec's training from loading to the end of the second step and returns the allocation history of spec.rank. The points are
// those of the wire format: "loaded", then for each step i "step{i}.forward{a}", "step{i}.backward{a}", "step{i}.clip", "step{i}.optimizer",
// "step{i}.zero_grad". Spec and architecture must be free of problems.
Trace play(const Spec& spec, const Architecture& architecture, bool keep_shapes = false, std::int64_t micro_batches = all_micro_batches);

// Of a pipeline's microbatches so few as fill it and `turns_to_repeat` more, and where each begins, for with_more_turns.
Trace play_few_turns(const Spec& spec, const Architecture& architecture, bool keep_shapes, std::vector<Turn>& turns);

// The first step alone, and its work. It does what the second does, but that the optimizer's states are not there before its update; and DDP,
// DeepSpeed and FSDP1 learn from their first step how to go through the others.
Trace play_first_step(const Spec& spec, const Architecture& architecture, std::vector<Turn>& turns);

// All of it, and where the microbatches of a pipeline begin.
Trace play_turns(const Spec& spec, const Architecture& architecture, std::vector<Turn>& turns);

// What a forward runs under.
std::optional<Dtype> autocast_of(const Spec& spec);

// What a recipe asks of each forward.
ForwardOptions forward_options(const Spec& spec);

}  // namespace llmem
