#include "step/play.h"

#include <memory>
#include <string>

#include "model/heads.h"
#include "model/litgpt.h"
#include "model/vision.h"
#include "plan/context_parallel.h"
#include "plan/rank.h"
#include "step/grad_scaler.h"
#include "step/megatron.h"
#include "step/optimizer.h"
#include "step/trainer.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

// deepspeed/runtime/torch_autocast.py, autocast_if_enabled: the engine's forward switches off an autocast that is not its own. accelerate wraps
// no forward under FSDP2 (accelerator.py, _prepare_fsdp2): the flag is its mixed precision.
std::optional<Dtype> autocast_of(const Spec& spec) {
  const DataKind kind = spec.data.kind;
  const bool deepspeed = kind == DataKind::zero1 || kind == DataKind::zero2 || kind == DataKind::zero3;
  const bool mixed_precision = kind == DataKind::fsdp2 && spec.training.loop != Loop::plain;
  return deepspeed || mixed_precision ? std::nullopt : spec.training.autocast;
}

ForwardOptions forward_options(const Spec& spec) {
  const Training& training = spec.training;
  ForwardOptions options;
  options.transformers = spec.software.transformers;
  options.attention = training.attention;
  options.half = autocast_of(spec).value_or(training.weights);
  options.checkpointing = training.checkpointing;
  options.checkpoint_every = training.checkpoint_every;
  options.offload_checkpoints = spec.offload.activations;
  options.checkpoints_inside_hooks = training.stack == Stack::torchtitan;
  options.has_adapters = training.method == Method::lora;
  options.loss = training.loss;
  options.loss_chunk = training.loss_chunk;
  // gradient_checkpointing_enable asks for it; embeddings that train have a gradient anyway.
  options.inputs_require_grad = training.checkpointing != Checkpointing::none && training.stack != Stack::torchtitan;
  return options;
}

namespace {

// The loop that the vectors run, which holds what Hugging Face's Trainer holds: the batch lives through its backward, the outputs die
// before the forward's point is read, the loss before the backward's.
class TrainingLoop {
 public:
  TrainingLoop(Device& device, const Spec& spec, const Architecture& architecture, Rank& rank, std::int64_t micro_batches,
               PlayedTurns turns)
      : device_(device),
        spec_(spec),
        architecture_(architecture),
        training_(spec.training),
        microbatches_(spec.pipeline.microbatches),
        micro_batches_(micro_batches),
        turns_(std::move(turns)),
        rank_(rank),
        gives_positions_(spec.tensor.degree > 1 && !spec.tensor.hf_plan),
        scaler_(device) {
    if (rank.update_groups.empty()) rank.update_groups.push_back({rank.updated.value_or(rank.optimized), {}});
    if (training_.optimizer.in_backward) {
      step_in_backward();
      return;
    }
    for (const UpdateGroup& group : rank.update_groups) {
      append_optimizers(optimizers_, device, group.parameters, spec.training.optimizer);
      optimizers_.back()->before_update = group.before_update;
      optimizers_.back()->around = group.around;
    }
  }

  void step(int number, bool last) {
    prefix_ = "step" + std::to_string(number) + ".";
    device_.begin_step();
    device_.meter.on = last;
    if (rank_.schedule)
      run_schedule();
    else
      for (std::int64_t a = 0; a < training_.accumulation; a = next_micro_batch(a, training_.accumulation, micro_batches_)) micro_batch(a);
    if (training_.max_grad_norm && rank_.clips) {
      phase("clip");
      if (training_.grad_scaler) scaler_.unscale();
      rank_.before_clip();
      if (rank_.clip)
        rank_.clip();
      else
        clip_gradients(device_, rank_.optimized, rank_.gradients_are_sharded);
      done();
    }
    phase("optimizer");
    rank_.around_update([this] { update(); });
    done();
    phase("zero_grad");
    for (const NamedTensor& p : rank_.optimized) p.tensor->grad.reset();
    done();
  }

 private:
  // An optimizer for each parameter, run by its register_post_accumulate_grad_hook, which then lets the gradient go.
  void step_in_backward() {
    in_backward_.resize(rank_.optimized.size());
    for (std::size_t i = 0; i < in_backward_.size(); ++i) {
      const NamedTensor& each = rank_.optimized[i];
      append_optimizers(in_backward_[i], device_, {each}, training_.optimizer);
      // The loop holds the optimizer: it holds the parameter, which holds this.
      each.tensor->accumulator->post_hook = [this, i, parameter = each.tensor.get()] {
        const std::uint32_t running = device_.module();
        device_.set_module(0);  // states are the parameter's, not of the module whose backward runs
        update_all(device_, in_backward_[i]);
        device_.set_module(running);
        parameter->grad.reset();
      };
    }
  }

  void make_batch(std::int64_t rows) {
    const ModuleScope scope(device_, "batch");
    if (rank_.ring.ulysses) return make_own_batch(rows);
    own_ids_.reset();  // the same memory
    ids_ = device_.empty({rows, training_.sequence}, Dtype::int64);
    labels_ = make_labels(device_, architecture_, training_, rows);
    if (!training_.images) return;
    images_.reset();
    images_ = std::make_shared<const ImageBatch>(make_images(device_, architecture_, training_, rows));
  }

