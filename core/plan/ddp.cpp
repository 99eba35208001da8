#include <algorithm>
#include <deque>
#include <limits>

#include "plan/rank.h"
#include "tensor/autograd.h"

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
// its limit (the last limit serves all further ones); what is left open follows in the order of first appearance.
std::vector<Bucket> assign_buckets(const Bucket& tensors, const std::vector<Bytes>& limits) {
  struct Open {
    Dtype dtype;
    Bucket tensors;
    Bytes bytes;
    std::size_t limit = 0;
  };
  std::vector<Open> open;
  std::vector<Bucket> closed;
  for (const Tensor& tensor : tensors) {
    auto found = std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.dtype == tensor.dtype(); });
    if (found == open.end()) found = open.insert(open.end(), {tensor.dtype(), {}, {}, 0});
    found->tensors.push_back(tensor);
    found->bytes += size_of(tensor.dtype()) * tensor.numel();
    if (found->bytes < limits[found->limit]) continue;
    closed.push_back(std::move(found->tensors));
    found->tensors.clear();
    found->bytes = {};
    found->limit = std::min(found->limit + 1, limits.size() - 1);
  }
  for (Open& o : open)
    if (!o.tensors.empty()) closed.push_back(std::move(o.tensors));
  return closed;
}

// comm.cpp, broadcast_coalesced: flattened in groups of at least `limit` bytes, at most two in flight. A lone tensor needs no copy.
void broadcast_coalesced(Device& device, const Bucket& tensors, Bytes limit) {
  const OpScope op(device, "broadcast");
  std::deque<Tensor> in_flight;
  for (const Bucket& group : assign_buckets(tensors, {limit})) {
    if (in_flight.size() >= 2) in_flight.pop_front();
    in_flight.push_back(group.size() == 1 ? group.front() : flat(device, group, Category::communication));
  }
  while (!in_flight.empty()) in_flight.pop_front();
}

// distributed/utils.py, _verify_param_shape_across_processes: three small tensors
void verify_shapes(Device& device) {
  const OpScope op(device, "verify_shapes");
  const Tensor a = device.empty({1}, Dtype::int64), b = device.empty({1}, Dtype::int64), c = device.empty({1}, Dtype::int64);
}

class Reducer {
 public:
  Reducer(Device& device, const Rank& rank, const DataParallel& options)
      : device_(device), buffers_(rank.buffers), bucket_cap_(1_MiB * options.bucket_cap_mb) {
    Bucket states;
    for (const NamedTensor& p : rank.optimized) states.push_back(p.tensor);
    const Bucket reversed(states.rbegin(), states.rend());
    states.insert(states.end(), buffers_.begin(), buffers_.end());
    verify_shapes(device);
    broadcast_coalesced(device, states, broadcast_limit);
    // One bucket for all until the order is known in which gradients become ready.
    make_buckets(reversed, {Bytes{std::numeric_limits<std::int64_t>::max()}});
    for (const Tensor& p : reversed) p->accumulator->post_hook = [this, p] { gradient_ready(p); };
  }

  // DistributedDataParallel._pre_forward and _sync_buffers
  void before_forward(bool synchronize) {
    if (!rebuilt_ && !ready_.empty()) rebuild();
    if (buffers_stale_) broadcast_coalesced(device_, buffers_, broadcast_limit);
    synchronize_ = buffers_stale_ = synchronize;
  }

 private:
  static constexpr Bytes broadcast_limit = 250_MiB;   // DistributedDataParallel.broadcast_bucket_size
  static constexpr Bytes first_bucket_limit = 1_MiB;  // reducer.hpp, kDefaultFirstBucketBytes

  void gradient_ready(const Tensor& parameter) {
    if (synchronize_ && !rebuilt_) ready_.push_back(parameter);
  }

  // Reducer::rebuild_buckets: rank 0's order is sent to all (sync_bucket_indices), then the old bucket goes before the new ones come.
  void rebuild() {
    const std::vector<Bytes> limits{first_bucket_limit, bucket_cap_};
    {
      const OpScope op(device_, "sync_bucket_indices");
      const auto parameters = static_cast<std::int64_t>(ready_.size());
      const auto buckets = static_cast<std::int64_t>(assign_buckets(ready_, limits).size());
      const Tensor indices = device_.empty({parameters + 1}, Dtype::int32), sizes = device_.empty({buckets}, Dtype::int32);
    }
    buckets_.clear();
    make_buckets(ready_, limits);
    rebuilt_ = true;
  }

  void make_buckets(const Bucket& parameters, const std::vector<Bytes>& limits) {
    const OpScope op(device_, "gradient_bucket");
    for (const Bucket& bucket : assign_buckets(parameters, limits)) buckets_.push_back(flat(device_, bucket, Category::communication));
  }

  Device& device_;
  Bucket buffers_;
  Bytes bucket_cap_;
  std::vector<Tensor> buckets_;
  Bucket ready_;  // parameters in the order in which their gradients became ready
  bool rebuilt_ = false, synchronize_ = true, buffers_stale_ = true;
};

}  // namespace

Rank distributed_data_parallel(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank = whole_model(device, spec, architecture);
  const auto reducer = std::make_shared<Reducer>(device, rank, spec.data);
  rank.before_micro_batch = [reducer](bool synchronize) { reducer->before_forward(synchronize); };
  return rank;
}

}  // namespace llmem
