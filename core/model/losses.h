#pragma once

#include <string_view>

#include "model/linear.h"

// From hidden states [B, S, H] or logits [B, S, V] and labels [B, S] to the loss, a scalar.
namespace llmem {

// transformers loss_utils.ForCausalLMLoss. With num_items, the sum over the tokens divided by it.
// `split`: each rank has a part of the vocabulary.
Tensor causal_lm_loss(Tensor logits, Tensor labels, const Tensor& num_items = {}, bool split = false);
// The same up to Transformers 4.48, which copies the logits of all tokens but the last. `counts_items`: the sum is divided by a number.
Tensor shifted_causal_lm_loss(Tensor logits, const Tensor& labels, bool counts_items, bool of_liger);
// Liger's head of that time copies the hidden states of all tokens but the last.
Tensor shifted_liger_linear_loss(const Tensor& hidden, const Tensor& head, const Tensor& labels, bool counts_items);

// Of labels that are each position's next word already (shift_labels).
Tensor next_word_loss(Tensor logits, const Tensor& labels, bool split);
// transformers trainer_pt_utils.LabelSmoother
Tensor label_smoothed_loss(const Tensor& logits, const Tensor& labels, const Tensor& num_items);
// liger_kernel/transformers/monkey_patch.py: of some models it replaces a name that nobody has called since Transformers 4.48, so that their loss
// stays what it was.
bool liger_replaces_cross_entropy(std::string_view model_type);
// The same with Liger's cross entropy.
Tensor liger_causal_lm_loss(Tensor logits, Tensor labels, const Tensor& num_items = {});
// liger_kernel/transformers/model/loss_utils.py, LigerForCausalLMLoss: the head is part of it.
Tensor liger_linear_loss(const Tensor& hidden, const Tensor& head, Tensor labels, const Tensor& num_items = {});
// The head and the cross entropy over `chunk` tokens at a time, each checkpointed (torchtune, TRL's chunked_nll).
Tensor chunked_loss(Tensor hidden, const Tensor& head, Tensor labels, std::int64_t chunk);
// TRL's head in tiles: log-probabilities of the labels, [B, S - 1], 0 where there is none.
Tensor tiled_label_probabilities(const Tensor& hidden, const Linear& head, const Tensor& labels);
// trl/trainer/utils.py, add_fused_lm_head: the same with what SFTTrainer's metrics want, each [B, S - 1]. All rows count. Without num_items the
// loss is divided by their number.
struct FusedHead {
  Tensor loss, log_probabilities, entropy, is_top1, label_mask;
};
FusedHead fused_head(const Tensor& hidden, const Linear& head, const Tensor& labels, const Tensor& num_items);

}  // namespace llmem
