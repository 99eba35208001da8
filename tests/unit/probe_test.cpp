#include "search/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "embedded_presets.h"
#include "report/estimate.h"
#include "search/candidate.h"
#include "step/play.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

// A small Llama, whose steps play in no time.
Question question_of(Json training, const Json& parallel, std::int64_t layers = 6) {
  const Json config = {
      {"model_type", "llama"},     {"architectures", {"LlamaForCausalLM"}}, {"vocab_size", 32000},      {"hidden_size", 512},
      {"intermediate_size", 1408}, {"num_hidden_layers", layers},           {"num_attention_heads", 8}, {"num_key_value_heads", 4}};
  training["sequence"] = 2048;
  const Json spec = {{"model", {{"name", "small"}, {"config", config}}},
                     {"training", training},
                     {"parallel", parallel},
                     {"cluster", {{"gpu", "h100-sxm-80gb"}}}};
  Question question = Variants(spec, embedded_presets()).read(Json::object());
  EXPECT_TRUE(question.problems.empty()) << spec;
  question.spec.cluster.gpu.compute_capability = 80;  // as the search plays
  question.spec.cluster.gpu.sms = 1;
  return question;
}

Json sharded(std::int64_t degree) {
  return {{"kind", "fsdp2"}, {"degree", degree}, {"param_dtype", "bfloat16"}, {"reduce_dtype", "float32"}};
}

std::vector<Json> parallels() {
  Json held = sharded(4), copies = sharded(4);
  held["reshard_after_forward"] = false;
  copies["replicate"] = 2;
  const Json tensor = {{"degree", 2}, {"sequence", true}, {"loss", true}}, context = {{"degree", 2}};
  return {Json::object(),
          {{"data", sharded(8)}},
          {{"data", held}},
          {{"data", copies}},
          {{"data", sharded(4)}, {"tensor", tensor}},
          {{"data", sharded(4)}, {"context", context}},
          {{"data", copies}, {"tensor", tensor}, {"context", context}},
          {{"data", sharded(4)}, {"offload", {{"optimizer", "cpu"}, {"parameters", "cpu"}}}},
          {{"tensor", tensor}}};
}

std::vector<Json> pipelines() {
  std::vector<Json> all;
  for (Json parallel : parallels()) {
    if (parallel.contains("offload")) continue;
    parallel["pipeline"] = {{"degree", 2}, {"microbatches", 4}};
    all.push_back(parallel);
  }
  all.push_back({{"data", {{"kind", "ddp"}, {"degree", 2}}}, {"pipeline", {{"degree", 2}, {"microbatches", 4}}}});
  return all;
}

bool same_work(const Work& a, const Work& b) {
  return a.doing == b.doing && a.dtype == b.dtype && a.collective == b.collective && a.group == b.group && a.stream == b.stream &&
         a.again == b.again && a.kernels == b.kernels && a.ranks == b.ranks && a.flops == b.flops && a.bytes == b.bytes &&
         a.outer == b.outer;
}

// What makes a step of its own of the second is that the optimizer's states are there.
TEST(ShortPlay, FirstStepTakesWhatTheSecondDoesAndHoldsNoMore) {
  std::vector<Json> all = parallels();
  for (const Json& piped : pipelines()) all.push_back(piped);
  for (const Json& parallel : all) {
    for (const char* checkpointing : {"none", "full"}) {
      SCOPED_TRACE(parallel.dump() + checkpointing);
      const Question question = question_of({{"checkpointing", checkpointing}, {"micro_batch", 2}, {"max_grad_norm", 1.0}}, parallel);
      const auto first = short_play(question.spec, *question.architecture);
      const Trace both = play(question.spec, *question.architecture);
      ASSERT_EQ(first->work.work.size(), both.work.size());
      for (std::size_t i = 0; i < both.work.size(); ++i) ASSERT_TRUE(same_work(first->work.work[i], both.work[i])) << i;
      std::int64_t held = 0, peak = 0;
      for (const std::int32_t event : both.events) {
        const std::int64_t bytes = (both.allocations[allocation_of(event)].bytes.count + 511) / 512 * 512;
        held += is_free(event) ? -bytes : bytes;
        peak = std::max(peak, held);
      }
      // The engine's thread has no workspace yet in the first forward (8 MiB and 128 KiB).
      EXPECT_LE(peaks_of(*first).held, static_cast<double>(peak));
      EXPECT_GE(peaks_of(*first).held, static_cast<double>(peak - (std::int64_t{33} << 20)));
    }
  }
}

