#include <algorithm>
#include <limits>

#include "plan/adapt.h"
#include "plan/deepspeed.h"
#include "plan/rank.h"
#include "plan/zero3_parameters.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// deepspeed/runtime/zero/stage3.py, DeepSpeedZeroOptimizer_Stage3, over a model that was built inside zero.Init, as Transformers does:
// gradients are reduced by buckets, a rank updates its parts in fp32. contiguous_gradients, reduce_scatter and overlap_comm at their
// defaults (on).
namespace llmem {

namespace {

// runtime/zero/config.py
constexpr std::uint8_t compute_stream = 0;
// stage3.py, param_reduce_events and max_param_reduce_events
constexpr std::uint8_t ongoing_reductions = 1, most_ongoing_reductions = 2;

constexpr std::int64_t default_reduce_bucket = 500'000'000, default_prefetch_bucket = 50'000'000, default_persistence = 100'000;

// transformers/integrations/deepspeed.py, trainer_config_finalize: what "auto" becomes.
struct Sizes {
  std::int64_t reduce_bucket, persistence;
  ZeroSizes coordinator;
};
Sizes sizes_of(const DataParallel& data, std::int64_t hidden) {
  const ZeroOptimization& zero = data.zero;
  const bool automatic = data.auto_buckets;
  const auto width = static_cast<double>(hidden);
  const auto prefetch = static_cast<std::int64_t>(0.9 * width * width);
  return {size_of_option(zero.reduce_bucket_size, automatic, hidden * hidden, default_reduce_bucket),
          size_of_option(zero.persistence_threshold, automatic, 10 * hidden, default_persistence),
          {size_of_option(zero.prefetch_bucket_size, automatic, prefetch, default_prefetch_bucket), zero.max_live_parameters,
           zero.max_reuse_distance}};
}

class ShardedOptimizer {
 public:
  ShardedOptimizer(Device& device, const Spec& spec, const Architecture& architecture, bool has_adapters)
      : device_(device),
        sizes_(sizes_of(spec.data, architecture.hidden_size)),
        ranks_(spec.data.degree * spec.context.degree),
        rank_(spec.rank),
        offloads_optimizer_(spec.offload.optimizer),
        offloads_parameters_(spec.offload.parameters),
        clips_(spec.training.max_grad_norm.has_value()),
        averages_(spec.training.loop == Loop::plain),
        kept_(spec.training.weights),
        communicated_(spec.context.ulysses ? Dtype::float32 : spec.training.weights),  // seq_parallel_communication_data_type
        sub_group_size_(spec.data.zero.sub_group_size),
        options_(spec.data.zero),
        reduce_stream_(spec.data.zero.overlap_comm ? 2 : 0),
        coordinator_(device, sizes_.coordinator, ranks_, has_adapters ? 3 : 0, spec.data.zero.overlap_comm) {}

  ParameterCoordinator& coordinator() { return coordinator_; }

  // zero.Init: a module's tensors are made whole, then each is cut.
  void shard_at_birth(const std::vector<NamedTensor>& tensors, bool trains) {
    for (std::size_t i = 0; i < tensors.size();) {
      std::size_t end = i + 1;
      while (end < tensors.size() && module_of(tensors[end].name) == module_of(tensors[i].name)) ++end;
      std::vector<Tensor> whole;
      for (std::size_t k = i; k < end; ++k) whole.push_back(weights(tensors[k].tensor.numel(), tensors[k]));
      for (std::size_t k = i; k < end; ++k) {
        shard(tensors[k], trains);
        whole[k - i].reset();
      }
      i = end;
    }
  }

  // A tied head is made and cut, too, and then forgotten.
  void forget_tied_head(const NamedTensor& embedding) {
    Tensor whole = weights(embedding.tensor.numel(), embedding);
    if (offloads_parameters_) return;
    const Tensor part = weights(divide_up(whole.numel(), ranks_), embedding);
    whole.reset();
  }

  // Parameters that were there already, in the order of model.parameters().
  void shard_adapters(const std::vector<NamedTensor>& adapters) {
    for (const NamedTensor& each : adapters) {
      const Tensor whole = detach(each.tensor);
      shard(each, true);
    }
  }

