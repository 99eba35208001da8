#include "step/megatron.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "plan/megatron.h"
#include "step/play.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// A microbatch of a model chunk between its forward and its backward.
struct Running {
  Tensor input, output;
};

// One chunk of the model with forward_step and backward_step (megatron/core/pipeline_parallel/schedules.py).
class MegatronChunk {
 public:
  MegatronChunk(Device& device, const Spec& spec, const MegatronShape& shape, const MegatronRank& rank, MegatronKernels& kernels,
                const MegatronModel::Chunk& chunk)
      : device_(device),
        spec_(spec),
        rank_(rank),
        model_(device, shape, spec.training, rank, kernels, chunk),
        decodes_(shape.decoder_layers > 0) {
    hidden_ = {tokens() / (rank.sequence ? rank.tensor : 1), spec.training.micro_batch, shape.hidden};
  }

  const MegatronModel& model() const { return model_; }
  bool has_running() const { return !running_.empty(); }

  void forward() {
    Running running;
    running.input = model_.chunk().embeds ? Tensor() : receive();
    if (running.input) require_grad_of_activation(running.input);
    running.output = output_of(running.input);
    running_.push_back(std::move(running));
  }

  void backward() {
    Running running = std::move(running_.front());
    running_.pop_front();
    if (model_.chunk().heads) {
      llmem::backward(running.output);
    } else {
      const Tensor gradient = receive();
      backward_from(running.output, gradient);
    }
    const Tensor input_gradient = running.input ? Tensor(std::exchange(running.input->grad, {})) : Tensor();
    if (input_gradient) send(input_gradient);
  }

 private:
  std::int64_t tokens() const { return spec_.training.sequence / rank_.context; }

  // p2p_communication.py, recv_forward and recv_backward: a tensor of its own each time
  Tensor receive() {
    const OpScope op(device_, "receive");
    const Meter::Muted no_kernel(device_.meter);
    const Tensor made = device_.empty(hidden_, spec_.training.weights);
    device_.set_category(made->storage->allocation, Category::communication);
    device_.meter.communicate_and_wait(Collective::send, Among::pipeline, 2, made.bytes_read());
    return made;
  }
  void send(const Tensor&) {}

  // pretrain_gpt.py, forward_step and loss_func; what goes to the next stage is given up once it is sent (deallocate_output_tensor), unless
  // backward keeps it.
  Tensor output_of(const Tensor& input) {
    const Batch batch = next_batch();
    Tensor output = model_.forward(batch.tokens, batch.positions, batch.labels, batch.decoder_tokens ? batch.decoder_tokens : input);
    if (model_.chunk().heads) return loss_of(output, batch.loss_mask);
    const Tensor stub = device_.empty({1}, output.dtype());
    output->storage = stub->storage;
    output->layout = stub->layout;
    return output;
  }

  Tensor loss_of(const Tensor& losses, const Tensor& mask) {
    const ModuleScope scope(device_, "loss_func", Category::logits_and_loss);
    const auto summed = [&] {
      const Tensor product = mul(view(losses, {losses.numel()}), view(mask, {mask.numel()}));
      return sum_all(product);
    };
    const Tensor loss = summed();
    return mul_scalar(loss);
  }

  struct Batch {
    Tensor tokens, labels, loss_mask, attention_mask, positions;
    Tensor decoder_tokens;  // T5
  };

  // utils.py, get_batch_on_this_tp_rank and get_batch_on_this_cp_rank: only the first and the last stage have one.
  Batch next_batch() {
    const ModuleScope scope(device_, "batch");
    const bool first = model_.chunk().embeds, last = model_.chunk().heads;
    const std::int64_t rows = spec_.training.micro_batch, s = tokens();
    Batch batch;
    if (!first && !last) return batch;
    batch.attention_mask = device_.empty({rows, 1, s, spec_.training.sequence}, Dtype::boolean);
    if (first) batch.tokens = device_.empty({rows, s}, Dtype::int64);
    if (first) batch.positions = device_.empty({rows, s}, Dtype::int64);
    if (decodes_) batch.decoder_tokens = device_.empty({rows, spec_.training.megatron.decoder_sequence}, Dtype::int64);
    const std::int64_t predicted = decodes_ ? spec_.training.megatron.decoder_sequence : s;
    if (last) batch.labels = device_.empty({rows, predicted}, Dtype::int64);
    if (last) batch.loss_mask = device_.empty({rows, predicted}, Dtype::float32);
    return batch;
  }

  Device& device_;
  const Spec& spec_;
  MegatronRank rank_;
  MegatronModel model_;
  bool decodes_;  // T5
  Dims hidden_;
  std::deque<Running> running_;
};

class MegatronLoop {
 public:
  MegatronLoop(Device& device, const Spec& spec, const MegatronShape& shape) : device_(device), spec_(spec) {
    const MegatronRank rank = megatron_rank(spec);
    device.always_large_cublas_workspace = spec.training.megatron.deterministic;
    kernels_.tensor_ranks = rank.tensor;
    kernels_.sequence = rank.sequence;
    kernels_.fuses_gradients = spec.training.megatron.gradient_accumulation_fusion;
    stage_ = spec.rank / (spec.world() / spec.pipeline.degree);
    for (std::int64_t i = 0; i < spec.pipeline.virtual_stages; ++i)
      chunks_.push_back(
          std::make_unique<MegatronChunk>(device, spec, shape, rank, kernels_, megatron_chunk(spec, shape.layers, stage_, i)));
    make_buffers(rank);
    optimizer_ = std::make_unique<MegatronOptimizer>(device, spec, buffers_);
    device.point("loaded");
  }

