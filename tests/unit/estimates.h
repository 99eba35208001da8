#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "embedded_presets.h"
#include "report/estimate.h"

// Estimates as a caller sees them, for tests.
namespace llmem {

using Json = nlohmann::json;

inline Json answer(const Json& spec) { return parse_json(estimate(spec.dump(), embedded_presets())).value; }

inline Json report(const Json& spec) {
  const Json a = answer(spec);
  EXPECT_TRUE(a["ok"].get<bool>()) << a.dump().substr(0, 600);
  return a["value"];
}

inline bool warns(const Json& report, const std::string& words) {
  for (const Json& note : report["warnings"])
    if (note["text"].get<std::string>().find(words) != std::string::npos) return true;
  return false;
}

// A model as a spec has it: heads of 64, half as many keys.
inline Json llama(std::int64_t hidden, std::int64_t layers, std::int64_t vocabulary) {
  return {{"name", "llama"},
          {"config",
           {{"model_type", "llama"},
            {"architectures", {"LlamaForCausalLM"}},
            {"hidden_size", hidden},
            {"intermediate_size", hidden * 11 / 4},
            {"num_hidden_layers", layers},
            {"num_attention_heads", hidden / 64},
            {"num_key_value_heads", hidden / 128},
            {"vocab_size", vocabulary},
            {"rms_norm_eps", 1e-5},
            {"hidden_act", "silu"},
            {"tie_word_embeddings", false}}}};
}

}  // namespace llmem
