#pragma once

#include <optional>
#include <vector>

#include "report/report.h"

namespace llmem {

// What was taken for granted, each with the part of the spec that would change it.
std::vector<Note> assumptions_of(const Played& played, const RankReport& rank);

// What the asker should know before relying on the answer. `memory`: what the device has for the allocator, if it is known.
std::vector<Note> warnings_of(const Played& played, const RankReport& rank, std::optional<Bytes> memory, const HostMemory& host);

}  // namespace llmem
