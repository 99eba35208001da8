#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "model/architecture.h"
#include "spec/spec.h"
#include "time/step_time.h"
#include "trace/trace.h"
#include "trace/turns.h"

namespace llmem {

// What one play says.
struct Probe {
  double held = 0;     // bytes of tensors at their peak
  double seconds = 0;  // of a rank's own work
  double forward = 0;  // bytes of tensors at the peak of the last step's first forward
};

// A play as short estimates look at it: its last step, which for most is the first.
struct ShortPlay {
  // A part of the step: of a pipeline each microbatch's forward or backward, and what comes before and after them.
  struct Part {
    Turn begin;
    std::int64_t peak = 0, held = 0;  // bytes: the most, and at its end
  };
  Trace work;                         // work and phases alone
  std::vector<std::int32_t> events;   // as Trace's
  std::vector<std::int64_t> bytes;    // of each allocation
  std::vector<std::uint32_t> states;  // allocations: the optimizer's states that only its update makes
  std::size_t forward = 0;            // events: where the first forward ends …
  std::size_t update = 0;             // … and where the states are no longer missed
  std::size_t loaded = 0;             // … and where `before` ends
  std::vector<Part> parts;
  std::int64_t before = 0;        // bytes at their peak before the step; of a pipeline, before all steps
  std::int64_t forward_peak = 0;  // bytes
  std::int64_t prepared = 0;      // bytes that are asked for before a pipeline's first forward
  // What a pipeline's stage receives into, made for all microbatches at the first step: bytes, and whether that is this one.
  std::int64_t receive_bytes = 0;
  bool first_step = false;
};
std::shared_ptr<const ShortPlay> short_play(const Spec& spec, const Architecture& architecture);

Probe peaks_of(const ShortPlay& play);

// How the stages of a pipeline are played, so that each kind of turn is among those of the microbatches: the first as that of three, the last as
// that of two. Where the last backward does as those before it, one microbatch less shows as much. Fewer microbatches are played as they are: what
// the host is ahead by is not used up so soon.
struct StagePlay {
  std::int64_t stages, microbatches, position;
};
inline constexpr StagePlay kFirstStage{3, 4, 0}, kLastStage{2, 3, 1};
inline constexpr StagePlay kFirstStageAlike{2, 3, 0}, kLastStageAlike{2, 2, 1};
bool backwards_are_alike(const Spec& spec);

// The like of such a play with `microbatches`, of which `in_flight` are when the first backward begins: each holds what one more held.
double held_of_stage(const ShortPlay& play, std::int64_t in_flight, std::int64_t microbatches);
// `moments`: of the parts but the first, and of the end.
double seconds_of_stage(const ShortPlay& play, const std::vector<double>& moments, std::int64_t in_flight, std::int64_t microbatches);

// Plays that differ in nothing but the rows of a micro-batch: tensors have rows, or do not, so the bytes of each and the work of every kernel are
// lines over them. Where two plays do the same, event by event, what lies between does so too and need not be played: kernels are chosen by
// thresholds. (Of the embedding's gradient the sort's scratch, some KiB, grows by steps and counts as that of fewer rows.) A batch of one row is unlike
// others: its transposed views are contiguous.
class PlaysOfRows {
 public:
  // `most`: rows that may be asked for. `play`: that of so many rows.
  template <class Play>
  std::shared_ptr<const ShortPlay> of(std::int64_t rows, std::int64_t most, const Play& play) {
    if (const auto known = known_.find(rows); known != known_.end()) return known->second;
    if (has_few(rows)) {
      if (rows < most && played_.lower_bound(rows) == played_.end()) add(most, play(most));
      if (std::shared_ptr<const ShortPlay> made = between(rows)) return made;
    }
    return add(rows, play(rows));
  }

 private:
  using Plays = std::map<std::int64_t, std::shared_ptr<const ShortPlay>>;  // by rows

  bool has_few(std::int64_t rows) const;  // fewer, but not one
  std::shared_ptr<const ShortPlay> between(std::int64_t rows);
  std::shared_ptr<const ShortPlay> add(std::int64_t rows, std::shared_ptr<const ShortPlay> play);

  Plays known_, played_;
};

}  // namespace llmem
