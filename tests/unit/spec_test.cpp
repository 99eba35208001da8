#include "spec/spec.h"

#include <gtest/gtest.h>

#include <random>

#include "embedded_presets.h"
#include "files.h"
#include "spec/gpus.h"
#include "spec/read_spec.h"

namespace llmem {
namespace {

using Json = nlohmann::json;
using Places = std::vector<std::string>;

Reading<Spec> read(const Json& spec) { return read_spec(spec.dump(), embedded_presets()); }
Places problems_of(const Json& spec) { return places(read(spec).problems); }

// {"training": …} and the like, with a model.
Json with(const std::string& section, const Json& value) { return {{"model", "Qwen/Qwen2.5-7B"}, {section, value}}; }
Reading<Spec> training(const Json& value) { return read(with("training", value)); }
Reading<Spec> parallel(const Json& value) { return read(with("parallel", value)); }
Reading<Spec> data(const Json& value) { return parallel({{"data", value}}); }

// The wire format with every key at its default.
const char* const kDefaults = R"({
  "version": 1,
  "model": "Qwen/Qwen2.5-7B",
  "training": {
    "method": "full", "objective": "sft",
    "adapter": {"rank": 16, "targets": ["q_proj", "v_proj"], "dropout": 0.0, "dora": false, "modules_to_save": [], "upcast": true},
    "base_quantization": null, "prepare_kbit": true, "weights": "bfloat16", "autocast": null, "grad_scaler": false,
    "optimizer": {"name": "adamw", "implementation": "foreach"},
    "micro_batch": 1, "sequence": 2048, "accumulation": 1, "mask": "none", "checkpointing": "none", "attention": "sdpa",
    "loss": "standard", "loss_chunk": 1024, "kernels": {}, "keep_loss": false, "loop": "plain", "max_grad_norm": null,
    "evaluation": null, "label_smoothing": 0.0, "weight_decay": 0.0, "logging_steps": 500
  },
  "parallel": {
    "data": {"kind": "none", "degree": 1},
    "tensor": {"degree": 1, "sequence": false, "loss": false, "plan": "torch"},
    "pipeline": {"degree": 1, "schedule": "1f1b", "virtual": 1, "microbatches": 1},
    "context": {"degree": 1, "kind": "ring", "rotate": "allgather", "load_balance": true}, "expert": {"degree": 1},
    "offload": {"optimizer": "none", "parameters": "none", "activations": "none"}, "rank": 0
  },
  "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 8, "nodes": 1, "memory": null},
  "allocator": {"expandable_segments": false, "max_split_size_mb": null, "roundup_power2_divisions": null, "garbage_collection_threshold": null},
  "software": {"torch": "2.14", "transformers": "5.24", "stack": "transformers"}
})";

TEST(Spec, DefaultsGivenAndOmittedAreTheSame) {
  const auto given = read_spec(kDefaults, embedded_presets());
  const auto omitted = read({{"model", "Qwen/Qwen2.5-7B"}});
  for (const auto& reading : {given, omitted}) {
    ASSERT_TRUE(reading.problems.empty()) << shown(reading.problems);
    const Spec& spec = reading.value;
    EXPECT_EQ(spec.model.name, "Qwen/Qwen2.5-7B");
    EXPECT_EQ(spec.model.config->at("hidden_size"), 3584);
    EXPECT_EQ(spec.training.weights, Dtype::bfloat16);
    EXPECT_EQ(spec.training.autocast, std::nullopt);
    EXPECT_EQ(spec.training.optimizer.implementation, OptimizerImplementation::foreach);
    EXPECT_EQ(spec.training.micro_batch, 1);
    EXPECT_EQ(spec.training.sequence, 2048);
    EXPECT_EQ(spec.training.accumulation, 1);
    EXPECT_EQ(spec.training.checkpointing, Checkpointing::none);
    EXPECT_EQ(spec.training.attention, Attention::sdpa);
    EXPECT_EQ(spec.training.max_grad_norm, std::nullopt);
    EXPECT_EQ(spec.data.kind, DataKind::none);
    EXPECT_EQ(spec.data.degree, 1);
    EXPECT_EQ(spec.rank, 0);
    EXPECT_EQ(spec.cluster.gpu.id, "a100-sxm-80gb");
    EXPECT_EQ(spec.cluster.gpu.compute_capability, 80);
    EXPECT_EQ(spec.cluster.gpu.sms, 108);
    EXPECT_EQ(spec.cluster.nodes, 1);
    EXPECT_EQ(spec.cluster.memory, std::nullopt);
    EXPECT_FALSE(spec.allocator.expandable_segments);
    EXPECT_EQ(spec.allocator.max_split_size_mb, std::nullopt);
  }
}

