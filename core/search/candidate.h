#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "report/report.h"
#include "spec/presets.h"

namespace llmem {

// A spec with a change: {"parallel": …} takes the place of the spec's, {"training": {"micro_batch": 2}} and other sections change member by
// member.
nlohmann::json changed(const nlohmann::json& spec, const nlohmann::json& change);

// What a search wants to know of one estimate.
struct Summary {
  Status status = Status::unknown;
  Bytes needed;
  Bytes least;  // the same without what the allocator would give back if it had to
  std::optional<Bytes> capacity;
  std::int64_t gpus = 1;
  std::optional<double> seconds;  // of one optimizer step; none: the GPU's speed is not known
  double tokens_per_second = 0;   // a GPU
  bool exact = true;              // false: from plays of the model with fewer layers
  Problems problems;              // then nothing else holds

  bool fits() const {
    return problems.empty() && (status == Status::fits || status == Status::fits_barely || status == Status::fits_after_retry);
  }
};

// Micro-batches of an accumulation after the second are as the second; so two are played and the time of the others is added.
Summary summary_of(const nlohmann::json& spec, const ModelPresets& presets);

// The same from plays with two smaller numbers of layers, of which memory and time are linear functions: a tenth of the work for a deep
// model. Where layers differ among themselves, and where it is not plain that it fits or that it does not, the whole is played.
Summary screened(const nlohmann::json& spec, const ModelPresets& presets);

}  // namespace llmem