  // UlyssesSPDataLoaderAdapter: ids, their next words and positions come from the host cut in parts.
  void make_own_batch(std::int64_t rows) {
    ids_ = device_.empty({rows, training_.sequence / rank_.ring.ranks}, Dtype::int64);
    labels_ = device_.empty(ids_.sizes(), Dtype::int64);
    position_ids_.reset();
    position_ids_ = device_.empty(ids_.sizes(), Dtype::int64);
  }

  void run_schedule() {
    phase("schedule");
    make_batch(training_.micro_batch * microbatches_);
    std::vector<Tensor> context;  // of context_parallel, until the step is over
    if (rank_.ring.ranks > 1) {
      own_labels_.reset();
      position_ids_.reset();
      context = split_batch(rank_.ring, ids_, labels_, own_ids_, own_labels_, position_ids_);
      rank_.schedule(own_ids_, own_labels_, turns_);
    } else {
      rank_.schedule(ids_, labels_, turns_);
    }
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
    std::vector<Tensor> context;  // of context_parallel, until the backward is over
    if (rank_.ring.ranks > 1 && !rank_.ring.ulysses) {
      own_labels_.reset();
      position_ids_.reset();
      context = split_batch(rank_.ring, ids_, labels_, own_ids_, own_labels_, position_ids_);
    }
    {
      // A loss that takes the head over calls the decoder without a mask, and so does DPO's.
      const bool masked = training_.objective == Objective::sft && training_.loss != Loss::trl_tiled && training_.loss != Loss::chunked;
      Tensor mask;
      if (training_.mask == Mask::padded && masked) mask = device_.empty(ids_.sizes(), Dtype::int64);
      rank_.before_micro_batch(a + 1 == training_.accumulation);
      const With offload(device_.offloads_saved, spec_.offload.activations && training_.checkpointing == Checkpointing::none);
      const AutocastRegion autocast(device_, autocast_of(spec_));
      loss_ = compute_loss(std::move(mask));
    }
    done();
    phase("backward" + number);
    if (rank_.run_backward) {
      rank_.run_backward(loss_);
    } else if (training_.stack == Stack::litgpt) {
      const Tensor share = mul_scalar(loss_);  // fabric.backward(loss / gradient_accumulation_iters)
      backward(share, rank_.after_backward);
    } else if (training_.grad_scaler) {
      backward(scaler_.scale(loss_), rank_.after_backward);
    } else {
      backward(loss_, rank_.after_backward);
    }
    if (!training_.keep_loss) loss_.reset();
    done();
  }

  // The mask of a padded batch dies with the forward's arguments.
  Tensor compute_loss(Tensor mask) {
    ForwardOptions options = forward_options(spec_);
    if (mask) options.padding = {std::move(mask), true};
    options.position_ids = position_ids_;
    options.images = images_;
    options.outputs = &outputs_;
    if (training_.objective == Objective::dpo) return dpo_loss(options);
    if (training_.loss == Loss::trl_tiled) return tiled_loss(options);
    if (rank_.ring.ranks == 1) return rank_.model->loss(ids_, labels_, options, rank_.hooks);
    options.ring = rank_.ring;
    options.shifted_labels = true;
    const bool comes_cut = rank_.ring.ulysses;
    return rank_.model->loss(comes_cut ? ids_ : own_ids_, comes_cut ? labels_ : own_labels_, options, rank_.hooks);
  }

  // -log_probabilities.mean()
  Tensor tiled_loss(const ForwardOptions& options) {
    const auto mean = [&] {
      const Tensor probabilities = rank_.model->label_probabilities(ids_, labels_, options, rank_.hooks);
      return mean_all(probabilities);
    };
    const Tensor value = mean();
    return neg(value);
  }

  Tensor sequence_probabilities(const CausalLm& model, const ForwardOptions& options) {
    const Tensor probabilities = model.label_probabilities(ids_, labels_, options, rank_.hooks);
    return sum_rows(probabilities);
  }

  // Rows are [chosen; rejected]: -logsigmoid(0.1 * ((policy - reference).chosen - rejected)).mean()
  Tensor dpo_loss(const ForwardOptions& options) {
    const Tensor policy = sequence_probabilities(*rank_.model, options);
    Tensor reference;
    {
      const With no_grad(device_.grad_enabled, false);
      if (rank_.reference) {
        ForwardOptions evaluation = options;
        evaluation.checkpointing = Checkpointing::none;
        reference = sequence_probabilities(*rank_.reference, evaluation);
      } else {
        rank_.model->enable_adapters(false);
        reference = sequence_probabilities(*rank_.model, options);
        rank_.model->enable_adapters(true);
      }
    }
    const std::vector<Tensor> halves = split(sub(policy, reference), policy.size(0) / 2);
    const auto margin = [&] {
      const Tensor difference = sub(halves[0], halves[1]);
      return mul_scalar(difference);
    };
    const auto likelihood = [&] {
      const Tensor scaled = margin();
      return log_sigmoid(scaled);
    };
    const auto mean = [&] {
      const Tensor each = likelihood();
      return mean_all(each);
    };
    const Tensor value = mean();
    return neg(value);
  }

