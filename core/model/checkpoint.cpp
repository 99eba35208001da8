#include "model/checkpoint.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "model/config.h"
#include "model/families.h"

namespace llmem {

namespace {

using Json = nlohmann::json;
using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMostValues = std::int64_t{1} << 46;

// The sizes in {"shape": [2, 3], …} or [2, 3]; none: it is neither.
std::optional<Shape> shape_of(const Json& value) {
  const Json* sizes = &value;
  if (value.is_object()) {
    const auto found = value.find("shape");
    if (found == value.end()) return std::nullopt;
    sizes = &*found;
  }
  if (!sizes->is_array()) return std::nullopt;
  Shape shape;
  for (const Json& each : *sizes) {
    if (!each.is_number_integer() || each.get<std::int64_t>() < 0) return std::nullopt;
    shape.push_back(each.get<std::int64_t>());
  }
  return shape;
}

std::int64_t count_of(const Shape& shape) {
  double product = 1;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    product *= static_cast<double>(size);
    count = product < static_cast<double>(kMostValues) ? count * size : kMostValues;
  }
  return count;
}

struct Checkpoint {
  std::map<std::string, Shape> shapes;  // of an index: names without sizes
  bool has_shapes = true;
  std::optional<std::int64_t> bytes, parameters;  // in all, where it says so
};

Checkpoint read(const Json& json) {
  Checkpoint out;
  const auto map = json.find("weight_map");
  out.has_shapes = map == json.end();
  if (out.has_shapes) {
    for (const auto& [name, value] : json.items())
      if (name != "__metadata__") out.shapes.emplace(name, shape_of(value).value_or(Shape{}));
    return out;
  }
  for (const auto& [name, file] : map->items()) out.shapes.emplace(name, Shape{});
  const auto metadata = json.find("metadata");
  if (metadata == json.end() || !metadata->is_object()) return out;
  const auto number = [&](const char* key) -> std::optional<std::int64_t> {
    const auto found = metadata->find(key);
    if (found == metadata->end() || !found->is_number()) return std::nullopt;
    const double value = found->get<double>();
    return value >= 0 && value < 0x1p60 ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt;
  };
  out.bytes = number("total_size");
  out.parameters = number("total_parameters");
  return out;
}

// "model.layers.3.mlp" -> "model.layers.*.mlp"
std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t dot = std::min(name.find('.', i), name.size());
    const std::string part = name.substr(i, dot - i);
    pattern += part.find_first_not_of("0123456789") == std::string::npos ? "*" : part;
    if (dot < name.size()) pattern += '.';
    i = dot + 1;
  }
  return pattern;
}

// Layers, as the largest number in a name says.
std::int64_t layers_of(const Checkpoint& checkpoint) {
  std::int64_t most = -1;
  for (const auto& [name, shape] : checkpoint.shapes) {
    const std::size_t dot = name.find_first_of("0123456789");
    if (dot == 0 || dot == std::string::npos || name[dot - 1] != '.') continue;
    const std::size_t end = name.find_first_not_of("0123456789", dot);
    if (end == std::string::npos || name[end] != '.' || end - dot > 6) continue;
    most = std::max<std::int64_t>(most, std::strtoll(name.c_str() + dot, nullptr, 10));
  }
  return most + 1;
}

struct Likeness {
  std::string_view family;
  double share = 0;  // of the patterns of both, those that both have
};

Likeness closest_family(const Checkpoint& checkpoint) {
  std::set<std::string> patterns;
  for (const auto& [name, shape] : checkpoint.shapes) patterns.insert(pattern_of(name));
  Likeness best;
  for (const std::string_view type : family_names(Coverage::parameters)) {
    std::set<std::string> own;
    const Reading<Architecture> reading = read_architecture(Json{{"model_type", std::string(type)}});
    for (const Parameter& each : reading.value.tensors)
      if (each.kind == Parameter::Kind::parameter) own.insert(pattern_of(each.name));
    std::size_t both = 0;
    for (const std::string& each : own) both += patterns.count(each);
    const double share = static_cast<double>(both) / static_cast<double>(std::max<std::size_t>(1, own.size() + patterns.size() - both));
    if (share > best.share) best = {type, share};
  }
  return best;
}

std::string sizes_in_words(const Shape& shape) {
  std::string words = "[";
  for (const std::int64_t size : shape) words += (words.size() > 1 ? ", " : "") + std::to_string(size);
  return words + "]";
}

}  // namespace

