#include "model/config_class.h"

#include <cstdlib>

#include "base/json.h"

namespace llmem {

using Json = nlohmann::json;

// "a=1 b=2": each pair ends at a space.
std::string_view ConfigReader::value_of(std::string_view pairs, std::string_view key) {
  while (!pairs.empty()) {
    const std::string_view pair = pairs.substr(0, pairs.find(' '));
    pairs.remove_prefix(std::min(pairs.size(), pair.size() + 1));
    if (pair.size() > key.size() && pair[key.size()] == '=' && pair.substr(0, key.size()) == key) return pair.substr(key.size() + 1);
  }
  return {};
}

std::string_view ConfigReader::in_file(std::string_view key) {
  if (file_.present(key)) return key;
  const std::string_view other = value_of(other_names_, key);
  return !other.empty() && file_.present(other) ? other : key;
}

bool ConfigReader::has(std::string_view key) {
  const std::string_view name = in_file(key);
  return file_.present(name) ? file_.given(name) : has_default(key);
}

std::optional<std::int64_t> ConfigReader::integer(std::string_view key, std::int64_t least, std::int64_t most) {
  const std::string_view name = in_file(key), otherwise = value_of(defaults_, key);
  std::optional<std::int64_t> value;
  if (!otherwise.empty()) value = std::strtoll(std::string(otherwise).c_str(), nullptr, 10);
  if (!file_.present(name)) return value;
  if (!file_.given(name)) return std::nullopt;
  std::int64_t found = 0;
  if (file_.integer(name, found, least, most)) value = found;
  return value;
}

std::int64_t ConfigReader::count(std::string_view key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
  const std::string_view by_class = value_of(defaults_, key);
  std::int64_t value = by_class.empty() ? otherwise : std::strtoll(std::string(by_class).c_str(), nullptr, 10);
  file_.integer(in_file(key), value, least, most);
  return value;
}

std::int64_t ConfigReader::integer_or(std::string_view key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
  return integer(key, least, most).value_or(otherwise);
}

std::optional<double> ConfigReader::number(std::string_view key) {
  const std::string_view name = in_file(key), otherwise = value_of(defaults_, key);
  std::optional<double> value;
  if (!otherwise.empty()) value = std::strtod(std::string(otherwise).c_str(), nullptr);
  if (!file_.present(name)) return value;
  if (!file_.given(name)) return std::nullopt;
  double found = 0;
  if (file_.number(name, found, -1e30, 1e30)) value = found;
  return value;
}

bool ConfigReader::flag(std::string_view key) {
  const std::string_view name = in_file(key);
  bool value = value_of(defaults_, key) == "true";
  if (file_.present(name) && !file_.given(name)) return false;
  file_.boolean(name, value);
  return value;
}

std::string ConfigReader::text(std::string_view key) {
  std::string value(value_of(defaults_, key));
  file_.text(in_file(key), value);
  return value;
}

std::vector<std::string> ConfigReader::each_layer(std::string_view key, std::int64_t layers) {
  const Json* list = file_.find(key);
  std::vector<std::string> texts;
  if (!list) return texts;
  if (!list->is_array()) {
    file_.problem(key, "type", "must be a list with a type for each layer, not " + quoted(*list));
    return texts;
  }
  if (static_cast<std::int64_t>(list->size()) != layers) {
    file_.problem(key, "conflict",
                  std::to_string(list->size()) + " layer types for " + std::to_string(layers) + " layers (num_hidden_layers)");
    return texts;
  }
  for (const Json& each : *list) texts.push_back(each.is_string() ? each.get<std::string>() : quoted(each));
  return texts;
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view key) {
  std::vector<std::int64_t> numbers;
  const Json* list = file_.find(in_file(key));
  if (!list || !list->is_array()) return numbers;
  for (const Json& each : *list) {
    if (each.is_number_integer()) numbers.push_back(each.get<std::int64_t>());
    if (each.is_boolean()) numbers.push_back(each.get<bool>() ? 1 : 0);
  }
  return numbers;
}

}  // namespace llmem
