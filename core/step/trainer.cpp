#include "step/trainer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "step/evaluation.h"
#include "step/grad_scaler.h"
#include "step/optimizer.h"
#include "step/play.h"
#include "step/trainer_forward.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

class TrainerLoop {
 public:
  TrainerLoop(Device& device, const Spec& spec, Rank& rank, std::int64_t micro_batches)
      : device_(device),
        spec_(spec),
        training_(spec.training),
        micro_batches_(micro_batches),
        rank_(rank),
        forward_(device, spec, rank),
        scaler_(device) {}

  void train() {
    device_.empty_cache();  // accelerator.free_memory()
    device_.begin_phase("train");
    if (rank_.begin_training) rank_.begin_training(rank_);
    make_optimizers();
    total_loss_ = scalar("tr_loss");
    for (int i = 0; i < steps_played; ++i) step(i);
    if (training_.evaluation) run_evaluation();
  }

 private:
  void make_optimizers() {
    for (const UpdateGroup& group : rank_.update_groups) {  // DeepSpeed's: what it updates has no names
      append_optimizers(optimizers_, device_, group.parameters, training_.optimizer);
      optimizers_.back()->before_update = group.before_update;
      optimizers_.back()->around = group.around;
    }
    if (rank_.update_groups.empty()) make_optimizers_by_decay();
  }

  void make_optimizers_by_decay() {
    // create_optimizer: nn.Embedding's states stay in 32 bits
    const Tensor embedding = rank_.model->embedding_weight();
    for (const std::vector<NamedTensor>& group : parameter_groups(spec_, rank_))
      if (!group.empty()) append_optimizers(optimizers_, device_, group, training_.optimizer, embedding);
  }

  void run_evaluation() {
    batches_.clear();
    for (Tensor* each : {&num_items_, &step_loss_, &gradient_norm_}) each->reset();
    if (spec_.software.transformers != Transformers::v5) total_loss_.reset();  // a name of train()'s, later an attribute
    device_.meter.on = false;
    device_.begin_step();
    device_.begin_phase("evaluated");
    evaluate(device_, spec_, forward_);
    device_.point("evaluated");
  }

  Tensor scalar(const char* name, Dtype dtype = Dtype::float32) {
    const OpScope op(device_, name);
    return device_.empty({}, dtype);
  }

  void step(int number) {
    prefix_ = "step" + std::to_string(number) + ".";
    device_.begin_step();
    device_.meter.on = number + 1 == steps_played;
    fetch();
    for (std::int64_t a = 0; a < training_.accumulation; a = next_micro_batch(a, training_.accumulation, micro_batches_)) micro_batch(a);
    phase("clip");
    // Before version 5 `grad_norm` is bound anew only once clip_grad_norm_ has returned.
    Tensor last_norm = spec_.software.transformers == Transformers::v5 ? Tensor() : gradient_norm_;
    gradient_norm_.reset();
    clip();
    done();
    last_norm.reset();
    phase("optimizer");
    if (!rank_.run_backward) update();
    done();
    phase("zero_grad");
    for (const NamedTensor& each : rank_.optimized) each.tensor->grad.reset();
    device_.meter.on = false;
    done();
  }

  // accelerator.py, clip_grad_norm_
  void clip() {
    if (!rank_.clips) return;
    if (scaled()) scaler_.unscale();
    rank_.before_clip();
    if (rank_.clip) {
      rank_.clip();
      gradient_norm_ = scalar("clip_grad_norm");
    } else {
      gradient_norm_ = clip_gradients(device_, rank_.optimized, rank_.gradients_are_sharded);
    }
  }

  void update() {
    if (scaled()) scaler_.before_step(training_.optimizer.implementation == OptimizerImplementation::fused);
    rank_.around_update([this] { update_all(device_, optimizers_); });
    if (scaled()) scaler_.after_step();
  }

  // accelerate/utils/deepspeed.py, DeepSpeedEngineWrapper.backward: the engine's step comes at once.
  void run_backward(const Tensor& loss, bool last) {
    if (rank_.run_backward) {
      rank_.run_backward(loss);
      if (last) update();
      return;
    }
    const Tensor divided = mul_scalar(loss);  // by the accumulation steps, be it one
    backward(scaled() ? scaler_.scale(divided) : divided, rank_.after_backward);
  }

  // get_batch_samples: all micro-batches of the step, while those of the step before are still bound; then the tokens that count.
  void fetch() {
    device_.begin_phase(prefix_ + "forward0");
    std::vector<Batch> fetched;
    for (std::int64_t a = 0; a < training_.accumulation; ++a)
      fetched.push_back(make_batch(device_, rank_.model->architecture(), training_, training_.micro_batch));
    num_items_ = num_items_of(device_, fetched, spec_, rank_.model->architecture().head == Head::next_word);
    batches_ = std::move(fetched);
  }

  void micro_batch(std::int64_t a) {
    const std::string number = std::to_string(a);
    phase("forward" + number);
    rank_.before_micro_batch(a + 1 == training_.accumulation);
    Tensor loss = forward_.compute_loss(batches_[static_cast<std::size_t>(a)], num_items_, false).loss;
    done();
    phase("backward" + number);
    run_backward(loss, a + 1 == training_.accumulation);
    done();
    step_loss_ = detach(loss);
    loss.reset();
    look_for_nans();
    if (spec_.software.transformers != Transformers::v5) total_loss_ = scalar("tr_loss");  // tr_loss = tr_loss + tr_loss_step
  }

  // torch.isnan(tr_loss_step) or torch.isinf(tr_loss_step)
  void look_for_nans() {
    const OpScope op(device_, "logging_nan_inf_filter");
    device_.scratch(Bytes{1});
    const Tensor magnitude = scalar("isinf");
    device_.scratch(Bytes{1});
    device_.streams.host_waits(device_.stream);
  }

  bool scaled() const { return training_.grad_scaler || autocast_of(spec_) == Dtype::float16; }

  void phase(const std::string& name) {
    phase_ = prefix_ + name;
    device_.begin_phase(phase_);
  }
  void done() { device_.point(phase_); }

  Device& device_;
  const Spec& spec_;
  const Training& training_;
  std::int64_t micro_batches_;  // of a step, how many are played
  Rank& rank_;
  TrainerForward forward_;
  Optimizers optimizers_;
  GradScaler scaler_;
  std::vector<Batch> batches_;
  Tensor num_items_, total_loss_, step_loss_, gradient_norm_;
  std::string prefix_, phase_;
};

}  // namespace

std::shared_ptr<void> run_trainer(Device& device, const Spec& spec, Rank& rank, std::int64_t micro_batches) {
  const auto loop = std::make_shared<TrainerLoop>(device, spec, rank, micro_batches);
  loop->train();
  return loop;
}

}  // namespace llmem
