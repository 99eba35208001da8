#pragma once

#include <cstdint>
#include <vector>

#include "spec/spec.h"

// The orders of torch/distributed/pipelining/schedules.py, of schedules with several stages a rank.
namespace llmem {

struct PipelineAction {
  // unshard, reshard and reduce are FSDP's
  enum Kind : std::uint8_t { forward, backward, backward_input, backward_weight, unshard, reshard, reduce };
  Kind kind = forward;
  std::int64_t stage = 0;  // of all, along the pipeline
  std::int64_t microbatch = 0;
};

// In the order of the rank's list of stages.
std::vector<std::int64_t> stages_of_rank(const PipelineParallel& pipeline, std::int64_t rank);

std::vector<PipelineAction> actions_of_rank(const PipelineParallel& pipeline, std::int64_t rank);

}  // namespace llmem
