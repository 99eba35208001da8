#include "report/repeated.h"

#include <gtest/gtest.h>

#include <string>

#include "embedded_presets.h"
#include "report/estimate.h"
#include "report/report.h"
#include "step/play.h"

namespace llmem {
namespace {

// What a step of many micro-batches answers must not depend on how many of them are played.
void expect_same_as_whole(const std::string& text) {
  SCOPED_TRACE(text);
  const Result<Played> played = play_spec(text, embedded_presets());
  ASSERT_TRUE(played);
  ASSERT_GT(played->trace.micro_batches_left_out, 0);
  Played whole = *played;
  whole.trace = play(played->spec, played->architecture);
  const Result<Report> some = report_on(*played), all = report_on(whole);
  ASSERT_TRUE(some && all);
  const RankReport &a = some->ranks.front(), &b = all->ranks.front();
  EXPECT_EQ(a.peak_allocated, b.peak_allocated);
  EXPECT_EQ(a.peak_reserved, b.peak_reserved);
  EXPECT_EQ(a.retries, b.retries);
  EXPECT_EQ(some->verdict.sentence, all->verdict.sentence);
  EXPECT_EQ(a.points.back().at, b.points.back().at);
  EXPECT_EQ(a.points.back().counters.peak_reserved, b.points.back().counters.peak_reserved);
  ASSERT_TRUE(some->step_time && all->step_time);
  EXPECT_NEAR(some->step_time->seconds, all->step_time->seconds, 0.01 * all->step_time->seconds);
  EXPECT_NEAR(some->step_time->tflops, all->step_time->tflops, 0.01 * all->step_time->tflops);
}

std::string spec_with(const std::string& training, const std::string& parallel) {
  return R"({"model": {"name": "small", "config": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000,
    "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4}},
    "training": {)" +
         training + R"(}, "parallel": {)" + parallel + R"(}, "cluster": {"gpu": "rtx-4090"}})";
}

TEST(Repeated, MicroBatchesThatAreLeftOutChangeNothing) {
  expect_same_as_whole(spec_with(R"("accumulation": 40)", ""));
  expect_same_as_whole(spec_with(R"("accumulation": 41, "checkpointing": "full")", ""));
  expect_same_as_whole(spec_with(R"("accumulation": 64, "loop": "trainer")", ""));
  expect_same_as_whole(spec_with(R"("accumulation": 33)", R"("data": {"kind": "ddp", "degree": 8})"));
  expect_same_as_whole(spec_with(R"("accumulation": 40)", R"("data": {"kind": "fsdp2", "degree": 8})"));
  expect_same_as_whole(spec_with(R"("accumulation": 40)", R"("data": {"kind": "zero3", "degree": 8})"));
}

TEST(Repeated, FewMicroBatchesAreAllPlayed) {
  const Result<Played> played = play_spec(spec_with(R"("accumulation": 6)", ""), embedded_presets());
  ASSERT_TRUE(played);
  EXPECT_EQ(played->trace.micro_batches_left_out, 0);
}

// The largest that a spec may ask for: it is answered, at once.
TEST(Repeated, TensOfThousandsOfMicroBatches) {
  const Result<Played> played = play_spec(spec_with(R"("accumulation": 65536)", ""), embedded_presets());
  ASSERT_TRUE(played);
  EXPECT_LT(played->trace.points.size(), 1000U);
  EXPECT_EQ(played->trace.points.back().at, "step1.zero_grad");
}

}  // namespace
}  // namespace llmem
