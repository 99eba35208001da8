#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "estimates.h"
#include "model/config.h"
#include "plan/rank.h"
#include "spec/read_spec.h"

// Public reports about parallel runs (tests/cases/README.md has what is right and where it was reported), and what all ranks hold together.
namespace llmem {
namespace {

constexpr double GiB = 1024.0 * 1024.0 * 1024.0;

std::int64_t allocated(const Json& report, const std::string& at, const char* counter = "allocated") {
  for (const Json& point : report["ranks"][0]["points"])
    if (point["at"] == at) return point[counter];
  ADD_FAILURE() << "no point " << at;
  return 0;
}

Json zero(const char* kind, std::int64_t ranks) { return {{"data", {{"kind", kind}, {"degree", ranks}}}}; }

// 2 bytes a parameter are replicated; master weights, two moments and the gradients of a rank's part are 14 bytes of 1 / 8 each.
TEST(ParallelCases, B09ZeRO2ReplicatesTwoBytesAParameter) {
  const Json r = report({{"model", "meta-llama/Llama-3.2-3B"},
                         {"training", {{"micro_batch", 1}, {"sequence", 128}, {"checkpointing", "full"}}},
                         {"parallel", zero("zero2", 8)}});
  const double parameters = r["parameters"]["total"];
  const auto expected = [&](double replicated, double shared) { return parameters * (replicated + shared / 8); };
  EXPECT_NEAR(static_cast<double>(allocated(r, "step1.zero_grad")) / expected(2, 12), 1.0, 0.02);
  EXPECT_NEAR(static_cast<double>(allocated(r, "step1.backward0")) / expected(2, 14), 1.0, 0.02);
  // The old formula, 4P + 16P / N, is far above.
  EXPECT_LT(static_cast<double>(allocated(r, "step1.backward0")), 0.7 * expected(4, 16));
}

// A pasted ds_config.json says what the format's own keys say: "auto" is what Transformers fills in, as auto_buckets is.
TEST(DeepSpeedConfig, SaysWhatTheKeysSay) {
  Json spec = {{"model", llama(256, 2, 1000)}, {"training", {{"sequence", 128}, {"max_grad_norm", 1.0}}}, {"parallel", zero("zero3", 2)}};
  const Json by_keys = report(spec)["ranks"][0]["points"];
  Json& config = spec["parallel"]["data"]["config"];
  config =
      parse_json(R"({"zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": "auto",
    "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
    "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true}, "bf16": {"enabled": "auto"},
    "gradient_clipping": "auto", "train_micro_batch_size_per_gpu": "auto", "steps_per_print": 2000})")
          .value;
  EXPECT_EQ(report(spec)["ranks"][0]["points"], by_keys);
  config["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  const Json offloaded = report(spec)["ranks"][0]["points"];
  EXPECT_NE(offloaded, by_keys);
  config["zero_optimization"].erase("offload_optimizer");
  spec["parallel"]["offload"] = {{"optimizer", "cpu"}};
  EXPECT_EQ(report(spec)["ranks"][0]["points"], offloaded);
  config["zero_optimization"]["stage"] = 2;
  EXPECT_EQ(answer(spec)["problems"][0]["at"], "/parallel/data/config/zero_optimization/stage");
}

TEST(ParallelCases, B11ZeRO2FailsInTheOptimizer) {
  Json spec = {{"model", "huggyllama/llama-7b"},
               {"training", {{"micro_batch", 1}, {"sequence", 512}, {"checkpointing", "full"}}},
               {"parallel", zero("zero2", 8)},
               {"cluster", {{"gpu", "a100-sxm-80gb"}, {"memory", static_cast<std::int64_t>(30.5 * GiB)}}}};
  const Json failed = report(spec);
  EXPECT_EQ(failed["verdict"]["status"], "does_not_fit");
  const Json& failure = failed["ranks"][0]["out_of_memory"];
  ASSERT_TRUE(failure.is_object());
  EXPECT_EQ(failure["phase"], "step0.optimizer");
  EXPECT_NEAR(failure["tried"].get<double>() / GiB, 3.14, 0.01);  // as reported
  EXPECT_GT(failure["allocated"].get<double>() / GiB, 25.1);      // 2P + 16P / 8
  spec["parallel"] = zero("zero3", 8);
  EXPECT_NE(report(spec)["verdict"]["status"], "does_not_fit");
}

TEST(ParallelCases, B14SevenGpusAreTooFew) {
  Json spec = {{"model", "Qwen/Qwen2.5-32B"},
               {"training", {{"micro_batch", 1}, {"sequence", 1024}, {"accumulation", 2}}},
               {"parallel", zero("zero3", 7)},
               {"cluster", {{"gpu", "a100-sxm-80gb"}}}};
  const Json seven = report(spec);
  EXPECT_EQ(seven["parameters"]["total"], 32'763'876'352);
  EXPECT_EQ(seven["verdict"]["status"], "does_not_fit");
  spec["parallel"] = zero("zero3", 8);
  const Json eight = report(spec);
  EXPECT_GT(eight["ranks"][0]["peak_allocated"].get<double>() / GiB, 68.7);  // 18P / 8 before anything else
}

// A head that is tied and has another name than lm_head: FSDP1 makes a parameter of its own of it.
TEST(Fsdp1, UntiesAHeadOfAnyName) {
  const Json spec = {{"model", "microsoft/BioGPT-Large"}, {"parallel", {{"data", {{"kind", "fsdp1"}, {"degree", 8}}}}}};
  EXPECT_GT(allocated(report(spec), "loaded"), 0);
}

// peft/tuners/tuners_utils.py, inject_adapter raises.
TEST(Lora, TargetsThatNoModuleHasAreAProblem) {
  const Json spec = {{"model", "microsoft/Phi-3-medium-4k-instruct"}, {"training", {{"method", "lora"}}}, {"parallel", zero("zero2", 8)}};
  const Json answer = Json::parse(estimate(spec.dump(), embedded_presets()));
  ASSERT_FALSE(answer["ok"].get<bool>());
  EXPECT_EQ(answer["problems"][0]["at"], "/training/adapter/targets");
  EXPECT_NE(answer["problems"][0]["message"].get<std::string>().find("qkv_proj"), std::string::npos);
}

TEST(ParallelCases, B17BelowStage3ParametersAreNotOffloaded) {
  Json spec = {{"model", "mistralai/Mistral-7B-v0.1"},
               {"training", {{"method", "lora"}, {"micro_batch", 1}, {"sequence", 256}, {"checkpointing", "full"}}},
               {"parallel", zero("zero2", 8)}};
  spec["parallel"]["offload"] = {{"optimizer", "cpu"}, {"parameters", "cpu"}};
  const Json below = report(spec);
  EXPECT_TRUE(warns(below, "stage 3 only"));
  EXPECT_TRUE(warns(below, "base is whole on each GPU"));
  const double base = 2.0 * below["parameters"]["total"].get<double>();
  EXPECT_GT(static_cast<double>(allocated(below, "loaded")), base);
  spec["parallel"]["data"]["kind"] = "zero3";
  const Json three = report(spec);
  EXPECT_FALSE(warns(three, "stage 3 only"));
  EXPECT_LT(static_cast<double>(allocated(three, "loaded")), 0.05 * base);
}

// What is updated on the host makes nothing on the GPU, one parameter at a time or all at once.
TEST(Parallel, AnOptimizerOnTheHostHasNothingToUpdate) {
  Json spec = {{"model", llama(1024, 4, 8000)},
               {"training", {{"micro_batch", 1}, {"sequence", 256}, {"optimizer", {{"name", "adafactor"}, {"implementation", "foreach"}}}}},
               {"parallel", zero("zero3", 1)}};
  spec["parallel"]["offload"] = {{"optimizer", "cpu"}};
  spec["parallel"]["data"]["zero_optimization"] = {{"sub_group_size", 1'000'000}};
  const Json at_once = report(spec)["ranks"][0]["points"];
  spec["training"]["optimizer"]["implementation"] = "loop";
  EXPECT_EQ(report(spec)["ranks"][0]["points"], at_once);
}

TEST(ParallelCases, B22TheHostRunsOutOfMemory) {
  Json spec = {{"model", "meta-llama/Llama-3.1-70B"},
               {"training", {{"micro_batch", 1}, {"sequence", 512}, {"checkpointing", "full"}}},
               {"parallel",
                {{"data", {{"kind", "fsdp2"}, {"degree", 8}, {"reduce_dtype", "bfloat16"}}},
                 {"offload", {{"optimizer", "cpu"}, {"parameters", "cpu"}}}}},
               {"cluster", {{"gpu", "rtx-4090"}, {"gpus_per_node", 8}, {"host_memory", 500'000'000'000}}}};
  const Json r = report(spec);
  EXPECT_NE(r["verdict"]["status"], "does_not_fit");
  EXPECT_NEAR(r["host"]["needed"].get<double>(), 8.0 * 70'553'706'496, 1e6);  // 564.4 GB
  EXPECT_TRUE(warns(r, "host's memory runs out"));
  spec["cluster"]["host_memory"] = 600'000'000'000;
  EXPECT_FALSE(warns(report(spec), "what is offloaded takes"));
}

// Ulysses: ranks divide the heads, and the key/value heads or are a multiple of them.
TEST(Ulysses, GivesEachRankAsManyHeads) {
  const auto problem = [](std::int64_t ranks) {
    const Json a = answer({{"model", llama(1024, 4, 8000)},  // 16 heads, 8 of keys and values
                           {"training", {{"micro_batch", 1}, {"sequence", 96 * 16}}},
                           {"parallel", {{"context", {{"degree", ranks}, {"kind", "ulysses"}}}}}});
    return a["ok"].get<bool>() ? "" : a["problems"][0]["at"].get<std::string>();
  };
  EXPECT_EQ(problem(8), "");
  EXPECT_EQ(problem(16), "");
  EXPECT_EQ(problem(3), "/parallel/context/degree");
  EXPECT_EQ(problem(32), "/parallel/context/degree");
}

TEST(ParallelCases, B31OneFlatTensorMakesAllGradients) {
  Json spec = {{"model", llama(1024, 4, 8000)},
               {"training",
                {{"method", "lora"},
                 {"weights", "float32"},
                 {"micro_batch", 1},
                 {"sequence", 256},
                 {"adapter", {{"rank", 8}, {"targets", "all-linear"}}}}},
               {"parallel", {{"data", {{"kind", "fsdp1"}, {"degree", 2}}}}}};
  const Json one = report(spec);
  EXPECT_TRUE(warns(one, "FSDP1 keeps frozen weights and adapters"));
  const auto left_by_backward = [](const Json& r) { return allocated(r, "step1.backward0"); };
  spec["parallel"]["data"]["kind"] = "fsdp2";
  const Json two = report(spec);
  EXPECT_FALSE(warns(two, "FSDP1 keeps frozen weights and adapters"));
  const double layers = 4.0 * (1024 * 1024 * (1 + 0.5 + 0.5 + 1) + 3 * 1024 * 2816);
  // Half of fp32 gradients of all layers, against those of the adapters.
  EXPECT_GT(static_cast<double>(left_by_backward(one) - left_by_backward(two)), 0.9 * 4 * layers / 2);
}

TEST(ParallelCases, B42AutocastKeepsWeightsGradientsAndOptimizer) {
  Json spec = {{"model", llama(512, 4, 8000)},
               {"training", {{"weights", "float32"}, {"micro_batch", 1}, {"sequence", 16}}},
               {"parallel", zero("ddp", 2)}};
  const Json single = report(spec);
  spec["training"]["autocast"] = "bfloat16";
  const Json mixed = report(spec);
  EXPECT_EQ(allocated(single, "loaded"), allocated(mixed, "loaded"));
  EXPECT_EQ(allocated(single, "step1.zero_grad"), allocated(mixed, "step1.zero_grad"));
  // With next to no activations the casts of the weights come on top.
  EXPECT_GT(allocated(mixed, "step1.forward0", "peak_allocated"), allocated(single, "step1.forward0", "peak_allocated"));
}

// ---- all ranks together

struct Mesh {
  Json parallel;
  std::int64_t world = 1;
  std::int64_t copies = 1;  // of every parameter
};

Mesh random_mesh(unsigned seed) {
  const auto next = [&](unsigned choices) {
    seed = seed * 1664525U + 1013904223U;
    return (seed >> 16) % choices;
  };
  const std::int64_t data = 1 + next(7), tensor = std::int64_t{1} << next(3), stages = 1 + next(5), copies = 1 + next(3);
  const Json sharded = {{"data", {{"kind", "fsdp2"}, {"degree", data * copies}, {"replicate", copies}}}, {"tensor", {{"degree", tensor}}}};
  switch (next(8)) {
    case 0: return {{{"data", {{"kind", "fsdp2"}, {"degree", data * copies}, {"replicate", copies}}}}, data * copies, copies};
    case 1: {
      Json fsdp1 = {{"kind", "fsdp1"}, {"degree", data}};
      const unsigned strategy = next(3);
      if (strategy == 0) return {{{"data", fsdp1}}, data, 1};
      if (strategy == 1 || data == 1) {
        fsdp1["strategy"] = "NO_SHARD";
        return {{{"data", fsdp1}}, data, data};
      }
      fsdp1.update({{"strategy", "HYBRID_SHARD"}, {"degree", data * copies}, {"shard", data}});
      return {{{"data", fsdp1}}, data * copies, copies};
    }
    case 2: return {{{"tensor", {{"degree", tensor}}}}, tensor, 1};
    case 3: return {sharded, tensor * data * copies, copies};
    case 4: {  // as many stages as layers, at most
      Json mesh = sharded;
      mesh["pipeline"] = {{"degree", stages}, {"microbatches", 8}};
      return {mesh, stages * tensor * data * copies, copies};
    }
    case 6: {  // shards lie over data and context ranks
      Json mesh = sharded;
      mesh["context"] = {{"degree", 2}};
      return {mesh, 2 * tensor * data * copies, copies};
    }
    case 5: {
      constexpr const char* schedules[] = {"interleaved_1f1b", "looped_bfs", "interleaved_zero_bubble", "zbv", "dualpipev"};
      Json mesh = sharded;
      mesh["pipeline"] = {{"degree", 2}, {"virtual", 2}, {"microbatches", 8}, {"schedule", schedules[next(5)]}};
      return {mesh, 2 * tensor * data * copies, copies};
    }
    default: return {{{"pipeline", {{"degree", stages}, {"microbatches", 8}}}}, stages, 1};
  }
}

// Elements of every parameter that a rank updates.
std::map<std::string, std::int64_t> held_by(Json spec, std::int64_t rank) {
  spec["parallel"]["rank"] = rank;
  const Reading<Spec> reading = read_spec(spec.dump(), {});
  EXPECT_TRUE(reading.problems.empty()) << reading.problems.front().message;
  const Architecture architecture = read_architecture(*reading.value.model.config).value;
  Trace trace;
  std::map<std::string, std::int64_t> held;
  {
    Device device({80, 108}, trace);
    device.begin_phase("loaded");
    const Rank made = make_rank(device, reading.value, architecture);
    for (const NamedTensor& each : made.optimized) held[each.name] += each.tensor.numel();
  }
  return held;
}

TEST(Ranks, TogetherTheyHoldTheModel) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Mesh mesh = random_mesh(seed * 7919U + 1);
    const Json spec = {{"model", llama(512, 5, 1000)},
                       {"training", {{"weights", "float32"}, {"micro_batch", 1}, {"sequence", 64}}},
                       {"parallel", mesh.parallel}};
    std::map<std::string, std::int64_t> together;
    for (std::int64_t rank = 0; rank < mesh.world; ++rank) {
      for (const auto& [name, count] : held_by(spec, rank)) together[name] += count;
    }
    const std::int64_t tensor = mesh.parallel.contains("tensor") ? mesh.parallel["tensor"]["degree"].get<std::int64_t>() : 1;
    const Architecture architecture = read_architecture(spec["model"]["config"]).value;
    for (const Parameter& parameter : parameters_of(architecture)) {
      const bool whole_on_each = parameter.shape.size() == 1;  // norms, under tensor parallelism
      EXPECT_EQ(together[parameter.name], parameter.count() * mesh.copies * (whole_on_each ? tensor : 1))
          << parameter.name << " of " << mesh.parallel.dump();
    }
  }
}

// Where a stage has several ranks: the ranks of a stage follow each other.
TEST(Ranks, AStageIsNamedByItsNumber) {
  const Json spec = {{"model", llama(512, 4, 1000)},
                     {"parallel",
                      {{"data", {{"kind", "ddp"}, {"degree", 2}}},
                       {"tensor", {{"degree", 2}}},
                       {"pipeline", {{"degree", 4}, {"microbatches", 8}}},
                       {"rank", 13}}},
                     {"cluster", {{"gpu", "h100-sxm-80gb"}}}};
  const Json answered = report(spec);
  EXPECT_EQ(answered["ranks"][0]["stage"], 3);
  EXPECT_EQ(answered["verdict"]["sentence"].get<std::string>().substr(0, 24), "Stage 3 of the pipeline ");
}

}  // namespace
}  // namespace llmem
