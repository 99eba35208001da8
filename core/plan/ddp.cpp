#include <algorithm>
#include <deque>
#include <limits>

#include "plan/adapt.h"
#include "plan/rank.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp and comm.cpp
namespace llmem {

namespace {

using Bucket = std::vector<Tensor>;

Tensor flat(Device& device, const Bucket& tensors, Category category) {
  std::int64_t numel = 0;
  for (const Tensor& t : tensors) numel += t.numel();
  const Tensor made = device.empty({numel}, tensors.front().dtype());
  device.set_category(made->storage->allocation, category);
  return made;
}

// reducer.cpp, compute_bucket_assignment_by_size, for tensors in the given order: one open bucket a dtype, closed when it has reached
// its limit (the last limit serves all further ones); what is left open follows in the order of first appearance. Where the order is
// not that in which gradients became ready, buckets are sorted by their first tensor.
enum class Order : std::uint8_t { of_parameters, of_gradients };
std::vector<Bucket> assign_buckets(const Bucket& tensors, const std::vector<Bytes>& limits, Order order) {
  struct Open {
    Dtype dtype;
    Bucket tensors;
    Bytes bytes;
    std::size_t limit = 0;
    std::size_t first = 0;
  };
  std::vector<Open> open, closed;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    auto found = std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.dtype == tensor.dtype(); });
    if (found == open.end()) found = open.insert(open.end(), {tensor.dtype(), {}, {}, 0, 0});
    if (found->tensors.empty()) found->first = i;
    found->tensors.push_back(tensor);
    found->bytes += size_of(tensor.dtype()) * tensor.numel();
    if (found->bytes < limits[found->limit]) continue;
    closed.push_back(*found);
    found->tensors.clear();
    found->bytes = {};
    found->limit = std::min(found->limit + 1, limits.size() - 1);
  }
  for (Open& o : open)
    if (!o.tensors.empty()) closed.push_back(std::move(o));
  if (order == Order::of_parameters)
    std::stable_sort(closed.begin(), closed.end(), [](const Open& a, const Open& b) { return a.first < b.first; });
  std::vector<Bucket> buckets;
  for (Open& o : closed) buckets.push_back(std::move(o.tensors));
  return buckets;
}

// comm.cpp, broadcast_coalesced: flattened in groups of at least `limit` bytes, at most two in flight. A lone tensor needs no copy.
void broadcast_coalesced(Device& device, const Bucket& tensors, Bytes limit) {
  const OpScope op(device, "broadcast");
  std::deque<Tensor> in_flight;
  for (const Bucket& group : assign_buckets(tensors, {limit}, Order::of_parameters)) {
    if (in_flight.size() >= 2) in_flight.pop_front();
    in_flight.push_back(group.size() == 1 ? group.front() : flat(device, group, Category::communication));
  }
  while (!in_flight.empty()) in_flight.pop_front();
}

// distributed/utils.py, _verify_param_shape_across_processes: one small tensor, and one from every rank
void verify_shapes(Device& device, std::int64_t ranks) {
  const OpScope op(device, "verify_shapes");
  std::vector<Tensor> counts;
  for (std::int64_t i = 0; i <= ranks; ++i) counts.push_back(device.empty({1}, Dtype::int64));
}

// distributed.py, _BucketCapacityConfig: the first bucket is small only where no size was asked for.
std::vector<Bytes> bucket_limits(const DataParallel& options) {
  if (options.bucket_cap_mb) return {1_MiB * *options.bucket_cap_mb};
  return {1_MiB, 25_MiB};  // reducer.hpp, kDefaultFirstBucketBytes; distributed.py, _DEFAULT_BUCKET_CAP_MB
}

class Reducer {
 public:
  Reducer(Device& device, const Rank& rank, const DataParallel& options)
      : device_(device), options_(options), buffers_(rank.buffers), limits_(bucket_limits(options)) {
    Bucket parameters;
    for (const NamedTensor& p : rank.optimized) parameters.push_back(p.tensor);
    Bucket states = parameters;  // everything is broadcast, what is frozen as well
    if (rank.has_adapters) states = held_parameters(*rank.model, rank.optimized);
    states.insert(states.end(), buffers_.begin(), buffers_.end());
    verify_shapes(device, options.degree);
    broadcast_coalesced(device, states, broadcast_limit);
    // One bucket for all until the order is known in which gradients become ready; where parameters may stay unused it never is.
    rebuilds_ = !options.find_unused_parameters || options.static_graph;
    make_buckets(parameters, rebuilds_ ? std::vector{Bytes{std::numeric_limits<std::int64_t>::max()}} : limits_);
    if (options.find_unused_parameters || options.static_graph) {
      const OpScope op(device, "used_map");
      used_map_ = device.empty({static_cast<std::int64_t>(rank.optimized.size())}, Dtype::int32);
    }
    for (const Tensor& p : parameters) p->accumulator->post_hook = [this, p] { gradient_ready(p); };
  }

