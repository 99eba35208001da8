#include <algorithm>
#include <map>

#include "plan/context_parallel.h"
#include "plan/fsdp2.h"
#include "plan/pipeline_schedule.h"
#include "plan/rank.h"
#include "plan/tensor_parallel.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// torch/distributed/pipelining: a stage (stage.py) runs its layers for one microbatch at a time, in the order of its schedule (schedules.py).
namespace llmem {

namespace {

constexpr int in_no_layer = -1;

// Layers are split evenly, the first stages one longer; the embedding is on the first stage, norm and head on the last.
// torchtitan counts embedding and head as a layer each (pipeline_parallel.py, _generate_llm_fqn_per_model_part).
CausalLm::Stage stage_of(std::int64_t index, std::int64_t stages, std::int64_t layers, bool counts_ends) {
  const std::int64_t places = layers + (counts_ends ? 2 : 0);
  const auto cut = [&](std::int64_t i) {
    const std::int64_t place = i * (places / stages) + std::min(i, places % stages);
    return static_cast<int>(counts_ends ? std::clamp<std::int64_t>(place - 1, 0, layers) : place);
  };
  return {cut(index), cut(index + 1), index == 0, index == stages - 1};
}

// Where a tensor comes among those of its stage; the modules are registered in this order.
enum class Part : std::uint8_t { embedding, layers, norm, head, buffers, elsewhere };

Part part_of(const TensorRequest& request, const CausalLm::Stage& stage, bool tied) {
  if (request.kind == TensorRequest::buffer) return Part::buffers;
  if (request.unit != in_no_layer)
    return stage.first_layer <= request.unit && request.unit < stage.end_layer ? Part::layers : Part::elsewhere;
  const bool embedding = request.name.find("embed_tokens") != std::string::npos;
  if (embedding && stage.embeds) return Part::embedding;
  if (!stage.heads) return Part::elsewhere;
  if (embedding) return tied ? Part::head : Part::elsewhere;  // a tied head is a copy of its own on the last stage
  return request.name.find("lm_head") != std::string::npos ? Part::head : Part::norm;
}

// Ranks of one stage lie next to each other.
std::int64_t stage_position(const Spec& spec) { return spec.rank / (spec.world() / spec.pipeline.degree); }

class PipelineStage {
 public:
  PipelineStage(Device& device, const Spec& spec, const Architecture& architecture, std::int64_t index, std::size_t number)
      : device_(device),
        spec_(spec),
        stage_(stage_of(index, spec.pipeline.degree * spec.pipeline.virtual_stages, architecture.layers,
                        spec.training.stack == Stack::torchtitan)),
        split_(tensor_split(spec)),
        hidden_{spec.training.micro_batch, spec.training.sequence / spec.context.degree / (split_.sequence ? split_.ranks : 1),
                architecture.hidden_size},
        dtype_(spec.training.weights) {
    if (spec.data.kind != DataKind::fsdp2) return;
    dtype_ = spec.data.param_dtype.value_or(dtype_);
    sharded_ = fully_shard(device, spec, architecture, number);
    hooks_ = sharded_->hooks();
  }

  // `before`: other stages of this rank. All have the same rotary module, whose buffers are made anew with each stage.
  void make_model(const Architecture& architecture, const std::vector<PipelineStage*>& before) {
    struct Made {
      Part part;
      TensorRequest request;
      Tensor tensor;
    };
    std::vector<Made> made;
    model_ = std::make_unique<CausalLm>(architecture, spec_.training.weights, [&](const TensorRequest& request) {
      const Part part = part_of(request, stage_, architecture.tied_embeddings);
      if (part == Part::elsewhere) return Tensor();
      if (sharded_ && part != Part::buffers) {
        made.push_back({part, request, sharded_->request(request)});
        return made.back().tensor;
      }
      const bool split = split_.ranks > 1 && part != Part::buffers;
      const Dims sizes = split ? split_sizes(split_, request.name, request.sizes) : request.sizes;
      made.push_back({part, request, device_.unallocated(sizes, request.dtype)});
      return made.back().tensor;
    });
    if (split_.ranks > 1) model_->split(split_);
    std::stable_sort(made.begin(), made.end(), [](const Made& a, const Made& b) { return a.part < b.part; });
    int loading = in_no_layer;
    for (const Made& each : made) {
      if (sharded_ && loading >= 0 && each.request.unit != loading) sharded_->pad(loading);
      loading = each.request.unit;
      const ModuleScope scope(device_, module_of(each.request.name));
      const OpScope op(device_, "parameter");
      if (sharded_ && each.part != Part::buffers) {
        sharded_->place({each.request.name, each.tensor, each.request.unit}, true);
        continue;
      }
      each.tensor->storage->allocate();
      device_.set_category(each.tensor->storage->allocation, Category::weights);
      if (each.part == Part::buffers) {
        for (PipelineStage* stage : before) stage->buffers_[buffers_.size()]->storage = each.tensor->storage;
        buffers_.push_back(each.tensor);
        continue;
      }
      require_split_grad(split_, each.request.name, each.tensor, each.request.sizes);
      parameters_.push_back({each.request.name, each.tensor, each.request.unit});
    }
    if (!sharded_) return;
    if (loading >= 0) sharded_->pad(loading);
    sharded_->pad(in_no_layer);
    parameters_ = sharded_->optimized();
  }

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const std::vector<Tensor>& buffers() const { return buffers_; }

