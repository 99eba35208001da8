#include "tensor/checkpoint.h"

#include <utility>

#include "tensor/autograd.h"

namespace llmem {

CheckpointFrame::CheckpointFrame(Device& device, std::function<Tensor()> function)
    : device_(device), function_(std::move(function)), autocast_(device.autocast), module_(device.module()) {}

Tensor CheckpointFrame::run() {
  const With mode(device_.saving_frame, Ref<CheckpointFrame>(this));
  return function_();
}

void CheckpointFrame::keep_recomputed(Tensor alias) {
  recomputed_.push_back(std::move(alias));
  if (static_cast<int>(recomputed_.size()) == saved_) device_.stopped = true;
}

Tensor CheckpointFrame::take(int index) {
  if (recomputed_.empty()) recompute();
  return std::exchange(recomputed_[static_cast<std::size_t>(index)], Tensor());
}

void CheckpointFrame::recompute() {
  const With saving(device_.saving_frame, Ref<CheckpointFrame>(this));
  const With grad(device_.grad_enabled, true);
  const std::uint32_t module = device_.module();
  const std::uint16_t op = device_.op();
  device_.set_module(module_);
  recomputing_ = true;
  {
    const AutocastRegion autocast(device_, autocast_);
    function_();
  }
  recomputing_ = device_.stopped = false;
  device_.set_module(module);
  device_.set_op(op);
}

void destroy(CheckpointFrame* frame) { delete frame; }

Tensor checkpoint(Device& device, std::function<Tensor()> function) {
  return Ref<CheckpointFrame>(new CheckpointFrame(device, std::move(function)))->run();
}

}  // namespace llmem
