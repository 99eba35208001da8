#include "plan/zero3_parameters.h"

#include <algorithm>
#include <utility>

#include "tensor/autograd.h"

namespace llmem {

namespace {

using Status = PartitionedParameter::Status;

constexpr std::uint8_t compute_stream = 0;
// partitioned_param_coordinator.py, __ongoing_fetch_events and __max_ongoing_fetch_events
constexpr std::uint8_t ongoing_fetches = 0, most_ongoing_fetches = 2;

template <class T>
bool contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

template <class T>
void erase(std::vector<T>& values, const T& value) {
  values.erase(std::remove(values.begin(), values.end(), value), values.end());
}

template <class T>
void insert(std::vector<T>& values, const T& value) {
  if (!contains(values, value)) values.push_back(value);
}

}  // namespace

ParameterCoordinator::ParameterCoordinator(Device& device, ZeroSizes sizes, std::int64_t ranks, int wrappers, bool overlap_comm)
    : device_(device),
      sizes_(sizes),
      ranks_(ranks),
      wrappers_(wrappers),
      gather_stream_(overlap_comm ? 1 : 0),
      nothing_(device.unallocated({0}, Dtype::uint8)->storage) {}

PartitionedParameter& ParameterCoordinator::add(std::string name, const Tensor& tensor, bool trains) {
  auto made = std::make_unique<PartitionedParameter>();
  made->name = std::move(name);
  made->tensor = tensor;
  made->id = static_cast<std::int64_t>(parameters_.size());
  made->numel = tensor.numel();
  made->part = divide_up(made->numel, ranks_);
  made->trains = trains;
  tensor->storage = nothing_;
  by_tensor_.emplace(tensor.get(), made.get());
  parameters_.push_back(std::move(made));
  return *parameters_.back();
}

Tensor ParameterCoordinator::buffer(std::int64_t numel, Dtype dtype) const {
  const Tensor made = device_.empty({numel}, dtype);
  device_.set_category(made->storage->allocation, Category::communication);
  return made;
}

void ParameterCoordinator::give_memory(PartitionedParameter& parameter, const Tensor& memory) const {
  parameter.tensor->storage = memory->storage;
}

// zero/utils.py, assert_ints_same_as_other_ranks: the number of them, then they themselves from rank 0.
void ParameterCoordinator::verify_same_on_all_ranks(std::size_t integers) {
  device_.scratch(Bytes{8});
  if (integers > 0) device_.scratch(Bytes{8} * static_cast<std::int64_t>(integers));
}

void ParameterCoordinator::begin_forward() {
  const OpScope op(device_, "zero_trace");
  for (PartitionedParameter* p : Parameters(in_flight_)) {
    wait(*p);
    release(*p);
  }
  if (trace_ == Trace::none) {
    verify_same_on_all_ranks(0);
    trace_ = Trace::recording;
  } else if (trace_ == Trace::recording) {
    verify_same_on_all_ranks(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) {
      Parameters sorted = order_[i]->parameters;
      std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
      for (PartitionedParameter* p : sorted) uses_.push_back({p, static_cast<std::int64_t>(i)});
    }
    verify_same_on_all_ranks(uses_.size());
    verify_same_on_all_ranks(uses_.size());
    trace_ = Trace::complete;
  }
  queue_.assign(uses_.begin(), uses_.end());
  latest_use_.clear();
  step_ = 0;
  available_ = 0;
}

ParameterCoordinator::Module& ParameterCoordinator::module_of(std::uint64_t key, std::initializer_list<const Tensor*> parameters) {
  std::unique_ptr<Module>& module = modules_[key];
  if (module) return *module;
  module = std::make_unique<Module>();
  module->key = key;
  for (const Tensor* each : parameters) {
    if (!*each) continue;
    if (const auto found = by_tensor_.find(each->get()); found != by_tensor_.end()) module->parameters.push_back(found->second);
  }
  return *module;
}

// Where PEFT's model is around the other, both are called before it.
void ParameterCoordinator::enter(std::uint64_t module, std::initializer_list<const Tensor*> parameters, Tensor& input) {
  const bool root = module == itself;
  for (int i = 0; root && i < wrappers_; ++i) before_forward(module_of(UINT64_MAX - static_cast<std::uint64_t>(i), {}));
  Module& entered = module_of(module, parameters);
  if (!root || wrappers_ == 0) before_forward(entered);
  if (!input) return;
  Recorder grad("post_backward", {&input});
  if (!grad.recording()) return;
  const Tensor same = detach(input);
  grad.attach(same);
  grad.backward([this, &entered](Tensors& gradients) {
    after_backward(entered);
    return std::move(gradients);
  });
  input = same;
}

void ParameterCoordinator::leave(std::uint64_t module, Tensor& output) {
  const bool root = module == itself;
  const int times = root ? std::max(1, wrappers_) : 1;
  for (int i = times - 1; i >= 0; --i) {
    Module& left = root && wrappers_ > 0 ? module_of(UINT64_MAX - static_cast<std::uint64_t>(i), {}) : module_of(module, {});
    release_module(left, true);
    if (!output) continue;
    Recorder grad("pre_backward", {&output});
    if (!grad.recording()) continue;
    const Tensor same = detach(output);
    grad.attach(same);
    grad.backward([this, &left](Tensors& gradients) {
      before_backward(left);
      return std::move(gradients);
    });
    output = same;
  }
}

// ZeROOrderedDict.__getitem__: what is not there is gathered at once, and belongs to that module, too, from now on.
void ParameterCoordinator::look(std::uint64_t module, const Tensor& parameter) {
  const auto found = by_tensor_.find(parameter.get());
  if (found == by_tensor_.end() || found->second->status != Status::away) return;
  PartitionedParameter& p = *found->second;
  insert(module_of(module, {}).parameters, &p);
  const OpScope op(device_, "all_gather");
  give_memory(p, buffer(p.part * ranks_, p.tensor.dtype()));
  if (p.on_host) device_.scratch(p.part_bytes());
  p.status = Status::here;
  device_.meter.communicate_and_wait(Collective::all_gather, Among::shards, ranks_, p.part_bytes().count * ranks_);
}

// trace_prologue and record_module
void ParameterCoordinator::follow_trace(Module& module) {
  if (trace_ == Trace::complete) {
    const auto at = static_cast<std::size_t>(step_);
    if (at < order_.size() && order_[at] == &module) return;
    trace_ = Trace::none;
    order_.clear();
    uses_.clear();
    queue_.clear();
    latest_use_.clear();
    for (PartitionedParameter* p : Parameters(in_flight_)) {
      wait(*p);
      release(*p);
    }
  }
  if (trace_ == Trace::recording) order_.push_back(&module);
}

void ParameterCoordinator::before_forward(Module& module) {
  follow_trace(module);
  fetch(module, true);
}

void ParameterCoordinator::before_backward(Module& module) {
  follow_trace(module);
  fetch(module, false);
}

void ParameterCoordinator::after_backward(Module& module) { release_module(module, false); }

void ParameterCoordinator::fetch(Module& module, bool forward) {
  if (!forward) insert(in_backward_, &module);
  gather(module.parameters);
  const bool recomputes = forward && device_.thread == Thread::autograd;
  for (PartitionedParameter* p : module.parameters) {
    insert(p->users, module.key);
    if (recomputes && !in_backward_.empty() && !p->trains) {
      insert(in_backward_.back()->recomputed, p);
      insert(p->users, in_backward_.back()->key);
    }
    if (!p->gather) continue;
    device_.streams.host_leaves_at_most(ongoing_fetches, most_ongoing_fetches);
    wait(*p);
    device_.streams.mark(ongoing_fetches, gather_stream_);
  }
  device_.meter.wait(gather_stream_);
  device_.streams.wait(compute_stream, gather_stream_);
  if (trace_ == Trace::complete) prefetch(module);
  ++step_;
}

void ParameterCoordinator::prefetch(const Module& module) {
  const auto latest = [this](const PartitionedParameter* p) {
    const auto found = latest_use_.find(p);
    return found == latest_use_.end() ? std::int64_t{-1} : found->second;
  };
  std::size_t not_fetched = 0;
  for (const PartitionedParameter* p : module.parameters) not_fetched += latest(p) < step_;
  Parameters discarded;
  while (!queue_.empty() && discarded.size() < not_fetched) {
    latest_use_[queue_.front().parameter] = queue_.front().step;
    insert(discarded, queue_.front().parameter);
    queue_.pop_front();
  }
  const std::int64_t most = std::min(sizes_.max_live - available_, sizes_.prefetch_bucket);
  Parameters wanted;
  std::int64_t numel = 0;
  while (sizes_.prefetch_bucket > 0 && !queue_.empty() && numel < most) {
    const Use use = queue_.front();
    queue_.pop_front();
    const bool needed = use.parameter->status == Status::away && !contains(wanted, use.parameter);
    latest_use_[use.parameter] = std::max(latest(use.parameter), use.step);
    if (!needed) continue;
    wanted.push_back(use.parameter);
    numel += use.parameter->numel;
  }
  if (numel > 0) gather(wanted);
}

// all_gather_coalesced
void ParameterCoordinator::gather(Parameters wanted) {
  wanted.erase(std::remove_if(wanted.begin(), wanted.end(), [](const auto* p) { return p->status != Status::away; }), wanted.end());
  if (wanted.empty()) return;
  std::sort(wanted.begin(), wanted.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  const With stream(device_.stream, gather_stream_);
  const OpScope op(device_, "all_gather");
  for (PartitionedParameter* p : wanted) {
    available_ += p->numel;
    p->status = Status::coming;
    in_flight_.push_back(p);
  }
  if (wanted.size() == 1)
    gather_one(*wanted.front());
  else
    gather_several(wanted);
}

// _all_gather_sequential: straight into the parameter.
void ParameterCoordinator::gather_one(PartitionedParameter& p) {
  p.gather = std::make_shared<PartitionedParameter::Gather>();
  p.gather->parameters = {&p};
  p.gather->complete = true;
  give_memory(p, buffer(p.part * ranks_, p.tensor.dtype()));
  if (p.on_host) device_.scratch(p.part_bytes());
  if (p.on_host) device_.meter.communicate(Collective::host_copy, Among::host, 0, p.part_bytes().count, gather_stream_);
  device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, p.part_bytes().count * ranks_, gather_stream_);
}

// _all_gather_coalesced: one flat tensor for all of a dtype.
void ParameterCoordinator::gather_several(Parameters parameters) {
  const auto handle = std::make_shared<PartitionedParameter::Gather>();
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16, Dtype::float32}) {
    std::int64_t numel = 0;
    Bytes from_host;
    for (PartitionedParameter* p : parameters) {
      if (p->tensor.dtype() != dtype) continue;
      handle->parameters.push_back(p);
      numel += p->part;
      if (p->on_host) from_host += p->part_bytes();
    }
    if (numel == 0) continue;
    handle->flat.push_back(buffer(numel * ranks_, dtype));
    std::vector<Tensor> uploaded;
    for (const PartitionedParameter* p : parameters)
      if (p->on_host && p->tensor.dtype() == dtype) uploaded.push_back(buffer(p->part, dtype));
    if (from_host.count > 0) device_.meter.communicate(Collective::host_copy, Among::host, 0, from_host.count, gather_stream_);
    device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, numel * ranks_ * size_of(dtype).count, gather_stream_);
  }
  for (PartitionedParameter* p : parameters) p->gather = handle;
}

