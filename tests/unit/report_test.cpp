#include "report/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "report/json_writer.h"
#include "report/ledger.h"
#include "report/outside.h"
#include "report/timeline.h"
#include "report/words.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

// ---------------------------------------------------------------- numbers and words

TEST(Words, GibHasThreeSignificantFigures) {
  EXPECT_EQ(gib(Bytes{0}), "0");
  EXPECT_EQ(gib(1024_MiB), "1.00");
  EXPECT_EQ(gib(1536_MiB), "1.50");
  EXPECT_EQ(gib(512_MiB), "0.500");
  EXPECT_EQ(gib(32_MiB), "0.0313");            // 0.03125: half a digit rounds up
  EXPECT_EQ(gib(2_MiB), "0.00195");            // 0.001953
  EXPECT_EQ(gib(Bytes{512}), "0.000000");      // 4.8e-7: below what is worth a digit
  EXPECT_EQ(gib(Bytes{85027979264}), "79.2");  // 79.189
  EXPECT_EQ(gib(Bytes{150754820096}), "140");  // 140.401
  EXPECT_EQ(gib(Bytes{(std::int64_t{10} << 30) - 1}), "10.0");
  EXPECT_EQ(gib(Bytes{(std::int64_t{1} << 30) - 1}), "1.00");
  EXPECT_EQ(gib(Bytes{(std::int64_t{100} << 30) - 1}), "100");
  EXPECT_EQ(gib(Bytes{std::int64_t{1} << 53}), "8388608");
  EXPECT_EQ(gib(Bytes{-(std::int64_t{3} << 29)}), "-1.50");
}

TEST(Words, Phases) {
  EXPECT_EQ(phase_in_words("load", 1), "while loading the model");
  EXPECT_EQ(phase_in_words("step0.optimizer", 1), "in the first optimizer step");
  EXPECT_EQ(phase_in_words("step1.forward0", 1), "in the second step's forward pass");
  EXPECT_EQ(phase_in_words("step0.backward3", 4), "in the first step's backward pass of micro-batch 4");
  EXPECT_EQ(phase_in_words("step0.clip", 1), "in the first step's gradient clipping");
}

// ---------------------------------------------------------------- JSON

std::string as_json(std::string_view text) { return JsonWriter().value(text).take(); }

TEST(JsonWriter, WritesObjectsListsAndIntegersExactly) {
  JsonWriter json;
  json.begin_object().member("a", 1).key("b").begin_array().value(INT64_MIN).value(INT64_MAX).value(0).begin_object().end_object();
  json.end_array().member("c", true).member("d", std::optional<Bytes>{}).member("e", "x").end_object();
  EXPECT_EQ(json.take(), R"({"a":1,"b":[-9223372036854775808,9223372036854775807,0,{}],"c":true,"d":null,"e":"x"})");
}

