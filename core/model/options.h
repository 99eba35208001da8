#pragma once

#include <memory>
#include <vector>

#include "model/masks.h"
#include "model/older.h"
#include "spec/spec.h"
#include "tensor/ring_attention.h"

namespace llmem {

struct ImageBatch;  // model/vision.h

// What the forward of a model is run with, as the recipe says.
struct ForwardOptions {
  Attention attention = Attention::sdpa;
  Dtype half = Dtype::bfloat16;                       // what flash-attn is given where states are in fp32
  Checkpointing checkpointing = Checkpointing::none;  // of every decoder layer, or
  bool checkpoints_inside_hooks = false;              // torchtitan: a parallel method wraps what is checkpointed
  std::int64_t checkpoint_every = 1;                  // of each so many-th, from the first on
  bool offload_checkpoints = false;                   // what a checkpointed layer keeps lies in the host's memory
  bool inputs_require_grad = false;                   // PreTrainedModel.enable_input_require_grads
  Loss loss = Loss::standard;
  std::int64_t loss_chunk = 1024;
  PaddingMask padding;
  Tensor position_ids;        // [1, S]; none: the model makes them
  Tensor num_items;           // what the loss's sum is divided by; none: the mean
  bool counts_items = false;  // the sum is divided by a number that the host has
  Transformers transformers = Transformers::v5;
  std::shared_ptr<KeyValueCache> cache;      // none: no layer keeps keys and values
  Ring ring;                                 // context parallelism: ids and labels are this rank's part
  bool shifted_labels = false;               // labels are each position's next word already
  bool has_adapters = false;                 // litgpt: the head works on some tokens at a time
  std::vector<Tensor>* outputs = nullptr;    // litgpt: where the loop keeps the logits
  Tensor target;                             // of an encoder-decoder: its decoder's labels
  std::shared_ptr<const ImageBatch> images;  // none: text alone
};

}  // namespace llmem
