#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trace/trace.h"

namespace llmem {

// Where a pipeline stage turns to the next microbatch's forward or backward, or to what comes after all of them; counts of what was before.
struct Turn {
  enum class To : std::uint8_t { forward, backward, rest } to = To::rest;
  std::size_t event = 0, allocation = 0, work = 0;
};

// How many microbatches are played beyond those that fill the pipeline (none: all), and who hears of the turns.
struct PlayedTurns {
  std::optional<std::int64_t> more;
  std::function<void(Turn::To)> turn = [](Turn::To) {};
};

// Turns of a backward and a forward that are enough to see what repeats: the first makes the gradients, the second frees what the first made.
inline constexpr std::int64_t turns_to_repeat = 5;

// The history of a pipeline stage under 1F1B with `more` microbatches than were played in these turns, event by event: once the pipeline is full,
// a backward and a forward take turns and do the same each time, to the next of the microbatches. None where the played turns are not alike.
std::optional<Trace> with_more_turns(Trace few, const std::vector<Turn>& turns, std::int64_t more);

}  // namespace llmem