TEST(Spec, WhatIsGivenIsRead) {
  const auto reading = read_spec(R"({
    "model": {"name": "mine", "config": {"model_type": "llama", "x": [1]}},
    "training": {"weights": "float32", "autocast": "bfloat16", "optimizer": {"name": "adamw", "implementation": "loop", "lr": 1e-5, "betas": [0.9, 0.95]},
                 "micro_batch": 3, "sequence": 777, "accumulation": 2, "checkpointing": "full", "attention": "eager", "max_grad_norm": 1.0},
    "parallel": {"data": {"kind": "fsdp2", "degree": 16, "param_dtype": null, "reduce_dtype": "bfloat16", "reshard_after_forward": false}, "rank": 15},
    "cluster": {"gpu": {"compute_capability": 90, "sms": 132}, "memory": 25e9},
    "allocator": {"expandable_segments": true, "max_split_size_mb": 128}
  })",
                                 {});
  ASSERT_TRUE(reading.problems.empty()) << shown(reading.problems);
  const Spec& spec = reading.value;
  EXPECT_EQ(spec.model.name, "mine");
  EXPECT_EQ(*spec.model.config, (Json{{"model_type", "llama"}, {"x", {1}}}));
  EXPECT_EQ(spec.training.weights, Dtype::float32);
  EXPECT_EQ(spec.training.autocast, Dtype::bfloat16);
  EXPECT_EQ(spec.training.optimizer.implementation, OptimizerImplementation::loop);
  EXPECT_EQ(spec.training.micro_batch, 3);
  EXPECT_EQ(spec.training.sequence, 777);
  EXPECT_EQ(spec.training.accumulation, 2);
  EXPECT_EQ(spec.training.checkpointing, Checkpointing::full);
  EXPECT_EQ(spec.training.attention, Attention::eager);
  EXPECT_EQ(spec.training.max_grad_norm, 1.0);
  EXPECT_EQ(spec.data.kind, DataKind::fsdp2);
  EXPECT_EQ(spec.data.degree, 16);
  EXPECT_EQ(spec.data.param_dtype, std::nullopt);
  EXPECT_EQ(spec.data.reduce_dtype, Dtype::bfloat16);
  EXPECT_FALSE(spec.data.reshard_after_forward);
  EXPECT_EQ(spec.rank, 15);
  EXPECT_EQ(spec.cluster.gpu.compute_capability, 90);
  EXPECT_EQ(spec.cluster.gpu.memory, std::nullopt);
  EXPECT_EQ(spec.cluster.memory, Bytes{25'000'000'000});
  EXPECT_EQ(spec.cluster.nodes, 2);
  EXPECT_TRUE(spec.allocator.expandable_segments);
  EXPECT_EQ(spec.allocator.max_split_size_mb, 128);
}

TEST(Spec, EveryVectorOfTheFirstTargetIsRead) {
  for (const Json& vector : file_lines("tests/vectors/first.jsonl")) {
    const auto reading = read(vector["spec"]);
    EXPECT_TRUE(reading.problems.empty()) << vector["id"] << "\n" << shown(reading.problems);
    EXPECT_TRUE(reading.value.model.config);
  }
}

TEST(Spec, EveryProblemAtOnceEachWithItsPlace) {
  const auto reading = read_spec(R"({
    "version": 2, "modle": 1,
    "training": {"micro_batch": 0, "sequence": "2048", "weights": "bf16", "checkpointing": true, "optimizer": {"name": "adamww", "momentum": 1},
                 "max_grad_norm": -1, "batch_size": 4},
    "parallel": {"data": {"kind": "ddp", "degree": 2, "strategy": "FULL_SHARD"}, "rank": 2, "tensor": 2},
    "cluster": {"gpu": "a100x", "nodes": 0, "memory": "80GB"},
    "allocator": {"max_split_size_mb": 20, "expandable_segments": 1},
    "software": {"torch": "1.13", "stack": "jax"}
  })",
                                 embedded_presets());
  EXPECT_EQ(places(reading.problems), (Places{"/version unsupported",
                                              "/model missing",
                                              "/training/weights unknown_value",
                                              "/training/optimizer/name unknown_value",
                                              "/training/optimizer/momentum unknown_key",
                                              "/training/micro_batch range",
                                              "/training/sequence type",
                                              "/training/checkpointing type",
                                              "/training/max_grad_norm range",
                                              "/training/batch_size unknown_key",
                                              "/parallel/data/strategy unknown_key",
                                              "/parallel/tensor type",
                                              "/parallel/rank range",
                                              "/cluster/nodes range",
                                              "/cluster/memory type",
                                              "/allocator/expandable_segments type",
                                              "/allocator/max_split_size_mb range",
                                              "/software/stack unknown_value",
                                              "/software/torch unsupported",
                                              "/modle unknown_key"}))
      << shown(reading.problems);
}

