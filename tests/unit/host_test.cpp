#include <gtest/gtest.h>

#include "estimates.h"

// What the processes of one node hold in the host's memory. Expected values are counted from what Transformers, accelerate and DeepSpeed do with
// the model's P parameters; the sources stand beside the rules in core/report/host.cpp.
namespace llmem {
namespace {

Json point(const Json& report, const std::string& at) {
  if (report["host"].is_null()) return nullptr;
  for (const Json& each : report["host"]["points"])
    if (each["at"] == at) return each;
  return nullptr;
}

Json spec_of(const Json& data, int gpus_per_node = 8) {
  return {{"model", llama(1024, 4, 8000)},
          {"training", {{"micro_batch", 1}, {"sequence", 64}}},
          {"parallel", {{"data", data}}},
          {"cluster", {{"gpus_per_node", gpus_per_node}}}};
}

std::int64_t parameters_of(const Json& report) { return report["parameters"]["total"]; }

TEST(Host, EachProcessLoadsTheModelBeforeItIsOnTheGpu) {
  const Json one = report(spec_of({{"kind", "none"}}));
  EXPECT_EQ(point(one, "loading")["bytes"], 2 * parameters_of(one));
  const Json sixteen = report(spec_of({{"kind", "ddp"}, {"degree", 16}}));
  EXPECT_EQ(point(sixteen, "loading")["bytes"], 8 * 2 * parameters_of(sixteen));  // a node has eight of them
  const Json two = report(spec_of({{"kind", "ddp"}, {"degree", 2}}));
  EXPECT_EQ(point(two, "loading")["bytes"], 2 * 2 * parameters_of(two));
}

TEST(Host, FsdpLoadsItOnceANodeUnlessToldNotTo) {
  for (const char* kind : {"fsdp1", "fsdp2"}) {
    Json spec = spec_of({{"kind", kind}, {"degree", 8}});
    const Json once = report(spec);
    EXPECT_EQ(point(once, "loading")["bytes"], 2 * parameters_of(once)) << kind;
    spec["parallel"]["data"]["cpu_ram_efficient_loading"] = false;
    EXPECT_EQ(point(report(spec), "loading")["bytes"], 8 * 2 * parameters_of(once)) << kind;
  }
}

TEST(Host, WhatIsPartitionedAsItIsMadeOrQuantisedOnTheGpuIsNotLoadedFirst) {
  EXPECT_TRUE(point(report(spec_of({{"kind", "zero3"}, {"degree", 8}})), "loading").is_null());
  Json quantised = spec_of({{"kind", "none"}});
  quantised["training"]["method"] = "lora";
  quantised["training"]["base_quantization"] = {{"bits", 4}};
  EXPECT_TRUE(point(report(quantised), "loading").is_null());
}

TEST(Host, AFullStateDictIsOnItsWayToTheDisk) {
  const auto saving = [](const Json& data) { return point(report(spec_of(data)), "saving"); };
  const std::int64_t model = 2 * parameters_of(report(spec_of({{"kind", "none"}})));
  EXPECT_EQ(saving({{"kind", "none"}})["bytes"], model);                      // one file, less than its largest size
  EXPECT_EQ(saving({{"kind", "fsdp2"}, {"degree", 8}})["bytes"], model);      // rank 0 gathers
  EXPECT_EQ(saving({{"kind", "zero3"}, {"degree", 8}})["bytes"], model);      // rank 0 gathers, in 16 bits
  EXPECT_EQ(saving({{"kind", "zero2"}, {"degree", 8}})["bytes"], 8 * model);  // every rank clones
  EXPECT_EQ(saving({{"kind", "fsdp1"}, {"degree", 8}})["bytes"], 2 * model);  // AdamW's two states, after the weights
  EXPECT_EQ(saving({{"kind", "fsdp1"}, {"degree", 8}})["what"][0]["name"], "full optimizer state");
}

TEST(Host, ALargeModelIsWrittenFileByFile) {
  Json spec = {{"model", "meta-llama/Llama-3.1-70B"}, {"training", {{"micro_batch", 1}, {"sequence", 64}}}};
  EXPECT_EQ(point(report(spec), "saving")["bytes"], 50'000'000'000);
  spec["software"]["transformers"] = "4.48";
  EXPECT_EQ(point(report(spec), "saving")["bytes"], 5'000'000'000);
}

TEST(Host, OfAdaptersTheAdaptersAreWritten) {
  Json spec = spec_of({{"kind", "ddp"}, {"degree", 2}});
  spec["training"]["method"] = "lora";
  const Json r = report(spec);
  EXPECT_EQ(point(r, "saving")["bytes"], 4 * r["parameters"]["trainable"].get<std::int64_t>());
}

TEST(Host, TheWarningSaysWhatRunsOut) {
  Json spec = spec_of({{"kind", "ddp"}, {"degree", 8}});
  spec["cluster"]["host_memory"] = 100'000'000;
  EXPECT_TRUE(warns(report(spec), "loading the model takes"));
  spec["parallel"]["data"]["kind"] = "fsdp1";
  EXPECT_TRUE(warns(report(spec), "saving a full state dict takes"));
}

// Scripts over torch's own parallel methods load and save as they like.
TEST(Host, OfOtherStacksNothingIsSaid) {
  Json spec = spec_of({{"kind", "none"}});
  spec["parallel"] = {{"tensor", {{"degree", 2}}}};
  EXPECT_TRUE(report(spec)["host"].is_null());
}

}  // namespace
}  // namespace llmem
