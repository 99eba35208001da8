#include "report/paper.h"

#include <algorithm>

#include "llmem/question.h"
#include "report/json_writer.h"
#include "report/outside.h"
#include "report/report.h"

namespace llmem {
namespace {

constexpr std::string_view method_names[] = {"cdp", "adp", "tp", "dp_tp"};

std::string_view name_of(PaperMethod method) { return method_names[static_cast<std::size_t>(method)]; }

void write_parts(JsonWriter& json, const PaperParts& parts) {
  json.key("parts").begin_object();
  json.member("base", parts.base).member("weights_16", parts.weights_16).member("weights_32", parts.weights_32);
  json.member("optimizer_states", parts.optimizer_states).member("input", parts.input).member("outputs", parts.outputs);
  json.member("lm_head", parts.lm_head).member("backward", parts.backward).end_object();
}

void write_method(JsonWriter& json, const PaperQuestion& question, const PaperCandidate& candidate) {
  const std::int64_t batch = question.batch.value_or(candidate.batch), shown = std::max<std::int64_t>(batch, 1);
  const PaperParts parts = PaperEstimate(question.model, question.setup, candidate.method).peak(shown);
  json.begin_object().member("method", name_of(candidate.method)).member("batch", batch).member("largest_batch", candidate.batch);
  json.member("score", candidate.score).member("peak", parts.total()).member("fits", parts.total() <= question.setup.memory);
  write_parts(json, parts);
  json.member("dnnmem_style", dnnmem_style(question.model, question.setup, shown)).end_object();
}

std::string answer(const PaperQuestion& question) {
  const PaperChoice choice = paper_choice(question.model, question.setup);
  JsonWriter json;
  json.begin_object().member("ok", true).key("value").begin_object();
  json.member("model", question.name).member("form", question.setup.form == PaperForm::coded ? "coded" : "published");
  json.member("memory", question.setup.memory).member("base", question.setup.base).member("chunk", question.model.chunk);
  json.member("logits", question.setup.fp32_logits ? "float32" : "float16");
  if (question.method)
    json.key("choice").null();
  else
    json.member("choice", choice.method ? name_of(*choice.method) : "offload");
  json.key("methods").begin_array();
  for (const PaperCandidate& candidate : choice.candidates)
    if (!question.method || *question.method == candidate.method) write_method(json, question, candidate);
  json.end_array().end_object().end_object();
  return json.take();
}

}  // namespace

std::string paper(std::string_view question, const ModelPresets& presets) {
  Reading<PaperQuestion> reading = read_paper_question(question, presets);
  if (!reading.problems.empty()) return problems_to_json(reading.problems);
  PaperQuestion& asked = reading.value;
  if (!asked.base_given) asked.setup.base = outside_of(asked.compute_capability, {asked.setup.gpus}).used;
  return answer(asked);
}

}  // namespace llmem
