#include <algorithm>

#include "plan/adapt.h"
#include "plan/deepspeed.h"
#include "plan/rank.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// deepspeed/runtime/zero/stage_1_and_2.py, DeepSpeedZeroOptimizer: one flat tensor of all weights of a parameter group, of which each rank
// updates a part in fp32. use_multi_rank_bucket_allreduce at its default (on), gradients accumulated in the dtype of the weights.
namespace llmem {

namespace {

constexpr std::uint8_t reduction_stream = 1;
constexpr std::int64_t default_bucket = 500'000'000;  // runtime/zero/config.py, reduce_bucket_size; elements

class PartitionedOptimizer {
 public:
  PartitionedOptimizer(Device& device, const Spec& spec, const Architecture& architecture,
                       const std::vector<std::vector<NamedTensor>>& groups)
      : device_(device),
        options_(spec.data.zero),
        partitions_gradients_(spec.data.kind == DataKind::zero2),
        offloads_(spec.offload.optimizer),
        contiguous_(spec.data.zero.contiguous_gradients || spec.offload.optimizer),
        clips_(spec.training.max_grad_norm.has_value()),
        averages_(spec.training.loop == Loop::plain),
        reduces_in_float_(spec.context.ulysses),
        ranks_(spec.data.degree * spec.context.degree),
        rank_(spec.rank) {
    bucket_size_ = size_of_option(spec.data.zero.reduce_bucket_size, spec.data.auto_buckets,
                                  architecture.hidden_size * architecture.hidden_size, default_bucket);
    for (const std::vector<NamedTensor>& parameters : groups) {
      if (parameters.empty()) continue;
      groups_.push_back({places_.size(), places_.size() + parameters.size()});
      for (const NamedTensor& p : parameters) places_.push_back({p.tensor, groups_.size() - 1});
      flatten_weights(groups_.back());
      make_master_weights(groups_.back());
    }
    initialize_states();
    if (!contiguous_ && !partitions_gradients_ && !options_.overlap_comm) return;  // create_gradient_handling_hooks
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i].parameter->accumulator->post_hook = [this, i] { gradient_ready(i); };
  }

  // Whether the next backward is followed by a step.
  void begin_micro_batch(bool boundary) { boundary_ = boundary; }

  // What torch's optimizer is given: this rank's fp32 part of each group.
  std::vector<UpdateGroup> update_groups() {
    std::vector<UpdateGroup> all;
    if (offloads_) return {{}};
    for (Group& group : groups_) {
      all.push_back({{{"flat.weight", group.master}}});
      all.back().around = [this, &group](const std::function<void()>& update) { update_group(group, update); };
    }
    return all;
  }

  // engine.py, backward: scaled by the accumulation steps and by the loss scale, then the epilogue.
  void run_backward(const Tensor& loss) {
    const Tensor averaged = averages_ ? mul_scalar(loss) : loss;
    const Tensor scaled = mul_scalar(averaged);
    backward(scaled);
    epilogue();
  }

  void step(const std::function<void()>& update) {
    if (offloads_) return offloaded_step(update);
    const OpScope op(device_, "zero_step");
    if (dtype() == Dtype::bfloat16) check_overflow();  // BF16Config.check_grad_overflow
    Tensor norm;
    {
      std::vector<Tensor> of_groups;
      for (const Group& group : groups_) {
        std::vector<Tensor> norms;
        for (const Slice& slice : group.own) norms.push_back(norm_in_double(device_, slice.count));
        of_groups.push_back(group_norm(device_, norms));
      }
      norm = combined_norm(device_, static_cast<std::int64_t>(of_groups.size()));
    }
    check_norm(device_);
    const Tensor global_norm = device_.empty({}, Dtype::float32);
    update();
    for (const Group& group : groups_) {
      device_.meter.communicate_and_wait(Collective::all_gather, Among::shards, ranks_, size_of(dtype()).count * group.flat.numel());
      group.master->grad.reset();
    }
    global_norm_ = global_norm;  // the engine keeps the last step's until this one is over
  }

