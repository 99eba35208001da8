#pragma once

#include <vector>

#include "model/causal_lm.h"
#include "plan/rank.h"
#include "spec/spec.h"

namespace llmem {

// What a Trainer's data loader puts on the device.
struct Batch {
  Tensor ids, labels, attention_mask;
};
Batch make_batch(Device& device, const Architecture& architecture, const Training& training, std::int64_t rows);

// The tokens that count among these batches, a scalar (Trainer._get_num_items_in_batch). None where the host keeps the number.
// `shifts`: labels are of the next word.
Tensor num_items_of(Device& device, const std::vector<Batch>& batches, const Spec& spec, bool shifts);

// The model as transformers.Trainer and TRL's SFTTrainer call it: under accelerate's autocast, with outputs cast to fp32, and the loss that
// they make of its outputs.
class TrainerForward {
 public:
  TrainerForward(Device& device, const Spec& spec, Rank& rank);
  const Architecture& architecture() const { return rank_.model->architecture(); }

  struct Outputs {
    Tensor loss, logits;
  };
  // Trainer.compute_loss, or SFTTrainer's. num_items: none: the batch's own. The logits outlive it only where they are asked for.
  Outputs compute_loss(const Batch& batch, const Tensor& num_items, bool returns_logits);

 private:
  Outputs of_trainer(const Batch& batch);
  Outputs of_model(const Batch& batch);
  Tensor logits_of(const Batch& batch);
  Tensor smoothed(const Batch& batch, Tensor* logits);
  void measure_logits(const Tensor& logits, const Batch& batch) const;
  Outputs compute_sft_loss(const Batch& batch, const Tensor& num_items, bool returns_logits);
  FusedHead fused(const Batch& batch);
  Tensor fused_loss(const FusedHead& outputs, const Tensor& num_items, std::vector<Tensor>& locals) const;
  void measure(const FusedHead& outputs, const Batch& batch, std::vector<Tensor>& locals) const;
  void wrap(const std::vector<Tensor*>& outputs) const;

  Device& device_;
  const Spec& spec_;
  const Training& training_;
  Rank& rank_;
  ForwardOptions options_;
};

}  // namespace llmem