TEST(JsonWriter, EscapesAndRepairsStrings) {
  EXPECT_EQ(as_json("plain"), "\"plain\"");
  EXPECT_EQ(as_json("a\"b\\c\nd\te"), "\"a\\\"b\\\\c\\nd\\u0009e\"");
  EXPECT_EQ(as_json(std::string_view("\0\x1f\x7f", 3)), "\"\\u0000\\u001f\\u007f\"");
  EXPECT_EQ(as_json("é 名 😀"), "\"é 名 😀\"");
  EXPECT_EQ(as_json("\xff"), "\"\xEF\xBF\xBD\"");
  EXPECT_EQ(as_json("\xe5\x90"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");                                  // cut short
  EXPECT_EQ(as_json("\xc0\xaf"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");                                  // overlong
  EXPECT_EQ(as_json("\xed\xa0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");                  // a surrogate
  EXPECT_EQ(as_json("\xf4\x90\x80\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");  // beyond U+10FFFF
}

TEST(JsonWriter, WhateverItIsGivenIsJson) {
  std::string bytes;
  for (int i = 0; i < 4096; ++i) bytes += static_cast<char>(i * 2654435761u >> 13);
  EXPECT_FALSE(Json::parse(as_json(bytes), nullptr, false).is_discarded());
}

// ---------------------------------------------------------------- ledger

TEST(Ledger, FoldsNumbers) {
  EXPECT_EQ(folded(""), "");
  EXPECT_EQ(folded("lm_head"), "lm_head");
  EXPECT_EQ(folded("model.layers.12.mlp.up_proj"), "model.layers.*.mlp.up_proj");
  EXPECT_EQ(folded("model.layers.12"), "model.layers.*");
  EXPECT_EQ(folded("h.0.1.x2"), "h.*.*.x2");
}

// Two layers' weights, an activation each, optimizer states; the peak is at event 6.
Trace small_trace() {
  Trace trace;
  trace.modules = {"", "model.layers.0.mlp", "model.layers.1.mlp", "lm_head"};
  trace.ops = {"parameter", "silu", "exp_avg_sq"};
  trace.phases = {"load", "step0.forward0", "step0.optimizer"};
  const auto add = [&](Bytes bytes, Category category, std::uint16_t op, std::uint32_t module, std::uint32_t phase) {
    Allocation a;
    a.bytes = bytes;
    a.category = category;
    a.op = op;
    a.module = module;
    a.phase = phase;
    trace.allocations.push_back(a);
    trace.events.push_back(static_cast<std::int32_t>(trace.allocations.size() - 1));
  };
  add(100_MiB, Category::weights, 0, 1, 0);
  add(100_MiB, Category::weights, 0, 2, 0);
  add(200_MiB, Category::weights, 0, 3, 0);
  add(50_MiB, Category::mlp, 1, 1, 1);
  add(50_MiB, Category::mlp, 1, 2, 1);
  trace.events.push_back(~3);
  add(300_MiB, Category::optimizer_states, 2, 3, 2);
  trace.events.push_back(~5);
  trace.points = {{"loaded", 3}, {"step0.forward0", 5}, {"step0.optimizer", 8}};
  trace.peak_resets = {3};
  return trace;
}

Json timeline_json(TimelineQuestion question) {
  Played played;
  played.trace = small_trace();
  played.trace.shapes = {{}, {{50, 1 << 19}, Dtype::bfloat16}};
  played.trace.shape_of = {0, 0, 0, 1, 1, 0};
  return Json::parse(timeline_of(played, question));
}

TEST(Timeline, KeepsThePeakHoweverFewTheSamples) {
  for (const std::int64_t samples : {1, 2, 3, 8, 100}) {
    TimelineQuestion question;
    question.samples = samples;
    const Json timeline = timeline_json(question);
    EXPECT_EQ(timeline["events"], 8);
    EXPECT_EQ(timeline["peak"]["event"], 6);
    EXPECT_EQ(timeline["samples"].size(), std::min<std::size_t>(8, static_cast<std::size_t>(samples)));
    Bytes most;
    for (const Json& sample : timeline["samples"]) {
      Bytes sum;
      for (const Json& held : sample["held"]) sum += Bytes{held.get<std::int64_t>()};
      EXPECT_EQ(sum, Bytes{sample["allocated"].get<std::int64_t>()});
      EXPECT_GE(sample["reserved"], sample["allocated"]);
      most = std::max(most, sum);
    }
    EXPECT_EQ(most, Bytes{timeline["peak"]["allocated"].get<std::int64_t>()});
  }
}

TEST(Timeline, SaysWhatHappenedAndForHowLong) {
  const Json timeline = timeline_json({});
  EXPECT_EQ(timeline["phases"][1], Json::parse(R"({"name": "step0.forward0", "from": 3})"));
  const Json& made = timeline["samples"][3];
  EXPECT_EQ(made["do"], "alloc");
  EXPECT_EQ(made["op"], "silu");
  EXPECT_EQ(made["module"], "model.layers.0.mlp");
  EXPECT_EQ(made["shape"], Json::parse("[50, 524288]"));
  EXPECT_EQ(made["dtype"], "bfloat16");
  EXPECT_EQ(made["until"], 5);
  EXPECT_EQ(timeline["samples"][5]["do"], "free");
  EXPECT_TRUE(timeline["samples"][0]["until"].is_null());
}

TEST(Timeline, ZoomsAndTakesTheLedgerOfAnyInstant) {
  TimelineQuestion question;
  question.from = 3;
  question.to = 6;
  question.ledger_at = 4;
  const Json timeline = timeline_json(question);
  ASSERT_EQ(timeline["samples"].size(), 3u);
  EXPECT_EQ(timeline["samples"][0]["event"], 3);
  EXPECT_EQ(timeline["ledger"].size(), 3u);  // both layers' weights, the head's, both activations
  const Json& activations = timeline["ledger"][2];
  EXPECT_EQ(activations["category"], "mlp");
  EXPECT_EQ(activations["count"], 2);
  EXPECT_EQ(activations["asked"], 100 << 20);
}

TEST(Ledger, GroupsWhatIsLive) {
  const Trace trace = small_trace();
  const Replay run = replay(trace, {});
  ASSERT_EQ(run.peak_event, 6u);
  const std::vector<LedgerEntry> ledger = ledger_after(trace, run.block_sizes, run.peak_event);
  ASSERT_EQ(ledger.size(), 3u);
  EXPECT_EQ(ledger[0].category, "weights");
  EXPECT_EQ(ledger[0].bytes, 400_MiB);
  ASSERT_EQ(ledger[0].rows.size(), 2u);
  EXPECT_EQ(ledger[0].rows[0].module, "model.layers.*.mlp");  // as large as lm_head: the one that comes first in the model
  EXPECT_EQ(ledger[0].rows[0].count, 2);
  EXPECT_EQ(ledger[0].rows[0].bytes, 200_MiB);
  EXPECT_EQ(ledger[0].rows[1].module, "lm_head");
  EXPECT_EQ(ledger[1].category, "optimizer_states");
  EXPECT_EQ(ledger[2].category, "mlp");
  EXPECT_EQ(ledger[2].bytes, 50_MiB);
  EXPECT_EQ(ledger[0].bytes + ledger[1].bytes + ledger[2].bytes, run.peak_allocated);
}

// ---------------------------------------------------------------- report

Played small_played() {
  Played played;
  played.trace = small_trace();
  played.spec.model.name = "mine";
  played.spec.cluster.gpu.name = "A GPU";
  return played;
}

Report report_of(const Played& played) {
  const Result<Report> report = report_on(played);
  EXPECT_TRUE(report);
  return report ? *report : Report{};
}

TEST(Report, LedgerSumsToTheDevicesTotal) {
  const Report report = report_of(small_played());
  const RankReport& rank = report.ranks.at(0);
  EXPECT_EQ(rank.peak_allocated, 750_MiB);
  EXPECT_EQ(rank.peak_reserved, 800_MiB);  // 100 + 100 + 200 + 50 + 50 + 300: the 50 that was freed is of no use for 300
  EXPECT_EQ(rank.device_total, 800_MiB + rank.outside.used);
  Bytes sum;
  for (const LedgerEntry& entry : rank.ledger) {
    Bytes rows;
    for (const LedgerRow& row : entry.rows) rows += row.bytes;
    EXPECT_EQ(rows, entry.bytes) << entry.category;
    sum += entry.bytes;
  }
  EXPECT_EQ(sum, rank.device_total);
  EXPECT_EQ(rank.peak.after, "step0.forward0");
  EXPECT_EQ(rank.peak.phase, "step0.optimizer");
  EXPECT_EQ(rank.peak.module, "lm_head");
}

TEST(Report, VerdictWithoutAKnownGpu) {
  const Report report = report_of(small_played());
  EXPECT_EQ(report.verdict.status, Status::unknown);
  EXPECT_FALSE(report.verdict.capacity);
  EXPECT_EQ(report.verdict.sentence,
            "Training on one GPU needs " + with_gib(report.ranks[0].device_total) + ". How much memory this GPU has is not known.");
}

// The context of an A100: 500 MiB are reckoned with, 942 MiB at most.
TEST(Report, VerdictOnAGpu) {
  Played played = small_played();
  played.spec.cluster.gpu.memory = 4096_MiB;
  Report report = report_of(played);
  EXPECT_EQ(report.verdict.status, Status::fits);
  EXPECT_EQ(report.verdict.needed, 1300_MiB);
  EXPECT_EQ(report.verdict.margin, 2796_MiB);
  EXPECT_EQ(report.verdict.sentence, "Training on one GPU fits: 1.27 of 4.00 GiB, 2.73 GiB to spare.");

  played.spec.cluster.gpu.memory = 1301_MiB;
  report = report_of(played);
  EXPECT_EQ(report.verdict.status, Status::fits_barely);

  // 50 MiB short: the 50 MiB segment that holds nothing is given back, and then it fits.
  played.spec.cluster.gpu.memory = 1250_MiB;
  report = report_of(played);
  EXPECT_EQ(report.verdict.status, Status::fits_after_retry);
  EXPECT_EQ(report.ranks[0].retries, 1);
  EXPECT_EQ(report.verdict.margin, Bytes{} - 50_MiB);
  EXPECT_EQ(report.ranks[0].points.size(), 3u);

  played.spec.cluster.gpu.memory = 1200_MiB;
  report = report_of(played);
  EXPECT_EQ(report.verdict.status, Status::does_not_fit);
  EXPECT_EQ(report.verdict.sentence,
            "Training on one GPU does not fit: 1.27 of 1.17 GiB, 0.0977 GiB too much. It fails in the first optimizer step, "
            "allocating exp_avg_sq of lm_head: 0.293 GiB.");
  EXPECT_EQ(report.ranks[0].out_of_memory->after, "step0.forward0");
  EXPECT_EQ(report.ranks[0].points.size(), 3u);  // the need is shown to its end
}

// Two of 50 MiB, freed, then one of 100 MiB: three segments of 200 MiB, or one that is used again.
TEST(Report, SaysWhatExpandableSegmentsWouldDo) {
  EXPECT_TRUE(report_of(small_played()).warnings.empty());  // a fifteenth unused is not worth a word
  Played played = small_played();
  played.trace = {};
  played.trace.modules = played.trace.ops = played.trace.phases = {""};
  for (const Bytes bytes : {50_MiB, 50_MiB, 100_MiB}) played.trace.allocations.emplace_back().bytes = bytes;
  played.trace.events = {0, 1, ~0, ~1, 2};
  const std::string reserves = "With PYTORCH_ALLOC_CONF=expandable_segments:True the allocator reserves 0.0977 GiB in place of 0.195";
  Report report = report_of(played);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_EQ(report.warnings[0].message, reserves + ".");
  played.spec.cluster.memory = 150_MiB;
  report = report_of(played);
  ASSERT_EQ(report.warnings.size(), 2u);
  EXPECT_EQ(report.warnings[0].at, "/allocator");  // as it is, it fits once the two are given back
  EXPECT_EQ(report.warnings[1].message, reserves + ", and it fits.");
  played.spec.allocator.expandable_segments = true;
  EXPECT_TRUE(report_of(played).warnings.empty());
}

TEST(Report, AMemoryThatIsGivenIsTheAllocators) {
  Played played = small_played();
  played.spec.cluster.memory = 800_MiB;
  Report report = report_of(played);
  EXPECT_EQ(report.verdict.status, Status::fits);
  EXPECT_EQ(report.verdict.margin, Bytes{0});
  played.spec.cluster.memory = 700_MiB;
  report = report_of(played);
  EXPECT_EQ(report.verdict.status, Status::does_not_fit);
  EXPECT_EQ(report.ranks[0].points.size(), 2u);  // the run on that device ends here
}

TEST(Report, JsonHasWhatTheReadmeSays) {
  Played played = small_played();
  played.spec.data = {DataKind::fsdp2, 4};
  played.spec.model.name = "bad \xff name";
  played.spec.cluster.memory = 700_MiB;
  const Json json = Json::parse(to_json(report_of(played)), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["verdict"]["status"], "does_not_fit");
  const Json& rank = json["ranks"][0];
  EXPECT_EQ(rank["ranks"], Json({0, 1, 2, 3}));
  EXPECT_EQ(rank["points"][0]["at"], "loaded");
  EXPECT_EQ(rank["points"][0]["allocated"], 419430400);
  EXPECT_EQ(rank["outside"]["what"].size(), 2u);
  EXPECT_EQ(rank["peak"]["event"], 6);
  EXPECT_EQ(rank["out_of_memory"]["what"], "exp_avg_sq of lm_head");
  EXPECT_EQ(rank["out_of_memory"]["tried"], 314572800);
  std::int64_t sum = 0;
  for (const Json& entry : rank["ledger"]) sum += entry["bytes"].get<std::int64_t>();
  EXPECT_EQ(sum, rank["device_total"].get<std::int64_t>());
  EXPECT_FALSE(json["assumptions"].empty());
}

TEST(Report, NothingPlayedIsStillAReport) {
  Played played;
  const Json json = Json::parse(to_json(report_of(played)), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_TRUE(json["ranks"][0]["peak"]["after"].is_null());
}

TEST(Outside, GrowsWithRanksAndGeneration) {
  EXPECT_EQ(outside_of(80, {}).what.size(), 1u);
  EXPECT_EQ(outside_of(80, {2}).used - outside_of(80, {}).used, 342_MiB);     // aiconfigurator's constant for two GPUs
  EXPECT_EQ(outside_of(90, {8}).used - outside_of(90, {}).used, 392_MiB);     // for four and eight
  EXPECT_EQ(outside_of(90, {8, 2}).used - outside_of(90, {}).used, 734_MiB);  // a communicator each (NVIDIA/nccl #864)
  for (const int capability : {75, 80, 89, 90, 100, 120}) {
    const Outside o = outside_of(capability, {8});
    EXPECT_LE(o.low, o.used);
    EXPECT_LE(o.used, o.high);
  }
}

}  // namespace
}  // namespace llmem
