#include "search/search.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "embedded_presets.h"
#include "report/estimate.h"
#include "search/advice.h"
#include "search/candidate.h"
#include "search/largest.h"
#include "search/rank.h"
#include "tests/unit/files.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

Json value_of(const std::string& envelope) {
  const Json json = parse_json(envelope).value;
  EXPECT_TRUE(json["ok"].get<bool>()) << envelope.substr(0, 400);
  return json["value"];
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
}

// The largest that the search finds is the largest of all, each estimated. (What the allocator rounds may let a larger one fit where a smaller one
// does not.)
TEST(Largest, AgreesWithBruteForce) {
  const std::string gib_4 = R"("cluster": {"memory": 4294967296})";
  for (const std::string& rest : {std::string(R"({"sequence": 512})"), std::string(R"({"sequence": 256, "checkpointing": "full"})")}) {
    const std::string spec = R"({"model": "HuggingFaceTB/SmolLM2-135M", "training": )" + rest + ", " + gib_4 + "}";
    const Json answer = value_of(largest(R"({"of": "micro_batch", "spec": )" + spec + "}", embedded_presets()));
    const std::int64_t found = answer["largest"].get<std::int64_t>();
    ASSERT_GT(found, 0);
    const Json json = parse_json(spec).value;
    std::int64_t most = 0;
    for (std::int64_t n = 1; n <= found + 6; ++n)
      if (summary_of(changed(json, {{"training", {{"micro_batch", n}}}}), embedded_presets()).fits()) most = n;
    EXPECT_EQ(found, most);
  }
}

// A search by few layers says of every strategy what its full estimate says. (Time is a linear function of the layers but for what the host
// runs ahead, which counts in a small model.)
TEST(Search, ScreeningAgreesWithFullEstimates) {
  const Json question = {
      {"spec", {{"model", "HuggingFaceTB/SmolLM2-360M"}, {"training", {{"sequence", 1024}}}, {"cluster", {{"memory", 6'000'000'000}}}}},
      {"gpus", {1, 2, 4}},
      {"global_batch", 16},
      {"micro_batches", {1, 4}}};
  const Json found = value_of(search(question.dump(), embedded_presets()));
  ASSERT_GT(found["strategies"].size(), 20u);
  std::size_t fewest = 0;
  std::int64_t fewest_gpus = 1 << 20, fastest = 0, best = INT64_MAX;
  std::size_t index = 0;
  for (const Json& strategy : found["strategies"]) {
    const Summary full = summary_of(changed(question["spec"], strategy["change"]), embedded_presets());
    const Json& quick = strategy["estimate"];
    EXPECT_EQ(quick["fits"].get<bool>(), full.fits()) << strategy["label"];
    const auto microseconds = std::llround(*full.seconds * 1e6);
    EXPECT_NEAR(static_cast<double>(quick["microseconds"].get<std::int64_t>()), static_cast<double>(microseconds),
                0.12 * static_cast<double>(microseconds))
        << strategy["label"];
    if (full.fits() && full.gpus < fewest_gpus) {
      fewest_gpus = full.gpus;
      fewest = index;
    }
    if (full.fits() && microseconds < best) {
      best = microseconds;
      fastest = static_cast<std::int64_t>(index);
    }
    ++index;
  }
  ASSERT_FALSE(found["order"].empty());
  const Json& first = found["strategies"][found["order"][0].get<std::size_t>()]["estimate"];
  EXPECT_LE(first["microseconds"].get<std::int64_t>(), best + best / 8) << fastest;
  EXPECT_EQ(found["strategies"][found["fewest_gpus"].get<std::size_t>()]["estimate"]["gpus"], fewest_gpus) << fewest;
}

// Every piece of advice, applied and estimated as anybody would, does what it says.
TEST(Advice, DoesWhatItSays) {
  const std::vector<std::string> specs = {
      R"({"model": "HuggingFaceTB/SmolLM2-360M", "training": {"micro_batch": 8, "sequence": 1024}, "cluster": {"memory": 8000000000}})",
      R"({"model": "HuggingFaceTB/SmolLM2-360M", "training": {"micro_batch": 4, "sequence": 1024}, "parallel": {"data": {"kind": "ddp", "degree": 8}}, "cluster": {"memory": 5000000000}})",
      R"({"model": "Qwen/Qwen2.5-14B", "training": {"sequence": 1024}, "cluster": {"gpu": "a100-sxm-80gb"}})",
      R"({"model": "HuggingFaceTB/SmolLM2-360M", "training": {"checkpointing": "full", "sequence": 1024}, "cluster": {"gpu": "a100-sxm-80gb"}})"};
  for (const std::string& spec : specs) {
    const Json json = parse_json(spec).value;
    const AdviceList list = advice_on(json, embedded_presets());
    ASSERT_TRUE(list.now.problems.empty()) << spec;
    EXPECT_FALSE(list.advice.empty()) << spec;
    for (const Advice& advice : list.advice) {
      const Json applied = changed(json, advice.change);
      const Json report = value_of(estimate(applied.dump(), embedded_presets()));
      EXPECT_NE(report["verdict"]["status"], "does_not_fit") << advice.label;
      EXPECT_EQ(report["verdict"]["needed"].get<std::int64_t>(), advice.after.needed.count) << advice.label;
      if (list.now.status == Status::fits) {
        EXPECT_GT(report["step_time"]["tokens_per_second"].get<double>(), list.now.tokens_per_second) << advice.label;
      }
    }
  }
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