  // Told before every backward whether it is the last of the step, which reduces gradients over data-parallel ranks.
  std::function<void(bool last)> before_backward = [](bool) {};

  bool is_sharded() const { return sharded_ != nullptr; }
  FullySharded& sharded() { return *sharded_; }

  // _PipelineSchedule.step with return_outputs=False
  void begin(const Tensor& ids, const Tensor& labels) {
    for (const Tensor& input : inputs_) input->grad.reset();  // clear_runtime_states
    ids_ = ids;
    labels_ = labels;
    played_ = microbatches();
    backwards_ = 0;
    if (sharded_) sharded_->hold();
    make_receive_buffers();
  }
  void run_alone(const PlayedTurns& turns) {
    if (spec_.pipeline.schedule == PipelineSchedule::gpipe)
      run_gpipe();
    else
      run_1f1b(turns);
    if (sharded_) sharded_->reduce_all();
  }
  void end() {
    while (!losses_.empty()) losses_.pop_back();  // Objects/listobject.c, list_clear: the last first
    ids_.reset();
    labels_.reset();
  }

  // _PipelineScheduleRuntime: what a stage has sent it keeps no longer.
  Tensor run_forward(std::int64_t i) {
    const Tensor output = forward(i);
    if (stage_.heads) losses_.push_back(loss_of(output, i));
    return output;
  }
  // The gradient of the stage's input, where it has one.
  Tensor run_backward(std::int64_t i) {
    backward_one(i);
    const Tensor gradient = input_gradients_[i];
    input_gradients_.clear();
    return gradient;
  }
  // backward_one_chunk(full_backward=False). The first stage has no input to give a gradient to: all waits for its weights.
  Tensor run_backward_input(std::int64_t i) {
    if (stage_.embeds) return {};
    Running running = std::move(running_[i]);
    running_.erase(i);
    if (!stage_.heads) receive();
    const Tensor output = stage_.heads ? losses_[static_cast<std::size_t>(i)] : running.output;
    {
      const Tensor ones = stage_.heads ? device_.empty(output.sizes(), output.dtype()) : Tensor();
      std::vector<Tensor> parameters;
      for (const NamedTensor& each : model_->parameters())
        if (each.tensor) parameters.push_back(each.tensor);
      running.weights =
          SplitBackward(output, ones ? ones : output_gradients_[static_cast<std::size_t>(i)], running.input, parameters, after_backward());
    }
    running.output->grad_fn.reset();
    if (stage_.heads) running.output = output;
    const Tensor gradient(running.input->grad);
    running_[i] = std::move(running);
    return gradient;
  }
  void run_backward_weight(std::int64_t i) {
    if (stage_.embeds) return backward_one(i);
    ++backwards_;
    Running running = std::move(running_[i]);
    running_.erase(i);
    running.weights.run();
  }

  // [Note: V-schedule special case]: what the stage before has on the same rank is not sent.
  void take_input(std::int64_t i, const Tensor& output) {
    Tensor& input = inputs_[static_cast<std::size_t>(i)];
    input = detach(output);
    require_grad(input);
  }
  void take_output_gradient(std::int64_t i, const Tensor& gradient) { output_gradients_[static_cast<std::size_t>(i)] = gradient; }
  bool before_is_here = false, after_is_here = false;

 private:
  // _prepare_forward_infra and _prepare_backward_infra: at the first step, for good.
  void make_receive_buffers() {
    if (!inputs_.empty() || !output_gradients_.empty()) return;
    const OpScope op(device_, "receive_buffer");
    const Meter::Muted no_kernel(device_.meter);
    const auto buffers = [&](std::vector<Tensor>& to) {
      for (std::int64_t i = 0; i < microbatches(); ++i) {
        to.push_back(device_.empty(hidden_, dtype_));
        device_.set_category(to.back()->storage->allocation, Category::communication);
      }
    };
    if (!stage_.embeds) buffers(inputs_);
    if (!stage_.heads) buffers(output_gradients_);
    for (const Tensor& input : inputs_) require_grad(input);
  }

