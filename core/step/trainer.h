#pragma once

#include <memory>

#include "model/architecture.h"
#include "plan/rank.h"
#include "spec/spec.h"
#include "tensor/device.h"

namespace llmem {

// transformers.Trainer's train() over the steps that are played. Points as of the plain loop. Of a step so many micro-batches are played (step/play.h). Returns what is alive at
// its end.
std::shared_ptr<void> run_trainer(Device& device, const Spec& spec, Rank& rank, std::int64_t micro_batches);

}  // namespace llmem
