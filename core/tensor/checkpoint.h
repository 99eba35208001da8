#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/dtype.h"
#include "tensor/tensor.h"

namespace llmem {

// What one checkpointed call saved for backward, by number, and how to compute it again
// (torch/utils/checkpoint.py, _CheckpointFrame, _checkpoint_hook and _recomputation_hook).
class CheckpointFrame {
 public:
  CheckpointFrame(Device& device, std::function<Tensor()> function);

  Tensor run();
  bool recomputing() const { return recomputing_; }
  int number_saved() { return saved_++; }
  // Takes the next tensor that the recomputation saves. After the last that was saved at first, the device stops computing.
  void keep_recomputed(Tensor alias);
  // The tensor of that number, computed again if it was not yet; the frame lets go of it.
  Tensor take(int index);

  int references = 0;

 private:
  void recompute();

  Device& device_;
  std::function<Tensor()> function_;
  std::optional<Dtype> autocast_;
  std::uint32_t module_;
  int saved_ = 0;
  bool recomputing_ = false;
  std::vector<Tensor> recomputed_;
};
void destroy(CheckpointFrame* frame);

// torch.utils.checkpoint.checkpoint(function, use_reentrant=False): runs `function` keeping none of what it saves for backward,
// and again, up to the last tensor that backward needs, when backward first asks for one.
// `function` must hold the tensors it reads: they are kept until the backward of what it computed is over.
Tensor checkpoint(Device& device, std::function<Tensor()> function);

}  // namespace llmem
