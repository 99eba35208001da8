#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "trace/trace.h"

// Sentences and numbers for people.
namespace llmem {

// GiB with three significant figures, without the unit: "41.3", "0.0312".
std::string gib(Bytes bytes);
std::string with_gib(Bytes bytes);  // "41.3 GiB"

std::string times(int n);  // "once", "3 times"

// "step0.backward1" -> "in the first step's backward pass of micro-batch 2". `accumulation`: micro-batches a step.
std::string phase_in_words(std::string_view phase, std::int64_t accumulation);

// "exp_avg_sq of lm_head", "the gradient of lm_head", "silu in model.layers.3.mlp"
std::string what_in_words(const Trace& trace, const Allocation& allocation);

}  // namespace llmem
