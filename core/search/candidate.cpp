#include "search/candidate.h"

#include <algorithm>
#include <cmath>

#include "model/config.h"
#include "report/estimate.h"
#include "spec/read_spec.h"
#include "step/play.h"

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

constexpr std::int64_t kPlayedMicroBatches = 2;

Summary failed(Problems problems) {
  Summary summary;
  summary.problems = std::move(problems);
  return summary;
}

// Of a question without problems, the rank that the spec names.
Summary played_rank(Spec spec, const Architecture& architecture) {
  const std::int64_t accumulation = spec.training.accumulation;
  spec.training.accumulation = std::min(accumulation, kPlayedMicroBatches);
  Trace trace = play(spec, architecture);
  const Played whole{std::move(spec), architecture, std::move(trace), {}};
  const Result<Report> report = report_on(whole);
  if (!report) return failed(report.error());
  Summary summary;
  summary.status = report->verdict.status;
  summary.needed = report->verdict.needed;
  const RankReport& rank = report->ranks.front();
  summary.least = rank.peak_allocated + rank.outside.used;
  summary.capacity = report->verdict.capacity;
  const Spec& s = whole.spec;
  summary.gpus = s.data.degree * s.tensor.degree * s.pipeline.degree;
  if (!report->step_time) return summary;
  const auto left_out = static_cast<double>(accumulation - s.training.accumulation);
  summary.seconds = report->step_time->seconds + left_out * report->step_time->first_micro_batch;
  const double more = static_cast<double>(accumulation) / static_cast<double>(s.training.accumulation);
  summary.tokens_per_second = report->step_time->tokens_per_second * more * report->step_time->seconds / *summary.seconds;
  return summary;
}

// The stages of a pipeline differ: the first holds most microbatches, the last has the head and the loss. The one with more decides on memory,
// the slower one on time.
Summary played(Spec spec, const Architecture& architecture) {
  const std::int64_t stages = spec.pipeline.degree;
  if (stages == 1) return played_rank(std::move(spec), architecture);
  Spec last_spec = spec;
  spec.rank = 0;
  last_spec.rank = spec.data.degree * spec.tensor.degree * stages - 1;
  Summary first = played_rank(std::move(spec), architecture), last = played_rank(std::move(last_spec), architecture);
  if (!first.problems.empty() || !last.problems.empty()) return first.problems.empty() ? last : first;
  Summary worst = last.status > first.status || (last.status == first.status && last.needed > first.needed) ? last : first;
  const Summary& slower = last.seconds && *last.seconds > first.seconds.value_or(0) ? last : first;
  worst.seconds = slower.seconds;
  worst.tokens_per_second = slower.tokens_per_second;
  return worst;
}

struct Question {
  Spec spec;
  Architecture architecture;
  Problems problems;
};

Question read(const Json& json, const ModelPresets& presets) {
  Question question;
  Reading<Spec> spec = read_parsed_spec(json, presets);
  question.spec = std::move(spec.value);
  question.problems = std::move(spec.problems);
  if (question.spec.model.config) {
    Reading<Architecture> reading = read_architecture(*question.spec.model.config);
    question.architecture = std::move(reading.value);
    question.problems.insert(question.problems.end(), reading.problems.begin(), reading.problems.end());
  }
  if (question.problems.empty()) question.problems = check_sizes(question.spec, question.architecture);
  return question;
}

// The names under which families keep the number of layers.
constexpr const char* kLayerKeys[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};

Json* layers_of(Json& config) {
  for (const char* key : kLayerKeys)
    if (const auto found = config.find(key); found != config.end() && found->is_number_integer()) return &*found;
  return nullptr;
}

bool layers_alike(const Architecture& a) {
  return a.sliding.empty() && a.unturned.empty() && a.experts.layers.empty() && a.experts.count == 0;
}

std::optional<Summary> with_layers(Question question, std::int64_t layers) {
  Json config = *question.spec.model.config;
  Json* count = layers_of(config);
  if (!count) return std::nullopt;
  *count = layers;
  Reading<Architecture> reading = read_architecture(config);
  question.spec.model.config = std::make_shared<const Json>(std::move(config));
  if (!reading.problems.empty() || reading.value.layers != layers) return std::nullopt;
  return played(std::move(question.spec), reading.value);
}

// Two plays, with three and five layers in every stage.
std::optional<Summary> extrapolated(const Question& question) {
  const std::int64_t layers = question.architecture.layers;
  const std::int64_t stages = question.spec.pipeline.degree * question.spec.pipeline.virtual_stages;
  const std::int64_t few = 3 * stages, more = 5 * stages;
  if (layers % stages != 0 || layers < 2 * (few + more) || !layers_alike(question.architecture)) return std::nullopt;
  const std::optional<Summary> a = with_layers(question, few), b = with_layers(question, more);
  if (!a || !b || !a->problems.empty() || !b->problems.empty()) return std::nullopt;
  Summary summary = *b;
  summary.exact = false;
  const auto along = [&](Bytes at_few, Bytes at_more) {
    return Bytes{at_few.count + (at_more - at_few).count * (layers - few) / (more - few)};
  };
  summary.needed = along(a->needed, b->needed);
  summary.least = along(a->least, b->least);
  if (summary.capacity) summary.status = summary.needed <= *summary.capacity ? Status::fits : Status::does_not_fit;
  if (summary.seconds) {
    summary.seconds = *a->seconds + (*b->seconds - *a->seconds) * static_cast<double>(layers - few) / static_cast<double>(more - few);
    summary.tokens_per_second = b->tokens_per_second * *b->seconds / *summary.seconds;
  }
  return summary;
}

// Fits by what it would reserve, or does not by what it must hold, and by more than the extrapolation may be off.
bool is_plain(const Summary& summary) {
  if (!summary.capacity) return true;
  const std::int64_t capacity = summary.capacity->count;
  return summary.needed.count < capacity - capacity / 20 || summary.least.count > capacity + capacity / 20;
}

}  // namespace

Summary summary_of(const Json& spec, const ModelPresets& presets) {
  Question question = read(spec, presets);
  if (!question.problems.empty()) return failed(std::move(question.problems));
  return played(std::move(question.spec), question.architecture);
}

Summary screened(const Json& spec, const ModelPresets& presets) {
  Question question = read(spec, presets);
  if (!question.problems.empty()) return failed(std::move(question.problems));
  if (const std::optional<Summary> quick = extrapolated(question); quick && is_plain(*quick)) return *quick;
  return played(std::move(question.spec), question.architecture);
}

}  // namespace llmem
