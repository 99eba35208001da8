#include "model/heads.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "model/config.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

Json small_llama(const char* model_class) {
  return {{"model_type", "llama"},    {"architectures", {model_class}},
          {"hidden_size", 256},       {"intermediate_size", 704},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"vocab_size", 1000},
          {"pad_token_id", 0},        {"num_labels", 5}};
}

std::int64_t count_of(const Architecture& a) {
  std::int64_t count = 0;
  for (const Parameter& each : parameters_of(a)) count += each.count();
  return count;
}

// Transformers 5.24 counts LlamaForSequenceClassification of these sizes (tests/vectors/encoders.jsonl, llama-seqcls).
TEST(Heads, AClassifierTakesThePlaceOfTheHeadOverWords) {
  const Reading<Architecture> reading = read_architecture(small_llama("LlamaForSequenceClassification"));
  ASSERT_TRUE(reading.problems.empty());
  EXPECT_EQ(reading.value.model_class, "LlamaForSequenceClassification");
  EXPECT_EQ(count_of(reading.value), 1733120);
}

TEST(Heads, LabelsAreCountedByTheirNamesFirst) {
  Json config = small_llama("LlamaForSequenceClassification");
  config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  const Reading<Architecture> reading = read_architecture(config);
  EXPECT_EQ(reading.value.classifier.labels, 3);
}

TEST(Heads, AClassThatTransformersDoesNotHaveIsRefused) {
  const Reading<Architecture> reading =
      read_architecture({{"model_type", "granite"}, {"architectures", {"GraniteForSequenceClassification"}}});
  ASSERT_FALSE(reading.problems.empty());
  EXPECT_EQ(reading.problems[0].at, "/model/config/architectures");
}

// GenericForSequenceClassification.forward raises without a padding token.
TEST(Heads, WithoutPaddingRowsComeOneByOne) {
  Json config = small_llama("LlamaForSequenceClassification");
  config.erase("pad_token_id");
  const Architecture a = read_architecture(config).value;
  Spec spec;
  EXPECT_FALSE(check_head(spec, a));
  spec.training.micro_batch = 2;
  EXPECT_EQ(check_head(spec, a)->at, "/model/config/pad_token_id");
}

Json tensors_of(const Architecture& a) {
  Json tensors = Json::object();
  for (const Parameter& each : parameters_of(a)) tensors[each.name] = each.shape;
  return tensors;
}

TEST(Checkpoint, ThatOfTheConfigIsNoProblem) {
  const Architecture a = read_architecture(small_llama("LlamaForCausalLM")).value;
  EXPECT_TRUE(check_checkpoint(tensors_of(a), a).empty());
  const std::int64_t bytes = 2 * count_of(a);
  EXPECT_TRUE(check_checkpoint({{"metadata", {{"total_size", bytes}}}, {"weight_map", {{"model.norm.weight", "1"}}}}, a).empty());
  EXPECT_FALSE(check_checkpoint({{"metadata", {{"total_size", bytes + 2}}}, {"weight_map", {{"model.norm.weight", "1"}}}}, a).empty());
}

TEST(Checkpoint, ADifferenceIsNamed) {
  const Architecture a = read_architecture(small_llama("LlamaForCausalLM")).value;
  Json tensors = tensors_of(a);
  tensors["model.norm.weight"] = {512};
  const Problems problems = check_checkpoint(tensors, a);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].message.find("\"model.norm.weight\" is [512] here and [256]"), std::string::npos) << problems[0].message;
}

TEST(Checkpoint, InPlaceOfAConfigItIsCountedAndNamed) {
  const Architecture a = read_architecture(small_llama("LlamaForCausalLM")).value;
  const Reading<Architecture> reading = read_architecture(tensors_of(a));
  ASSERT_EQ(reading.problems.size(), 1U);
  EXPECT_NE(reading.problems[0].message.find("1,987,840 parameters"), std::string::npos) << reading.problems[0].message;
  EXPECT_NE(reading.problems[0].message.find("2 layers"), std::string::npos);
}

}  // namespace
}  // namespace llmem