TEST(Spec, MessagesSayWhatWasFoundAndWhatWouldBeValid) {
  const auto message = [](const Json& spec) {
    const auto reading = read(spec);
    return reading.problems.size() == 1 ? reading.problems[0].message : "not one problem:\n" + shown(reading.problems);
  };
  EXPECT_EQ(message(with("training", {{"micro_batch", 0}})), "must be a whole number from 1 to 1048576, not 0");
  EXPECT_EQ(message(with("training", {{"micro_batch", "two"}})), "must be a whole number from 1 to 1048576, not \"two\"");
  EXPECT_EQ(message(with("training", {{"attention", "spda"}})),
            "the value \"spda\" is not known; did you mean \"sdpa\"? Valid: sdpa, eager, flash_attention_2, fused, flex.");
  EXPECT_EQ(message(with("training", {{"checkpointing", "selective"}})),
            "\"selective\" is not supported yet. Supported: none, full, full_reentrant.");
  EXPECT_EQ(message(with("allocator", {{"max_split", 1}})),
            "the key \"max_split\" is not known; did you mean \"max_split_size_mb\"? Valid: expandable_segments, max_split_size_mb, "
            "roundup_power2_divisions, "
            "garbage_collection_threshold.");
  EXPECT_NE(message(with("training", {{"microbatch", 1}})).find("did you mean \"micro_batch\"?"), std::string::npos);
  EXPECT_NE(message(with("cluster", {{"gpu", "h10-sxm-80gb"}})).find("did you mean \"h100-sxm-80gb\"?"), std::string::npos);
  EXPECT_NE(message(with("parallel", {{"rank", 1}})).find("must be below 1, the number of ranks, not 1"), std::string::npos);
}

