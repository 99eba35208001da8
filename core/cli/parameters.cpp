#include <map>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "model/config.h"
#include "report/json_writer.h"
#include "report/report.h"
#include "spec/read_spec.h"

// `llmem parameters`: every parameter of a model, grouped over layers, also where its training step is not supported.
namespace llmem {
namespace {

// "model.layers.3.mlp.up_proj.weight" is one of "model.layers.*.mlp.up_proj.weight".
std::string folded(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    if (!out.empty()) out += '.';
    out += part.find_first_not_of("0123456789") == std::string_view::npos ? std::string_view("*") : part;
    name.remove_prefix(std::min(name.size(), part.size() + 1));
  }
  return out;
}

struct Group {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t count = 0;
};

// In the order in which each first comes.
std::vector<Group> groups_of(const std::vector<Parameter>& parameters) {
  std::vector<Group> groups;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, std::size_t> at;
  for (const Parameter& each : parameters) {
    const auto [found, fresh] = at.try_emplace({folded(each.name), each.shape}, groups.size());
    if (fresh) groups.push_back({found->first.first, each.shape});
    ++groups[found->second].count;
  }
  return groups;
}

std::string parameters_of_spec(std::string_view text, const ModelPresets& presets) {
  Reading<Spec> spec = read_spec(text, presets);
  if (!spec.value.model.config) return problems_to_json(spec.problems);
  const Reading<Architecture> reading = read_architecture(*spec.value.model.config);
  const bool counted = spec.problems.empty() && !reading.value.tensors.empty();  // what is wrong is then its training step only
  spec.problems.insert(spec.problems.end(), reading.problems.begin(), reading.problems.end());
  if (!counted) return problems_to_json(spec.problems);
  const std::vector<Parameter> parameters = parameters_of(reading.value);
  std::int64_t total = 0;
  for (const Parameter& each : parameters) total += each.count();
  JsonWriter json;
  json.begin_object().member("ok", true).key("value").begin_object();
  json.member("type", std::string_view(reading.value.model_type)).member("class", std::string_view(reading.value.model_class));
  json.member("training_step", spec.problems.empty());
  json.member("total", total).member("active", active_parameters(reading.value)).key("groups").begin_array();
  for (const Group& group : groups_of(parameters)) {
    json.begin_object().member("name", std::string_view(group.name)).key("shape").begin_array();
    for (const std::int64_t size : group.shape) json.value(size);
    json.end_array().member("count", group.count).end_object();
  }
  return json.end_array().end_object().end_object().take();
}

}  // namespace

int parameters_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets) {
  return answer_lines(in, out, presets, parameters_of_spec);
}

}  // namespace llmem
