#pragma once

#include <optional>

#include "report/report.h"

namespace llmem {

// `memory`: what the device has for the allocator, if it is known.
Verdict verdict_on(const Spec& spec, const RankReport& rank, std::optional<Bytes> memory);
// The same without a sentence, of what the rank needs in all, what lies outside and whether it fails.
Verdict numbers_of(const Spec& spec, const RankReport& rank, std::optional<Bytes> memory);

}  // namespace llmem
