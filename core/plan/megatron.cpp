#include "plan/megatron.h"

#include <algorithm>
#include <numeric>

#include "tensor/autograd.h"

namespace llmem {

MegatronRank megatron_rank(const Spec& spec) {
  MegatronRank rank;
  rank.tensor = spec.tensor.degree, rank.context = spec.context.degree;
  rank.expert = spec.expert.degree, rank.expert_tensor = spec.expert.tensor.value_or(spec.tensor.degree);
  rank.all_to_all = spec.context.all_to_all;
  rank.sequence = spec.tensor.degree > 1 && spec.tensor.sequence;
  return rank;
}

namespace {

// transformer_block.py, get_num_layers_to_build and transformer_layer.py, get_transformer_layer_offset, where the first or the last stage has
// a number of its own: a stage's layers are cut into its chunks, and the chunks of a turn follow each other along the pipeline.
MegatronModel::Chunk uneven_chunk(const PipelineParallel& pipeline, std::int64_t layers, std::int64_t stage, std::int64_t virtual_stage) {
  const std::int64_t last = pipeline.degree - 1;
  const std::int64_t others = layers - pipeline.first_layers.value_or(0) - pipeline.last_layers.value_or(0);
  const std::int64_t middle = pipeline.degree - (pipeline.first_layers ? 1 : 0) - (pipeline.last_layers ? 1 : 0);
  const auto of_stage = [&](std::int64_t i) {
    const std::optional<std::int64_t> own = i == 0 ? pipeline.first_layers : i == last ? pipeline.last_layers : std::nullopt;
    return own.value_or(middle > 0 ? others / middle : 0) / pipeline.virtual_stages;
  };
  MegatronModel::Chunk chunk;
  for (std::int64_t turn = 0; turn <= virtual_stage; ++turn)
    for (std::int64_t i = 0; i < (turn < virtual_stage ? pipeline.degree : stage); ++i) chunk.first += of_stage(i);
  chunk.end = chunk.first + of_stage(stage);
  chunk.embeds = stage == 0 && virtual_stage == 0;
  chunk.heads = stage == last && virtual_stage == pipeline.virtual_stages - 1;
  return chunk;
}

}  // namespace

// With account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split, embedding and loss take a layer's place.
MegatronModel::Chunk megatron_chunk(const Spec& spec, std::int64_t layers, std::int64_t stage, std::int64_t virtual_stage) {
  const PipelineParallel& pipeline = spec.pipeline;
  const std::int64_t stages = pipeline.degree * pipeline.virtual_stages, index = virtual_stage * pipeline.degree + stage;
  if (pipeline.first_layers || pipeline.last_layers) return uneven_chunk(pipeline, layers, stage, virtual_stage);
  const std::int64_t places = layers + (pipeline.counts_embedding ? 1 : 0) + (pipeline.counts_loss ? 1 : 0), each = places / stages;
  MegatronModel::Chunk chunk;
  chunk.embeds = index == 0;
  chunk.heads = index == stages - 1;
  chunk.first = std::max<std::int64_t>(index * each - (pipeline.counts_embedding ? 1 : 0), 0);
  chunk.end = std::min((index + 1) * each - (pipeline.counts_embedding ? 1 : 0), layers);
  return chunk;
}

namespace {

constexpr std::int64_t aligned(std::int64_t value, std::int64_t to) { return divide_up(value, to) * to; }

Dtype gradient_dtype(const Spec& spec) {  // arguments.py: bf16 accumulates and reduces gradients in fp32
  const bool half = spec.training.weights == Dtype::float16 || spec.training.megatron.bf16_gradients;
  return half ? spec.training.weights : Dtype::float32;
}

}  // namespace

MegatronBuffer::MegatronBuffer(Device& device, const Spec& spec, std::vector<MegatronParameter> parameters, std::int64_t ranks)
    : spec_(spec),
      parameters_(std::move(parameters)),
      ranks_(std::max<std::int64_t>(ranks / spec.data.replicate, 1)),
      distributed_(spec.data.kind == DataKind::distributed_optimizer) {
  std::reverse(parameters_.begin(), parameters_.end());
  // distributed_data_parallel.py: buckets are filled where their reduction overlaps with backward
  const bool buckets = spec.data.overlap_grad_reduce && ranks > 1;
  lay_out(buckets ? std::max<std::int64_t>(40'000'000, 1'000'000 * ranks) : INT64_MAX);
  const ModuleScope scope(device, "");
  const auto flat = [&](const char* name, Dtype dtype, Category category) {
    const OpScope op(device, name);
    const Tensor made = device.empty({count_}, dtype);
    device.set_category(made->storage->allocation, category);
    return made;
  };
  if (distributed_) parameter_data_ = flat("param_data", spec.training.weights, Category::weights);
  gradient_data_ = flat("grad_data", gradient_dtype(spec), Category::gradients);
  for (const MegatronParameter& each : parameters_) {
    if (distributed_) each.tensor->storage = parameter_data_->storage;
    // distributed_data_parallel.py, _make_backward_post_hook: param.main_grad.add_(param.grad), then param.grad = None
    TensorImpl* parameter = each.tensor.get();
    parameter->accumulator->post_hook = [parameter] {
      parameter->storage->device.meter.moved(10 * count_of(parameter->layout.sizes));
      parameter->grad.reset();
    };
  }
}

// _compute_default_per_buffer_param_layout, and optimizer/param_layout.py with the distributed optimizer
void MegatronBuffer::lay_out(std::int64_t bucket_size) {
  const std::int64_t divisor = std::lcm(ranks_, std::int64_t{128});  // bucket_end_divisor
  std::int64_t bucket_start = 0;
  std::size_t first = 0;
  const auto close = [&](std::size_t last) {
    if (distributed_) count_ = aligned(count_, divisor);
    add_parts_of_bucket(bucket_start, count_, first, last);
    bucket_start = count_;
    first = last;
  };
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (distributed_) count_ = aligned(count_, 64);  // pad_param_start
    starts_.push_back(count_);
    count_ += parameters_[i].tensor.numel();
    if (count_ - bucket_start >= bucket_size) close(i + 1);
  }
  if (first < parameters_.size()) close(parameters_.size());
}