  void update() {
    if (training_.grad_scaler) scaler_.before_step(training_.optimizer.implementation == OptimizerImplementation::fused);
    update_all(device_, optimizers_);
    if (training_.grad_scaler) scaler_.after_step();
  }

  void phase(const std::string& name) {
    phase_ = prefix_ + name;
    device_.begin_phase(phase_);
  }
  void done() { device_.point(phase_); }

  Device& device_;
  const Spec& spec_;
  const Architecture& architecture_;
  const Training& training_;
  std::int64_t microbatches_;   // of a pipeline
  std::int64_t micro_batches_;  // of a step, how many are played
  PlayedTurns turns_;           // of a pipeline
  Rank& rank_;
  Optimizers optimizers_;
  std::vector<Optimizers> in_backward_;  // of each parameter its own, where it is updated in backward
  bool gives_positions_;                 // the sharded embedding does not show how long the sequence is: positions are given
  GradScaler scaler_;
  Tensor position_ids_;
  Tensor ids_, labels_, loss_;
  std::shared_ptr<const ImageBatch> images_;  // of the batch, where there are any
  std::vector<Tensor> outputs_;               // litgpt's variable `logits`, until the next forward has returned
  Tensor own_ids_, own_labels_;               // this rank's part under context parallelism
  std::string prefix_, phase_;
};

// Writes the trace.
void run(const Spec& spec, const Architecture& architecture, std::int64_t micro_batches, const PlayedTurns& turns, Trace& trace,
         int steps = steps_played) {
  trace.micro_batches_left_out = std::max<std::int64_t>(0, spec.training.accumulation - micro_batches);
  std::size_t last_event = 0;
  {
    Device device({spec.cluster.gpu.compute_capability, spec.cluster.gpu.sms}, trace);
    device.begin_phase("loaded");
    std::shared_ptr<void> alive;
    Rank rank;
    if (spec.training.stack == Stack::torchtitan)
      rank = make_rank(device, spec, as_torchtitan(architecture));
    else if (spec.training.stack == Stack::litgpt)
      rank = make_rank(device, spec, as_litgpt(architecture, spec.training.sequence));
    else if (spec.training.stack != Stack::megatron)
      rank = make_rank(device, spec, architecture);
    // torch/cuda/__init__.py, _check_bf16_tensor_supported: asked once, before Ampere, by autocast
    if (spec.training.autocast == Dtype::bfloat16 && spec.cluster.gpu.compute_capability < 80) device.scratch(size_of(Dtype::bfloat16));
    if (spec.training.stack == Stack::megatron) {
      alive = run_megatron(device, spec, architecture);
    } else if (spec.training.loop == Loop::plain) {
      const auto loop = std::make_shared<TrainingLoop>(device, spec, architecture, rank, micro_batches, turns);
      device.point("loaded");
      for (int i = 0; i < steps; ++i) loop->step(i, i + 1 == steps);
      alive = loop;
    } else {
      device.point("loaded");
      alive = run_trainer(device, spec, rank, micro_batches);
    }
    device.finish();
    last_event = trace.events.size();
  }
  trace.events.resize(last_event);  // what dies with the process is not part of the history
}

}  // namespace

Trace play(const Spec& spec, const Architecture& architecture, bool keep_shapes, std::int64_t micro_batches) {
  Trace trace;
  trace.keep_shapes = keep_shapes;
  run(spec, architecture, micro_batches, {}, trace);
  return trace;
}

namespace {

// With where the microbatches of a pipeline begin.
Trace play_with_turns(const Spec& spec, const Architecture& architecture, bool keep_shapes, std::optional<std::int64_t> more, int steps,
                      std::vector<Turn>& turns) {
  Trace trace;
  trace.keep_shapes = keep_shapes;
  const auto turn = [&](Turn::To to) { turns.push_back({to, trace.events.size(), trace.allocations.size(), trace.work.size()}); };
  run(spec, architecture, all_micro_batches, {more, turn}, trace, steps);
  return trace;
}

}  // namespace

Trace play_first_step(const Spec& spec, const Architecture& architecture, std::vector<Turn>& turns) {
  return play_with_turns(spec, architecture, false, std::nullopt, 1, turns);
}

Trace play_turns(const Spec& spec, const Architecture& architecture, std::vector<Turn>& turns) {
  return play_with_turns(spec, architecture, false, std::nullopt, steps_played, turns);
}

Trace play_few_turns(const Spec& spec, const Architecture& architecture, bool keep_shapes, std::vector<Turn>& turns) {
  return play_with_turns(spec, architecture, keep_shapes, turns_to_repeat, steps_played, turns);
}

}  // namespace llmem