  // DistributedDataParallel._pre_forward and _sync_buffers
  void before_forward(bool synchronize) {
    if (rebuilds_ && !rebuilt_ && !ready_.empty()) rebuild();
    recording_order_ = !options_.static_graph || seen_gradients_;
    if (buffers_stale_) broadcast_coalesced(device_, buffers_, broadcast_limit);
    synchronize_ = buffers_stale_ = synchronize;
    missing_.clear();
  }

  // Reducer::finalize_backward: gradients that do not lie in their bucket are copied back.
  void backward_is_over() {
    if (!synchronize_) return;
    // _delay_all_reduce: the first gradients of a static graph go into their buckets only now.
    if (options_.static_graph && options_.gradient_as_bucket_view && !delayed_) {
      for (const Place& place : places_)
        if (place.parameter->grad) show_in_bucket(*place.parameter);
    }
    delayed_ = true;
    device_.meter.wait(all_reduce_stream);
    for (const Place& place : places_)
      if (!options_.gradient_as_bucket_view)
        device_.meter.moved(2 * count_of(place.parameter->layout.sizes) * size_of(place.parameter->dtype).count);
  }

  // torch/distributed/pipelining/stage.py, backward_maybe_with_nosync
  void synchronize(bool yes) { synchronize_ = yes; }

  // _DDPSink: where parameters may stay unused, and before a static graph is known, what the model returns is cloned.
  Tensor after_forward(const Tensor& loss, Bytes logits) {
    const bool clones = options_.static_graph ? !seen_gradients_ : options_.find_unused_parameters;
    if (!clones) return loss;
    const OpScope op(device_, "ddp_sink");
    const Tensor cloned = clone(loss);
    if (logits > Bytes{}) device_.scratch(logits);
    return cloned;
  }

  // The same of all that a Trainer's model returns; what asked for no gradient is cloned in vain.
  void wrap_outputs(const std::vector<Tensor*>& outputs) const {
    if (!options_.find_unused_parameters) return;
    const OpScope op(device_, "ddp_sink");
    std::vector<Tensor> clones;
    for (const Tensor* output : outputs) clones.push_back(clone(*output));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if ((*outputs[i])->grad_fn) *outputs[i] = clones[i];
    }
  }

 private:
  static constexpr Bytes broadcast_limit = 250_MiB;  // DistributedDataParallel.broadcast_bucket_size

  // Reducer::autograd_hook and mark_variable_ready_dense
  void gradient_ready(const Tensor& parameter) {
    if (!synchronize_) return;
    // A static graph is only counted in its first backward (static_graph_first_iteration), so that its buckets are rebuilt a step later.
    seen_gradients_ = true;
    if (!rebuilt_ && recording_order_) ready_.push_back(parameter);
    if (device_.meter.on) fill_bucket(*parameter.get());
    const bool later = options_.static_graph && !delayed_;
    if (options_.gradient_as_bucket_view && !later) show_in_bucket(*parameter.get());
  }

  // Reducer::mark_bucket_ready: a bucket is reduced once its last gradient is in it.
  void fill_bucket(const TensorImpl& parameter) {
    const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.parameter == &parameter; });
    if (place == places_.end()) return;
    const std::int64_t bytes = count_of(parameter.layout.sizes) * size_of(parameter.dtype).count;  // it may lie in a larger tensor
    device_.meter.moved(2 * bytes);
    const Storage* bucket = place->bucket->storage.get();
    auto left = std::find_if(missing_.begin(), missing_.end(), [&](const Missing& m) { return m.bucket == bucket; });
    if (left == missing_.end()) left = missing_.insert(left, {bucket, bucket->bytes.count});
    left->bytes -= bytes;
    if (left->bytes > 0) return;
    device_.meter.communicate(Collective::all_reduce, Among::copies, 0, bucket->bytes.count, all_reduce_stream);
  }

  // The gradient is copied into its bucket, and .grad is that place from now on.
  void show_in_bucket(TensorImpl& parameter) {
    const auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.parameter == &parameter; });
    const Tensor gradient = detach(place->bucket);
    gradient->layout = parameter.layout;
    parameter.grad = gradient.impl();
  }

  // Reducer::rebuild_buckets: rank 0's order is sent to all (sync_bucket_indices), then the old bucket goes before the new ones come.
  void rebuild() {
    {
      const OpScope op(device_, "sync_bucket_indices");
      const auto parameters = static_cast<std::int64_t>(ready_.size());
      const auto buckets = static_cast<std::int64_t>(assign_buckets(ready_, limits_, Order::of_gradients).size());
      const Tensor indices = device_.empty({parameters + 1}, Dtype::int32), sizes = device_.empty({buckets}, Dtype::int32);
    }
    places_.clear();
    make_buckets(ready_, limits_);
    rebuilt_ = true;
  }

  void make_buckets(const Bucket& parameters, const std::vector<Bytes>& limits) {
    const OpScope op(device_, "gradient_bucket");
    std::vector<Bucket> groups = assign_buckets(parameters, limits, ready_.empty() ? Order::of_parameters : Order::of_gradients);
    // DistributedDataParallel._ddp_init_helper: the order of the parameters, until there is the gradients' own.
    if (ready_.empty()) std::reverse(groups.begin(), groups.end());
    for (const Bucket& group : groups) {
      const Tensor bucket = flat(device_, group, Category::communication);
      for (const Tensor& parameter : group) places_.push_back({parameter.get(), bucket});
    }
  }

  static constexpr std::uint8_t all_reduce_stream = 1;  // the process group's

  struct Place {
    TensorImpl* parameter;
    Tensor bucket;
  };
  struct Missing {
    const Storage* bucket;
    std::int64_t bytes;  // of gradients that are not yet in it
  };

  Device& device_;
  DataParallel options_;
  Bucket buffers_;
  std::vector<Bytes> limits_;
  std::vector<Place> places_;  // of each gradient
  std::vector<Missing> missing_;
  Bucket ready_;  // parameters in the order in which their gradients became ready
  Tensor used_map_;
  bool seen_gradients_ = false, recording_order_ = true;
  bool delayed_ = false;  // a static graph's first backward that synchronises is over
  bool rebuilds_ = true, rebuilt_ = false, synchronize_ = true, buffers_stale_ = true;
};