// AllGatherCoalescedHandle.wait: the first to be waited for brings all the others; the flat tensor goes with the last.
void ParameterCoordinator::wait(PartitionedParameter& parameter) {
  const std::shared_ptr<PartitionedParameter::Gather> handle = std::exchange(parameter.gather, nullptr);
  erase(in_flight_, &parameter);
  const With stream(device_.stream, gather_stream_);
  const OpScope op(device_, "all_gather");
  for (PartitionedParameter* p : handle->parameters) {
    if (p->status != Status::coming) continue;
    if (!handle->complete) give_memory(*p, buffer(p->numel, p->tensor.dtype()));
    p->status = Status::here;
  }
  handle->complete = true;
}

void ParameterCoordinator::release(PartitionedParameter& p) {
  if (p.status != Status::here || !p.users.empty()) return;
  device_.streams.use(*p.tensor->storage, device_.stream);  // free_param
  p.tensor->storage = nothing_;
  p.status = Status::away;
  available_ -= p.numel;
}

// __params_to_release: not what will be used again soon.
ParameterCoordinator::Parameters ParameterCoordinator::to_release(const Module& module) const {
  Parameters released;
  if (trace_ != Trace::complete) return module.parameters;
  for (PartitionedParameter* p : module.parameters) {
    const auto latest = latest_use_.find(p);
    const bool skipped = latest != latest_use_.end() && latest->second > step_;
    if (!p->persists && !skipped) released.push_back(p);
  }
  std::int64_t traversed = 0;
  for (auto i = static_cast<std::size_t>(step_); i < order_.size() && traversed < sizes_.max_reuse_distance && !released.empty(); ++i) {
    for (PartitionedParameter* p : order_[i]->parameters) {
      erase(released, p);
      traversed += p->numel;
    }
  }
  return released;
}