 private:
  struct Place {
    Tensor parameter;
    std::size_t group;
    std::int64_t start = 0;  // in the flat weights, elements

    std::int64_t end() const { return start + parameter.numel(); }
  };
  struct Slice {
    std::size_t place;
    std::int64_t count;  // elements of it that are this rank's
  };
  struct Group {
    std::size_t first, end;  // of the places
    std::int64_t partition = 0;
    Tensor flat = {}, master = {}, padding = {};
    std::vector<Slice> own = {};
    std::vector<Tensor> averaged = {};  // this rank's, added up over the micro-batches
  };

  Dtype dtype() const { return groups_.front().flat.dtype(); }

  // Where a parameter lies in the flat weights: as the model has them, or dealt out to the ranks in turn (_round_robin_reorder).
  std::vector<std::size_t> flat_order(const Group& group) const {
    std::vector<std::size_t> order;
    const auto step = options_.round_robin_gradients ? static_cast<std::size_t>(ranks_) : 1;
    for (std::size_t first = 0; first < step; ++first)
      for (std::size_t i = group.first + first; i < group.end; i += step) order.push_back(i);
    return order;
  }

  // flatten_dense_tensors_aligned with nccl_start_alignment_factor 2; then the parameters are views of the flat tensor.
  void flatten_weights(Group& group) {
    const OpScope op(device_, "parameter");
    std::int64_t total = 0;
    for (const std::size_t i : flat_order(group)) {
      places_[i].start = total;
      total += places_[i].parameter.numel();
    }
    const Dtype dtype = places_[group.first].parameter.dtype();
    const std::int64_t alignment = 2 * ranks_;
    device_.empty_cache();
    device_.begin_step();  // its empty_cache() resets PyTorch's peak statistics, too
    const std::int64_t aligned = divide_up(total, alignment) * alignment;
    const Tensor padding = aligned > total ? device_.empty({aligned - total}, dtype) : Tensor();  // align_dense_tensors
    group.flat = device_.empty({aligned}, dtype);
    device_.set_category(group.flat->storage->allocation, Category::weights);
    for (std::size_t i = group.first; i < group.end; ++i) places_[i].parameter->storage = group.flat->storage;
    group.partition = group.flat.numel() / ranks_;
  }

  void make_master_weights(Group& group) {
    const OpScope op(device_, "master_weights");
    for (const std::size_t i : flat_order(group)) {
      const Place& place = places_[i];
      const std::int64_t count = std::min(place.end(), end_of(place, rank_)) - std::max(place.start, start_of(place, rank_));
      if (count > 0) group.own.push_back({i, count});
    }
    const Tensor copy = device_.empty({group.partition}, dtype());
    if (offloads_) return;
    group.master = copy.dtype() == Dtype::float32 ? copy : device_.empty({group.partition}, Dtype::float32);
    device_.set_category(group.master->storage->allocation, Category::weights);
  }

  // initialize_optimizer_states: gradients of zeros
  void initialize_states() {
    const OpScope op(device_, "master_weights");
    if (!offloads_) {
      std::vector<Tensor> zeros;
      for (const Group& group : groups_) zeros.push_back(device_.empty({group.partition}, Dtype::float32));
      return;
    }
    std::int64_t largest = 0;
    for (const Place& place : places_) largest = std::max(largest, place.parameter.numel());
    offload_buffer_ = device_.empty({largest}, dtype());
    device_.set_category(offload_buffer_->storage->allocation, Category::communication);
  }

  // Of a rank's part of the place's group.
  std::int64_t start_of(const Place& place, std::int64_t rank) const { return rank * groups_[place.group].partition; }
  std::int64_t end_of(const Place& place, std::int64_t rank) const { return start_of(place, rank + 1); }
  bool owned(std::size_t index) const {
    const Place& place = places_[index];
    return place.start < end_of(place, rank_) && place.end() > start_of(place, rank_);
  }

