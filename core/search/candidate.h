#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "model/architecture.h"
#include "report/report.h"
#include "spec/presets.h"
#include "spec/spec.h"

namespace llmem {

// A spec with a change: {"parallel": …} takes the place of the spec's, {"training": {"micro_batch": 2}} and other sections change member by
// member.
nlohmann::json changed(const nlohmann::json& spec, const nlohmann::json& change);

// What a search wants to know of one estimate.
struct Summary {
  Status status = Status::unknown;
  Bytes needed;
  std::optional<Bytes> capacity;
  std::int64_t gpus = 1;
  std::optional<double> seconds;  // of one optimizer step; none: the GPU's speed is not known
  double tokens_per_second = 0;   // a GPU
  bool exact = true;              // false: from plays of the model with fewer layers (screen.h); `needed` is then the least that it can be
  Problems problems;              // then nothing else holds

  bool fits() const {
    return problems.empty() && (status == Status::fits || status == Status::fits_barely || status == Status::fits_after_retry);
  }
};

// The architecture of the config that was read last: questions in a row mostly ask about the same model.
struct KnownModel {
  std::optional<nlohmann::json> config;  // none: none was read
  Reading<Architecture> reading;
};

// A question that was read, with its problems.
struct Question {
  Spec spec;
  Architecture architecture;
  Problems problems;
};
Question read_question(const nlohmann::json& spec, const ModelPresets& presets, KnownModel& known);

// What the rank that the spec names does.
using Play = std::function<std::shared_ptr<const Trace>(const Spec& spec, const Architecture& architecture)>;
std::shared_ptr<const Trace> play_anew(const Spec& spec, const Architecture& architecture);

// As the estimate of the same spec says.
Summary summary_of(Question question, const Play& play = play_anew);
Summary summary_of(const nlohmann::json& spec, const ModelPresets& presets, KnownModel& known);
Summary summary_of(const nlohmann::json& spec, const ModelPresets& presets);

// Of all ranks, an optimizer step.
double tokens_of(const Spec& spec);

}  // namespace llmem