bool is_checkpoint(const Json& json) {
  if (!json.is_object() || json.empty() || json.contains("model_type")) return false;
  const auto map = json.find("weight_map");
  if (map != json.end()) return map->is_object() && !map->empty();
  bool any = false;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") continue;
    if (name.find('.') == std::string::npos || !shape_of(value)) return false;
    any = true;
  }
  return any;
}

Problem about_checkpoint(const Json& json) {
  const Checkpoint checkpoint = read(json);
  std::string message =
      "these are the tensors of a checkpoint, not a config.json: " + std::to_string(checkpoint.shapes.size()) + " tensors";
  std::int64_t parameters = checkpoint.parameters.value_or(0);
  if (checkpoint.has_shapes) {
    parameters = 0;
    for (const auto& [name, shape] : checkpoint.shapes) parameters = std::min(kMostValues, parameters + count_of(shape));
  }
  if (parameters > 0) message += " of " + grouped_digits(parameters) + " parameters";
  if (checkpoint.bytes) message += ", " + grouped_digits(*checkpoint.bytes) + " bytes";
  if (const std::int64_t layers = layers_of(checkpoint); layers > 0) message += ", " + std::to_string(layers) + " layers";
  const Likeness closest = closest_family(checkpoint);
  constexpr double kAlike = 0.5;
  const std::string family(closest.family);
  message += closest.share == 1       ? ". The names are those of \"" + family + "\"."
             : closest.share > kAlike ? ". The names are nearest to those of \"" + family + "\", but not the same."
                                      : ". The names are of no family that is known.";
  return {"/model/config", "checkpoint",
          message + " What trains beside them (heads, activations, dropout) only a config.json says: give it, too."};
}

namespace {

struct Expected {
  const Parameter* parameter = nullptr;
  bool seen = false;
};

}  // namespace

Problems check_checkpoint(const Json& json, const Architecture& a) {
  const auto problem = [](std::string message) { return Problems{{"/model/tensors", "conflict", std::move(message)}}; };
  if (!is_checkpoint(json))
    return {
        {"/model/tensors", "type", "must be a model.safetensors.index.json, the header of a safetensors file or {\"name\": [sizes], …}"}};
  const Checkpoint checkpoint = read(json);
  std::map<std::string, Expected> expected;
  std::int64_t whole = 0;
  for (const Parameter& each : a.tensors) {
    expected[each.name].parameter = &each;
    if (each.kind != Parameter::Kind::buffer) whole += each.count();
  }
  const std::string head = std::string(a.names.head) + ".weight";
  const std::int64_t tied = a.tied_embeddings ? a.vocab_size * a.hidden_size : 0;
  if (!checkpoint.has_shapes) {
    const auto agrees = [&](std::int64_t total) { return total == whole || total == whole + tied; };
    bool sound = !checkpoint.parameters || agrees(*checkpoint.parameters);
    if (checkpoint.bytes) {
      sound = false;
      for (const std::int64_t width : {1, 2, 4})
        sound = sound || *checkpoint.bytes == width * whole || *checkpoint.bytes == width * (whole + tied);
    }
    if (sound) return {};
    return problem(
        "the index has " +
        (checkpoint.bytes ? grouped_digits(*checkpoint.bytes) + " bytes" : grouped_digits(*checkpoint.parameters) + " parameters") +
        ", the config's model " + grouped_digits(whole) + " parameters: in no dtype of 1, 2 or 4 bytes the same");
  }
  std::int64_t total = 0;
  std::string first;
  for (const auto& [name, shape] : checkpoint.shapes) {
    const auto found = expected.find(name);
    if (found == expected.end()) {
      if (name == head && tied > 0) continue;
      total = std::min(kMostValues, total + count_of(shape));
      if (first.empty()) first = "\"" + shortened(name, 80) + "\" is not in the config's model";
      continue;
    }
    found->second.seen = true;
    if (found->second.parameter->kind == Parameter::Kind::buffer) continue;
    total = std::min(kMostValues, total + count_of(shape));
    if (shape != found->second.parameter->shape && first.empty())
      first = "\"" + shortened(name, 80) + "\" is " + sizes_in_words(shape) + " here and " +
              sizes_in_words(found->second.parameter->shape) + " in the config's model";
  }
  for (const auto& [name, each] : expected)
    if (first.empty() && !each.seen && each.parameter->kind != Parameter::Kind::buffer)
      first = "\"" + name + "\" of the config's model is missing";
  if (total == whole) return {};  // under whatever names: checkpoints have experts apart
  return problem("the tensors are " + grouped_digits(total) + " parameters, the config's model has " + grouped_digits(whole) + ": " +
                 first);
}

}  // namespace llmem