  // process_gradients: stage 1 reduces when the last backward before a step is over (reduce_gradients), or with overlap_comm in it.
  void gradient_ready(std::size_t index) {
    setup_buckets();
    if (partitions_gradients_ || (options_.overlap_comm && boundary_)) put_in_bucket(index);
  }

  void setup_buckets() {
    if (!contiguous_ || buckets_[0]) return;
    const OpScope op(device_, "reduce_bucket");
    for (int i = 0; i < (options_.overlap_comm ? 2 : 1); ++i) {
      buckets_[i] = device_.empty({bucket_size_}, dtype());
      device_.set_category(buckets_[i]->storage->allocation, Category::communication);
    }
    filling_ = 0;
  }

  // reduce_independent_p_g_buckets_and_remove_grads
  void put_in_bucket(std::size_t index) {
    const Tensor& parameter = places_[index].parameter;
    const std::int64_t numel = parameter.numel();
    if (in_bucket_elements_ + numel > bucket_size_) {
      reduce();
      if (contiguous_ && options_.overlap_comm) filling_ = 1 - filling_;
    }
    if (contiguous_ && numel <= bucket_size_) {
      parameter->grad->storage = buckets_[filling_]->storage;
    } else if (offloads_) {
      const Tensor copy = unary_no_grad(Tensor(parameter->grad), "clone", dtype());
      device_.set_category(copy->storage->allocation, Category::gradients);
      parameter->grad->storage = copy->storage;
    }
    in_bucket_.push_back(index);
    in_bucket_elements_ += numel;
  }

  // reduce_ipg_grads
  void reduce() {
    if (contiguous_)
      average();
    else
      all_reduce_one_by_one();
    const With stream(device_.stream, options_.overlap_comm ? reduction_stream : device_.stream);
    for (const std::size_t index : in_bucket_) {
      if (owned(index)) {
        if (contiguous_) keep_gradient(index);
      } else if (partitions_gradients_) {
        if (options_.overlap_comm && !contiguous_)
          reduced_before_.push_back(index);
        else
          places_[index].parameter->grad.reset();
      }
    }
    in_bucket_.clear();
    in_bucket_elements_ = 0;
  }

  // _clear_previous_reduced_grads
  void clear_reduced_before() {
    for (const std::size_t index : reduced_before_) places_[index].parameter->grad.reset();
    reduced_before_.clear();
  }

  // buffered_reduce_fallback: without contiguous gradients, all that waits is flattened and copied back.
  void all_reduce_one_by_one() {
    if (in_bucket_.empty()) return;
    clear_reduced_before();
    const OpScope op(device_, "all_reduce");
    const With stream(device_.stream, options_.overlap_comm ? reduction_stream : device_.stream);
    device_.meter.communicate_and_wait(Collective::all_reduce, Among::shards, ranks_, size_of(dtype()).count * in_bucket_elements_);
    reduce_flat(in_bucket_.size(), in_bucket_elements_);
  }

  // average_tensor: what lies next to each other in the bucket and goes to the same rank is one slice.
  void average() {
    const OpScope op(device_, "all_reduce");
    const With stream(device_.stream, options_.overlap_comm ? reduction_stream : device_.stream);
    if (!options_.reduce_scatter) {  // gradient_reduction_w_predivide: where it is
      device_.meter.communicate_and_wait(Collective::all_reduce, Among::shards, ranks_, size_of(dtype()).count * in_bucket_elements_);
      return;
    }
    std::vector<std::int64_t> slices;
    std::int64_t last_owner = -1;
    for (const std::size_t index : in_bucket_) {
      const Place& place = places_[index];
      for (std::int64_t owner = place.start / groups_[place.group].partition; start_of(place, owner) < place.end(); ++owner) {
        const std::int64_t count = std::min(place.end(), end_of(place, owner)) - std::max(place.start, start_of(place, owner));
        if (owner == last_owner)
          slices.back() += count;
        else
          slices.push_back(count);
        last_owner = owner;
      }
    }
    all_reduce(slices);
  }

