#include <gtest/gtest.h>

#include "estimates.h"

// Images among the words. What they allocate is held against PyTorch in tests/vectors/vision.jsonl; here what a spec may ask for.
namespace llmem {
namespace {

Json with_images(const char* model, std::int64_t images, std::int64_t sequence) {
  return {{"model", model}, {"training", {{"micro_batch", 1}, {"sequence", sequence}, {"images", {{"per_sample", images}}}}}};
}

std::string problem_at(const Json& spec) {
  const Json a = answer(spec);
  return a["ok"].get<bool>() ? "" : a["problems"][0]["at"].get<std::string>();
}

// CLIP's 336 x 336 pixels in patches of 14 x 14 are 24 x 24 tokens an image.
TEST(Images, TakeTokensOfTheirRow) {
  EXPECT_EQ(problem_at(with_images("llava-hf/llava-1.5-7b-hf", 1, 576)), "");
  EXPECT_EQ(problem_at(with_images("llava-hf/llava-1.5-7b-hf", 1, 575)), "/training/sequence");
  EXPECT_EQ(problem_at(with_images("llava-hf/llava-1.5-7b-hf", 2, 1151)), "/training/sequence");
}

// The tower has no gradients until an image runs through it.
TEST(Images, TrainTheTower) {
  Json spec = with_images("llava-hf/llava-1.5-7b-hf", 1, 1024);
  const Json seen = report(spec);
  spec["training"].erase("images");
  const Json words = report(spec);
  const auto gradients = [](const Json& r) {
    for (const Json& entry : r["ranks"][0]["ledger"])
      if (entry["category"] == "gradients") return entry["bytes"].get<std::int64_t>();
    return std::int64_t{0};
  };
  EXPECT_GT(gradients(seen), gradients(words));
}

TEST(Images, AreRefusedWhereNothingSees) {
  EXPECT_EQ(problem_at(with_images("meta-llama/Llama-3.1-8B", 1, 2048)), "/training/images");
  EXPECT_EQ(problem_at(with_images("Qwen/Qwen2.5-VL-7B-Instruct", 1, 2048)), "/training/images");
}

}  // namespace
}  // namespace llmem
