#include "search/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "embedded_presets.h"
#include "report/estimate.h"
#include "search/advice.h"
#include "search/candidate.h"
#include "search/largest.h"
#include "search/rank.h"
#include "spec/read_spec.h"
#include "tests/unit/files.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

Json value_of(const std::string& envelope) {
  const Json json = parse_json(envelope).value;
  EXPECT_TRUE(json["ok"].get<bool>()) << envelope.substr(0, 400);
  return json["value"];
}

// The largest batch on a device is PyTorch's: tests/vectors/largest.jsonl has runs of real PyTorch over a device of that memory with so many
// rows, which went through, and with one more, which ran out of memory.
TEST(Largest, AsPyTorchOnADeviceOfThatMemory) {
  const std::vector<Json> vectors = file_lines("tests/vectors/largest.jsonl");
  ASSERT_EQ(vectors.size() % 2, 0u);
  for (std::size_t i = 0; i < vectors.size(); i += 2) {
    Json spec = vectors[i]["spec"];
    const std::int64_t rows = spec["training"]["micro_batch"].get<std::int64_t>();
    ASSERT_TRUE(vectors[i]["expected"]["out_of_memory"].is_null());
    ASSERT_FALSE(vectors[i + 1]["expected"]["out_of_memory"].is_null());
    ASSERT_EQ(vectors[i + 1]["spec"]["training"]["micro_batch"].get<std::int64_t>(), rows + 1);
    spec["training"].erase("micro_batch");
    const Json answer = value_of(largest(Json({{"of", "micro_batch"}, {"spec", spec}}).dump(), embedded_presets()));
    EXPECT_EQ(answer["largest"].get<std::int64_t>(), rows) << vectors[i]["id"];
  }
}

TEST(Changed, ReplacesParallelAndMergesTheRest) {
  const Json spec = {{"training", {{"micro_batch", 4}, {"sequence", 512}}},
                     {"parallel", {{"data", {{"kind", "ddp"}, {"degree", 8}, {"bucket_cap_mb", 5}}}}}};
  const Json result = changed(spec, {{"training", {{"micro_batch", 1}}}, {"parallel", {{"data", {{"kind", "fsdp2"}, {"degree", 8}}}}}});
  EXPECT_EQ(result["training"], Json({{"micro_batch", 1}, {"sequence", 512}}));
  EXPECT_EQ(result["parallel"], Json({{"data", {{"kind", "fsdp2"}, {"degree", 8}}}}));
}

TEST(LargestThatFits, AgreesWithTryingAll) {
  for (std::int64_t most : {1, 2, 7, 64}) {
    for (std::int64_t limit = 0; limit <= most + 2; ++limit) {
      const auto fits = [&](std::int64_t n) { return n <= limit; };
      EXPECT_EQ(largest_that_fits(most, fits), std::min(limit, most)) << most << " " << limit;
    }
  }
}

TEST(Ranked, FrontHoldsWhatNothingBeats) {
  const std::vector<Candidate> all = {
      {true, {10}, 8, 100}, {true, {5}, 8, 120}, {true, {20}, 8, 110}, {false, {1}, 1, 1}, {true, {30}, 4, 180}};
  const Ranking ranking = ranked(all);
  EXPECT_EQ(ranking.order, (std::vector<std::size_t>{0, 2, 1, 4}));
  EXPECT_EQ(ranking.front, (std::vector<std::size_t>{0, 1, 4}));
  EXPECT_EQ(ranking.fewest, 4u);
  EXPECT_EQ(ranking.cheapest, 4u);
  EXPECT_TRUE(ranking.unsettled.empty());
}

