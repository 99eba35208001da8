#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>

#include "embedded_presets.h"
#include "files.h"
#include "model/config.h"
#include "report/estimate.h"

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
  // A token meets 8 of 128 experts, in each of 48 layers: the "A3B" of the name, which is no measure of memory.
  EXPECT_EQ(active_parameters(reading.value), n - std::int64_t{48} * 3 * 2048 * 768 * (128 - 8));
}

TEST(Cases, B37StoredQuantisationIsNoted) {
  const auto reading = read_architecture(case_config("b37_config"));
  ASSERT_EQ(reading.notes.size(), 2u);  // the other says how experts are counted
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

// ---------------------------------------------------------------- what is answered

using Json = nlohmann::json;

Json answer_to(const Json& spec) {
  const Json answer = parse_json(estimate(spec.dump(), embedded_presets())).value;
  EXPECT_TRUE(answer.value("ok", false)) << spec.dump() << "\n" << answer.dump();
  return answer.value("ok", false) ? answer["value"] : Json();
}

std::int64_t peak_of(const Json& spec) { return answer_to(spec)["ranks"][0]["peak_allocated"].get<std::int64_t>(); }

Json recipe(const char* model, const Json& training, const char* gpu = "a100-sxm-80gb") {
  return {{"model", model}, {"training", training}, {"cluster", {{"gpu", gpu}}}};
}

const Json nf4 = {{"bits", 4}, {"type", "nf4"}, {"compute_dtype", "bfloat16"}};

TEST(Cases, B04AdaptersTakeLessThanFullTrainingAndAPastedConfigIsThePreset) {
  const char* model = "codellama/CodeLlama-7b-hf";
  const Json adapter = {{"rank", 8}, {"targets", {"q_proj", "k_proj"}}};
  const std::int64_t full = peak_of(recipe(model, {{"sequence", 2048}}));
  const std::int64_t lora = peak_of(recipe(model, {{"sequence", 2048}, {"method", "lora"}, {"adapter", adapter}}));
  const std::int64_t qlora =
      peak_of(recipe(model, {{"sequence", 2048}, {"method", "lora"}, {"adapter", adapter}, {"base_quantization", nf4}}));
  EXPECT_LT(qlora, lora);
  EXPECT_LT(lora, full);
  EXPECT_GT(lora, 13'000'000'000);
  EXPECT_LT(lora, 40'000'000'000);
  Json pasted = recipe(model, {{"sequence", 2048}});
  const std::string of_preset = estimate(pasted.dump(), embedded_presets());
  pasted["model"] = {{"name", model}, {"config", file_json("presets/models/codellama__CodeLlama-7b-hf.json")["config"]}};
  EXPECT_EQ(estimate(pasted.dump(), embedded_presets()), of_preset);
}

TEST(Cases, B06AdaptersSaveGradientsAndStatesNotActivations) {
  const char* model = "TinyLlama/TinyLlama-1.1B-Chat-v1.0";
  const Json adapter = {{"rank", 64}, {"targets", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}};
  const auto with = [&](std::int64_t sequence, bool lora) {
    Json training = {{"sequence", sequence}, {"attention", "flash_attention_2"}};
    if (lora) training.update(Json{{"method", "lora"}, {"adapter", adapter}});
    return recipe(model, training);
  };
  const Json parameters = answer_to(with(512, true))["parameters"];
  EXPECT_EQ(parameters["trainable"], 50'462'720);
  EXPECT_EQ(parameters["total"].get<std::int64_t>() + 50'462'720, 1'150'511'104);
  double before = 2.0;
  for (const std::int64_t sequence : {512, 1024, 2048, 4096, 8192}) {
    const auto full = static_cast<double>(peak_of(with(sequence, false))), lora = static_cast<double>(peak_of(with(sequence, true)));
    const double gain = (full - lora) / full;
    EXPECT_LT(gain, before) << sequence;
    before = gain;
  }
}

// A Llama of one small layer over a vocabulary.
Json small_llama(std::int64_t vocabulary) {
  return {{"name", "small"},
          {"config",
           {{"model_type", "llama"},
            {"hidden_size", 128},
            {"intermediate_size", 256},
            {"num_hidden_layers", 1},
            {"num_attention_heads", 2},
            {"num_key_value_heads", 2},
            {"vocab_size", vocabulary},
            {"rms_norm_eps", 1e-5},
            {"hidden_act", "silu"},
            {"tie_word_embeddings", false}}}};
}

// The sizes of the three largest requests.
std::vector<std::int64_t> largest_requests(const Json& spec) {
  const auto played = play_spec(spec.dump(), embedded_presets());
  EXPECT_TRUE(played.has_value()) << spec.dump();
  std::vector<std::int64_t> sizes;
  for (const Allocation& each : played->trace.allocations) sizes.push_back(each.bytes.count);
  std::sort(sizes.rbegin(), sizes.rend());
  sizes.resize(3);
  return sizes;
}

TEST(Cases, B24LogitsAreTokensTimesVocabularyTimesBytesTimesLiveCopies) {
  const auto with = [](std::int64_t vocabulary, std::int64_t rows, std::int64_t sequence, const char* weights, const char* loss) {
    return Json{{"model", small_llama(vocabulary)},
                {"training", {{"micro_batch", rows}, {"sequence", sequence}, {"weights", weights}, {"loss", loss}}}};
  };
  const std::int64_t copy = std::int64_t{16} * 1024 * 32768 * 4;
  EXPECT_EQ(copy, 2'147'483'648);
  const Json full = with(32768, 16, 1024, "float32", "standard");
  EXPECT_EQ(largest_requests(full), (std::vector<std::int64_t>{copy, copy, copy}));
  // The logarithms, their gradient and the logits' gradient are alive together; in chunks there is nothing of that size.
  const Json chunked = with(32768, 16, 1024, "float32", "chunked");
  EXPECT_LT(largest_requests(chunked)[0], copy);
  EXPECT_GT(peak_of(full) - peak_of(chunked), 2 * copy);
  EXPECT_EQ(largest_requests(with(248320, 1, 11600, "float32", "standard"))[0], std::int64_t{11600} * 248320 * 4);  // 10.73 GiB
  EXPECT_EQ(largest_requests(with(151936, 1, 32768, "float32", "standard"))[0], std::int64_t{32768} * 151936 * 4);  // 18.55 GiB
  // bfloat16 logits, 1.00 GiB, beside fp32 copies of twice that
  const auto played = play_spec(with(131072, 1, 4096, "bfloat16", "standard").dump(), embedded_presets());
  const auto of_size = [&](std::int64_t bytes) {
    return std::count_if(played->trace.allocations.begin(), played->trace.allocations.end(),
                         [&](const Allocation& each) { return each.bytes.count == bytes; });
  };
  EXPECT_GE(of_size(std::int64_t{4096} * 131072 * 2), 1);
  EXPECT_GE(of_size(std::int64_t{4096} * 131072 * 4), 2);
}

TEST(Cases, B26ExpandableSegmentsChangeWhatIsReservedNotWhatIsAllocated) {
  Json spec = recipe("meta-llama/Meta-Llama-3-8B", {{"micro_batch", 2},
                                                    {"sequence", 512},
                                                    {"method", "lora"},
                                                    {"adapter", {{"rank", 8}, {"targets", {"q_proj", "v_proj", "o_proj"}}}},
                                                    {"base_quantization", nf4},
                                                    {"checkpointing", "full"}});
  const Json usual = answer_to(spec)["ranks"][0];
  spec["allocator"] = {{"expandable_segments", true}};
  const Json expandable = answer_to(spec)["ranks"][0];
  const auto allocated = [](const Json& rank) { return rank["peak_allocated"].get<double>(); };
  const auto overhead = [&](const Json& rank) { return rank["peak_reserved"].get<double>() - allocated(rank); };
  EXPECT_NEAR(allocated(expandable) / allocated(usual), 1.0, 0.005);  // blocks are split further: no remainders are counted
  EXPECT_GT(overhead(usual), 0.0);
  EXPECT_LT(overhead(expandable), overhead(usual));
}

// axolotl's packing makes one row of micro_batch_size * sequence_len tokens (web/test/files.test.ts reads the file so).
TEST(Cases, B27APackedBatchIsOneLongRow) {
  const auto with = [](const char* attention) {
    return Json{{"model", small_llama(1024)}, {"training", {{"micro_batch", 1}, {"sequence", 16384}, {"attention", attention}}}};
  };
  EXPECT_LT(largest_requests(with("flash_attention_2"))[0], std::int64_t{16384} * 16384);
  EXPECT_EQ(largest_requests(with("eager"))[0], std::int64_t{2} * 16384 * 16384 * 4);  // of two heads, in fp32
}

// The model is made at random, so in fp32. What is short of memory by less than the states take gets through the first step.
TEST(Cases, B28StatesOfTheFirstStepCountInTheSecond) {
  Json training = {{"weights", "float32"},
                   {"autocast", "bfloat16"},
                   {"sequence", 16384},
                   {"optimizer", {{"name", "adamw_8bit"}}},
                   {"attention", "flash_attention_2"}};
  const auto on = [&](std::int64_t memory) {
    Json spec = recipe("HuggingFaceTB/SmolLM2-1.7B", training, "h100-sxm-80gb");
    spec["cluster"]["memory"] = memory;
    return answer_to(spec);
  };
  const Json ample = on(std::int64_t{80} << 30)["ranks"][0];
  std::int64_t first = 0, second = 0;
  for (const Json& point : ample["points"]) {
    if (point["at"] == "step0.backward0") first = point["peak_reserved"];
    if (point["at"] == "step1.backward0") second = point["peak_reserved"];
  }
  EXPECT_GT(second, first + std::int64_t{3} * 1'000'000'000);  // two states of a byte
  const Json failed = on((first + second) / 2);
  EXPECT_EQ(failed["verdict"]["status"], "does_not_fit");
  ASSERT_TRUE(failed["ranks"][0]["out_of_memory"].is_object());
  EXPECT_EQ(failed["ranks"][0]["out_of_memory"]["phase"].get<std::string>().substr(0, 5), "step1");
  training["checkpointing"] = "full";
  EXPECT_EQ(on((first + second) / 2)["verdict"]["status"], "fits");
}

// PEFT's fp32 adapters on a bf16 base: each adapted linear keeps its input in fp32.
TEST(Cases, B41AdaptersInFp32KeepTheirInputsInFp32) {
  const auto peak = [](const char* model, std::int64_t rows, bool upcast, const char* checkpointing) {
    return peak_of(recipe(model,
                          {{"method", "lora"},
                           {"adapter", {{"rank", 64}, {"targets", "all-linear"}, {"upcast", upcast}}},
                           {"micro_batch", rows},
                           {"sequence", 4096},
                           {"loss", "trl_tiled"},
                           {"checkpointing", checkpointing}},
                          "a100-sxm-40gb"));
  };
  struct Measured {
    const char* model;
    std::int64_t rows, hidden, intermediate, layers;
  };
  for (const Measured& m : {Measured{"Qwen/Qwen2.5-0.5B", 8, 896, 4864, 24}, Measured{"Qwen/Qwen2.5-1.5B", 4, 1536, 8960, 28}}) {
    const std::int64_t inputs = 6 * m.hidden + m.intermediate;  // of the seven linears
    const auto a_layer = static_cast<double>(m.rows * 4096 * inputs * 4);
    // … in place of half as much, once for q, k, v and once for gate and up
    const auto in_half = static_cast<double>(m.rows * 4096 * (3 * m.hidden + m.intermediate) * 2);
    const double none = static_cast<double>(peak(m.model, m.rows, true, "none") - peak(m.model, m.rows, false, "none"));
    EXPECT_NEAR(none / ((a_layer - in_half) * static_cast<double>(m.layers)), 1.0, 0.2) << m.model;
    const double checkpointed = static_cast<double>(peak(m.model, m.rows, true, "full") - peak(m.model, m.rows, false, "full"));
    EXPECT_NEAR(checkpointed / a_layer, 1.0, 0.5) << m.model;
  }
}

}  // namespace
}  // namespace llmem
