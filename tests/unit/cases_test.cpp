#include <gtest/gtest.h>

#include "files.h"
#include "model/config.h"

// Inputs of public reports (tests/cases/README.md has what is right and where it was reported).
namespace llmem {
namespace {

std::int64_t total_of(const nlohmann::json& config) {
  const auto reading = read_architecture(config);
  EXPECT_TRUE(reading.problems.empty()) << shown(reading.problems);
  std::int64_t n = 0;
  for (const Parameter& each : parameters_of(reading.value)) n += each.count();
  return n;
}

nlohmann::json case_config(const std::string& name) { return file_json("tests/cases/" + name + ".json"); }

TEST(Cases, B01WeightsHaveTheHeadAndOneDtype) {
  const std::int64_t parameters = total_of(case_config("b01_config"));
  EXPECT_EQ(parameters, 70'553'706'496);
  EXPECT_EQ((size_of(Dtype::bfloat16) * parameters).count, 141'107'412'992);  // 141.1 GB
}

TEST(Cases, B03GatedMlpHasThreeMatrices) { EXPECT_EQ(total_of(case_config("b03_config")), 72'287'920'128); }

TEST(Cases, B33GivenHeadDimWins) {
  nlohmann::json config = case_config("b33_config");
  EXPECT_EQ(total_of(config), 32'762'123'264);
  const auto shape_of = [&](const std::string& name) {
    for (const Parameter& each : parameters_of(read_architecture(config).value)) {
      if (each.name == "model.layers.0.self_attn." + name) return each.shape;
    }
    return std::vector<std::int64_t>{};
  };
  EXPECT_EQ(shape_of("q_proj.weight"), (std::vector<std::int64_t>{64 * 128, 5120}));
  EXPECT_EQ(shape_of("o_proj.weight"), (std::vector<std::int64_t>{5120, 64 * 128}));
  EXPECT_EQ(shape_of("k_norm.weight"), (std::vector<std::int64_t>{128}));
  // Qwen3-4B, of the same report: hidden 2560, 32 heads of 128.
  EXPECT_EQ(total_of(file_json("presets/models/Qwen__Qwen3-4B.json")["config"]), 4'022'468'096);
}

TEST(Cases, B34AbsentAndNullAreTheSame) {
  EXPECT_EQ(total_of(case_config("b34a_config_kv_absent")), 6'738'415'616);
  EXPECT_EQ(total_of(case_config("b34c_config_head_dim_null")), 7'248'023'552);
  nlohmann::json null = case_config("b34a_config_kv_absent");
  null["num_key_value_heads"] = nullptr;
  null["head_dim"] = nullptr;
  EXPECT_EQ(total_of(null), 6'738'415'616);
}

TEST(Cases, B34PhiHasBiasesAndLayerNorms) { EXPECT_EQ(total_of(case_config("b34b_config_kv_null")), 2'779'683'840); }

// 61.06 GB in bf16: every expert is there, however few a token meets.
TEST(Cases, B18AllExpertsAreResident) {
  const auto reading = read_architecture(file_json("presets/models/Qwen__Qwen3-30B-A3B.json")["config"]);
  std::int64_t n = 0;
  for (const Parameter& each : parameters_of(reading.value)) n += each.count();
  EXPECT_EQ(n, 30'532'122'624);
  EXPECT_EQ((size_of(Dtype::bfloat16) * n).count, 61'064'245'248);
}

TEST(Cases, B37StoredQuantisationIsNoted) {
  const auto reading = read_architecture(case_config("b37_config"));
  ASSERT_EQ(reading.notes.size(), 1u);
  EXPECT_EQ(reading.notes[0].at, "/model/config/quantization_config");
  EXPECT_NE(reading.notes[0].message.find("mxfp4"), std::string::npos);
  // What training holds: every parameter, not the four bits of the file.
  std::int64_t n = 0;
  for (const Parameter& each : parameters_of(reading.value)) n += each.count();
  EXPECT_EQ(n, 20'914'757'184);
  nlohmann::json llama = case_config("b01_config");
  llama["quantization_config"] = {{"quant_method", "awq"}, {"bits", 4}};
  EXPECT_EQ(total_of(llama), 70'553'706'496);
}

TEST(Cases, B39EveryWayToWriteRotaryScaling) {
  for (const char* name : {"b39a_rope_two_fields", "b39b_rope_llama3", "b39c_rope_parameters_v5"}) {
    EXPECT_EQ(total_of(case_config(name)), 8'030'261'248) << name;
    EXPECT_TRUE(read_architecture(case_config(name)).notes.empty()) << name;
  }
  nlohmann::json config = case_config("b39a_rope_two_fields");
  for (const nlohmann::json& odd : {nlohmann::json{{"type", "of-tomorrow"}}, nlohmann::json("x"), nlohmann::json{{"rope_type", 7}}}) {
    config["rope_scaling"] = odd;
    EXPECT_EQ(total_of(config), 8'030'261'248);
    EXPECT_EQ(read_architecture(config).notes.size(), 1u);
  }
}

}  // namespace
}  // namespace llmem