  void step(int number) {
    const std::string prefix = "step" + std::to_string(number) + ".";
    device_.begin_step();
    device_.meter.on = number + 1 == steps_played;
    const auto phase = [&](const char* name, const auto& run) {
      device_.begin_phase(prefix + name);
      run();
      device_.point(prefix + name);
    };
    phase("schedule", [&] { run_schedule(); });
    phase("optimizer", [&] { optimizer_->step(); });
    phase("zero_grad", [&] { optimizer_->zero_gradients(); });
  }

 private:
  // Each chunk is a DistributedDataParallel of its own; experts have other ranks to share gradients with, and a buffer of their own.
  void make_buffers(const MegatronRank& rank) {
    const std::int64_t all = spec_.world() / spec_.pipeline.degree;
    for (const auto& chunk : chunks_) {
      std::vector<MegatronParameter> dense, expert;
      for (const MegatronParameter& each : chunk->model().parameters()) (each.expert ? expert : dense).push_back(each);
      if (!dense.empty()) buffers_.push_back(std::make_unique<MegatronBuffer>(device_, spec_, dense, all / rank.tensor));
      if (!expert.empty())
        buffers_.push_back(
            std::make_unique<MegatronBuffer>(device_, spec_, expert, std::max<std::int64_t>(all / (rank.expert * rank.expert_tensor), 1)));
    }
  }

  // Nothing is kept by the number of a microbatch: once each chunk has run forward and backward by turns, every further turn does the same. So
  // many more as fill `turns` groups are played at most.
  std::int64_t microbatches() const {
    constexpr std::int64_t turns = 6;
    const std::int64_t all = spec_.pipeline.degree > 1 ? spec_.pipeline.microbatches : spec_.training.accumulation;
    const std::int64_t group = spec_.pipeline.degree;
    return all <= turns * group ? all : turns * group + all % group;
  }

  void run_schedule() {
    if (spec_.pipeline.virtual_stages > 1)
      run_interleaved();
    else
      run_in_order(std::min(spec_.pipeline.degree - stage_ - 1, microbatches()));
  }

  // forward_backward_no_pipelining and forward_backward_pipelining_without_interleaving
  void run_in_order(std::int64_t warmup) {
    MegatronChunk& chunk = *chunks_.front();
    for (std::int64_t i = 0; i < warmup; ++i) chunk.forward();
    for (std::int64_t i = warmup; i < microbatches(); ++i) {
      chunk.forward();
      chunk.backward();
    }
    while (chunk.has_running()) chunk.backward();
  }

  // forward_backward_pipelining_with_interleaving: get_schedule_table and get_pp_rank_microbatches. A group of microbatches goes through one
  // chunk, then through the next; a last group may be smaller, but not than the pipeline is long.
  void run_interleaved() {
    const std::int64_t stages = spec_.pipeline.degree, local = spec_.pipeline.virtual_stages, all = microbatches();
    std::int64_t group = stages;
    while (group < all && all % group != 0 && all % group < stages) ++group;
    std::vector<std::size_t> order;  // the chunk of each forward
    for (std::int64_t first = 0; first < all; first += group)
      for (std::int64_t c = 0; c < local; ++c)
        for (std::int64_t i = first; i < std::min(first + group, all); ++i) order.push_back(static_cast<std::size_t>(c));
    const auto total = static_cast<std::int64_t>(order.size());
    const std::int64_t warmup = std::min(total, 2 * (stages - stage_ - 1) + (local - 1) * group);
    const auto forward = [&](std::int64_t k) { chunks_[order[static_cast<std::size_t>(k)]]->forward(); };
    const auto backward = [&](std::int64_t k) {
      chunks_[static_cast<std::size_t>(local) - 1 - order[static_cast<std::size_t>(k)]]->backward();
    };
    for (std::int64_t k = 0; k < warmup; ++k) forward(k);
    for (std::int64_t k = warmup; k < total; ++k) {
      forward(k);
      backward(k - warmup);
    }
    for (std::int64_t k = total - warmup; k < total; ++k) backward(k);
  }

  Device& device_;
  const Spec& spec_;
  MegatronKernels kernels_;
  std::int64_t stage_ = 0;
  std::vector<std::unique_ptr<MegatronChunk>> chunks_;
  std::vector<std::unique_ptr<MegatronBuffer>> buffers_;
  std::unique_ptr<MegatronOptimizer> optimizer_;
};

}  // namespace

std::shared_ptr<void> run_megatron(Device& device, const Spec& spec, const Architecture& architecture) {
  const auto loop = std::make_shared<MegatronLoop>(device, spec, *megatron_shape(architecture));
  for (int i = 0; i < steps_played; ++i) loop->step(i);
  return loop;
}

}  // namespace llmem