// What lies between two numbers of rows is as if it had been played, tensor by tensor; only the scratch of a sort (embedding_dense_backward) grows
// by steps.
TEST(PlaysOfRows, WhatLiesBetweenIsAsPlayed) {
  std::vector<Json> all = parallels();
  for (const Json& piped : pipelines()) all.push_back(piped);
  int followed = 0;
  for (const Json& parallel : all) {
    for (const char* checkpointing : {"none", "full"}) {
      PlaysOfRows plays;
      for (const std::int64_t rows : {1, 2, 3, 4, 8, 16}) {
        SCOPED_TRACE(parallel.dump() + checkpointing + std::to_string(rows));
        const auto play = [&](std::int64_t of) {
          if (of == rows) --followed;
          const Question question = question_of(
              {{"checkpointing", checkpointing}, {"micro_batch", of}, {"accumulation", parallel.contains("pipeline") ? 1 : 2}}, parallel);
          return short_play(question.spec, *question.architecture);
        };
        ++followed;
        const auto made = plays.of(rows, 32, play);
        const int before = followed;
        const auto played = play(rows);
        followed = before;
        const double scratch = static_cast<double>(rows) * 2048 * 40;
        const auto expect_as = [&](double is, double should_be) {
          EXPECT_LE(is, should_be);
          EXPECT_GE(is, should_be - scratch);
        };
        expect_as(peaks_of(*made).held, peaks_of(*played).held);
        expect_as(peaks_of(*made).forward, peaks_of(*played).forward);
        ASSERT_EQ(made->parts.size(), played->parts.size());
        for (std::size_t i = 0; i < made->parts.size(); ++i) {
          expect_as(static_cast<double>(made->parts[i].peak), static_cast<double>(played->parts[i].peak));
          EXPECT_EQ(made->parts[i].held, played->parts[i].held) << i;
        }
        ASSERT_EQ(made->work.work.size(), played->work.work.size());
        for (std::size_t i = 0; i < made->work.work.size(); ++i) {
          Work work = made->work.work[i];
          const std::int64_t bytes = played->work.work[i].bytes;
          // Of the embedding's gradient as many rows are read and written as there are tokens, or words: 32,000 rows of 512 bfloat16.
          EXPECT_LE(static_cast<double>(work.bytes), static_cast<double>(bytes) + 2 * scratch);
          EXPECT_GE(static_cast<double>(work.bytes), static_cast<double>(bytes) - 2 * 2.0 * 32000 * 512);
          work.bytes = bytes;
          ASSERT_TRUE(same_work(work, played->work.work[i])) << i;
        }
      }
    }
  }
  EXPECT_GT(followed, static_cast<int>(4 * all.size()));
}

// Where all ranks share one copy of the weights nothing is larger than where there are several copies.
TEST(ShortPlay, WeightsThatAreCutMoreHoldNoMore) {
  for (const Json& pipeline : {Json(), Json({{"degree", 3}, {"microbatches", 4}})}) {
    for (const std::int64_t tensor : {1, 2}) {
      for (const std::int64_t layers : {3, 4, 7}) {
        for (const char* checkpointing : {"none", "full"}) {
          for (const std::int64_t rows : {1, 4}) {
            const auto held = [&](const Json& data) {
              Json parallel = {{"data", data}};
              if (!pipeline.is_null()) parallel["pipeline"] = pipeline;
              if (tensor > 1) parallel["tensor"] = {{"degree", tensor}, {"sequence", true}, {"loss", true}};
              const std::int64_t accumulation = pipeline.is_null() ? 2 : 1;
              const Question question =
                  question_of({{"checkpointing", checkpointing}, {"micro_batch", rows}, {"accumulation", accumulation}}, parallel,
                              layers * (pipeline.is_null() ? 1 : 3));
              const auto play = short_play(question.spec, *question.architecture);
              return std::pair(peaks_of(*play).held, peaks_of(*play).forward);
            };
            const Json all_cut = {{"kind", "fsdp2"}, {"degree", 8}};
            const auto least = held(all_cut);
            for (const std::int64_t replicate : {2, 4}) {
              Json copies = all_cut;
              copies["replicate"] = replicate;
              SCOPED_TRACE(copies.dump() + pipeline.dump() + checkpointing + std::to_string(layers));
              const auto more = held(copies);
              EXPECT_GE(more.first, least.first);
              EXPECT_GE(more.second, least.second);
            }
          }
        }
      }
    }
  }
}

