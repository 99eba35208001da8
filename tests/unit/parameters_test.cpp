#include <gtest/gtest.h>

#include <map>

#include "embedded_presets.h"
#include "files.h"
#include "model/config.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

std::int64_t total(const std::vector<Parameter>& parameters) {
  std::int64_t n = 0;
  for (const Parameter& each : parameters) n += each.count();
  return n;
}

// "model.layers.3.mlp.up_proj.weight" is one of "model.layers.*.mlp.up_proj.weight".
std::string grouped(const std::string& name) {
  const std::string layers = "model.layers.";
  if (name.substr(0, layers.size()) != layers) return name;
  return layers + "*" + name.substr(name.find('.', layers.size()));
}

Json preset_config(const std::string& id) {
  for (const ModelPreset& preset : embedded_presets()) {
    if (preset.id == id) return parse_json(preset.text).value["config"];
  }
  ADD_FAILURE() << id;
  return {};
}

TEST(Parameters, OfEveryPresetOfASupportedFamilyAreThoseOfTransformers) {
  const std::vector<Json> expected = file_lines("tests/data/preset_parameters.jsonl");
  EXPECT_EQ(expected.size(), 92u);
  for (const Json& row : expected) {
    const auto id = row["id"].get<std::string>();
    const auto reading = read_architecture(preset_config(id));
    ASSERT_TRUE(reading.problems.empty()) << id << "\n" << shown(reading.problems);
    const auto parameters = parameters_of(reading.value);
    EXPECT_EQ(total(parameters), row["total"].get<std::int64_t>()) << id;
    std::map<std::string, std::pair<std::vector<std::int64_t>, std::int64_t>> groups, wanted;
    for (const Parameter& each : parameters) {
      auto& [shape, count] = groups[grouped(each.name)];
      shape = each.shape;
      ++count;
    }
    for (const Json& group : row["groups"]) {
      wanted[group[0].get<std::string>()] = {group[1].get<std::vector<std::int64_t>>(), group[2].get<std::int64_t>()};
    }
    EXPECT_EQ(groups, wanted) << id;
  }
}

TEST(Parameters, OfMadeUpConfigsAreThoseOfTransformersInOrder) {
  const std::vector<Json> expected = file_lines("tests/data/configs.jsonl");
  EXPECT_EQ(expected.size(), 60u);
  for (const Json& row : expected) {
    const auto reading = read_architecture(row["config"]);
    ASSERT_TRUE(reading.problems.empty()) << row["config"] << "\n" << shown(reading.problems);
    const auto parameters = parameters_of(reading.value);
    ASSERT_EQ(parameters.size(), row["parameters"].size()) << row["config"];
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(parameters[i].name, row["parameters"][i][0].get<std::string>()) << row["config"];
      EXPECT_EQ(parameters[i].shape, row["parameters"][i][1].get<std::vector<std::int64_t>>()) << row["config"];
    }
  }
}

TEST(Parameters, PresetTotalsAgreeWithThePresetsOwn) {
  int supported = 0;
  for (const ModelPreset& preset : embedded_presets()) {
    const Json file = parse_json(preset.text).value;
    EXPECT_EQ(file["id"], preset.id);
    ASSERT_TRUE(file["config"].is_object()) << preset.id;
    EXPECT_FALSE(file["source"].empty()) << preset.id;
    const auto reading = read_architecture(file["config"]);
    if (!reading.problems.empty()) continue;
    EXPECT_EQ(total(parameters_of(reading.value)), file["parameters"].get<std::int64_t>()) << preset.id;
    ++supported;
  }
  EXPECT_EQ(supported, 92);
}

TEST(Parameters, OfVectorsAreThoseThatPyTorchCounted) {
  for (const Json& vector : file_lines("tests/vectors/first.jsonl")) {
    const Json& model = vector["spec"]["model"];
    const auto reading = read_architecture(model.is_string() ? preset_config(model.get<std::string>()) : model["config"]);
    ASSERT_TRUE(reading.problems.empty()) << vector["id"] << "\n" << shown(reading.problems);
    EXPECT_EQ(total(parameters_of(reading.value)), vector["expected"]["parameters"].get<std::int64_t>()) << vector["id"];
  }
}

}  // namespace
}  // namespace llmem