  // allreduce_bucket: flattened where there are several, and cast where tokens are shared out, too (sequence_parallel_size).
  void reduce_flat(std::size_t slices, std::int64_t numel) {
    const Tensor flat = slices > 1 ? device_.empty({numel}, dtype()) : Tensor();
    if (reduces_in_float_ && dtype() != Dtype::float32) device_.scratch(size_of(Dtype::float32) * numel);
  }

  // allreduce_and_scatter: several slices are flattened into a tensor of their own; one is reduced where it is.
  void all_reduce(const std::vector<std::int64_t>& slices) {
    std::int64_t numel = 0;
    std::size_t count = 0;
    const auto flush = [&] {
      // to the slice's owner, by a reduction to all
      device_.meter.communicate_and_wait(Collective::all_reduce, Among::shards, ranks_, size_of(dtype()).count * numel);
      reduce_flat(count, numel);
      numel = 0;
      count = 0;
    };
    for (const std::int64_t slice : slices) {
      numel += slice;
      ++count;
      if (numel > bucket_size_) flush();
    }
    flush();
  }

  // copy_grads_in_partition
  void keep_gradient(std::size_t index) {
    if (offloads_) {
      if (boundary_) offload_gradient(index);  // before, it is added to the host's by way of offload_buffer_
      return;
    }
    const OpScope op(device_, "gradient_partition");
    if (!kept_gradients_) {
      std::int64_t numel = 0;
      for (const Group& group : groups_)
        for (const Slice& slice : group.own) numel += places_[slice.place].parameter.numel();
      kept_gradients_ = device_.empty({numel}, dtype());
      device_.set_category(kept_gradients_->storage->allocation, Category::gradients);
    }
    places_[index].parameter->grad->storage = kept_gradients_->storage;
  }

  // set_norm_for_param_grad_in_gpu, update_offload_overflow_tracker, async_inplace_copy_grad_to_fp32_buffer_from_gpu
  void offload_gradient(std::size_t index) {
    const OpScope op(device_, "offload_gradient");
    const std::vector<Slice>& own = groups_[places_[index].group].own;
    const auto slice = std::find_if(own.begin(), own.end(), [&](const Slice& s) { return s.place == index; });
    offloaded_norms_.push_back(norm_in_double(device_, slice->count));
    const Tensor& parameter = places_[index].parameter;
    has_inf_or_nan(Tensor(parameter->grad));
    device_.scratch(size_of(Dtype::float32) * slice->count);
    parameter->grad.reset();
  }

  // engine.py, allreduce_gradients; independent_gradient_partition_epilogue
  void epilogue() {
    const OpScope op(device_, "zero_epilogue");
    if (!partitions_gradients_ && !boundary_) return;
    for (std::size_t i = 0; i < places_.size() && !partitions_gradients_ && !options_.overlap_comm; ++i) put_in_bucket(i);
    reduce();
    if (options_.overlap_comm) clear_reduced_before();
    for (Group& group : groups_)
      if (!offloads_) keep_averaged(group);
    for (Tensor& bucket : buckets_) bucket.reset();
    kept_gradients_.reset();
    for (const Place& place : places_) place.parameter->grad.reset();
  }

  void keep_averaged(Group& group) {
    std::vector<Tensor> added;
    std::int64_t held = 0;
    for (const Slice& slice : group.own) {
      added.emplace_back(places_[slice.place].parameter->grad);
      held += slice.count;
    }
    if (group.averaged.empty()) group.averaged.swap(added);
    if (boundary_ && held < group.partition) group.padding = device_.empty({group.partition - held}, dtype());
  }

  static Tensor view_of(const Group& group, std::int64_t count) {
    Tensor view = detach(group.averaged.front());
    view->layout = {{count}, {1}};
    return view;
  }

