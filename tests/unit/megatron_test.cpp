#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "estimates.h"

// Megatron-LM and torchtitan as stacks of their own.
namespace llmem {
namespace {

constexpr std::int64_t KiB = 1024, MiB = 1024 * KiB;

std::string problem_at(const Json& spec) {
  const Json a = answer(spec);
  return a["ok"].get<bool>() ? "" : a["problems"][0]["at"].get<std::string>();
}

std::int64_t allocated(const Json& report, const std::string& at, const char* counter = "allocated") {
  for (const Json& point : report["ranks"][0]["points"])
    if (point["at"] == at) return point[counter];
  ADD_FAILURE() << "no point " << at;
  return 0;
}

void expect_near(std::int64_t found, std::int64_t expected, std::int64_t within) {
  EXPECT_LE(std::abs(found - expected), within) << found << " is not " << expected;
}

// Every tensor is a multiple of 512 bytes in bf16, so that the allocator rounds none.
constexpr std::int64_t kHidden = 512, kLayers = 4, kWords = 1024, kPositions = 256, kFeatures = 4 * kHidden;

Json gpt() {
  return {{"name", "gpt"},
          {"config",
           {{"model_type", "megatron"},
            {"num_layers", kLayers},
            {"hidden_size", kHidden},
            {"num_attention_heads", 8},
            {"vocab_size", kWords - 1},
            {"max_position_embeddings", kPositions}}}};
}

// A layer: qkv, proj, fc1, fc2 with biases, and two norms with biases.
constexpr std::int64_t kLayerParameters =
    (3 * kHidden + kHidden) * kHidden + 4 * kHidden + 2 * kFeatures * kHidden + kFeatures + kHidden + 2 * 2 * kHidden;
constexpr std::int64_t kEmbedded = kWords * kHidden + kPositions * kHidden, kFinalNorm = 2 * kHidden;
constexpr std::int64_t kParameters = kEmbedded + kLayers * kLayerParameters + kFinalNorm;

Json spec_of(const Json& parallel, const Json& training = Json::object()) {
  Json spec = {{"model", gpt()},
               {"training", {{"micro_batch", 2}, {"sequence", kPositions}, {"megatron", {{"gradient_accumulation_fusion", false}}}}},
               {"parallel", parallel},
               {"cluster", {{"gpu", "a100-sxm-80gb"}}},
               {"allocator", {{"expandable_segments", true}}},  // which split every block
               {"software", {{"stack", "megatron"}}}};
  spec["training"].update(training, true);
  return spec;
}

// bf16 parameters, fp32 main gradients and fp32 copies: 2 + 4 + 4 bytes (Float16OptimizerWithFloat16Params, DistributedDataParallel's
// grad_data); the first step adds two fp32 moments. On an A100 TransformerEngine's workspace has 4 MiB and each of cuBLAS's two 8.125 MiB.
TEST(Megatron, EighteenBytesAParameter) {
  const Json r = report(spec_of({{"data", {{"kind", "ddp"}, {"degree", 2}}}}));
  EXPECT_EQ(r["parameters"]["total"], kParameters - kHidden);  // one word less than what it is padded to
  EXPECT_EQ(allocated(r, "loaded"), 10 * kParameters);
  const std::int64_t workspaces = 4 * MiB + 2 * (8 * MiB + 128 * KiB);
  expect_near(allocated(r, "step1.zero_grad"), 18 * kParameters + workspaces, 64 * KiB);
}

// The distributed optimizer: copies and moments of a rank's quarter; parameters begin at multiples of 64 elements, which they do here anyway.
TEST(Megatron, DistributedOptimizerSharesCopiesAndMoments) {
  const Json r = report(spec_of({{"data", {{"kind", "distributed_optimizer"}, {"degree", 4}}}}));
  EXPECT_EQ(allocated(r, "loaded"), 6 * kParameters + kParameters);
  expect_near(allocated(r, "step1.zero_grad") - allocated(r, "loaded"), 2 * kParameters + 4 * MiB + 2 * (8 * MiB + 128 * KiB), 64 * KiB);
  const Json instances = report(spec_of({{"data", {{"kind", "distributed_optimizer"}, {"degree", 4}, {"instances", 2}}}}));
  EXPECT_EQ(allocated(instances, "loaded"), 6 * kParameters + 2 * kParameters);
}

// fp16 reduces gradients in fp16, and the optimizer makes fp32 copies of them: as many bytes after the step.
TEST(Megatron, HalfPrecisionGradients) {
  const Json r = report(spec_of({{"data", {{"kind", "ddp"}, {"degree", 2}}}}, {{"weights", "float16"}}));
  EXPECT_EQ(allocated(r, "loaded"), (2 + 2 + 4) * kParameters);
  expect_near(allocated(r, "step1.optimizer"), 20 * kParameters + 4 * MiB + 2 * (8 * MiB + 128 * KiB), 64 * KiB);
}

// Each stage has its layers; the first the embeddings, the last the norm and, tied, a copy of the word embeddings.
TEST(Megatron, StagesShareTheModelOut) {
  const auto stage = [](std::int64_t rank) {
    const Json r = report(spec_of({{"pipeline", {{"degree", 2}, {"microbatches", 4}}}, {"rank", rank}}));
    return allocated(r, "loaded") / 10;
  };
  EXPECT_EQ(stage(0), kEmbedded + 2 * kLayerParameters);
  EXPECT_EQ(stage(1), 2 * kLayerParameters + kFinalNorm + kWords * kHidden);
}

// 1F1B: the first of two stages holds two microbatches at once, of the last stage's forward and backward only one. What a layer keeps of a
// microbatch (t = 512 tokens, h features, bf16, cuDNN-free: flash attention on an A100): its input and its norm's result, copies of q, k and v,
// the output of attention twice, h each; the input of the second norm and its result, h each; fc1's and the activation's results, 4 h each;
// two masks of a byte an element.
TEST(Megatron, FirstStageHoldsMoreMicrobatches) {
  const auto peak = [](std::int64_t microbatches) {
    const Json r = report(spec_of({{"pipeline", {{"degree", 2}, {"microbatches", microbatches}}}, {"rank", 0}}));
    return allocated(r, "step1.schedule", "peak_allocated");
  };
  const std::int64_t tokens = 2 * kPositions, kept_of_layer = tokens * kHidden * (2 * (2 + 3 + 2 + 2 + 8) + 2);
  const std::int64_t difference = peak(2) - peak(1);
  EXPECT_GT(difference, 2 * kept_of_layer * 9 / 10);
  EXPECT_LT(difference, 2 * kept_of_layer * 12 / 10);
}

// Full recomputation keeps a layer's input alone.
TEST(Megatron, RecomputationKeepsInputs) {
  const auto peak = [](const Json& training) { return allocated(report(spec_of({}, training)), "step1.schedule", "peak_allocated"); };
  const std::int64_t none = peak(Json::object()), full = peak({{"checkpointing", "full"}});
  const std::int64_t attention = peak({{"checkpointing", "selective"}});
  EXPECT_LT(full, attention);
  EXPECT_LT(attention, none);
}

// Tensor ranks cut linears, embedding and logits; norms are whole on each.
TEST(Megatron, TensorRanksCutTheLayers) {
  const Json r = report(spec_of({{"tensor", {{"degree", 2}, {"sequence", true}}}}));
  constexpr std::int64_t whole =
      kLayers * (2 * 2 * kHidden + 2 * kHidden) + kPositions * kHidden + kFinalNorm;  // norms, biases of rows, positions
  EXPECT_EQ(allocated(r, "loaded"), 10 * (whole + (kParameters - whole) / 2));
}

// Experts are shared out among data-parallel ranks: two of four each.
TEST(Megatron, ExpertsAreSharedOut) {
  Json spec = spec_of({{"data", {{"kind", "ddp"}, {"degree", 2}}}, {"expert", {{"degree", 2}}}});
  spec["model"]["config"]["num_experts"] = 4;
  spec["model"]["config"]["disable_bias_linear"] = true;
  const std::int64_t both = allocated(report(spec), "loaded");
  spec["parallel"]["expert"]["degree"] = 1;
  const std::int64_t all = allocated(report(spec), "loaded");
  EXPECT_EQ(all - both, 10 * kLayers * 2 * (2 * kFeatures * kHidden));
}

// BERT's two kinds of tokens, its head and its pooler come on top; 10 bytes a parameter, but for a bias of two values that the allocator rounds.
TEST(Megatron, BertHasAHeadOfItsOwn) {
  Json spec = spec_of({}, {{"attention", "eager"}});
  spec["model"]["config"]["model_type"] = "megatron_bert";
  spec["model"]["config"]["vocab_size"] = kWords;
  const Json r = report(spec);
  constexpr std::int64_t head = 2 * kHidden + kHidden * kHidden + kHidden + 2 * kHidden + kWords, pooler = kHidden * kHidden + kHidden;
  constexpr std::int64_t binary = 2 * kHidden + 2;
  EXPECT_EQ(r["parameters"]["total"], kParameters + head + pooler + binary);
  expect_near(allocated(r, "loaded"), 10 * (kParameters + head + pooler + binary), 2 * KiB);
  spec["training"]["attention"] = "sdpa";
  EXPECT_EQ(problem_at(spec), "/training/attention");
}

// T5: a decoder layer has a norm, q, k, v and a projection of its own for what the encoder made; two stacks end in a norm each, and the tied head
// has a bias.
TEST(Megatron, T5HasTwoStacks) {
  Json spec = spec_of({}, {{"attention", "eager"}, {"megatron", {{"decoder_seq_length", 128}}}});
  Json& config = spec["model"]["config"];
  config["model_type"] = "megatron_t5";
  config.erase("num_layers");
  config["encoder_num_layers"] = kLayers;
  config["decoder_num_layers"] = 2;
  config["vocab_size"] = kWords;
  const Json r = report(spec);
  constexpr std::int64_t cross = 2 * kHidden + 4 * (kHidden * kHidden + kHidden);
  constexpr std::int64_t all = kEmbedded + (kLayers + 2) * kLayerParameters + 2 * cross + 2 * kFinalNorm + kWords;
  EXPECT_EQ(r["parameters"]["total"], all);
  EXPECT_EQ(allocated(r, "loaded"), 10 * all);
  spec["training"]["megatron"]["decoder_seq_length"] = 256;
  EXPECT_GT(report(spec)["ranks"][0]["peak_allocated"], r["ranks"][0]["peak_allocated"]);
  spec["parallel"]["pipeline"] = {{"degree", 2}};
  EXPECT_EQ(problem_at(spec), "/parallel/pipeline/degree");
}

// decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers: of four layers the first of three stages has one, the last one, too.
TEST(Megatron, EndStagesMayHaveFewerLayers) {
  const auto stage = [](std::int64_t rank, const Json& pipeline) {
    Json parallel = {{"pipeline", {{"degree", 3}, {"microbatches", 4}}}, {"rank", rank}};
    parallel["pipeline"].update(pipeline);
    return allocated(report(spec_of(parallel)), "loaded") / 10;
  };
  EXPECT_EQ(stage(0, {{"first_layers", 1}, {"last_layers", 1}}), kEmbedded + kLayerParameters);
  EXPECT_EQ(stage(1, {{"first_layers", 1}, {"last_layers", 1}}), 2 * kLayerParameters);
  EXPECT_EQ(stage(2, {{"first_layers", 2}}), kLayerParameters + kFinalNorm + kWords * kHidden);
  EXPECT_EQ(problem_at(spec_of({{"pipeline", {{"degree", 3}, {"first_layers", 1}}}})), "/parallel/pipeline/degree");
}

// recompute_method block: so many of a stage's layers are computed again, none or all of them included.
TEST(Megatron, BlocksAreRecomputed) {
  const auto peak = [](const Json& options) {
    return allocated(report(spec_of({}, {{"checkpointing", "full"}, {"megatron", options}})), "step1.schedule", "peak_allocated");
  };
  const auto block = [&](std::int64_t layers) { return peak({{"recompute_method", "block"}, {"recompute_num_layers", layers}}); };
  EXPECT_EQ(block(kLayers), peak({{"recompute_method", "uniform"}}));
  EXPECT_EQ(block(0), allocated(report(spec_of({})), "step1.schedule", "peak_allocated"));
  EXPECT_GT(block(1), block(3));
}

TEST(Megatron, WhatItRefuses) {
  EXPECT_EQ(problem_at(spec_of({{"data", {{"kind", "megatron_fsdp"}, {"degree", 2}}}})), "/parallel/data/kind");
  EXPECT_EQ(problem_at(spec_of({{"tensor", {{"degree", 3}}}})), "/parallel/tensor/degree");
  EXPECT_EQ(problem_at(spec_of({{"pipeline", {{"degree", 3}}}})), "/parallel/pipeline/degree");
  EXPECT_EQ(problem_at(spec_of({{"data", {{"kind", "ddp"}, {"degree", 2}}}, {"expert", {{"degree", 2}}}})), "/parallel/expert/degree");
  EXPECT_EQ(problem_at(spec_of({}, {{"method", "lora"}})), "/training/method");
  EXPECT_EQ(problem_at(spec_of({}, {{"megatron", {{"recompute_modules", {"attn"}}}}})), "/training/megatron/recompute_modules");
  Json elsewhere = spec_of({});
  elsewhere.erase("software");
  EXPECT_EQ(problem_at(elsewhere), "/training/megatron");
  elsewhere["training"].erase("megatron");
  EXPECT_EQ(problem_at(elsewhere), "/model/config/model_type");
}

// Llama-3.1-405B on 1,024 GPUs, tensor 8 x pipeline 16 x data 8: embedding and loss count as a layer each, or its 126 layers would not be
// shared out evenly. The first stage has 7 layers and the embedding, an eighth of each: 2 + 4 + 4 / 8 bytes a parameter.
TEST(Megatron, Llama405BOn1024Gpus) {
  const Json r =
      report({{"model", "meta-llama/Llama-3.1-405B"},
              {"training", {{"micro_batch", 1}, {"sequence", 8192}}},
              {"parallel",
               {{"data", {{"kind", "distributed_optimizer"}, {"degree", 8}}},
                {"tensor", {{"degree", 8}, {"sequence", true}}},
                {"pipeline", {{"degree", 16}, {"microbatches", 32}, {"account_for_embedding", true}, {"account_for_loss", true}}}}},
              {"cluster", {{"gpu", "h100-sxm-80gb"}}},
              {"software", {{"stack", "megatron"}}}});
  const double layer = 16384.0 * 16384 * 2 + 16384.0 * 1024 * 2 + 3 * 16384.0 * 53248, embedding = 129024.0 * 16384;  // padded to 8 x 128
  const double expected = 6.5 * (7 * layer + embedding) / 8;
  EXPECT_NEAR(static_cast<double>(allocated(r, "loaded")), expected, 0.001 * expected);
}

Json llama(const Json& training) {
  Json spec = {{"model",
                {{"name", "llama"},
                 {"config",
                  {{"model_type", "llama"},
                   {"hidden_size", 512},
                   {"intermediate_size", 1536},
                   {"num_hidden_layers", 3},
                   {"num_attention_heads", 8},
                   {"num_key_value_heads", 4},
                   {"vocab_size", 1024}}}}},
               {"training", {{"micro_batch", 2}, {"sequence", 256}}},
               {"software", {{"stack", "torchtitan"}}}};
  spec["training"].update(training);
  return spec;
}

// SelectiveAC keeps what attention makes (the output, its log-sum-exp, two small tensors) and every other product: q, v, the gate, the MLP's
// result. Full checkpointing keeps none of it.
TEST(Torchtitan, SelectiveCheckpointingKeepsEveryOtherProduct) {
  const auto kept = [](const char* checkpointing) {
    return allocated(report(llama({{"checkpointing", checkpointing}})), "step0.forward0");
  };
  const std::int64_t tokens = 512, products = 2 * tokens * (512 + 256 + 1536 + 512),
                     attention = 2 * tokens * 512 + 4 * 8 * tokens + 2 * 512;
  EXPECT_EQ(kept("selective") - kept("full"), 3 * (products + attention));
}

// apply_fsdp_to_decoder: embedding and head are units of their own since July 2025, so that the loss is computed without the embedding.
TEST(Torchtitan, EmbeddingIsNotGatheredAtTheLoss) {
  const auto forward = [](const char* version) {
    Json spec = llama({{"weights", "float32"}});
    spec["model"]["config"]["vocab_size"] = 8192;
    spec["parallel"] = {{"data", {{"kind", "fsdp2"}, {"degree", 2}}}};
    spec["software"]["torchtitan"] = version;
    return allocated(report(spec), "step1.forward0", "peak_allocated");
  };
  const std::int64_t embedding = 2 * 8192 * 512;
  EXPECT_GE(forward("0.1") - forward("0.2"), embedding);
}

TEST(Litgpt, WhatItRefuses) {
  const auto of_litgpt = [](const Json& training) {
    Json spec = llama(training);
    spec["software"] = {{"stack", "litgpt"}};
    return spec;
  };
  EXPECT_EQ(problem_at(of_litgpt({{"method", "lora"}, {"adapter", {{"targets", {"q_proj"}}}}})), "/training/adapter/targets");
  EXPECT_EQ(problem_at(of_litgpt({{"checkpointing", "full"}})), "/training/checkpointing");
  Json other = of_litgpt({{"micro_batch", 1}});
  other["model"]["config"]["model_type"] = "olmo2";
  EXPECT_EQ(problem_at(other), "/software/stack");
  // lora.py: A [2 r, hidden] and B [queries + values, r] for each of three layers
  const Json trained =
      report(of_litgpt({{"method", "lora"}, {"adapter", {{"rank", 8}, {"targets", {"query", "value"}}}}}))["parameters"]["trainable"];
  EXPECT_EQ(trained, 3 * (16 * 512 + (512 + 256) * 8));
}

// LlamaMLP's kernel of Liger is not arcee's, which has no gate.
TEST(Liger, OnlyWherePatched) {
  Json spec = llama({{"kernels", {{"liger", {{"swiglu", true}}}}}});
  spec.erase("software");
  spec["model"]["config"]["model_type"] = "arcee";
  EXPECT_EQ(problem_at(spec), "/training/kernels/liger");
}

TEST(Torchtitan, WhatItRefuses) {
  EXPECT_EQ(problem_at(llama({{"compile", true}})), "/training/compile");
  EXPECT_EQ(problem_at(llama({{"method", "lora"}})), "/training/method");
  Json transformers = llama({{"checkpointing", "selective"}});
  transformers.erase("software");
  EXPECT_EQ(problem_at(transformers), "/training/checkpointing");
}

}  // namespace
}  // namespace llmem