  // The rest of __init__.
  void prepare(const std::function<bool(const std::string& name)>& in_first_group) {
    const OpScope op(device_, "zero_init");
    if (!offloads_optimizer_) overflow_ = device_.empty({1}, Dtype::boolean);
    for (const auto& p : coordinator_.parameters()) {
      p->persists = p->numel <= sizes_.persistence;
      if (p->trains) trained_.push_back(p.get());
    }
    const auto others =
        std::stable_partition(trained_.begin(), trained_.end(), [&](const PartitionedParameter* p) { return in_first_group(p->name); });
    make_sub_groups({trained_.begin(), others});
    make_sub_groups({others, trained_.end()});
    flatten();
    make_master_weights();
    if (options_.contiguous_gradients) bucket_ = buffer(sizes_.reduce_bucket, communicated_, Category::communication);
    if (!offloads_optimizer_) { kept_gradients_ = buffer(total_, accumulated(), Category::gradients); }
    coordinator_.gather_and_release_each();
    for (PartitionedParameter* p : trained_) p->tensor->accumulator->post_hook = [this, p] { gradient_ready(*p); };
  }

  // What torch's optimizer is given, a sub-group at a time.
  std::vector<UpdateGroup> update_groups() {
    std::vector<UpdateGroup> groups;
    for (SubGroup& group : sub_groups_) {
      UpdateGroup update;
      if (!offloads_optimizer_) update.parameters = {{"flat.weight", group.master, -1}};
      update.around = [this, &group](const std::function<void()>& step) { update_sub_group(group, step); };
      groups.push_back(std::move(update));
    }
    return groups;
  }

  void begin_micro_batch(bool last) {
    coordinator_.begin_forward();
    last_micro_batch_ = last;
  }

  void run_backward(const Tensor& loss) {
    const Tensor averaged = averages_ ? mul_scalar(loss) : loss;
    const Tensor scaled = mul_scalar(averaged);
    backward(scaled, {[this] {
               reduce();
               device_.streams.host_waits(reduce_stream_);  // independent_gradient_partition_epilogue
             }});
    coordinator_.backward_is_over();
  }

  void step(const std::function<void()>& update) {
    const OpScope op(device_, "zero_step");
    coordinator_.release_all();
    std::vector<Tensor> group_norms;
    Tensor norm;
    if (offloads_optimizer_) {
      device_.scratch(Bytes{4});
      offloaded_norms_.clear();
    } else {
      group_norms = norms_of_groups();
      norm = combined_norm(device_, static_cast<std::int64_t>(group_norms.size()));
      check_norm(device_);
    }
    const Tensor global_norm = device_.empty({}, Dtype::float32);
    update();
    coordinator_.gather_persistent();
    global_norm_ = offloads_optimizer_ ? Tensor() : global_norm;
  }

 private:
  struct SubGroup {
    std::vector<PartitionedParameter*> parameters;
    std::int64_t numel = 0;  // of this rank's parts
    Tensor master;
  };

  Dtype dtype() const { return trained_.front()->tensor.dtype(); }
  // engine.py, get_data_types: gradients are kept in the dtype of the model.
  Dtype accumulated() const { return kept_; }

  Tensor weights(std::int64_t numel, const NamedTensor& of) const {
    const ModuleScope scope(device_, module_of(of.name));
    const OpScope op(device_, "parameter");
    return buffer(numel, of.tensor.dtype(), Category::weights);
  }

  Tensor buffer(std::int64_t numel, Dtype type, Category category) const {
    const Tensor made = device_.empty({numel}, type);
    device_.set_category(made->storage->allocation, category);
    return made;
  }

  void shard(const NamedTensor& each, bool trains) {
    PartitionedParameter& p = coordinator_.add(each.name, each.tensor, trains);
    p.on_host = offloads_parameters_;
    if (!p.on_host) p.partition = weights(p.part, each);
  }

  void make_sub_groups(const std::vector<PartitionedParameter*>& of_group) {
    for (PartitionedParameter* p : of_group) {
      if (p == of_group.front() || sub_groups_.back().numel >= sub_group_size_) sub_groups_.emplace_back();
      sub_groups_.back().parameters.push_back(p);
      sub_groups_.back().numel += p->part;
      total_ += p->part;
    }
  }

  // _create_fp16_partitions_with_defragmentation: by way of the host into one flat tensor.
  void flatten() {
    for (PartitionedParameter* p : trained_) {
      p->partition.reset();
      p->on_host = offloads_parameters_;
    }
    if (offloads_parameters_) return;
    device_.empty_cache();
    flat_ = buffer(total_, dtype(), Category::weights);
  }

  void make_master_weights() {
    if (offloads_optimizer_) return;
    std::int64_t largest = 0;
    {
      Tensor converted;  // a loop variable: it goes when the next has been made
      for (SubGroup& group : sub_groups_) {
        largest = std::max(largest, group.numel);
        if (dtype() != Dtype::float32) converted = device_.empty({group.numel}, Dtype::float32);
        group.master = buffer(group.numel, Dtype::float32, Category::weights);
      }
    }
    device_.scratch(size_of(Dtype::float32) * largest);  // initialize_optimizer_states: a gradient of zeros
  }