TEST(Spec, Models) {
  EXPECT_EQ(problems_of(Json::object()), Places{"/model missing"});
  EXPECT_EQ(problems_of({{"model", nullptr}}), Places{"/model missing"});
  EXPECT_EQ(problems_of({{"model", 7}}), Places{"/model type"});
  EXPECT_EQ(problems_of({{"model", Json::object()}}), Places{"/model/config missing"});
  EXPECT_EQ(problems_of({{"model", {{"config", "x"}}}}), Places{"/model/config type"});
  EXPECT_EQ(problems_of({{"model", {{"config", Json::object()}, {"nam", "x"}}}}), Places{"/model/nam unknown_key"});
  EXPECT_EQ(problems_of({{"model", {{"config", Json::object()}, {"name", 1}}}}), Places{"/model/name type"});
  EXPECT_TRUE(read({{"model", {{"config", Json::object()}}}}).value.model.config);

  const auto unknown = read({{"model", "Qwen2.5-7B"}});
  EXPECT_EQ(places(unknown.problems), Places{"/model unknown_model"});
  EXPECT_NE(unknown.problems[0].message.find("Nearest: Qwen/Qwen2.5-7B"), std::string::npos) << unknown.problems[0].message;
  EXPECT_NE(read({{"model", "meta-lama/Llama-3.1-8b"}}).problems[0].message.find("meta-llama/Llama-3.1-8B"), std::string::npos);
  const auto none = read_spec(R"({"model": "Qwen/Qwen2.5-7B"})", {});
  EXPECT_EQ(places(none.problems), Places{"/model unknown_model"});
}

TEST(Spec, Syntax) {
  const auto reading = read_spec("{\n  \"model\": \"x\",\n}", {});
  ASSERT_EQ(reading.problems.size(), 1u);
  EXPECT_EQ(reading.problems[0].code, "syntax");
  EXPECT_EQ(reading.problems[0].message.substr(0, 16), "line 3, column 1");
  for (const char* text : {"", "[]", "7", "\"x\"", "null", "{\"training\": 1}"}) EXPECT_FALSE(read_spec(text, {}).problems.empty()) << text;
  EXPECT_EQ(places(read_spec(R"({"model": {"config": {"a": 1, "a": 2}}})", {}).problems), Places{"/model/config/a conflict"});
}

// What the format has and is not played yet: each is answered at its place, and by nothing else.
TEST(Spec, WhatIsNotPlayedYetIsUnsupported) {
  const auto one = [](const Reading<Spec>& reading, const std::string& at) {
    EXPECT_EQ(places(reading.problems), Places{at + " unsupported"});
  };
  one(training({{"optimizer", {{"name", "adamw"}, {"implementation", "loop"}, {"capturable", true}}}}), "/training/optimizer/capturable");
  one(training({{"checkpointing", "selective"}}), "/training/checkpointing");
  one(training({{"attention", "flex"}}), "/training/attention");
  one(training({{"kernels", {{"liger", {{"rope", true}, {"geglu", true}}}}}}), "/training/kernels/liger/geglu");
  one(data({{"kind", "zero2"}, {"degree", 2}, {"config", {{"fp16", {{"enabled", true}}}}}}), "/parallel/data/config/fp16");
  one(parallel({{"expert", {{"degree", 2}}}}), "/parallel/expert/degree");
  one(parallel({{"context", {{"degree", 2}}}, {"data", {{"kind", "ddp"}, {"degree", 2}}}}), "/parallel/data/kind");
  one(parallel({{"context", {{"degree", 2}, {"kind", "ulysses"}}}, {"data", {{"kind", "fsdp1"}, {"degree", 2}}}}), "/parallel/data/kind");
  one(parallel({{"tensor", {{"degree", 2}, {"plan", "hf"}, {"loss", true}}}}), "/parallel/tensor/plan");
  one(parallel({{"tensor", {{"degree", 2}}}, {"data", {{"kind", "zero2"}, {"degree", 2}}}}), "/parallel/tensor/degree");
  one(parallel({{"pipeline", {{"degree", 2}}}, {"data", {{"kind", "zero2"}, {"degree", 2}}}}), "/parallel/pipeline/degree");
  one(parallel({{"data", {{"kind", "fsdp2"}, {"degree", 2}}}, {"offload", {{"activations", "cpu"}}}}), "/parallel/offload/activations");
  Json trainer = with("training", {{"loop", "trainer"}});
  trainer["parallel"]["offload"]["activations"] = "cpu";
  one(read(trainer), "/parallel/offload/activations");
  one(read(with("software", {{"torch", "2.1"}})), "/software/torch");
  one(read(with("software", {{"transformers", "4.37.2"}})), "/software/transformers");
  one(read(with("software", {{"stack", "deepspeed"}})), "/software/stack");
}

