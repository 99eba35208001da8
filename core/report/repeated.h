#pragma once

#include "model/architecture.h"
#include "spec/spec.h"
#include "trace/trace.h"

namespace llmem {

// Plays the spec's training with as few micro-batches of a step as say all that more of them would: where the allocator stands after one as it
// stood after one shortly before, with and without the device's limit, what lies between repeats itself from there on.
// Of a pipeline's microbatches all are in the trace, though few of them are played. Trace::micro_batches_left_out says how many are not in it. Beyond some hundreds the rest is left out in any case; `settled` is then false.
struct RepeatedPlay {
  Trace trace;
  bool settled = true;
};
RepeatedPlay play_repeated(const Spec& spec, const Architecture& architecture, bool keep_shapes);

}  // namespace llmem
