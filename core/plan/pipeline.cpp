#include <algorithm>
#include <map>

#include "plan/rank.h"
#include "plan/tensor_parallel.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// torch/distributed/pipelining: a stage (stage.py) runs its layers for one microbatch at a time, in the order of its schedule (schedules.py).
namespace llmem {

namespace {

constexpr int in_no_layer = -1;

// Layers are split evenly, the first stages one longer; the embedding is on the first stage, norm and head on the last.
CausalLm::Stage stage_of(std::int64_t index, std::int64_t stages, std::int64_t layers) {
  const auto cut = [&](std::int64_t i) { return static_cast<int>(i * (layers / stages) + std::min(i, layers % stages)); };
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
  PipelineStage(Device& device, const Spec& spec, const Architecture& architecture, std::int64_t index)
      : device_(device),
        spec_(spec),
        stage_(stage_of(index, spec.pipeline.degree * spec.pipeline.virtual_stages, architecture.layers)),
        split_(tensor_split(spec)),
        hidden_{spec.training.micro_batch, spec.training.sequence / (split_.sequence ? split_.ranks : 1), architecture.hidden_size} {}

  // `previous`: another stage of this rank. Both have the same rotary module, whose buffers are made anew with each stage.
  void make_model(const Architecture& architecture, PipelineStage* previous) {
    struct Made {
      Part part;
      TensorRequest request;
      Tensor tensor;
    };
    std::vector<Made> made;
    model_ = std::make_unique<CausalLm>(architecture, spec_.training.weights, [&](const TensorRequest& request) {
      const Part part = part_of(request, stage_, architecture.tied_embeddings);
      if (part == Part::elsewhere) return Tensor();
      const bool split = split_.ranks > 1 && part != Part::buffers;
      const Dims sizes = split ? split_sizes(split_, request.name, request.sizes) : request.sizes;
      made.push_back({part, request, device_.unallocated(sizes, request.dtype)});
      return made.back().tensor;
    });
    if (split_.ranks > 1) model_->split(split_);
    std::stable_sort(made.begin(), made.end(), [](const Made& a, const Made& b) { return a.part < b.part; });
    for (const Made& each : made) {
      const ModuleScope scope(device_, module_of(each.request.name));
      const OpScope op(device_, "parameter");
      each.tensor->storage->allocate();
      device_.set_category(each.tensor->storage->allocation, Category::weights);
      if (each.part == Part::buffers) {
        if (previous) previous->buffers_[buffers_.size()]->storage = each.tensor->storage;
        buffers_.push_back(each.tensor);
        continue;
      }
      require_split_grad(split_, each.request.name, each.tensor, each.request.sizes);
      parameters_.push_back({each.request.name, each.tensor, each.request.unit});
    }
  }

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const std::vector<Tensor>& buffers() const { return buffers_; }

  // Told before every backward whether it is the last of the step, which reduces gradients over data-parallel ranks.
  std::function<void(bool last)> before_backward = [](bool) {};

  // _PipelineSchedule.step with return_outputs=False
  void begin(const Tensor& ids, const Tensor& labels) {
    ids_ = ids;
    labels_ = labels;
    played_ = microbatches();
    make_receive_buffers();
  }
  void run_alone(const PlayedTurns& turns) {
    if (spec_.pipeline.schedule == PipelineSchedule::gpipe)
      run_gpipe();
    else
      run_1f1b(turns);
  }
  void end() {
    losses_.clear();
    ids_.reset();
    labels_.reset();
  }

  // _PipelineScheduleRuntime: what a stage has sent it keeps no longer.
  void run_forward(std::int64_t i) {
    const Tensor output = forward(i);
    if (stage_.heads) losses_.push_back(loss_of(output, i));
  }
  void run_backward(std::int64_t i) {
    backward_one(i);
    input_gradients_.clear();
  }

 private:
  // _prepare_forward_infra and _prepare_backward_infra: at the first step, for good.
  void make_receive_buffers() {
    if (!inputs_.empty() || !output_gradients_.empty()) return;
    const OpScope op(device_, "receive_buffer");
    const auto buffers = [&](std::vector<Tensor>& to) {
      for (std::int64_t i = 0; i < microbatches(); ++i) {
        to.push_back(device_.empty(hidden_, spec_.training.weights));
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
    const auto run_forward = [&] {
      turns.turn(Turn::To::forward);
      output = forward(forwards);
      if (stage_.heads)
        losses_.push_back(loss_of(output, forwards));
      else
        sent_output = output;
      ++forwards;
    };
    const auto run_backward = [&] {
      turns.turn(Turn::To::backward);
      backward_one(backwards);
      sent_gradient = std::exchange(input_gradients_[backwards], {});
      ++backwards;
    };
    while (forwards < warmup()) run_forward();
    while (backwards < played_) {
      run_backward();
      if (forwards < played_) run_forward();
    }
    turns.turn(Turn::To::rest);
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
    if (!stage_.embeds) receive();
    const Tensor input = stage_.embeds ? rows_of(ids_, i) : inputs_[static_cast<std::size_t>(i)];
    ForwardOptions options;
    options.attention = spec_.training.attention;
    options.checkpointing = spec_.training.checkpointing;
    Tensor output = model_->run_stage(stage_, input, options);
    running_[i] = {output, input};
    return output;
  }

  Tensor loss_of(const Tensor& logits, std::int64_t i) { return causal_lm_loss(logits, rows_of(labels_, i), {}, split_.loss); }

  // backward_one_chunk and stage_backward
  void backward_one(std::int64_t i) {
    before_backward(i + 1 == played_);
    const Running running = std::move(running_[i]);
    running_.erase(i);
    if (!stage_.heads) receive();
    if (stage_.heads) {
      backward(losses_[static_cast<std::size_t>(i)]);
      if (!stage_.embeds) running.output->grad_fn.reset();
    } else {
      backward_from(running.output, output_gradients_[static_cast<std::size_t>(i)]);
    }
    if (!stage_.embeds) input_gradients_[i] = Tensor(std::exchange(running.input->grad, {}));
  }

  // Sent in the background; but what comes in is waited for.
  void receive() {
    const std::int64_t bytes = count_of(hidden_) * size_of(spec_.training.weights).count;
    device_.meter.communicate_and_wait(Collective::send, Among::pipeline, 2, bytes);
  }

  struct Running {
    Tensor output, input;
  };

  Device& device_;
  const Spec& spec_;
  CausalLm::Stage stage_;
  CausalLm::Split split_;
  Dims hidden_;
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

// The stages of one rank: one, or with the interleaved schedule several.
class PipelineRank {
 public:
  PipelineRank(Device& device, const Spec& spec, const Architecture& architecture) : pipeline_(spec.pipeline), rank_(stage_position(spec)) {
    for (std::int64_t i = 0; i < pipeline_.virtual_stages; ++i) {
      stages_.push_back(std::make_unique<PipelineStage>(device, spec, architecture, rank_ + i * pipeline_.degree));
      stages_.back()->make_model(architecture, i > 0 ? stages_[static_cast<std::size_t>(i - 1)].get() : nullptr);
    }
  }

  std::vector<NamedTensor> parameters() const {
    std::vector<NamedTensor> all;
    for (const auto& stage : stages_) all.insert(all.end(), stage->parameters().begin(), stage->parameters().end());
    return all;
  }

  std::vector<Tensor> buffers() const {
    std::vector<Tensor> all;
    for (const auto& stage : stages_) all.insert(all.end(), stage->buffers().begin(), stage->buffers().end());
    return all;
  }

  void before_each_backward(const std::function<void(bool last)>& hook) {
    for (const auto& stage : stages_) stage->before_backward = hook;
  }

  void step(const Tensor& ids, const Tensor& labels, const PlayedTurns& turns) {
    for (const auto& stage : stages_) stage->begin(ids, labels);
    if (stages_.size() == 1)
      stages_.front()->run_alone(turns);
    else
      run_interleaved();
    for (const auto& stage : stages_) stage->end();
  }

 private:
  // ScheduleInterleaved1F1B._calculate_single_rank_operations, _get_warmup_ops and _get_1f1b_rank_ops
  void run_interleaved() {
    const auto local = static_cast<std::int64_t>(stages_.size());
    const std::int64_t rounds = std::max<std::int64_t>(1, pipeline_.microbatches / pipeline_.degree);
    const std::int64_t a_round = pipeline_.microbatches / rounds, all = local * pipeline_.microbatches;
    const std::int64_t warmup = std::min(all, (local - 1) * a_round + 2 * (pipeline_.degree - 1 - rank_));
    std::vector<std::int64_t> forwards(stages_.size()), backwards(stages_.size());
    for (std::int64_t op = 0; op < all + warmup; ++op) {
      if (op < all) {
        const auto stage = static_cast<std::size_t>(op / a_round % local);
        stages_[stage]->run_forward(forwards[stage]++);
      }
      if (op >= warmup) {
        const auto stage = static_cast<std::size_t>(local - 1 - (op - warmup) / a_round % local);
        stages_[stage]->run_backward(backwards[stage]++);
      }
    }
  }

  PipelineParallel pipeline_;
  std::int64_t rank_;
  std::vector<std::unique_ptr<PipelineStage>> stages_;
};

}  // namespace

Rank pipeline_stage(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank;
  const auto stages = std::make_shared<PipelineRank>(device, spec, architecture);
  rank.optimized = stages->parameters();
  rank.buffers = stages->buffers();
  if (spec.data.kind == DataKind::ddp) stages->before_each_backward(reduce_at_last_backward(device, rank, spec.data));
  if (spec.tensor.degree > 1) set_mesh_groups(rank, device, tensor_split(spec), false);
  rank.schedule = [stages](const Tensor& ids, const Tensor& labels, const PlayedTurns& turns) { stages->step(ids, labels, turns); };
  return rank;
}

}  // namespace llmem