std::vector<StagePlay> stage_plays(const Json& parallel) {
  std::vector<StagePlay> plays{kFirstStage, kLastStage};
  if (backwards_are_alike(question_of({}, parallel).spec)) plays.insert(plays.end(), {kFirstStageAlike, kLastStageAlike});
  return plays;
}

// A stage of a pipeline of any number of stages and microbatches, by the play of few.
TEST(ShortPlay, StagesHoldAndTakeNoMoreThanPlayed) {
  for (Json parallel : pipelines()) {
    for (const StagePlay& stage : stage_plays(parallel)) {
      // Two layers each.
      const auto question_with = [&](std::int64_t stages, std::int64_t microbatches) {
        parallel["pipeline"] = {{"degree", stages}, {"microbatches", microbatches}};
        Question question = question_of({{"checkpointing", "full"}, {"micro_batch", 2}}, parallel, 2 * stages);
        question.spec.rank = stage.position == 0 ? 0 : question.spec.world() - 1;
        return question;
      };
      const Question few = question_with(stage.stages, stage.microbatches);
      const auto play_of_few = short_play(few.spec, *few.architecture);
      for (const std::int64_t stages : {2, 3, 5}) {
        for (const std::int64_t microbatches : {1, 2, 3, 4, 5, 6, 12}) {
          SCOPED_TRACE(parallel.dump() + " first or last " + std::to_string(stage.position));
          const Question question = question_with(stages, microbatches);
          const auto all = short_play(question.spec, *question.architecture);
          const std::int64_t in_flight = stage.position > 0 ? 1 : std::min(stages, microbatches);
          const double held = held_of_stage(*play_of_few, in_flight, microbatches), whole = peaks_of(*all).held;
          EXPECT_LE(held, whole);
          EXPECT_GE(held, 0.97 * whole);
          const Machine machine = *machine_of(question.spec.cluster);
          const auto moments = [&](const ShortPlay& play, bool at_once = false) {
            std::vector<std::size_t> begins;
            for (std::size_t i = 1; i < play.parts.size(); ++i) begins.push_back(play.parts[i].begin.work);
            Kernels kernels;
            kernels.at_once = at_once;
            return moments_of(question.spec, play.work, machine, kernels, begins);
          };
          const double seconds = seconds_of_stage(*play_of_few, moments(*play_of_few), in_flight, microbatches);
          // Of a single microbatch under DDP it knows no backward that is both the first and the last, which reduces.
          EXPECT_LE(seconds, 1.02 * moments(*all).back());
          EXPECT_GE(seconds, (microbatches == 1 ? 0.9 : 0.97) * moments(*all).back());
          // Where launching takes no time little depends on how long the play is: making the batch, which is one of few.
          const double least = seconds_of_stage(*play_of_few, moments(*play_of_few, true), in_flight, microbatches);
          EXPECT_LE(least, (microbatches == 1 ? 1.005 : 1.0001) * moments(*all, true).back());
          EXPECT_GE(least, (microbatches == 1 ? 0.9 : 0.99) * moments(*all, true).back());
          EXPECT_LE(moments(*all, true).back(), moments(*all).back());
        }
      }
    }
  }
}

}  // namespace
}  // namespace llmem
