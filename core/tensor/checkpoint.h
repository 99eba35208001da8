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
  // `selective`: torchtitan's SelectiveAC keeps the results of attention and of every other matrix product.
  CheckpointFrame(Device& device, std::function<Tensor()> function, bool selective = false);

  Tensor run();
  bool recomputing() const { return recomputing_; }
  int number_saved();
  // What was saved under this number is not needed any more.
  void forget(int index) { needed_[static_cast<std::size_t>(index)] = false; }
  // Takes the next tensor that the recomputation saves. After the last that was saved at first, the device stops computing.
  void keep_recomputed(Tensor alias);
  // The tensor of that number, computed again if it was not yet; the frame lets go of it.
  Tensor take(int index);

  // What a product [n, m] or an attention kernel made (torchtitan/distributed/activation_checkpoint.py, SelectiveAC): computed, or on the way
  // back taken from what was kept.
  Tensors product(const std::function<Tensors()>& compute);
  Tensors attention(const std::function<Tensors()>& compute);

  int references = 0;

 private:
  void recompute();
  Tensors kept(const std::function<Tensors()>& compute);

  Device& device_;
  std::function<Tensor()> function_;
  std::optional<Dtype> autocast_;
  std::uint32_t module_;
  std::vector<bool> needed_;  // by number: whether it still is (_CheckpointFrame.weak_holders)
  bool recomputing_ = false;
  std::vector<Tensor> recomputed_;
  bool selective_ = false;
  int products_ = 0;           // seen so far, of the forward or of the recomputation
  std::vector<Tensors> kept_;  // in the order in which they were made
  std::size_t taken_ = 0;
};
void destroy(CheckpointFrame* frame);

// torch.utils.checkpoint.checkpoint(function, use_reentrant=False): runs `function` keeping none of what it saves for backward,
// and again, up to the last tensor that backward needs, when backward first asks for one.
// `function` must hold the tensors it reads: they are kept until the backward of what it computed is over.
Tensor checkpoint(Device& device, std::function<Tensor()> function, bool selective = false);

// … inside torch.autograd.graph.save_on_cpu: the input waits in the host's memory.
Tensor checkpoint_offloaded(const std::function<Tensor(const Tensor& input)>& function, Tensor input);

// torch.utils.checkpoint.checkpoint(function, input, use_reentrant=True): runs `function` outside the graph, and again inside the backward
// of its result, with a backward pass of its own. What `function` holds lives as long as the graph; `done` is called once it has run again.
Tensor checkpoint_reentrant(std::function<Tensor(const Tensor& input)> function, const Tensor& input, std::function<void()> done = {});

}  // namespace llmem
