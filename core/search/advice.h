#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "search/candidate.h"

namespace llmem {

// A change of the spec, and what the changed spec is estimated to need: nothing is advised that was not estimated.
struct Advice {
  std::string label;            // "full checkpointing, micro-batch 4 → 2"
  nlohmann::json change;        // of the spec, as `changed` takes it
  bool changes_result = false;  // what is trained is no longer the same: another optimizer, shorter sequences, adapters
  Summary after;
};

struct AdviceList {
  Summary now;
  // Where the spec does not fit: what makes it fit, alone or together, the least costly in time first, those that change the result last.
  // Where it fits: what is given back and still fits, the most gained in time first.
  std::vector<Advice> advice;
};

AdviceList advice_on(const nlohmann::json& spec, const ModelPresets& presets);

}  // namespace llmem
