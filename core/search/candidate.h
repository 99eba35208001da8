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

// A question that was read, with its problems.
struct Question {
  Spec spec;
  std::shared_ptr<const Architecture> architecture;
  Problems problems;
};

// One spec and its changes. The model is read once: what else a spec says is read without it (spec/read_spec.h).
class Variants {
 public:
  Variants(const nlohmann::json& spec, const ModelPresets& presets);

  Question read(const nlohmann::json& change) const;
  // Without what it has to do with the model.
  Reading<Spec> read_spec(const nlohmann::json& change) const;
  const Spec& spec() const { return spec_.value; }
  const std::shared_ptr<const Architecture>& architecture() const { return architecture_; }

 private:
  const nlohmann::json& json_;
  const ModelPresets& presets_;
  nlohmann::json without_model_;
  Reading<Spec> spec_;
  std::shared_ptr<const Architecture> architecture_;
  Problems of_model_;
};

// What the rank that the spec names does.
using Play = std::function<std::shared_ptr<const Trace>(const Spec& spec, const Architecture& architecture)>;
std::shared_ptr<const Trace> play_anew(const Spec& spec, const Architecture& architecture);

// As the estimate of the same spec says.
Summary summary_of(Question question, const Play& play = play_anew);
Summary summary_of(const nlohmann::json& spec, const ModelPresets& presets);

// Of all ranks, an optimizer step.
double tokens_of(const Spec& spec);

}  // namespace llmem
