#include <gtest/gtest.h>

#include "estimates.h"
#include "files.h"

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

// A tower that a pasted config says strangely is named or refused, never run.
TEST(Images, OfStrangeTowersAreAProblem) {
  const auto with_tower = [](const char* key, const Json& value) {
    Json config = file_json("presets/models/llava-hf__llava-1.5-7b-hf.json")["config"];
    config["vision_config"][key] = value;
    Json spec = with_images("", 1, 1024);
    spec["model"] = {{"config", config}};
    return problem_at(spec);
  };
  EXPECT_EQ(with_tower("model_type", 5), "/model/config/vision_config/model_type");
  EXPECT_EQ(with_tower("model_type", nullptr), "");  // as if left out
  EXPECT_EQ(with_tower("model_type", "siglip_vision_model"), "/training/images");
  EXPECT_EQ(with_tower("patch_size", 1000), "/training/images");  // larger than the image
}

}  // namespace
}  // namespace llmem
