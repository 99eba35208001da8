#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "cli/commands.h"
#include "model/config.h"
#include "report/json_writer.h"
#include "report/report.h"
#include "spec/read_spec.h"
#include "step/play.h"
#include "time/layout.h"

// `llmem time`: how long a step takes on machines and programs that a spec cannot name yet, to hold core/time to what others measured:
// {"spec": of one GPU, "layout": {"tensor", "pipeline", "virtual", "context", "data", "sharding": 0 … 3, "gradient_bytes", "microbatches"} or null,
//  "kernels": {"fused", "flash3", "float8"}}
namespace llmem {
namespace {

using Json = nlohmann::json;

std::int64_t integer(const Json& from, const char* key, std::int64_t otherwise) {
  if (!from.is_object()) return otherwise;
  const auto found = from.find(key);
  return found != from.end() && found->is_number_integer() ? found->get<std::int64_t>() : otherwise;
}

bool truth(const Json& from, const char* key) {
  if (!from.is_object()) return false;
  const auto found = from.find(key);
  return found != from.end() && found->is_boolean() && found->get<bool>();
}

RankLayout layout_of(const Json& json, const Spec& spec, const Architecture& architecture, const Trace& trace) {
  RankLayout layout;
  layout.tensor = integer(json, "tensor", 1);
  layout.pipeline = integer(json, "pipeline", 1);
  layout.virtual_stages = integer(json, "virtual", 1);
  layout.context = integer(json, "context", 1);
  layout.data = integer(json, "data", 1);
  layout.sharding = static_cast<Sharding>(integer(json, "sharding", 0));
  layout.shards = integer(json, "shards", layout.data);
  layout.gradient_bytes = integer(json, "gradient_bytes", 2);
  layout.masters = truth(json, "masters");
  layout.gathers_ahead = truth(json, "gathers_ahead");
  layout.microbatches = integer(json, "microbatches", 1);
  for (const Parameter& parameter : parameters_of(architecture)) layout.parameters += parameter.count();
  for (const Work& work : trace.work)
    if (work.doing == Doing::update) layout.trainable += work.bytes / size_of(work.dtype).count;
  layout.layers = architecture.layers;
  layout.hidden_size = architecture.hidden_size;
  layout.kv_size = architecture.kv_heads * architecture.head_dim;
  layout.recomputes = spec.training.checkpointing != Checkpointing::none;
  return layout;
}

void write(JsonWriter& json, const StepTime& time) {
  const auto us = [](double seconds) { return std::int64_t{std::llround(seconds * 1e6)}; };
  json.begin_object().member("microseconds", us(time.seconds)).member("milli_tokens_per_second", us(time.tokens_per_second / 1000));
  json.member("compute", us(time.compute)).member("memory", us(time.memory)).member("communication", us(time.communication));
  json.member("bubble", us(time.bubble)).member("launch", us(time.launch)).member("after_backward", us(time.after_backward));
  json.member("communication_total", us(time.communication_total)).end_object();
}

}  // namespace

std::string time_of(std::string_view text, const ModelPresets& presets) {
  const Reading<Json> parsed = parse_json(text);
  if (!parsed.problems.empty()) return problems_to_json(parsed.problems);
  const Json& question = parsed.value;
  if (!question.is_object() || !question.contains("spec")) return problems_to_json({{"/spec", "missing", "give a spec"}});
  Reading<Spec> reading = read_parsed_spec(question["spec"], presets);
  Spec& spec = reading.value;
  Reading<Architecture> architecture;
  if (spec.model.config) architecture = read_trained_architecture(*spec.model.config, spec.training);
  reading.problems.insert(reading.problems.end(), architecture.problems.begin(), architecture.problems.end());
  settle_attention(spec.training, architecture.value);
  if (reading.problems.empty()) reading.problems = check_sizes(spec, architecture.value);
  if (!reading.problems.empty()) return problems_to_json(reading.problems);
  const std::optional<Machine> machine = machine_of(spec.cluster);
  if (!machine) return problems_to_json({{"/cluster/gpu", "missing", "how fast this GPU is is not known"}});
  const Json said = question.contains("kernels") ? question["kernels"] : Json();
  Kernels kernels;
  kernels.fused = truth(said, "fused");
  kernels.flash3 = truth(said, "flash3");
  kernels.float8 = truth(said, "float8");
  const Json laid = question.contains("layout") ? question["layout"] : Json();
  const std::int64_t accumulation = spec.training.accumulation;
  spec.training.accumulation = std::min<std::int64_t>(laid.is_object() ? integer(laid, "microbatches", 1) : accumulation, 2);
  const Trace trace = play(spec, architecture.value);
  StepTime time;
  if (laid.is_object()) {
    time = laid_out(spec, trace, *machine, kernels, layout_of(laid, spec, architecture.value, trace));
  } else {
    time = step_time(spec, trace, *machine, kernels);
    const double before = time.seconds, times = static_cast<double>(accumulation) / static_cast<double>(spec.training.accumulation);
    time.seconds += static_cast<double>(accumulation - spec.training.accumulation) * time.first_micro_batch;
    time.tokens_per_second *= times * before / time.seconds;
  }
  JsonWriter json;
  json.begin_object().member("ok", true).key("value");
  write(json, time);
  return json.end_object().take();
}

}  // namespace llmem
