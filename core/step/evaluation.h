#pragma once

#include "step/trainer_forward.h"

namespace llmem {

// transformers.Trainer.evaluate, or SFTTrainer's, over the batches of training.evaluation, which must be there.
void evaluate(Device& device, const Spec& spec, TrainerForward& forward);

}  // namespace llmem