// Dearer GPUs that are not faster by as much are beaten by nothing in time, but not the cheapest.
TEST(Ranked, CostCountsWherePricesAreGiven) {
  const std::vector<Candidate> all = {{true, {10}, 8, 100, 5}, {true, {10}, 8, 150, 2}, {true, {10}, 8, 160, 3}};
  const Ranking ranking = ranked(all);
  EXPECT_EQ(ranking.front, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(ranking.cheapest, 1u);
}

TEST(Ranked, WhatIsShownIsToBeExact) {
  std::vector<Candidate> all;
  for (int i = 0; i < 20; ++i) all.push_back({true, {10 + i}, 8, 100 + i, 0, i % 2 == 0});
  all.push_back({true, {100}, 1, 1000, 0, false});
  const Ranking ranking = ranked(all);
  EXPECT_EQ(ranking.order.size(), all.size());
  for (const std::size_t i : ranking.order) {
    const bool shown = i == 20 || std::find(ranking.order.begin(), ranking.order.begin() + 12, i) != ranking.order.begin() + 12 ||
                       std::find(ranking.front.begin(), ranking.front.end(), i) != ranking.front.end();
    const bool unsettled = std::find(ranking.unsettled.begin(), ranking.unsettled.end(), i) != ranking.unsettled.end();
    EXPECT_EQ(unsettled, shown && !all[i].exact) << i;
  }
}

Json spec_of(const char* model, const Json& training, const Json& parallel, std::int64_t memory) {
  Json spec = {{"model", model}, {"training", training}, {"cluster", {{"memory", memory}}}};
  if (!parallel.is_null()) spec["parallel"] = parallel;
  return spec;
}

Json data_over(const char* kind, std::int64_t degree) { return {{"data", {{"kind", kind}, {"degree", degree}}}}; }

// Models and methods, each with a limit that leaves room for a few rows.
std::vector<Json> tight_specs() {
  const char* smol = "HuggingFaceTB/SmolLM2-135M";
  const std::int64_t gib = std::int64_t{1} << 30;
  return {spec_of(smol, {{"sequence", 512}}, {}, 4 * gib),
          spec_of(smol, {{"sequence", 256}, {"checkpointing", "full"}}, {}, 4 * gib),
          spec_of(smol, {{"sequence", 256}, {"method", "lora"}}, {}, 2 * gib),
          spec_of(smol, {{"sequence", 512}}, data_over("ddp", 2), 4 * gib),
          spec_of(smol, {{"sequence", 512}, {"checkpointing", "full"}}, data_over("fsdp2", 4), 3 * gib),
          spec_of(smol, {{"sequence", 512}}, data_over("zero3", 2), 4 * gib),
          spec_of("Qwen/Qwen2.5-0.5B", {{"sequence", 128}}, {}, 9 * gib),
          spec_of("openai-community/gpt2", {{"sequence", 128}}, data_over("zero2", 4), 4 * gib)};
}

// The largest that the search finds is the largest of all, each estimated. (What the allocator rounds may let a larger one fit where a smaller one
// does not.)
TEST(Largest, BatchAgreesWithBruteForce) {
  for (const Json& spec : tight_specs()) {
    const Json answer = value_of(largest(Json({{"of", "micro_batch"}, {"spec", spec}}).dump(), embedded_presets()));
    const std::int64_t found = answer["largest"].get<std::int64_t>();
    ASSERT_GT(found, 0) << spec;
    std::int64_t most = 0;
    for (std::int64_t n = 1; n <= found + 6; ++n)
      if (summary_of(changed(spec, {{"training", {{"micro_batch", n}}}}), embedded_presets()).fits()) most = n;
    EXPECT_EQ(found, most) << spec;
  }
}

TEST(Largest, SequenceAgreesWithBruteForce) {
  for (const Json& spec : tight_specs()) {
    const Json answer = value_of(largest(Json({{"of", "sequence"}, {"spec", spec}}).dump(), embedded_presets()));
    const std::int64_t found = answer["largest"].get<std::int64_t>();
    ASSERT_GT(found, 0) << spec;
    ASSERT_EQ(found % 128, 0);
    std::int64_t most = 0;
    for (std::int64_t n = 128; n <= found + 6 * 128; n += 128)
      if (summary_of(changed(spec, {{"training", {{"sequence", n}}}}), embedded_presets()).fits()) most = n;
    EXPECT_EQ(found, most) << spec;
  }
}

struct Searched {
  const char* name;
  Json question;
};

std::vector<Searched> searches() {
  const auto of = [](const char* model, const Json& training, std::int64_t memory, const Json& gpus, std::int64_t batch) {
    return Json{{"spec", spec_of(model, training, {}, memory)}, {"gpus", gpus}, {"global_batch", batch}, {"micro_batches", {1, 4}}};
  };
  return {{"full", of("HuggingFaceTB/SmolLM2-360M", {{"sequence", 1024}}, 6'000'000'000, {1, 4}, 8)},
          {"tight", of("HuggingFaceTB/SmolLM2-360M", {{"sequence", 1024}}, 3'000'000'000, {2, 8}, 8)},
          {"lora", of("Qwen/Qwen2.5-0.5B", {{"sequence", 512}, {"method", "lora"}}, 3'000'000'000, {1, 2}, 4)},
          {"deep", of("Qwen/Qwen2.5-3B", {{"sequence", 512}}, 30'000'000'000, {4}, 4)},
          {"nothing", of("Qwen/Qwen2.5-3B", {{"sequence", 512}}, 3'000'000'000, {1, 2}, 4)}};
}

// Against estimates of every strategy in full: a short one never says that it does not fit where it does, nor more memory or time than it takes.
// What comes out in front is exact, and the best.
TEST(Search, AgreesWithFullEstimatesOfEveryStrategy) {
  for (const Searched& searched : searches()) {
    const Json& question = searched.question;
    const Json found = value_of(search(question.dump(), embedded_presets()));
    ASSERT_GT(found["strategies"].size(), 10u);
    std::vector<Candidate> all;
    for (const Json& strategy : found["strategies"]) {
      const std::string label = std::string(searched.name) + ", " + strategy["label"].get<std::string>();
      const Summary full = summary_of(changed(question["spec"], strategy["change"]), embedded_presets());
      const Json& quick = strategy["estimate"];
      const auto microseconds = std::llround(full.seconds.value_or(0) * 1e6);
      all.push_back({full.fits(), full.needed, full.gpus, microseconds, 0, true});
      EXPECT_EQ(quick.contains("problem"), !full.problems.empty()) << label;
      if (quick.contains("problem")) continue;
      if (quick["exact"].get<bool>()) {
        EXPECT_EQ(quick["needed"].get<std::int64_t>(), full.needed.count) << label;
        EXPECT_EQ(quick["fits"].get<bool>(), full.fits()) << label;
      }
      EXPECT_TRUE(quick["fits"].get<bool>() || !full.fits()) << label;
      EXPECT_LE(quick["needed"].get<std::int64_t>(), full.needed.count) << label;
      if (full.fits()) { EXPECT_LE(quick["microseconds"].get<double>(), 1.02 * static_cast<double>(microseconds)) << label; }
    }
    const Ranking best = ranked(all);
    const auto estimate = [&](const Json& index) { return found["strategies"][index.get<std::size_t>()]["estimate"]; };
    EXPECT_EQ(found["order"].empty(), best.order.empty()) << searched.name;
    for (const Json& index : found["front"]) EXPECT_TRUE(estimate(index)["exact"].get<bool>()) << searched.name;
    if (best.order.empty() || found["order"].empty()) continue;
    EXPECT_TRUE(estimate(found["order"][0])["exact"].get<bool>());
    EXPECT_EQ(estimate(found["order"][0])["microseconds"].get<std::int64_t>(), all[best.order[0]].microseconds) << searched.name;
    EXPECT_EQ(estimate(found["fewest_gpus"])["gpus"].get<std::int64_t>(), all[*best.fewest].gpus) << searched.name;
    EXPECT_TRUE(estimate(found["fewest_gpus"])["exact"].get<bool>());
    EXPECT_EQ(found["cheapest"].get<std::size_t>(), *best.cheapest) << searched.name;
  }
}

// Prices decide which kind of GPU costs least, and only they.
TEST(Search, TheCheapestKindFollowsThePrices) {
  Json question = {{"spec", {{"model", "HuggingFaceTB/SmolLM2-360M"}, {"training", {{"sequence", 1024}}}}},
                   {"gpus", {1, 2}},
                   {"global_batch", 8},
                   {"micro_batches", {1}}};
  const auto cheapest = [&](double a100, double l4) {
    question["prices"] = {{"a100-sxm-80gb", a100}, {"l4", l4}};
    const Json found = value_of(search(question.dump(), embedded_presets()));
    double least = 1e300;
    std::size_t at = 0;
    for (const Json& index : found["order"]) {
      const Json& one = found["strategies"][index.get<std::size_t>()];
      const double cost =
          one["price"].get<double>() * one["estimate"]["gpus"].get<double>() * one["estimate"]["microseconds"].get<double>();
      if (cost < least) at = index.get<std::size_t>();
      least = std::min(least, cost);
    }
    EXPECT_EQ(found["cheapest"].get<std::size_t>(), at);
    return found["strategies"][at]["change"]["cluster"]["gpu"].get<std::string>();
  };
  EXPECT_EQ(cheapest(1, 1), "a100-sxm-80gb");
  EXPECT_EQ(cheapest(100, 1), "l4");
  question["prices"] = {{"no such", 1}};
  EXPECT_FALSE(parse_json(search(question.dump(), embedded_presets())).value["ok"].get<bool>());
}

// Rows and tokens an optimizer step, and what is trained.
Json result_of(const Json& json) {
  const Spec spec = read_parsed_spec(json, embedded_presets()).value;
  const Training& t = spec.training;
  const std::int64_t batches = spec.pipeline.degree > 1 ? spec.pipeline.microbatches : t.accumulation;
  return {t.micro_batch * batches * spec.data.degree, t.sequence, static_cast<int>(t.method), static_cast<int>(t.optimizer.name)};
}

// Every piece of advice, applied and estimated as anybody would, does what it says.
TEST(Advice, DoesWhatItSays) {
  std::vector<Json> specs;
  for (
      const char* text :
      {R"({"model": "HuggingFaceTB/SmolLM2-360M", "training": {"micro_batch": 8, "sequence": 1024}, "cluster": {"memory": 8000000000}})",
       R"({"model": "HuggingFaceTB/SmolLM2-360M", "training": {"micro_batch": 4, "sequence": 1024}, "parallel": {"data": {"kind": "ddp", "degree": 8}}, "cluster": {"memory": 5000000000}})",
       R"({"model": "Qwen/Qwen2.5-14B", "training": {"sequence": 1024}, "cluster": {"gpu": "a100-sxm-80gb"}})",
       R"({"model": "HuggingFaceTB/SmolLM2-360M", "training": {"checkpointing": "full", "sequence": 1024}, "cluster": {"gpu": "a100-sxm-80gb"}})"})
    specs.push_back(parse_json(text).value);
  for (const char* kind : {"zero1", "zero2", "zero3", "fsdp1", "fsdp2"})
    for (const std::int64_t memory : {std::int64_t{2500000000}, std::int64_t{4000000000}, std::int64_t{40000000000}})
      specs.push_back(spec_of("HuggingFaceTB/SmolLM2-360M",
                              {{"micro_batch", 4}, {"sequence", 512}, {"checkpointing", memory > 5000000000 ? "full" : "none"}},
                              data_over(kind, 4), memory));
  specs.push_back(spec_of("Qwen/Qwen2.5-0.5B", {{"micro_batch", 4}, {"sequence", 1024}, {"method", "lora"}, {"attention", "eager"}}, {},
                          8'000'000'000));
  std::size_t pieces = 0;
  for (const Json& json : specs) {
    const AdviceList list = advice_on(json, embedded_presets());
    ASSERT_TRUE(list.now.problems.empty()) << json;
    pieces += list.advice.size();
    for (const Advice& advice : list.advice) {
      const Json applied = changed(json, advice.change);
      const Json report = value_of(estimate(applied.dump(), embedded_presets()));
      const std::string of = json.dump() + advice.label;
      EXPECT_NE(report["verdict"]["status"], "does_not_fit") << of;
      EXPECT_EQ(report["verdict"]["status"], std::string(name_of(advice.after.status))) << of;
      EXPECT_EQ(report["verdict"]["needed"].get<std::int64_t>(), advice.after.needed.count) << of;
      if (list.now.status == Status::fits) {
        EXPECT_GT(report["step_time"]["tokens_per_second"].get<double>(), list.now.tokens_per_second) << of;
      }
      EXPECT_EQ(advice.changes_result, result_of(applied) != result_of(json)) << of;
    }
  }
  EXPECT_GT(pieces, 40u);
}

// A 4-bit base is unpacked to float32 unless it is said: bfloat16 halves that, and its products are faster.
TEST(Advice, TriesTheDtypeThatAQuantisedBaseIsUnpackedTo) {
  Json spec = {{"model", "Qwen/Qwen2.5-0.5B"},
               {"training", {{"method", "lora"}, {"sequence", 2048}, {"base_quantization", {{"bits", 4}, {"compute_dtype", "float32"}}}}},
               {"cluster", {{"gpu", "rtx-4090"}}}};
  const auto tried = [&] {
    const AdviceList list = advice_on(spec, embedded_presets());
    return std::any_of(list.advice.begin(), list.advice.end(), [](const Advice& each) {
      return each.change.contains("training") && each.change["training"].contains("base_quantization") &&
             each.change["training"]["base_quantization"] == Json({{"bits", 4}, {"compute_dtype", "bfloat16"}});
    });
  };
  EXPECT_TRUE(tried());
  spec["training"]["base_quantization"]["compute_dtype"] = "bfloat16";
  EXPECT_FALSE(tried());
}

TEST(Doors, SayWhatIsWrong) {
  for (const std::string& answer : {enumerate("{", {}), enumerate("{}", {}), enumerate("[]", {}), screen("{}", {}), rank("{}"),
                                    largest("{}", {}), largest(R"({"spec": {}, "of": "layers"})", {}), advise("{}", {}), search("3", {})}) {
    const Json json = parse_json(answer).value;
    EXPECT_FALSE(json["ok"].get<bool>()) << answer;
    EXPECT_FALSE(json["problems"].empty()) << answer;
  }
}

}  // namespace
}  // namespace llmem