// accelerate wraps the model when training begins. Trainer lets DDP look for unused parameters where nothing is checkpointed, and always with
// adapters: a PeftModel is no PreTrainedModel.
void wrap_when_training(Device& device, const Spec& spec, Rank& rank) {
  DataParallel options = spec.data;
  options.find_unused_parameters = spec.training.method == Method::lora || spec.training.checkpointing == Checkpointing::none;
  rank.begin_training = [&device, options](Rank& begun) {
    const auto reducer = std::make_shared<Reducer>(device, begun, options);
    begun.before_micro_batch = [reducer](bool synchronize) { reducer->before_forward(synchronize); };
    begun.wrap_outputs = [reducer](const std::vector<Tensor*>& outputs) { reducer->wrap_outputs(outputs); };
  };
}

}  // namespace

Rank distributed_data_parallel(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank = whole_model(device, spec, architecture);
  if (spec.training.loop != Loop::plain) {
    wrap_when_training(device, spec, rank);
    return rank;
  }
  const auto reducer = std::make_shared<Reducer>(device, rank, spec.data);
  rank.before_micro_batch = [reducer](bool synchronize) { reducer->before_forward(synchronize); };
  rank.after_backward.push_back([reducer] { reducer->backward_is_over(); });
  const Training& t = spec.training;
  // Liger's fused head makes no logits that the model could return.
  const bool fused = t.loss == Loss::liger_fused_linear;
  const Bytes logits = size_of(t.autocast.value_or(t.weights)) * (fused ? 0 : t.micro_batch * t.sequence * architecture.vocab_size);
  rank.hooks.after = [reducer, logits](int, const Tensor& loss) { return reducer->after_forward(loss, logits); };
  return rank;
}

std::function<void(bool last)> reduce_at_last_backward(Device& device, Rank& rank, const DataParallel& options) {
  const auto reducer = std::make_shared<Reducer>(device, rank, options);
  return [reducer](bool last) { reducer->synchronize(last); };
}

namespace {

// zero_redundancy_optimizer.py, _partition_parameters: the largest parameters first, each to the rank that has least so far.
std::vector<std::vector<NamedTensor>> partition(std::vector<NamedTensor> parameters, std::int64_t ranks) {
  std::stable_sort(parameters.begin(), parameters.end(),
                   [](const NamedTensor& a, const NamedTensor& b) { return a.tensor.numel() > b.tensor.numel(); });
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks));
  std::vector<std::vector<NamedTensor>> parts(sizes.size());
  for (const NamedTensor& parameter : parameters) {
    const auto least = std::min_element(sizes.begin(), sizes.end());
    *least += parameter.tensor.numel();
    parts[static_cast<std::size_t>(least - sizes.begin())].push_back(parameter);
  }
  return parts;
}

// _build_param_buckets: the parameters of each rank move into a tensor.
void make_buckets(Device& device, const std::vector<std::vector<NamedTensor>>& parts, std::vector<Tensor>& buckets) {
  const OpScope op(device, "parameter");
  for (const std::vector<NamedTensor>& part : parts) {
    std::int64_t numel = 0;
    for (const NamedTensor& p : part) numel += p.tensor.numel();
    buckets.push_back(part.empty() ? device.empty({1}, Dtype::float32) : device.empty({numel}, part.back().tensor.dtype()));
    device.set_category(buckets.back()->storage->allocation, Category::weights);
    for (const NamedTensor& p : part) p.tensor->storage = buckets.back()->storage;
  }
}

}  // namespace

Rank zero_redundancy(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank = distributed_data_parallel(device, spec, architecture);
  const std::vector<std::vector<NamedTensor>> parts = partition(rank.optimized, spec.data.degree);
  if (spec.data.parameters_as_bucket_view) make_buckets(device, parts, rank.buffers);
  rank.updated = parts[static_cast<std::size_t>(spec.rank)];
  return rank;
}

}  // namespace llmem