  // has_overflow_partitioned_grads_serial
  void check_overflow() {
    Tensor overflow;
    {
      const Tensor count = device_.empty({1}, Dtype::float32);
      for (const Group& group : groups_) {
        for (const Slice& slice : group.own) has_inf_or_nan(view_of(group, slice.count));
        if (group.padding) has_inf_or_nan(group.padding);
      }
      overflow = device_.empty({1}, Dtype::boolean);
    }
    const Tensor byte = device_.empty({1}, Dtype::uint8);
    overflow.reset();
  }

  void update_group(Group& group, const std::function<void()>& update) {
    make_flat_gradient(group);
    if (clips_) clip_by_norm(device_);
    update();
    if (&group != &groups_.back()) group.master->grad.reset();
  }

  // One gradient that fills the partition needs no flattening.
  void make_flat_gradient(Group& group) {
    const bool whole = group.own.size() + (group.padding ? 1 : 0) == 1;
    const Tensor flat = !whole ? device_.empty({group.partition}, dtype()) : group.padding ? group.padding : group.averaged.front();
    const Tensor gradient = flat.dtype() == Dtype::float32 ? flat : device_.empty({group.partition}, Dtype::float32);
    device_.set_category(gradient->storage->allocation, Category::gradients);
    group.master->grad = gradient.impl();
    group.averaged.clear();
    group.padding.reset();
  }

  void offloaded_step(const std::function<void()>& update) {
    const OpScope op(device_, "zero_step");
    std::int64_t own = 0, all = 0;
    for (const Group& group : groups_) {
      own += group.partition;
      all += group.flat.numel();
    }
    const auto copy = [&](Dtype as) {
      device_.meter.communicate(Collective::host_copy, Among::host, 0, size_of(as).count * own, Meter::blocking_stream);
    };
    device_.scratch(Bytes{1});
    device_.scratch(Bytes{4});
    copy(Dtype::float32);
    device_.meter.wait(Meter::blocking_stream);
    update();
    copy(dtype());
    device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, size_of(dtype()).count * all, Meter::blocking_stream);
    device_.meter.wait(Meter::blocking_stream);
    offloaded_norms_.clear();
  }

  Device& device_;
  ZeroOptimization options_;
  bool partitions_gradients_, offloads_, contiguous_, clips_;
  bool averages_;         // over the accumulation steps, which Trainer has done
  bool boundary_ = true;  // whether a step follows this micro-batch
  bool reduces_in_float_;
  std::int64_t ranks_, rank_, bucket_size_ = 0;
  std::vector<Place> places_;
  std::vector<Group> groups_;
  Tensor offload_buffer_;
  Tensor buckets_[2];  // with overlap_comm one is filled while the other is reduced
  int filling_ = 0;
  std::vector<std::size_t> in_bucket_, reduced_before_;
  std::int64_t in_bucket_elements_ = 0;
  Tensor kept_gradients_, global_norm_;
  std::vector<Tensor> offloaded_norms_;
};

}  // namespace

Rank zero_stage_1_or_2(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank = whole_model(device, spec, architecture);
  rank.clips = false;
  // deepspeed.initialize
  const auto initialize = [&device, &spec, &architecture](Rank& begun) {
    if (spec.training.optimizer.name == OptimizerName::adagrad) begun.buffers = states_of_first_adagrad(device, begun.optimized);
    cast_parameters(device, begun.has_adapters ? with_adapters(begun.model->parameters(), begun.optimized) : begun.model->parameters(),
                    spec.training.weights);
    const auto optimizer = std::make_shared<PartitionedOptimizer>(device, spec, architecture, parameter_groups(spec, begun));
    begun.optimized.clear();
    begun.update_groups = optimizer->update_groups();
    begun.before_micro_batch = [optimizer](bool boundary) { optimizer->begin_micro_batch(boundary); };
    begun.run_backward = [optimizer](const Tensor& loss) { optimizer->run_backward(loss); };
    begun.around_update = [optimizer](const std::function<void()>& update) { optimizer->step(update); };
  };
  if (spec.training.loop == Loop::plain)
    initialize(rank);
  else
    rank.begin_training = initialize;
  return rank;
}

}  // namespace llmem