TEST(Spec, WhatTrains) {
  const auto some = training({{"trained", {"layers.1", "lm_head"}}, {"frozen", {"embed_tokens"}}});
  EXPECT_TRUE(some.problems.empty()) << shown(some.problems);
  EXPECT_EQ(some.value.training.trained, (std::vector<std::string>{"layers.1", "lm_head"}));
  EXPECT_EQ(some.value.training.frozen, std::vector<std::string>{"embed_tokens"});
  EXPECT_EQ(places(training({{"method", "lora"}, {"frozen", {"mlp"}}}).problems), Places{"/training/frozen conflict"});
  EXPECT_EQ(places(training({{"trained", "mlp"}}).problems), Places{"/training/trained type"});
}

// What needs all gradients at once, or more than one backward, does not go with a step in each backward.
TEST(Spec, OptimizerInBackward) {
  const Json optimizer = {{"name", "adamw"}, {"in_backward", true}};
  EXPECT_TRUE(training({{"optimizer", optimizer}}).value.training.optimizer.in_backward);
  const std::vector<std::pair<std::string, Json>> others = {
      {"accumulation", 2}, {"max_grad_norm", 1.0}, {"grad_scaler", true}, {"loop", "trainer"}};
  for (const auto& [key, value] : others)
    EXPECT_EQ(places(training({{"optimizer", optimizer}, {key, value}}).problems), Places{"/training/optimizer conflict"}) << key;
}

TEST(Spec, AllocatorOptions) {
  EXPECT_EQ(read(with("allocator", {{"roundup_power2_divisions", 4}})).value.allocator.roundup_power2_divisions, 4);
  EXPECT_EQ(problems_of(with("allocator", {{"roundup_power2_divisions", 3}})), Places{"/allocator/roundup_power2_divisions range"});
  EXPECT_TRUE(read(with("allocator", {{"garbage_collection_threshold", 0.8}})).problems.empty());
}

TEST(Spec, OptionsWithoutInfluenceAreAccepted) {
  for (const auto& reading : {
           training({{"optimizer",
                      {{"lr", 0},
                       {"weight_decay", 0.1},
                       {"eps", 1e-8},
                       {"betas", {0.9, 0.999}},
                       {"amsgrad", false},
                       {"implementation", "fused"}}}}),
           training({{"optimizer", {{"name", "adafactor_hf"}, {"relative_step", true}, {"warmup_init", true}}}}),
           training({{"optimizer", {{"name", "adafactor"}, {"beta2_decay", -0.8}, {"d", 1.0}}}}),
           training({{"max_grad_norm", 0}}),
           training({{"weight_decay", 0.1}, {"logging_steps", 1}, {"loss_chunk", 4096}, {"prepare_kbit", false}}),
           training({{"kernels", {{"liger", {{"rope", false}}}}}}),
           training({{"adapter", {{"rank", 64}, {"targets", {"q_proj"}}, {"dropout", 0.1}, {"dora", true}}}}),
           data({{"kind", "ddp"}, {"degree", 8}, {"bucket_cap_mb", 100}, {"static_graph", false}}),
           data({{"kind", "fsdp2"}, {"degree", 1}, {"replicate", 1}, {"pin_memory", false}}),
           parallel({{"tensor", {{"degree", 1}, {"sequence", true}, {"plan", "hf"}}}}),
           parallel({{"pipeline", {{"schedule", "interleaved_1f1b"}, {"microbatches", 8}}}}),
           read(with("software", {{"torch", "2.14.1"}, {"transformers", "5.0"}, {"trl", "1.16"}})),
       }) {
    EXPECT_TRUE(reading.problems.empty()) << shown(reading.problems);
  }
  EXPECT_EQ(training({{"max_grad_norm", 0}}).value.training.max_grad_norm, std::nullopt);  // as in the loops: 0 does not clip
  EXPECT_EQ(data({{"kind", "ddp"}, {"degree", 8}, {"bucket_cap_mb", 100}}).value.data.bucket_cap_mb, 100);
}

