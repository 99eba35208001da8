#include "step/play.h"

#include <string>

#include "plan/rank.h"
#include "step/adamw.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// The loop that the vectors run, which holds what Hugging Face's Trainer holds: the batch lives through its backward, the outputs die
// before the forward's point is read, the loss before the backward's.
class TrainingLoop {
 public:
  TrainingLoop(Device& device, const Spec& spec, Rank& rank)
      : device_(device),
        training_(spec.training),
        microbatches_(spec.pipeline.microbatches),
        rank_(rank),
        gives_positions_(spec.tensor.degree > 1) {
    if (rank.update_groups.empty()) rank.update_groups.push_back({rank.updated.value_or(rank.optimized), {}});
    for (const UpdateGroup& group : rank.update_groups)
      optimizers_.emplace_back(device, group.parameters, spec.training.optimizer, group.before_update);
  }

  void step(int number) {
    prefix_ = "step" + std::to_string(number) + ".";
    device_.begin_step();
    if (rank_.schedule)
      run_schedule();
    else
      for (std::int64_t a = 0; a < training_.accumulation; ++a) micro_batch(a);
    if (training_.max_grad_norm && rank_.clips) {
      phase("clip");
      if (rank_.clip)
        rank_.clip();
      else
        clip_gradients(device_, rank_.optimized, rank_.gradients_are_sharded);
      done();
    }
    phase("optimizer");
    rank_.around_update([this] {
      for (AdamW& optimizer : optimizers_) optimizer.step();
    });
    done();
    phase("zero_grad");
    for (const NamedTensor& p : rank_.optimized) p.tensor->grad.reset();
    done();
  }

 private:
  void make_batch(std::int64_t rows) {
    const ModuleScope scope(device_, "batch");
    ids_ = device_.empty({rows, training_.sequence}, Dtype::int64);
    labels_ = device_.empty(ids_.sizes(), Dtype::int64);
  }

  void run_schedule() {
    phase("schedule");
    make_batch(training_.micro_batch * microbatches_);
    rank_.schedule(ids_, labels_);
    done();
  }

  void micro_batch(std::int64_t a) {
    const std::string number = std::to_string(a);
    phase("forward" + number);
    make_batch(training_.micro_batch);
    if (gives_positions_) {
      position_ids_.reset();
      position_ids_ = unsqueeze(device_.empty({training_.sequence}, Dtype::int64), 0);
    }
    rank_.before_micro_batch(a + 1 == training_.accumulation);
    Tensor loss;
    {
      const AutocastRegion autocast(device_, training_.autocast);
      loss = rank_.model->loss(ids_, labels_, {training_.attention, training_.checkpointing == Checkpointing::full, position_ids_},
                               rank_.hooks);
    }
    done();
    phase("backward" + number);
    if (rank_.run_backward)
      rank_.run_backward(loss);
    else
      backward(loss, rank_.after_backward);
    loss.reset();
    done();
  }

  void phase(const std::string& name) {
    phase_ = prefix_ + name;
    device_.begin_phase(phase_);
  }
  void done() { device_.point(phase_); }

  Device& device_;
  const Training& training_;
  std::int64_t microbatches_;  // of a pipeline
  Rank& rank_;
  std::vector<AdamW> optimizers_;
  bool gives_positions_;  // the sharded embedding does not show how long the sequence is: positions are given
  Tensor position_ids_;
  Tensor ids_, labels_;
  std::string prefix_, phase_;
};

}  // namespace

Trace play(const Spec& spec, const Architecture& architecture) {
  Trace trace;
  std::size_t last_event = 0;
  {
    Device device({spec.cluster.gpu.compute_capability, spec.cluster.gpu.sms}, trace);
    device.begin_phase("loaded");
    Rank rank = make_rank(device, spec, architecture);
    device.point("loaded");
    TrainingLoop loop(device, spec, rank);
    for (int i = 0; i < steps_played; ++i) loop.step(i);
    device.finish();
    last_event = trace.events.size();
  }
  trace.events.resize(last_event);  // what dies with the process is not part of the history
  return trace;
}

}  // namespace llmem