  std::int64_t microbatches() const { return spec_.pipeline.microbatches; }
  std::int64_t warmup() const { return std::min(microbatches(), spec_.pipeline.degree - stage_position(spec_)); }

  // Schedule1F1B._step_microbatches. `output` and what is being sent keep their last value until they get the next.
  void run_1f1b(const PlayedTurns& turns) {
    played_ = turns.more ? std::min(microbatches(), warmup() + *turns.more) : microbatches();
    std::int64_t forwards = 0, backwards = 0;
    Tensor output, sent_output, sent_gradient;
    const auto begin = [&](Turn::To to) {
      device_.meter.begin_part();
      turns.turn(to);
    };
    const auto run_forward = [&] {
      begin(Turn::To::forward);
      output = forward(forwards);
      if (stage_.heads)
        losses_.push_back(loss_of(output, forwards));
      else
        sent_output = output;
      ++forwards;
    };
    const auto run_backward = [&] {
      begin(Turn::To::backward);
      backward_one(backwards);
      sent_gradient = std::exchange(input_gradients_[backwards], {});
      ++backwards;
    };
    while (forwards < warmup()) run_forward();
    while (backwards < played_) {
      run_backward();
      if (forwards < played_) run_forward();
    }
    begin(Turn::To::rest);
  }

  // ScheduleGPipe._step_microbatches
  void run_gpipe() {
    Tensor output;
    for (std::int64_t i = 0; i < microbatches(); ++i) {
      output = forward(i);
      if (stage_.heads) losses_.push_back(loss_of(output, i));
    }
    for (std::int64_t i = 0; i < microbatches(); ++i) {
      input_gradients_.clear();
      backward_one(i);
    }
    input_gradients_.clear();
  }

  Tensor rows_of(const Tensor& batch, std::int64_t i) const {
    return narrow(batch, 0, i * spec_.training.micro_batch, spec_.training.micro_batch);
  }

  // _PipelineStageBase.forward_one_chunk
  Tensor forward(std::int64_t i) {
    if (!stage_.embeds && !before_is_here) receive();
    const Tensor input = stage_.embeds ? rows_of(ids_, i) : inputs_[static_cast<std::size_t>(i)];
    ForwardOptions options;
    options.attention = spec_.training.attention;
    options.checkpointing = spec_.training.checkpointing;
    options.ring = ring_of(spec_);
    options.checkpoints_inside_hooks = spec_.training.stack == Stack::torchtitan;
    Tensor output = model_->run_stage(stage_, input, options, hooks_);
    running_[i].output = output;
    running_[i].input = input;
    return output;
  }

  Tensor loss_of(const Tensor& logits, std::int64_t i) {
    if (spec_.context.degree > 1) return next_word_loss(logits, rows_of(labels_, i), split_.loss);
    return causal_lm_loss(logits, rows_of(labels_, i), {}, split_.loss);
  }

  // backward_one_chunk and stage_backward
  void backward_one(std::int64_t i) {
    before_backward(++backwards_ == played_);
    const Running running = std::move(running_[i]);
    running_.erase(i);
    if (!stage_.heads && !after_is_here) receive();
    if (stage_.heads) {
      backward(losses_[static_cast<std::size_t>(i)], after_backward());
      if (!stage_.embeds) running.output->grad_fn.reset();
    } else {
      backward_from(running.output, output_gradients_[static_cast<std::size_t>(i)], after_backward());
    }
    if (!stage_.embeds) input_gradients_[i] = Tensor(std::exchange(running.input->grad, {}));
  }

  std::vector<std::function<void()>> after_backward() {
    if (!sharded_) return {};
    return {[this] { sharded_->backward_is_over(); }};
  }

  // Sent in the background; but what comes in is waited for.
  void receive() {
    const std::int64_t bytes = count_of(hidden_) * size_of(dtype_).count;
    device_.meter.communicate_and_wait(Collective::send, Among::pipeline, 2, bytes);
  }

  struct Running {
    Tensor output, input;
    SplitBackward weights;
  };

