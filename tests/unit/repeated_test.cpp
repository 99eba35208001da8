#include "report/repeated.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "embedded_presets.h"
#include "report/estimate.h"
#include "report/report.h"
#include "step/play.h"
#include "trace/turns.h"

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

// The history of a pipeline stage of many microbatches, made of few turns, is that of playing all of them.
void expect_same_history(const std::string& training, const std::string& pipeline, std::int64_t rank) {
  SCOPED_TRACE(training + pipeline + std::to_string(rank));
  const std::string text = spec_with(training, pipeline + R"(, "rank": )" + std::to_string(rank));
  const Result<Played> played = play_spec(text, embedded_presets(), true);
  ASSERT_TRUE(played);
  const PipelineParallel& p = played->spec.pipeline;
  const std::int64_t filling = p.degree - rank / (played->spec.world() / p.degree);
  std::vector<Turn> turns;
  Trace few = play_few_turns(played->spec, played->architecture, true, turns);
  const std::optional<Trace> made = with_more_turns(std::move(few), turns, p.microbatches - filling - turns_to_repeat);
  ASSERT_TRUE(made);
  const Trace all = play(played->spec, played->architecture, true);
  for (const Trace* trace : {&*made, &played->trace}) {
    ASSERT_EQ(trace->events, all.events);
    ASSERT_EQ(trace->allocations.size(), all.allocations.size());
    for (std::size_t i = 0; i < all.allocations.size(); ++i) {
      ASSERT_EQ(trace->allocations[i].bytes, all.allocations[i].bytes) << i;
      ASSERT_EQ(trace->allocations[i].category, all.allocations[i].category) << i;
      ASSERT_EQ(trace->allocations[i].module, all.allocations[i].module) << i;
      ASSERT_EQ(trace->allocations[i].phase, all.allocations[i].phase) << i;
    }
    EXPECT_EQ(trace->shape_of, all.shape_of);
    EXPECT_EQ(trace->peak_resets, all.peak_resets);
    ASSERT_EQ(trace->points.size(), all.points.size());
    for (std::size_t i = 0; i < all.points.size(); ++i) EXPECT_EQ(trace->points[i].event, all.points[i].event) << all.points[i].at;
    ASSERT_EQ(trace->work.size(), all.work.size());
    for (std::size_t i = 0; i < all.work.size(); ++i) ASSERT_EQ(trace->work[i].bytes, all.work[i].bytes) << i;
  }
}

TEST(Repeated, TurnsOfAPipelineAreAsPlayed) {
  for (const std::int64_t rank : {0, 1, 2}) {
    const std::string three = R"("pipeline": {"degree": 3, "microbatches": 20})";
    expect_same_history(R"("micro_batch": 2)", three, rank);
    expect_same_history(R"("checkpointing": "full", "optimizer": {"name": "adamw_8bit"})", three, rank);
    expect_same_history(R"("max_grad_norm": 1.0, "attention": "eager")", three, rank);
  }
  const std::string with_ddp = R"("pipeline": {"degree": 2, "microbatches": 9}, "data": {"kind": "ddp", "degree": 2})";
  expect_same_history("", with_ddp, 0);
  expect_same_history("", with_ddp, 3);
  const std::string with_tensor =
      R"("pipeline": {"degree": 2, "microbatches": 32}, "tensor": {"degree": 2, "sequence": true, "loss": true})";
  expect_same_history("", with_tensor, 0);
  expect_same_history(R"("checkpointing": "full")", with_tensor, 3);
}

TEST(Repeated, TurnsThatAreNotAlikeAreNotRepeated) {
  const Result<Played> played = play_spec(spec_with("", R"("pipeline": {"degree": 2, "microbatches": 9})"), embedded_presets());
  ASSERT_TRUE(played);
  std::vector<Turn> turns;
  Trace trace = play_few_turns(played->spec, played->architecture, false, turns);
  ASSERT_TRUE(with_more_turns(trace, turns, 3));
  EXPECT_FALSE(with_more_turns(trace, {}, 3));
  EXPECT_FALSE(with_more_turns(trace, {turns.begin(), turns.end() - 1}, 3));
  // The third turn's backward asks for a byte more than the others.
  trace.allocations[turns[6].allocation].bytes += Bytes{1};
  EXPECT_FALSE(with_more_turns(trace, turns, 3));
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
