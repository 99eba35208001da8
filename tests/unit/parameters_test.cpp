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
  std::string out;
  for (std::size_t i = 0; i < name.size();) {
    const std::size_t end = std::min(name.find('.', i), name.size());
    const std::string part = name.substr(i, end - i);
    if (!out.empty()) out += '.';
    out += !part.empty() && part.find_first_not_of("0123456789") == std::string::npos ? "*" : part;
    i = end + 1;
  }
  return out;
}

// Nothing wrong, or nothing but a training step that is not supported.
bool counted(const Reading<Architecture>& reading) {
  for (const Problem& each : reading.problems)
    if (each.at != "/model/config/model_type" || each.code != "unsupported") return false;
  return !reading.value.tensors.empty();
}

Json preset_config(const std::string& id) {
  for (const ModelPreset& preset : embedded_presets()) {
    if (preset.id == id) return parse_json(preset.text).value["config"];
  }
  ADD_FAILURE() << id;
  return {};
}

// A line: id, total, groups of (name, shape, how many) in the order of model.parameters().
TEST(Parameters, OfEveryPresetOfAKnownFamilyAreThoseOfTransformers) {
  const std::vector<Json> expected = file_lines("tests/data/preset_parameters.jsonl");
  EXPECT_GT(expected.size(), 330u);
  for (const Json& row : expected) {
    const auto id = row["id"].get<std::string>();
    const auto reading = read_architecture(preset_config(id));
    ASSERT_TRUE(counted(reading)) << id << "\n" << shown(reading.problems);
    const auto parameters = parameters_of(reading.value);
    EXPECT_EQ(total(parameters), row["total"].get<std::int64_t>()) << id;
    std::map<std::pair<std::string, std::vector<std::int64_t>>, std::int64_t> groups, wanted;
    for (const Parameter& each : parameters) ++groups[{grouped(each.name), each.shape}];
    for (const Json& group : row["groups"])
      wanted[{group[0].get<std::string>(), group[1].get<std::vector<std::int64_t>>()}] += group[2].get<std::int64_t>();
    EXPECT_EQ(groups, wanted) << id;
  }
}

TEST(Parameters, OfRandomConfigsOfEveryFamilyAreThoseOfTransformers) {
  const std::vector<Json> expected = file_lines("tests/data/random_configs.jsonl");
  EXPECT_GT(expected.size(), 120u);
  for (const Json& row : expected) {
    const auto reading = read_architecture(row["config"]);
    ASSERT_TRUE(counted(reading)) << row["config"] << "\n" << shown(reading.problems);
    std::map<std::pair<std::string, std::vector<std::int64_t>>, std::int64_t> groups, wanted;
    for (const Parameter& each : parameters_of(reading.value)) ++groups[{grouped(each.name), each.shape}];
    for (const Json& group : row["groups"])
      wanted[{group[0].get<std::string>(), group[1].get<std::vector<std::int64_t>>()}] += group[2].get<std::int64_t>();
    EXPECT_EQ(groups, wanted) << row["config"];
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
    if (!counted(reading)) continue;
    EXPECT_EQ(total(parameters_of(reading.value)), file["parameters"].get<std::int64_t>()) << preset.id;
    ++supported;
  }
  EXPECT_GE(supported, 354);
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
