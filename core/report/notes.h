#pragma once

#include <vector>

#include "report/report.h"

namespace llmem {

// What was taken for granted, each with the part of the spec that would change it.
std::vector<Note> assumptions_of(const Played& played, const RankReport& rank);

// What the asker should know before relying on the answer.
std::vector<Note> warnings_of(const Spec& spec, const RankReport& rank);

}  // namespace llmem
