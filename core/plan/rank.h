#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"
#include "trace/turns.h"

// What one rank holds, and what a parallel method adds around the step that every rank plays.
namespace llmem {

// Parameters that the optimizer updates together.
struct UpdateGroup {
  std::vector<NamedTensor> parameters;
  std::function<void(int lists)> before_update = {};  // what a foreach op over `lists` lists of the gradients does first; none: nothing
  std::function<void(const std::function<void()>& step)> around = {};  // none: the optimizer's step alone
};

struct Rank {
  std::unique_ptr<CausalLm> model;
  std::unique_ptr<CausalLm> reference;  // DPO's second, frozen model; none: the policy without its adapters
  std::vector<Tensor> buffers;          // of the model, in order
  bool has_adapters = false;            // then only they train
  std::vector<NamedTensor> optimized;   // what has gradients to clip and update, in order: whole parameters, or this rank's shards
  std::optional<std::vector<NamedTensor>> updated;  // what this rank's optimizer updates, in its order; none: all of these
  std::vector<UpdateGroup> update_groups;           // none: one of all these
  std::function<void()> clip;                       // in place of clip_grad_norm_ over all these
  std::function<void()> before_clip = [] {};        // … or before it
  bool clips = true;                                // as a step of its own, which DeepSpeed does not
  bool gradients_are_sharded = false;               // then the norm of all gradients takes an all-reduce
  UnitHooks hooks;
  // Under a Trainer: what it wraps the model in when training begins, and what that does with all that a forward returns.
  std::function<void(Rank& rank)> begin_training;
  std::function<void(const std::vector<Tensor*>& outputs)> wrap_outputs;
  Ring ring;  // context parallelism: one rank is none
  // Told before every micro-batch whether its gradients will be reduced (all but the last of an accumulation run under no_sync).
  std::function<void(bool synchronize)> before_micro_batch = [](bool) {};
  std::vector<std::function<void()>> after_backward;  // when the graph is through
  // A pipeline's forwards and backwards of all microbatches.
  std::function<void(const Tensor& ids, const Tensor& labels, const PlayedTurns& turns)> schedule;
  std::function<void(const Tensor& loss)> run_backward;  // in place of loss.backward()
  std::function<void(const std::function<void()>& update)> around_update = [](const std::function<void()>& update) { update(); };
};

// Whether transformers.Trainer's optimizer has the parameter of this name in the group that gets weight decay, be there any or not. A plain
// loop has one group.
bool in_first_group(const Spec& spec, const CausalLm& model, std::string_view name);
// These groups of what trains.
std::vector<std::vector<NamedTensor>> parameter_groups(const Spec& spec, const Rank& rank);

// One GPU.
Rank whole_model(Device& device, const Spec& spec, const Architecture& architecture);

// torch.nn.parallel.DistributedDataParallel
Rank distributed_data_parallel(Device& device, const Spec& spec, const Architecture& architecture);

// … around a pipeline stage, whose forwards all run under no_sync: its buckets are never rebuilt. Call what it returns before every
// backward.
std::function<void(bool last)> reduce_at_last_backward(Device& device, Rank& rank, const DataParallel& options);

// torch.distributed.optim.ZeroRedundancyOptimizer over DistributedDataParallel
Rank zero_redundancy(Device& device, const Spec& spec, const Architecture& architecture);

// DeepSpeed's ZeRO, stages 1 and 2
Rank zero_stage_1_or_2(Device& device, const Spec& spec, const Architecture& architecture);

// Its stage 3
Rank zero_stage_3(Device& device, const Spec& spec, const Architecture& architecture);

// torch.distributed.fsdp.fully_shard of every decoder layer, then of the whole
Rank fully_sharded(Device& device, const Spec& spec, const Architecture& architecture);

// torch.distributed.fsdp.FullyShardedDataParallel
Rank fully_sharded_1(Device& device, const Spec& spec, const Architecture& architecture);

// torch.distributed.tensor.parallel
Rank tensor_parallel(Device& device, const Spec& spec, const Architecture& architecture);

// One stage of torch.distributed.pipelining
Rank pipeline_stage(Device& device, const Spec& spec, const Architecture& architecture);

Rank make_rank(Device& device, const Spec& spec, const Architecture& architecture);

}  // namespace llmem
