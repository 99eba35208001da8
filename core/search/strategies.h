#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "spec/presets.h"

namespace llmem {

struct GpuPrice {
  std::string gpu;              // its id
  std::int64_t millionths = 0;  // of the money that an hour of one takes
};

// What a search is asked.
struct SearchQuestion {
  nlohmann::json spec;                      // its parallel section is not looked at
  std::vector<std::int64_t> gpus;           // numbers of GPUs to try
  std::int64_t global_batch = 1;            // rows an optimizer step
  std::vector<std::int64_t> micro_batches;  // empty: powers of two
  std::vector<GpuPrice> prices;             // kinds of GPU to try, in place of the spec's; empty: that alone
};

// {"spec": …, "gpus": 64 | [8, 16, 64] (the cluster's), "global_batch": 64 (gpus x micro_batch x accumulation), "micro_batches": [1, 2, 4],
//  "prices": {"h100-sxm-80gb": 2.5, "l40s": 0.8}}
Reading<SearchQuestion> read_search_question(nlohmann::json question);

struct Strategy {
  std::string label;      // "FSDP2 x 8, tensor x 8, full checkpointing, micro-batch 2"
  nlohmann::json change;  // of the spec, as `changed` takes it
  std::int64_t gpus = 1;
  std::int64_t price = 0;  // millionths, of a GPU and hour; 0: none was given
};

// Ways that were not tried, by what is in their way.
struct LeftOut {
  std::string why, example;
  std::int64_t count = 0;
};

struct Strategies {
  std::vector<Strategy> tried;
  std::vector<LeftOut> left_out;
};

// Every product of degrees and methods that fills the GPUs, and that the model's sizes, the batch and the readers allow.
Strategies strategies_of(const SearchQuestion& question, const ModelPresets& presets);

}  // namespace llmem
