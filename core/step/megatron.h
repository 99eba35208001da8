#pragma once

#include <memory>

#include "model/architecture.h"
#include "spec/spec.h"
#include "tensor/device.h"

namespace llmem {

// Megatron-LM's training loop (megatron/training/training.py, train_step): loads and plays `steps_played` steps. Points: "loaded", then for
// each step i "step{i}.schedule", "step{i}.optimizer" (which clips), "step{i}.zero_grad". What it returns lives until the process ends.
std::shared_ptr<void> run_megatron(Device& device, const Spec& spec, const Architecture& architecture);

}  // namespace llmem