TEST(Spec, Conflicts) {
  EXPECT_EQ(places(data({{"degree", 2}}).problems), Places{"/parallel/data/degree conflict"});
  EXPECT_EQ(places(parallel({{"data", {{"kind", "ddp"}, {"degree", 2}}}, {"rank", 2}}).problems), Places{"/parallel/rank range"});
  EXPECT_EQ(places(data({{"kind", "fsdp2"}, {"degree", 8}, {"replicate", 3}}).problems), Places{"/parallel/data/replicate conflict"});
  EXPECT_EQ(places(data({{"kind", "ddp"}, {"reshard_after_forward", true}}).problems),
            Places{"/parallel/data/reshard_after_forward unknown_key"});
  EXPECT_EQ(places(training({{"base_quantization", {{"bits", 8}}}}).problems), Places{"/training/base_quantization conflict"});
  EXPECT_EQ(places(training({{"objective", "dpo"}, {"micro_batch", 3}}).problems), Places{"/training/micro_batch conflict"});
  EXPECT_EQ(places(parallel({{"offload", {{"optimizer", "cpu"}}}}).problems), Places{"/parallel/offload conflict"});
  EXPECT_EQ(places(parallel({{"pipeline", {{"degree", 2}, {"virtual", 2}}}}).problems), Places{"/parallel/pipeline/virtual conflict"});
  EXPECT_EQ(places(training({{"micro_batch", 1 << 20}, {"sequence", 1 << 20}}).problems), Places{"/training/micro_batch range"});
}

TEST(Spec, NodesAreAsManyAsItTakesUnlessTheyAreGiven) {
  Json spec = with("parallel", {{"data", {{"kind", "ddp"}, {"degree", 64}}}});
  EXPECT_EQ(read(spec).value.cluster.nodes, 8);
  spec["cluster"] = {{"gpus_per_node", 4}};
  EXPECT_EQ(problems_of(spec), Places{});
  EXPECT_EQ(read(spec).value.cluster.nodes, 16);
  spec["cluster"]["nodes"] = 8;
  EXPECT_EQ(problems_of(spec), Places{"/cluster/nodes conflict"});
  spec["cluster"]["nodes"] = 32;
  EXPECT_EQ(problems_of(spec), Places{});
  EXPECT_EQ(read(spec).value.cluster.nodes, 32);
}

// ---------------------------------------------------------------- GPUs

TEST(Gpus, TableIsPresetsFile) {
  const Json file = file_json("presets/gpus.json");
  ASSERT_EQ(file.size(), gpu_presets().size());
  for (std::size_t i = 0; i < file.size(); ++i) {
    const GpuPreset& row = gpu_presets()[i];
    EXPECT_EQ(file[i]["id"], row.id);
    EXPECT_EQ(file[i]["name"], row.name) << row.id;
    EXPECT_EQ(file[i]["compute_capability"], row.compute_capability) << row.id;
    EXPECT_EQ(file[i]["sms"], row.sms) << row.id;
    EXPECT_EQ(file[i]["memory"], row.memory ? Json(row.memory) : Json(nullptr)) << row.id;
    EXPECT_FALSE(file[i]["sources"]["sms"].get<std::string>().empty()) << row.id;
  }
}

