#pragma once

#include <string>
#include <string_view>

#include "spec/presets.h"

namespace llmem {

// The LLMem paper's own answer (core/llmem) to one question (llmem/question.h), in the envelope that `estimate` uses:
//   {"form", "memory", "base", "chunk": elements, "logits": "float16" | "float32", "choice": a method | "offload" | null (one was asked for),
//    "methods": [{"method", "batch": 0 where nothing fits, "largest_batch", "score", "peak", "fits", "parts": {…, sums to peak}, "dnnmem_style"}]}
// Bytes are integers. Where no batch is asked for, `peak` is that of the largest batch that fits, or of 1. `score`: twice Algorithm 1's eval.
std::string paper(std::string_view question, const ModelPresets& presets);

}  // namespace llmem