  Device& device_;
  const Spec& spec_;
  CausalLm::Stage stage_;
  CausalLm::Split split_;
  Dims hidden_;
  Dtype dtype_;  // of what stages send each other
  std::shared_ptr<FullySharded> sharded_;
  UnitHooks hooks_;
  std::int64_t backwards_ = 0;  // in this step
  std::unique_ptr<CausalLm> model_;
  std::vector<NamedTensor> parameters_;
  std::vector<Tensor> buffers_;
  std::vector<Tensor> inputs_, output_gradients_;  // received, one a microbatch
  Tensor ids_, labels_;
  std::int64_t played_ = 0;                         // microbatches of this step
  std::map<std::int64_t, Running> running_;         // microbatches between their forward and their backward
  std::map<std::int64_t, Tensor> input_gradients_;  // not yet sent
  std::vector<Tensor> losses_;
};

// The stages of one rank: one, or with some schedules several.
class PipelineRank {
 public:
  PipelineRank(Device& device, const Spec& spec, const Architecture& architecture) {
    const std::int64_t rank = stage_position(spec);
    if (spec.pipeline.virtual_stages > 1) actions_ = actions_of_rank(spec.pipeline, rank);
    for (const std::int64_t index : stages_of_rank(spec.pipeline, rank)) {
      auto& stage = stages_[index] = std::make_unique<PipelineStage>(device, spec, architecture, index, order_.size());
      stage->make_model(architecture, order_);
      order_.push_back(stage.get());
    }
    for (auto& [index, stage] : stages_) {
      stage->before_is_here = stages_.count(index - 1) > 0;
      stage->after_is_here = stages_.count(index + 1) > 0;
    }
  }

  std::vector<NamedTensor> parameters() const {
    std::vector<NamedTensor> all;
    for (const PipelineStage* stage : order_) all.insert(all.end(), stage->parameters().begin(), stage->parameters().end());
    return all;
  }

  std::vector<Tensor> buffers() const {
    std::vector<Tensor> all;
    for (const PipelineStage* stage : order_) all.insert(all.end(), stage->buffers().begin(), stage->buffers().end());
    return all;
  }

  void before_each_backward(const std::function<void(bool last)>& hook) {
    for (PipelineStage* stage : order_) stage->before_backward = hook;
  }

  void step(const Tensor& ids, const Tensor& labels, const PlayedTurns& turns) {
    for (PipelineStage* stage : order_) stage->begin(ids, labels);
    if (actions_.empty()) order_.front()->run_alone(turns);
    for (const PipelineAction& action : actions_) perform(action);
    for (PipelineStage* stage : order_) stage->end();
  }

 private:
  // _PipelineScheduleRuntime._step_microbatches
  void perform(const PipelineAction& action) {
    PipelineStage& stage = *stages_.at(action.stage);
    const std::int64_t i = action.microbatch;
    const bool computes = action.kind <= PipelineAction::backward_weight;
    if (!computes) {
      if (stage.is_sharded()) shard(stage.sharded(), action.kind);
      return;
    }
    if (stage.is_sharded()) stage.sharded().wait_for_all();
    switch (action.kind) {
      case PipelineAction::forward: {
        const Tensor output = stage.run_forward(i);
        if (stage.after_is_here) stages_.at(action.stage + 1)->take_input(i, output);
        break;
      }
      case PipelineAction::backward: hand_back(action, stage.run_backward(i)); break;
      case PipelineAction::backward_input: hand_back(action, stage.run_backward_input(i)); break;
      default: stage.run_backward_weight(i); break;
    }
  }

  void hand_back(const PipelineAction& action, const Tensor& gradient) {
    if (stages_.at(action.stage)->before_is_here) stages_.at(action.stage - 1)->take_output_gradient(action.microbatch, gradient);
  }

  static void shard(FullySharded& sharded, PipelineAction::Kind kind) {
    if (kind == PipelineAction::unshard) sharded.unshard_all();
    if (kind == PipelineAction::reshard) sharded.reshard_all();
    if (kind == PipelineAction::reduce) sharded.reduce_all();
  }

  std::map<std::int64_t, std::unique_ptr<PipelineStage>> stages_;  // by their place in the pipeline
  std::vector<PipelineStage*> order_;                              // of the rank's list
  std::vector<PipelineAction> actions_;
};

}  // namespace

Rank pipeline_stage(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank;
  const auto stages = std::make_shared<PipelineRank>(device, spec, architecture);
  rank.optimized = stages->parameters();
  rank.buffers = stages->buffers();
  if (spec.data.kind == DataKind::ddp) stages->before_each_backward(reduce_at_last_backward(device, rank, spec.data));
  const bool sharded = spec.data.kind == DataKind::fsdp2;
  rank.gradients_are_sharded = sharded;
  if (spec.tensor.degree > 1) set_mesh_groups(rank, device, tensor_split(spec), sharded);
  rank.schedule = [stages](const Tensor& ids, const Tensor& labels, const PlayedTurns& turns) { stages->step(ids, labels, turns); };
  return rank;
}

}  // namespace llmem