TEST(Gpus, ByIdElseByFamily) {
  EXPECT_EQ(gpu_named("h100-pcie-80gb")->sms, 114);
  EXPECT_EQ(gpu_named("H100-SXM-80GB")->memory, Bytes{85'027'979'264});
  EXPECT_EQ(gpu_named("a10g")->sms, 80);
  EXPECT_EQ(gpu_named("h100-pcie-96gb")->sms, 114);  // the longest family it begins with
  EXPECT_EQ(gpu_named("h100")->sms, 132);
  EXPECT_EQ(gpu_named("h100")->memory, std::nullopt);
  EXPECT_EQ(gpu_named("l40-48gb")->compute_capability, 89);
  EXPECT_EQ(gpu_named("mi300x"), std::nullopt);
  EXPECT_EQ(gpu_named(""), std::nullopt);
}

TEST(Gpus, Described) {
  EXPECT_EQ(problems_of(with("cluster", {{"gpu", Json::object()}})),
            (Places{"/cluster/gpu/compute_capability missing", "/cluster/gpu/sms missing"}));
  EXPECT_EQ(problems_of(with("cluster", {{"gpu", {{"compute_capability", 9.0}, {"sms", 132}}}})),
            Places{"/cluster/gpu/compute_capability range"});
  EXPECT_EQ(problems_of(with("cluster", {{"gpu", {{"compute_capability", 70}, {"sms", 80}}}})), Places{"/cluster/gpu unsupported"});
  EXPECT_EQ(problems_of(with("cluster", {{"gpu", 3}})), Places{"/cluster/gpu type"});
}

// ---------------------------------------------------------------- anything

// Texts near a valid one, and specs with absurd values: each is answered, each problem has its place.
TEST(Spec, AnyTextIsAnswered) {
  std::mt19937 random(2);
  const std::string text = kDefaults;
  const auto answered = [](const std::string& spec) {
    const auto reading = read_spec(spec, embedded_presets());
    for (const Problem& problem : reading.problems) {
      EXPECT_TRUE(problem.at.empty() || problem.at[0] == '/') << problem.at;
      EXPECT_FALSE(problem.message.empty());
      EXPECT_LT(problem.message.size(), 2000u);
    }
    EXPECT_FALSE(Json(shown(reading.problems)).dump(-1, ' ', false, Json::error_handler_t::ignore).empty());
    return reading.problems.empty();
  };
  for (std::size_t i = 0; i < text.size(); i += 3) answered(text.substr(0, i));
  for (int i = 0; i < 3000; ++i) {
    std::string broken = text;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      const std::size_t at = random() % broken.size();
      if (random() % 3 == 0)
        broken.erase(at, 1 + random() % 5);
      else if (random() % 2)
        broken[at] = static_cast<char>(random() % 256);
      else
        broken.insert(at, broken.substr(random() % broken.size(), 1 + random() % 20));
    }
    answered(broken);
  }
}

TEST(Spec, AnyValueIsAnswered) {
  std::mt19937 random(3);
  const std::vector<Json> values = {nullptr,
                                    true,
                                    0,
                                    -1,
                                    3,
                                    1e300,
                                    0.5,
                                    INT64_MAX,
                                    UINT64_MAX,
                                    INT64_MIN,
                                    "",
                                    "x",
                                    "bfloat16",
                                    "é",
                                    Json::array(),
                                    Json::array({1}),
                                    Json::object(),
                                    Json{{"kind", "ddp"}}};
  std::vector<Json::json_pointer> places;
  const Json all = Json::parse(kDefaults, nullptr, false);
  const Json flat = all.flatten();
  for (const auto& [place, value] : flat.items()) {
    for (Json::json_pointer at(place); !at.empty(); at = at.parent_pointer()) places.push_back(at);
  }
  int sound = 0;
  for (int i = 0; i < 3000; ++i) {
    Json spec = all;
    const Json::json_pointer& place = places[random() % places.size()];
    spec[place] = values[random() % values.size()];
    const auto reading = read(spec);
    sound += reading.problems.empty();
    for (const Problem& problem : reading.problems) EXPECT_TRUE(problem.at.empty() || problem.at[0] == '/') << spec;
  }
  EXPECT_GT(sound, 100);
}

}  // namespace
}  // namespace llmem
