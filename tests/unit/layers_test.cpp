#include "trace/layers.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/repeated_layers.h"
#include "plan/adapt.h"
#include "spec/read_spec.h"
#include "step/few_layers.h"
#include "step/play.h"
#include "tests/unit/estimates.h"

// The history of a model of many layers, made from plays of few of them, is that of playing all of them.
namespace llmem {
namespace {

void expect_same_allocations(const Trace& made, const Trace& whole) {
  ASSERT_EQ(made.allocations.size(), whole.allocations.size());
  for (std::size_t i = 0; i < whole.allocations.size(); ++i) {
    const Allocation &a = made.allocations[i], &b = whole.allocations[i];
    const bool same = a.bytes == b.bytes && a.category == b.category && a.stream == b.stream && a.op == b.op && a.phase == b.phase &&
                      made.modules[a.module] == whole.modules[b.module];
    ASSERT_TRUE(same) << i << " in " << whole.modules[b.module] << ", " << whole.ops[b.op] << ": " << a.bytes.count << ", played "
                      << b.bytes.count;
  }
}

void expect_same_work(const Trace& made, const Trace& whole) {
  ASSERT_EQ(made.work.size(), whole.work.size());
  for (std::size_t i = 0; i < whole.work.size(); ++i) {
    const Work &a = made.work[i], &b = whole.work[i];
    const bool same = a.doing == b.doing && a.dtype == b.dtype && a.collective == b.collective && a.group == b.group &&
                      a.stream == b.stream && a.again == b.again && a.phase == b.phase && a.kernels == b.kernels && a.ranks == b.ranks &&
                      a.flops == b.flops && a.bytes == b.bytes && a.outer == b.outer && a.event == b.event;
    ASSERT_TRUE(same) << "work " << i;
  }
}

void expect_same_history(const Trace& made, const Trace& whole) {
  EXPECT_EQ(made.modules, whole.modules);
  EXPECT_EQ(made.ops, whole.ops);
  EXPECT_EQ(made.phases, whole.phases);
  EXPECT_EQ(made.peak_resets, whole.peak_resets);
  EXPECT_EQ(made.cache_flushes, whole.cache_flushes);
  ASSERT_EQ(made.points.size(), whole.points.size());
  for (std::size_t i = 0; i < whole.points.size(); ++i) {
    EXPECT_EQ(made.points[i].at, whole.points[i].at);
    EXPECT_EQ(made.points[i].event, whole.points[i].event);
  }
  expect_same_allocations(made, whole);
  EXPECT_EQ(made.events, whole.events);
  expect_same_work(made, whole);
}

struct Question {
  Spec spec;
  Architecture architecture;
};

// Nothing where the spec is not supported.
std::optional<Question> question(const Json& asked) {
  const Reading<Spec> spec = read_spec(asked.dump(), embedded_presets());
  if (!spec.problems.empty()) return std::nullopt;
  const Reading<Architecture> architecture = read_trained_architecture(*spec.value.model.config, spec.value.training);
  if (!architecture.problems.empty() || !check_sizes(spec.value, architecture.value).empty()) return std::nullopt;
  if (!check_trained(spec.value.training, architecture.value).empty()) return std::nullopt;
  return Question{spec.value, architecture.value};
}

// Whether it is made of few layers; if so, it is as it should be.
bool is_made(const Json& asked) {
  SCOPED_TRACE(asked.dump());
  const std::optional<Question> it = question(asked);
  if (!it) return false;
  const std::optional<Trace> made = play_few_layers(it->spec, it->architecture);
  if (made) expect_same_history(*made, play(it->spec, it->architecture));
  return made.has_value();
}

const std::vector<Json>& recipes() {
  static const std::vector<Json> all = {
      Json::parse(R"({"training": {"sequence": 128}})"),
      Json::parse(
          R"({"training": {"sequence": 128, "checkpointing": "full", "max_grad_norm": 1.0, "weights": "float32", "autocast": "bfloat16"}})"),
      Json::parse(R"({"training": {"sequence": 128, "method": "lora", "adapter": {"targets": "all-linear"}, "accumulation": 2}})"),
      Json::parse(R"({"training": {"sequence": 128, "attention": "eager", "mask": "padded", "optimizer": {"name": "adafactor"}}})"),
      Json::parse(R"({"training": {"sequence": 128, "loop": "trainer", "checkpointing": "full_reentrant"}})"),
      Json::parse(R"({"parallel": {"data": {"kind": "fsdp2", "degree": 8}}, "training": {"sequence": 128, "checkpointing": "full"}})"),
  };
  return all;
}

// One preset of each kind of model, each under one of the recipes.
TEST(Layers, OfEachKindOfModelThoseThatAreNotPlayedChangeNothing) {
  std::map<std::string, std::string> smallest;  // by model_type
  std::map<std::string, std::int64_t> layers;
  for (const ModelPreset& preset : embedded_presets()) {
    const Json spec = {{"model", preset.id}};
    const std::optional<Question> it = question(spec);
    if (!it || it->architecture.loops_over_tokens || it->architecture.layers < 12) continue;
    const std::string& type = it->architecture.model_type;
    if (layers.count(type) != 0 && layers[type] <= it->architecture.layers) continue;
    layers[type] = it->architecture.layers;
    smallest[type] = std::string(preset.id);
  }
  std::size_t number = 0, made = 0;
  for (const auto& [type, name] : smallest) {
    Json spec = recipes()[number++ % recipes().size()];
    spec["model"] = name;
    made += is_made(spec) ? 1 : 0;
  }
  EXPECT_GT(number, 40u);
  EXPECT_GT(made, number * 2 / 3);
}

TEST(Layers, UnderEachRecipeThoseThatAreNotPlayedChangeNothing) {
  const Json model = llama(256, 13, 512);
  for (Json spec : recipes()) {
    spec["model"] = model;
    EXPECT_TRUE(is_made(spec)) << spec.dump();
  }
  for (const char* more : {
           R"({"parallel": {"tensor": {"degree": 2}}, "training": {"max_grad_norm": 1.0}})",
           R"({"parallel": {"tensor": {"degree": 2, "sequence": true, "loss": true}}, "training": {"max_grad_norm": 1.0}})",
           R"({"parallel": {"tensor": {"degree": 2}, "data": {"kind": "fsdp2", "degree": 4}}, "training": {"max_grad_norm": 1.0}})",
           R"({"parallel": {"context": {"degree": 2}, "data": {"kind": "fsdp2", "degree": 2}}, "training": {"sequence": 256}})",
           R"({"training": {"optimizer": {"name": "muon"}}})",
           R"({"training": {"optimizer": {"name": "adamw", "in_backward": true}}})",
           R"({"training": {"objective": "dpo", "micro_batch": 2, "method": "lora"}})",
           R"({"training": {"method": "lora", "base_quantization": {"bits": 4}, "optimizer": {"name": "adamw_8bit"}}})",
           R"({"training": {"weights": "float32", "autocast": "float16", "grad_scaler": true, "max_grad_norm": 1.0}})",
       }) {
    Json spec = Json::parse(more);
    spec["model"] = model;
    EXPECT_TRUE(is_made(spec)) << more;
  }
}

// Layers of two kinds that take turns, and some at the beginning that are of another.
TEST(Layers, ComeAgainInPeriods) {
  Architecture architecture;
  architecture.layers = 40;
  for (int i = 0; i < 40; ++i) {
    architecture.sliding.push_back(i % 4 != 3);
    Parameter weight;
    weight.name = "model.layers." + std::to_string(i) + ".norm.weight";
    weight.shape = {i == 0 ? 16 : 8};
    architecture.tensors.push_back(weight);
  }
  const std::optional<RepeatedLayers> found = repeated_layers(architecture);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->period, 4);
  EXPECT_EQ(found->first, 5);  // behind the first of all, which is of no other's kind, and a period
  EXPECT_EQ(found->times, 7);  // of eight periods and three layers from there on a period and the layers stay
  const Architecture fewer = without_layers(architecture, found->first, 28);
  EXPECT_EQ(fewer.layers, 12);
  EXPECT_EQ(fewer.sliding.size(), 12u);
  ASSERT_EQ(fewer.tensors.size(), 12u);
  EXPECT_EQ(fewer.tensors[11].name, "model.layers.11.norm.weight");
  EXPECT_EQ(fewer.tensors[0].shape.front(), 16);
}

TEST(Layers, ThatDifferAreAllPlayed) {
  EXPECT_FALSE(is_made({{"model", llama(256, 13, 512)}, {"training", {{"checkpointing", "full"}, {"checkpoint_every", 2}}}}));
  EXPECT_FALSE(is_made({{"model", llama(256, 13, 512)}, {"training", {{"frozen", {"layers.3"}}}}}));
  EXPECT_FALSE(is_made({{"model", llama(256, 4, 512)}}));
}

// Two histories that are not each other's without a layer.
TEST(Layers, OfOtherHistoriesNothingIsMade) {
  const std::optional<Question> one = question({{"model", llama(256, 4, 512)}}), other = question({{"model", llama(512, 5, 512)}});
  ASSERT_TRUE(one && other);
  const std::string prefix = layers_prefix(one->architecture);
  const Trace fewer = play(one->spec, one->architecture);
  EXPECT_FALSE(with_more_layers(fewer, play(other->spec, other->architecture), {prefix, 2, 1, 3}));
  EXPECT_FALSE(with_more_layers(fewer, play(one->spec, one->architecture), {prefix, 2, 1, 3}));
}

}  // namespace
}  // namespace llmem
