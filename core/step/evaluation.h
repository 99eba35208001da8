#pragma once

#include "step/trainer_forward.h"

namespace llmem {

// transformers.Trainer.evaluate, or SFTTrainer's, over training.evaluation's batches. `training` and its evaluation must outlive the call.
void evaluate(Device& device, const Training& training, TrainerForward& forward);

}  // namespace llmem
