#pragma once

#include <memory>
#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"

namespace llmem {

// torch.distributed.fsdp.fully_shard of a model, or of what a pipeline's stage has of it.
class FullySharded {
 public:
  virtual ~FullySharded() = default;

  // What the model computes with. It gets its place, and this rank's shard of it memory, in place().
  virtual Tensor request(const TensorRequest& request) = 0;
  // In the order in which modules are given memory.
  virtual void place(const NamedTensor& parameter, bool trains) = 0;
  // Once all of a unit's tensors are there.
  virtual void pad(int unit) = 0;
  virtual const std::vector<NamedTensor>& optimized() const = 0;

  // Hooks over this, which must outlive them.
  virtual UnitHooks hooks() = 0;
  virtual void synchronize_gradients(bool yes) = 0;
  virtual void backward_is_over() = 0;

  // torch/distributed/pipelining: backwards of microbatches neither reshard nor reduce (stage.py, backward_maybe_with_nosync) …
  virtual void hold() = 0;
  // … all of them at once do (perform_reduce_grad).
  virtual void reduce_all() = 0;
  // The runtime's UNSHARD, the wait for it, and RESHARD (schedules.py, _PipelineScheduleRuntime).
  virtual void unshard_all() = 0;
  virtual void wait_for_all() = 0;
  virtual void reshard_all() = 0;
};

// `stage`: of those that a rank has, each of which has streams of its own.
std::shared_ptr<FullySharded> fully_shard(Device& device, const Spec& spec, const Architecture& architecture, std::size_t stage);

}  // namespace llmem
