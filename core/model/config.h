#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "model/architecture.h"
#include "spec/spec.h"

namespace llmem {

// What a Hugging Face config.json says, as Transformers 5 reads it: an omitted field is what the family's configuration class would use,
// and null is the same as omitted. Problems and notes point below /model/config. Fields without influence on memory are not looked at.
Reading<Architecture> read_architecture(const nlohmann::json& config);

// The same of what is trained: where no images are, the class that AutoModelForCausalLM makes of this config, which of some models that see
// (qwen3_5, llama4, mllama) is their decoder alone.
Reading<Architecture> read_trained_architecture(const nlohmann::json& config, const Training& training);

// Sizes that are each within their range, but whose products could not be counted in 64 bits. Only for a spec and an architecture
// without problems.
Problems check_sizes(const Spec& spec, const Architecture& architecture);

// Where the spec names no attention Transformers takes eager attention for a class without SDPA. Whether it does.
bool settle_attention(Training& training, const Architecture& architecture);

}  // namespace llmem
