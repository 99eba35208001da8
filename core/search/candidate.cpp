#include "search/candidate.h"

#include <algorithm>
#include <cmath>

#include "model/config.h"
#include "model/older.h"
#include "plan/adapt.h"
#include "report/repeated.h"
#include "spec/read_spec.h"

namespace llmem {

using Json = nlohmann::json;

Json changed(const Json& spec, const Json& change) {
  Json result = spec;
  if (!result.is_object() || !change.is_object()) return result;
  for (const auto& [section, value] : change.items()) {
    Json& to = result[section];
    if (section == "parallel" || !value.is_object() || !to.is_object())
      to = value;
    else
      for (const auto& [key, member] : value.items()) to[key] = member;
  }
  return result;
}

namespace {

Summary failed(Problems problems) {
  Summary summary;
  summary.problems = std::move(problems);
  return summary;
}

// Of a question without problems, the rank that the spec names.
Summary played_rank(const Spec& spec, const Architecture& architecture, const Play& play) {
  const Result<Outcome> outcome = outcome_of(spec, *play(spec, architecture));
  if (!outcome) return failed(outcome.error());
  Summary summary;
  summary.status = outcome->status;
  summary.needed = outcome->needed;
  summary.capacity = outcome->capacity;
  summary.gpus = spec.world();
  if (!outcome->step_time) return summary;
  summary.seconds = outcome->step_time->seconds;
  summary.tokens_per_second = outcome->step_time->tokens_per_second;
  return summary;
}

// The stages of a pipeline differ: the first holds most microbatches, the last has the head and the loss. The one with more decides on memory,
// the slower one on time.
Summary played(Spec spec, const Architecture& architecture, const Play& play) {
  if (spec.pipeline.degree == 1) return played_rank(spec, architecture, play);
  spec.rank = 0;
  const Summary first = played_rank(spec, architecture, play);
  spec.rank = spec.world() - 1;
  const Summary last = played_rank(spec, architecture, play);
  if (!first.problems.empty() || !last.problems.empty()) return first.problems.empty() ? last : first;
  Summary worst = last.status > first.status || (last.status == first.status && last.needed > first.needed) ? last : first;
  const Summary& slower = last.seconds && *last.seconds > first.seconds.value_or(0) ? last : first;
  worst.seconds = slower.seconds;
  worst.tokens_per_second = slower.tokens_per_second;
  return worst;
}

}  // namespace

Variants::Variants(const Json& spec, const ModelPresets& presets)
    : json_(spec), presets_(presets), without_model_(spec), spec_(read_parsed_spec(spec, presets)) {
  const ModelSource& model = spec_.value.model;
  if (!model.config) return;
  without_model_["model"] = {{"name", model.name}, {"config", Json::object()}};
  Reading<Architecture> reading = read_trained_architecture(*model.config, spec_.value.training);
  architecture_ = std::make_shared<const Architecture>(std::move(reading.value));
  of_model_ = std::move(reading.problems);
}

Reading<Spec> Variants::read_spec(const Json& change) const {
  Reading<Spec> reading = read_parsed_spec(changed(without_model_, change), presets_);
  reading.value.model = spec_.value.model;
  return reading;
}

Question Variants::read(const Json& change) const {
  if (change.is_object() && change.contains("model")) return Variants(changed(json_, change), presets_).read(Json::object());
  Reading<Spec> reading = read_spec(change);
  Question question{std::move(reading.value), architecture_, std::move(reading.problems)};
  question.problems.insert(question.problems.end(), of_model_.begin(), of_model_.end());
  if (question.problems.empty()) settle_attention(question.spec.training, *question.architecture);
  if (question.problems.empty()) question.problems = check_sizes(question.spec, *question.architecture);
  if (question.problems.empty()) question.problems = check_trained(question.spec.training, *question.architecture);
  if (question.problems.empty()) question.problems = check_older(question.spec, *question.architecture);
  return question;
}

std::shared_ptr<const Trace> play_anew(const Spec& spec, const Architecture& architecture) {
  return std::make_shared<const Trace>(play_repeated(spec, architecture, false).trace);
}

Summary summary_of(Question question, const Play& play) {
  if (!question.problems.empty()) return failed(std::move(question.problems));
  return played(std::move(question.spec), *question.architecture, play);
}

Summary summary_of(const Json& spec, const ModelPresets& presets) { return summary_of(Variants(spec, presets).read(Json::object())); }

double tokens_of(const Spec& spec) {
  const std::int64_t microbatches = spec.pipeline.degree > 1 ? spec.pipeline.microbatches : spec.training.accumulation;
  return static_cast<double>(spec.training.micro_batch * microbatches * spec.training.sequence * spec.data.degree);
}

}  // namespace llmem
