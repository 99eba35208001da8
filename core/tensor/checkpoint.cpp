#include "tensor/checkpoint.h"

#include <memory>
#include <utility>

#include "tensor/autograd.h"

namespace llmem {

CheckpointFrame::CheckpointFrame(Device& device, std::function<Tensor()> function, bool selective)
    : device_(device), function_(std::move(function)), autocast_(device.autocast), module_(device.module()), selective_(selective) {}

Tensor CheckpointFrame::run() {
  const With mode(device_.saving_frame, Ref<CheckpointFrame>(this));
  return function_();
}

int CheckpointFrame::number_saved() {
  needed_.push_back(true);
  return static_cast<int>(needed_.size()) - 1;
}

void CheckpointFrame::keep_recomputed(Tensor alias) {
  const bool needed = needed_[recomputed_.size()];
  recomputed_.push_back(needed ? std::move(alias) : Tensor());
  if (recomputed_.size() == needed_.size()) device_.stopped = true;
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
  products_ = 0;
  const With again(device_.meter.again, true);
  {
    const AutocastRegion autocast(device_, autocast_);
    function_();
  }
  recomputing_ = device_.stopped = false;
  device_.set_module(module);
  device_.set_op(op);
}

// torch/utils/checkpoint.py, _CachingTorchDispatchMode and _CachedTorchDispatchMode
Tensors CheckpointFrame::kept(const std::function<Tensors()>& compute) {
  if (recomputing_) return taken_ < kept_.size() ? std::move(kept_[taken_++]) : compute();
  const Tensors made = compute();
  Tensors aliases;
  for (const Tensor& each : made) {
    if (each) device_.mark_saved(each->storage->allocation);
    aliases.push_back(each ? detach(each) : each);
  }
  kept_.push_back(std::move(aliases));
  return made;
}

Tensors CheckpointFrame::product(const std::function<Tensors()>& compute) {
  return selective_ && ++products_ % 2 == 1 ? kept(compute) : compute();
}

Tensors CheckpointFrame::attention(const std::function<Tensors()>& compute) { return selective_ ? kept(compute) : compute(); }

void destroy(CheckpointFrame* frame) { delete frame; }

Tensor checkpoint(Device& device, std::function<Tensor()> function, bool selective) {
  return Ref<CheckpointFrame>(new CheckpointFrame(device, std::move(function), selective))->run();
}

// torch/utils/checkpoint.py, _NoopSaveInputs: saves the arguments, which come back when the first tensor is asked for.
Tensor checkpoint_offloaded(const std::function<Tensor(const Tensor& input)>& function, Tensor input) {
  struct Argument {
    Tensor live;  // until the first run is over
    Saved saved;
    bool requires_grad = false;
  };
  Device& device = input.device();
  const auto argument = std::make_shared<Argument>();
  {
    const With offload(device.offloads_saved, true);
    argument->saved = Saved(input);
  }
  argument->requires_grad = input.requires_grad();
  argument->live = std::move(input);
  return checkpoint(device, [argument, function] {
    if (argument->live) return function(std::exchange(argument->live, Tensor()));
    const Tensor again = argument->saved.unpack();
    if (argument->requires_grad) require_grad_of_activation(again);
    return function(again);
  });
}

// torch/utils/checkpoint.py, CheckpointFunction
Tensor checkpoint_reentrant(std::function<Tensor(const Tensor& input)> function, const Tensor& input, std::function<void()> done) {
  Recorder grad("CheckpointFunction", {&input});
  Device& device = input.device();
  Saved input_ = grad.save_if(grad.recording(), input);
  const auto run = std::make_shared<const std::function<Tensor(const Tensor&)>>(std::move(function));
  Tensor result;
  {
    const With no_grad(device.grad_enabled, false);
    result = (*run)(input);
  }
  grad.attach(result);
  grad.keep(run);
  grad.backward([input_ = std::move(input_), run = run.get(), autocast = device.autocast, module = device.module(),
                 wants_grad = input.requires_grad(), done = std::move(done)](Tensors& gradients) {
    const Tensor saved = input_.unpack();
    Device& owner = saved.device();
    const Tensor detached = detach(saved);
    if (wants_grad) require_grad_of_activation(detached);
    Tensor output;
    {
      const With enabled(owner.grad_enabled, true);
      const AutocastRegion region(owner, autocast);
      owner.set_module(module);
      const With again(owner.meter.again, true);
      output = (*run)(detached);
    }
    nested_backward(output, gradients[0]);
    if (done) done();
    return Tensors{Tensor(detached->grad)};
  });
  return result;
}

}  // namespace llmem