// distrib_optimizer.py, _build_model_gbuf_range: each rank has an equal part of every bucket.
void MegatronBuffer::add_parts_of_bucket(std::int64_t start, std::int64_t end, std::size_t first, std::size_t last) {
  const std::int64_t own = distributed_ ? (end - start) / ranks_ : end - start;
  const std::int64_t of_group = spec_.world() / spec_.pipeline.degree / spec_.tensor.degree;
  const std::int64_t rank = distributed_ ? spec_.rank / spec_.tensor.degree % of_group % ranks_ : 0;
  const std::int64_t from = start + rank * own, to = from + own;
  for (std::size_t i = first; i < last; ++i) {
    const std::int64_t begins = std::max(starts_[i], from), ends = std::min(starts_[i] + parameters_[i].tensor.numel(), to);
    if (begins < ends) parts_.push_back({parameters_[i].name, ends - begins});
  }
}

MegatronOptimizer::MegatronOptimizer(Device& device, const Spec& spec, const std::vector<std::unique_ptr<MegatronBuffer>>& buffers)
    : device_(device), spec_(spec) {
  for (const auto& buffer : buffers) parts_.insert(parts_.end(), buffer->parts().begin(), buffer->parts().end());
  if (spec.training.weights == Dtype::float32) return;
  for (const MegatronBuffer::Part& part : parts_) {  // param.detach().clone().float()
    const ModuleScope scope(device, part.name.substr(0, part.name.rfind('.')));
    const OpScope op(device, "main_param");
    const Tensor copy = device.empty({part.count}, spec.training.weights);
    copies_.push_back(device.empty({part.count}, Dtype::float32));
    device.set_category(copies_.back()->storage->allocation, Category::optimizer_states);
  }
}

void MegatronOptimizer::step() {
  const auto each = [&](const char* name, std::vector<Tensor>& into, Category category, Dtype dtype) {
    const OpScope op(device_, name);
    for (const MegatronBuffer::Part& part : parts_) {
      const ModuleScope scope(device_, part.name.substr(0, part.name.rfind('.')));
      into.push_back(device_.empty({part.count}, dtype));
      device_.set_category(into.back()->storage->allocation, category);
    }
  };
  // _copy_model_grads_to_main_grads: nothing where gradients are fp32
  if (gradient_dtype(spec_) != Dtype::float32) each("main_grad", gradients_, Category::gradients, Dtype::float32);
  std::int64_t count = 0;
  for (const MegatronBuffer::Part& part : parts_) count += part.count;
  device_.meter.update(4 * count, Dtype::float32, static_cast<std::int64_t>(parts_.size()));
  const bool has_states = spec_.training.optimizer.name != OptimizerName::sgd || spec_.training.optimizer.momentum;
  if (!states_.empty() || !has_states) return;
  const Dtype moments = spec_.training.megatron.moments;
  each("exp_avg", states_, Category::optimizer_states, moments);
  if (spec_.training.optimizer.name != OptimizerName::sgd) each("exp_avg_sq", states_, Category::optimizer_states, moments);
}

void MegatronOptimizer::zero_gradients() { gradients_.clear(); }

}  // namespace llmem