void ParameterCoordinator::release_module(Module& module, bool forward) {
  Parameters released = to_release(module), own = module.parameters;
  if (!forward) {
    for (PartitionedParameter* p : std::exchange(module.recomputed, {})) {
      if (!p->persists) insert(released, p);
      insert(own, p);
    }
    erase(in_backward_, &module);
  }
  for (PartitionedParameter* p : own) {
    erase(p->users, module.key);
    if (contains(released, p)) release(*p);
  }
}

void ParameterCoordinator::backward_is_over() {
  while (!in_backward_.empty()) {
    Module& module = *in_backward_.back();
    in_backward_.pop_back();
    Parameters own = module.parameters;
    for (PartitionedParameter* p : std::exchange(module.recomputed, {})) insert(own, p);
    for (PartitionedParameter* p : own) {
      erase(p->users, module.key);
      if (!p->persists) release(*p);
    }
  }
}

void ParameterCoordinator::release_all() {
  for (const auto& p : parameters_) {
    if (p->gather) wait(*p);
    p->users.clear();
    release(*p);
  }
}

// stage3.py, create_reduce_and_remove_grad_hooks; _allgather_params_sequential
void ParameterCoordinator::gather_and_release_each() {
  const OpScope op(device_, "all_gather");
  for (const auto& p : parameters_) {
    if (!p->trains) continue;
    const Tensor whole = buffer(p->part * ranks_, p->tensor.dtype());
    if (p->on_host) device_.scratch(p->part_bytes());
  }
}

// stage3.py, _post_step: on the compute stream, each into memory of its own.
void ParameterCoordinator::gather_persistent() {
  const OpScope op(device_, "all_gather");
  std::vector<Tensor> uploaded;
  Parameters persistent;
  for (const auto& p : parameters_)
    if (p->persists && p->status == Status::away) persistent.push_back(p.get());
  if (persistent.size() > 1) {
    for (const PartitionedParameter* p : persistent)
      if (p->on_host) uploaded.push_back(buffer(p->part, p->tensor.dtype()));
  }
  for (PartitionedParameter* p : persistent) {
    give_memory(*p, buffer(p->part * ranks_, p->tensor.dtype()));
    p->status = Status::here;
    device_.meter.communicate_and_wait(Collective::all_gather, Among::shards, ranks_, p->part_bytes().count * ranks_);
  }
}

}  // namespace llmem