  // reduce_independent_p_g_buckets_and_remove_grads
  void gradient_ready(PartitionedParameter& p) {
    if (in_bucket_ + p.numel > sizes_.reduce_bucket && in_bucket_ > 0) reduce();
    device_.streams.wait(reduce_stream_, compute_stream);
    if (bucket_ && in_bucket_ + p.numel <= sizes_.reduce_bucket) {
      device_.streams.use(*p.tensor->grad->storage, reduce_stream_);
      p.tensor->grad->storage = bucket_->storage;
    }
    waiting_.push_back(&p);
    in_bucket_ += p.numel;
  }

  // __reduce_and_partition_ipg_grads
  void reduce() {
    if (waiting_.empty()) return;
    device_.streams.host_leaves_at_most(ongoing_reductions, most_ongoing_reductions);
    const OpScope op(device_, "reduce_scatter");
    const With stream(device_.stream, reduce_stream_);
    std::sort(waiting_.begin(), waiting_.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
    std::vector<Tensor> gradients;
    Bytes reduced;
    for (const PartitionedParameter* p : waiting_) {
      Tensor gradient(p->tensor->grad);
      const bool own_memory = !bucket_ || gradient->storage.get() != bucket_->storage.get();
      if (own_memory && gradient.dtype() != communicated_) gradient = unary_no_grad(gradient, "cast", communicated_);
      gradients.push_back(std::move(gradient));
      reduced += size_of(communicated_) * (p->part * ranks_);
    }
    device_.meter.communicate(Collective::reduce_scatter, Among::shards, ranks_, reduced.count, reduce_stream_);
    const bool whole = bucket_ && !options_.reduce_scatter && in_bucket_ <= sizes_.reduce_bucket;
    const std::vector<Tensor> parts = whole ? averaged() : scattered();
    for (PartitionedParameter* p : waiting_) {
      if (offloads_optimizer_ && p->part * rank_ < p->numel) offload_gradient(*p);
      device_.streams.use(*p->tensor->grad->storage, reduce_stream_);
      p->tensor->grad.reset();
    }
    device_.streams.mark(ongoing_reductions, reduce_stream_);
    waiting_.clear();
    in_bucket_ = 0;
    uploaded_.reset();
  }

  // __avg_scatter_contiguous_grads: the bucket is reduced where it is, then scaled into a copy; parts that are not whole are padded.
  std::vector<Tensor> averaged() const {
    std::vector<Tensor> made = {buffer(in_bucket_, communicated_, Category::communication)};
    if (kept_ != communicated_) made[0] = buffer(in_bucket_, kept_, Category::communication);
    for (const PartitionedParameter* p : waiting_)
      if (p->part * (rank_ + 1) > p->numel) made.push_back(buffer(p->part, accumulated(), Category::communication));
    return made;
  }

  // __avg_scatter_grads
  std::vector<Tensor> scattered() const {
    std::vector<Tensor> made = {interleaved()};
    if (kept_ == communicated_) return made;
    for (const PartitionedParameter* p : waiting_) made.push_back(buffer(p->part, kept_, Category::communication));
    return made;
  }

  // comm/coalesced_collectives.py, reduce_scatter_coalesced: every rank's parts one after the other; one gradient that divides is
  // reduced where it is.
  Tensor interleaved() const {
    if (waiting_.size() == 1 && waiting_.front()->numel % ranks_ == 0) return {};
    std::vector<Tensor> padding;
    std::int64_t numel = 0;
    for (std::int64_t r = 0; r < ranks_; ++r) {
      for (const PartitionedParameter* p : waiting_) {
        const std::int64_t missing = p->part - std::clamp<std::int64_t>(p->numel - r * p->part, 0, p->part);
        if (missing > 0) padding.push_back(device_.empty({missing}, communicated_));
        numel += p->part;
      }
    }
    return buffer(numel, communicated_, Category::communication);
  }

  // partition_grads and _offload_grad_partition_at_boundary
  void offload_gradient(const PartitionedParameter& p) {
    const std::int64_t count = std::min(p.part, p.numel - rank_ * p.part);
    const Tensor back = buffer(count, accumulated(), Category::communication);
    uploaded_ = back;
    if (!last_micro_batch_) return;
    offloaded_norms_.push_back(norm_in_double(device_, count));
    device_.scratch(size_of(Dtype::float32) * count);
  }

  std::vector<Tensor> norms_of_groups() const {
    std::vector<Tensor> groups;
    for (const SubGroup& group : sub_groups_) {
      std::vector<Tensor> norms;
      for (const PartitionedParameter* p : group.parameters) norms.push_back(norm_in_double(device_, p->part));
      groups.push_back(group_norm(device_, norms));
    }
    return groups;
  }

  // _prepare_sub_group, unscale_and_clip_grads, _optimizer_step, _release_sub_group
  void update_sub_group(SubGroup& group, const std::function<void()>& step) {
    if (offloads_optimizer_) return step();
    {
      const bool one = group.parameters.size() == 1;
      const Tensor flat = one ? Tensor() : device_.empty({group.numel}, accumulated());
      const Tensor gradient = accumulated() == Dtype::float32 && flat ? flat : device_.empty({group.numel}, Dtype::float32);
      device_.set_category(gradient->storage->allocation, Category::gradients);
      group.master->grad = gradient.impl();
    }
    if (clips_) clip_by_norm(device_);
    step();
    group.master->grad.reset();
  }

  Device& device_;
  Sizes sizes_;
  std::int64_t ranks_, rank_;
  bool offloads_optimizer_, offloads_parameters_, clips_;
  bool averages_;  // over the accumulation steps, which Trainer has done
  Dtype kept_, communicated_;
  std::int64_t sub_group_size_, total_ = 0;
  bool last_micro_batch_ = true;
  ZeroOptimization options_;
  std::uint8_t reduce_stream_;
  ParameterCoordinator coordinator_;
  std::vector<PartitionedParameter*> trained_;
  std::vector<SubGroup> sub_groups_;
  Tensor overflow_, flat_, bucket_, kept_gradients_, global_norm_, uploaded_;
  std::vector<PartitionedParameter*> waiting_;
  std::int64_t in_bucket_ = 0;
  std::vector<Tensor> offloaded_norms_;
};

}  // namespace

Rank zero_stage_3(Device& device, const Spec& spec, const Architecture& architecture) {
  const Training& training = spec.training;
  Rank rank;
  rank.has_adapters = training.method == Method::lora;
  std::vector<NamedTensor> before_head, head;  // the rotary embedding is made between them
  rank.model = std::make_unique<CausalLm>(architecture, training.weights, [&](const TensorRequest& request) {
    // Buffers are born in the dtype that zero.Init gives to all floating tensors.
    const bool buffer = request.kind == TensorRequest::buffer;
    const Tensor made = device.unallocated(request.sizes, buffer ? training.weights : request.dtype);
    if (buffer) rank.buffers.push_back(made);
    if (!buffer && !rank.has_adapters) require_grad(made);
    return made;
  });
  rank.model->use_liger(training.liger);
  const auto optimizer = std::make_shared<ShardedOptimizer>(device, spec, architecture, rank.has_adapters);
  const std::string head_name = std::string(architecture.names.head) + ".";
  for (const NamedTensor& each : rank.model->parameters()) (each.name.rfind(head_name, 0) == 0 ? head : before_head).push_back(each);
  optimizer->shard_at_birth(before_head, !rank.has_adapters);
  for (const Tensor& buffer : rank.buffers) {
    buffer->storage->allocate();
    device.set_category(buffer->storage->allocation, Category::weights);
  }
  if (architecture.tied_embeddings)
    optimizer->forget_tied_head(before_head.front());
  else
    optimizer->shard_at_birth(head, !rank.has_adapters);
  if (rank.has_adapters) {
    const std::vector<NamedTensor> adapters = add_adapters(device, *rank.model, training.adapter, training.weights, Birth::on_gpu);
    if (training.optimizer.name == OptimizerName::adagrad) {  // over the model's own parameters, of which nothing is here, they are empty
      const std::vector<Tensor> states = states_of_first_adagrad(device, adapters);
      rank.buffers.insert(rank.buffers.end(), states.begin(), states.end());
    }
    optimizer->shard_adapters(adapters);
  }
  // deepspeed.initialize
  const auto initialize = [optimizer, &device, &spec](Rank& begun) {
    optimizer->prepare([&](const std::string& name) { return in_first_group(spec, *begun.model, name); });
    device.module_hooks = &optimizer->coordinator();
    begun.update_groups = optimizer->update_groups();
  };
  if (training.loop == Loop::plain)
    initialize(rank);
  else
    rank.begin_training = initialize;
  rank.clips = false;
  rank.before_micro_batch = [optimizer](bool synchronize) { optimizer->begin_micro_batch(synchronize); };
  rank.run_backward = [optimizer](const Tensor& loss) { optimizer->run_backward(loss); };
  rank.around_update = [optimizer](const std::function<void()>& update) { optimizer->step(update); };
  return rank;
}

}  // namespace llmem
