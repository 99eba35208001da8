#include <algorithm>
#include <cmath>

#include "plan/rank.h"
#include "plan/tensor_parallel.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// torch/distributed/fsdp/_fully_shard: every decoder layer is a group of parameters, what no layer owns is the root's.
namespace llmem {

namespace {

constexpr std::uint8_t all_gather_stream = 1, reduce_scatter_stream = 2, all_reduce_stream = 3;

// One parameter, cut along its first dimension into chunks of equal, padded length (_fsdp_param.py, FSDPParam).
struct ShardedParameter {
  NamedTensor shard;        // what the optimizer updates: this rank's rows
  Tensor unsharded;         // the whole parameter in the compute dtype, with memory only while gathered
  Tensor accumulated_grad;  // of backwards that did not reduce, in the reduce dtype
  std::int64_t padded_shard_numel = 0;
  GradientPlace place = GradientPlace::same;
};

std::int64_t total_shard_numel(const std::vector<ShardedParameter>& parameters) {
  std::int64_t n = 0;
  for (const ShardedParameter& p : parameters) n += p.padded_shard_numel;
  return n;
}

// aten/src/ATen/native/cuda/TensorShape.cu: a block copies 128 threads x 16 bytes.
constexpr std::int64_t bytes_per_block = 128 * 16;

// split_with_sizes_copy: a table of addresses, sizes and blocks on the device. Blocks take several rounds where the GPU cannot hold all.
Bytes split_copy_table(const GpuKind& gpu, const std::vector<ShardedParameter>& parameters, std::int64_t ranks, Bytes element) {
  const auto blocks_of = [&](std::int64_t bytes_a_block) {
    std::int64_t blocks = 0;
    for (const ShardedParameter& p : parameters) blocks += divide_up(p.padded_shard_numel * element.count, bytes_a_block);
    return blocks;
  };
  const std::int64_t most_blocks = std::int64_t{gpu.sms} * gpu.threads_per_sm() / 128 * 2;
  const std::int64_t rounds = divide_up(blocks_of(bytes_per_block) * ranks, most_blocks);
  const auto chunks_per_block = std::min(static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(rounds)))), ranks);
  const std::int64_t blocks = blocks_of(bytes_per_block * divide_up(rounds, chunks_per_block));
  return Bytes{8} * (blocks + 4 * static_cast<std::int64_t>(parameters.size()) + 1);
}

// _chunk_cat: the like for the way back, six numbers a tensor.
Bytes chunk_cat_table(const std::vector<ShardedParameter*>& parameters, Bytes element) {
  std::int64_t blocks = 0;
  for (const ShardedParameter* p : parameters) blocks += divide_up(p->padded_shard_numel * element.count, bytes_per_block);
  return Bytes{8} * (blocks + 6 * static_cast<std::int64_t>(parameters.size()) + 2);
}

enum class State : std::uint8_t { idle, forward, pre_backward };

// _fsdp_param_group.py, FSDPParamGroup
struct Group {
  std::vector<ShardedParameter> parameters;
  State state = State::idle;
  bool unsharded = false;
  Tensor all_gather_output;  // of an unshard that was not yet waited for
  Tensor all_reduce_input;   // HSDP: kept until the backward is over
};

class FullyShardedModel {
 public:
  FullyShardedModel(Device& device, const Spec& spec, int layers)
      : device_(device),
        options_(spec.data),
        split_(tensor_split(spec)),
        offloads_(spec.offload.parameters),
        original_(spec.training.weights),
        ranks_(spec.data.degree / spec.data.replicate),
        rank_(spec.rank / spec.tensor.degree % ranks_),
        groups_(static_cast<std::size_t>(layers) + 1) {
    compute_ = options_.param_dtype.value_or(original_);
    reduce_ = options_.reduce_dtype.value_or(compute_);
  }

  // The parameter's shard on this rank, and the tensor that the model computes with.
  Tensor add_parameter(const std::string& name, const Dims& whole, int unit) {
    ShardedParameter p;
    const Dims sizes = split_.ranks > 1 ? split_sizes(split_, name, whole) : whole;
    p.place = gradient_place(split_, name);
    const std::int64_t row = count_of(sizes) / sizes[0], chunk = divide_up(sizes[0], ranks_);
    Dims local = sizes;
    local[0] = std::clamp<std::int64_t>(sizes[0] - rank_ * chunk, 0, chunk);
    p.padded_shard_numel = chunk * row;
    p.shard = {name, padded(local, original_, p.padded_shard_numel), unit};
    if (!offloads_) {
      p.shard.tensor->storage->allocate();
      device_.set_category(p.shard.tensor->storage->allocation, Category::weights);
    }
    p.unsharded = padded(sizes, compute_, ranks_ * p.padded_shard_numel);
    require_split_grad(split_, name, p.unsharded, whole);
    if (!offloads_) optimized_.push_back(p.shard);
    group(unit).parameters.push_back(p);
    return p.unsharded;
  }

  const std::vector<NamedTensor>& optimized() const { return optimized_; }

  Tensor before_forward(int unit, const Tensor& input) {
    Group& g = group(unit);
    if (g.state == State::pre_backward) return input;  // recomputation: backward has gathered already
    g.state = State::forward;
    unshard(g);
    wait_for_unshard(g);
    return run_after_backward(g, input);
  }

  Tensor after_forward(int unit, Tensor output) {
    Group& g = group(unit);
    if (g.state == State::pre_backward) return output;
    if (options_.reshard_after_forward) reshard(g);
    g.state = State::idle;
    forward_order_.push_back(unit);
    output->grad_fn->pre_hook = [this, unit] { pre_backward(unit); };
    if (unit == root) last_all_gather_output_.reset();
    return output;
  }

  void synchronize_gradients(bool yes) { synchronize_ = yes; }

  // FSDPState._root_post_backward_final_callback: the root's inputs want no gradient, so nothing else runs its post_backward.
  void backward_is_over() {
    post_backward(group(root));
    device_.meter.wait(reduce_scatter_stream);
    device_.meter.wait(all_reduce_stream);
    for (Group& g : groups_) {
      g.state = State::idle;
      g.all_reduce_input.reset();
    }
    forward_order_.clear();
    reduce_scatter_input_.reset();
  }

 private:
  static constexpr int root = -1;
  Group& group(int unit) { return groups_[static_cast<std::size_t>(unit + 1)]; }

  // A tensor over memory for `numel` elements, of which it shows the first.
  Tensor padded(const Dims& sizes, Dtype dtype, std::int64_t numel) {
    Tensor made = device_.unallocated(sizes, dtype);
    made->storage->bytes = size_of(dtype) * numel;
    return made;
  }

  Tensor communication_buffer(std::int64_t numel, Dtype dtype) {
    const Tensor made = device_.empty({numel}, dtype);
    device_.set_category(made->storage->allocation, Category::communication);
    return made;
  }

  // FSDPParam.all_gather_inputs of shards in the host's memory: each is copied to the GPU, then cast.
  std::vector<Tensor> upload(const Group& g) {
    std::vector<Tensor> uploaded;
    for (const ShardedParameter& p : g.parameters) {
      Tensor copy = communication_buffer(p.padded_shard_numel, original_);
      if (compute_ != original_) copy = communication_buffer(p.padded_shard_numel, compute_);
      uploaded.push_back(std::move(copy));
    }
    return uploaded;
  }

  // foreach_all_gather: shards are cast into one flat tensor, which goes once the gather has its copy; shards that need no cast are
  // copied into the output at once.
  void unshard(Group& g) {
    if (g.all_gather_output || g.unsharded) return;
    const With stream(device_.stream, all_gather_stream);
    const OpScope op(device_, "all_gather");
    const std::int64_t numel = total_shard_numel(g.parameters);
    Tensor flat;
    const std::vector<Tensor> uploaded = offloads_ ? upload(g) : std::vector<Tensor>();
    if (!offloads_ && compute_ != original_) flat = communication_buffer(numel, compute_);
    g.all_gather_output = communication_buffer(numel * ranks_, compute_);
    if (offloads_) device_.meter.communicate(Collective::host_copy, Among::host, 0, numel * size_of(original_).count, all_gather_stream);
    device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, numel * ranks_ * size_of(compute_).count, all_gather_stream);
  }

  // In forward the output lives until the next group's copy-out, so that the gather after it can begin; in backward it goes at once.
  void wait_for_unshard(Group& g) {
    if (!g.all_gather_output) return;
    device_.meter.wait(all_gather_stream);
    device_.meter.reads(g.all_gather_output.bytes_read());  // copied out
    {
      const OpScope op(device_, "unsharded_parameter");
      for (ShardedParameter& p : g.parameters) {
        p.unsharded->storage->allocate();
        device_.set_category(p.unsharded->storage->allocation, Category::communication);
      }
      device_.scratch(split_copy_table(device_.gpu(), g.parameters, ranks_, size_of(compute_)));
    }
    g.unsharded = true;
    Tensor output = std::exchange(g.all_gather_output, {});
    if (g.state == State::forward) last_all_gather_output_ = std::move(output);
  }

  void reshard(Group& g) {
    if (!g.unsharded) return;
    for (ShardedParameter& p : g.parameters) p.unsharded->storage->release();
    g.unsharded = false;
  }

  // RegisterPostBackwardFunction: an op that does nothing but reduce the group's gradients when backward has come back to its input.
  Tensor run_after_backward(Group& g, const Tensor& input) {
    Recorder grad("post_backward", {&input});
    if (!grad.recording()) return input;
    Tensor same = detach(input);
    same->base = input.impl();
    grad.attach(same);
    grad.backward([this, &g](Tensors& gradients) {
      post_backward(g);
      return gradients;
    });
    return same;
  }

  void pre_backward(int unit) {
    Group& g = group(unit);
    if (g.state == State::pre_backward) return;
    g.state = State::pre_backward;
    unshard(g);
    wait_for_unshard(g);
    // The group whose forward ran just before is the next to be needed.
    const auto here = std::find(forward_order_.rbegin(), forward_order_.rend(), unit);
    if (here != forward_order_.rend() && std::next(here) != forward_order_.rend()) unshard(group(*std::next(here)));
  }

  void post_backward(Group& g) {
    for (ShardedParameter& p : g.parameters)
      if (p.accumulated_grad) p.unsharded->grad.reset();  // added in place
    if (!synchronize_) {
      reshard(g);
      for (ShardedParameter& p : g.parameters) keep_gradient(p);
      return;
    }
    std::vector<ShardedParameter*> reduced;
    std::vector<Tensor> gradients;
    for (ShardedParameter& p : g.parameters) {
      if (!p.accumulated_grad && !p.unsharded->grad) continue;
      reduced.push_back(&p);
      gradients.push_back(p.accumulated_grad ? std::exchange(p.accumulated_grad, {}) : whole_gradient(p));
    }
    reshard(g);
    if (reduce_scatter_input_) device_.meter.wait(reduce_scatter_stream);
    reduce_scatter_input_.reset();
    if (!reduced.empty()) reduce(g, reduced, std::move(gradients));
  }

  // FSDPParam.unsharded_grad_data: over a tensor-parallel mesh the gradient is first brought to where its parameter lies.
  static Tensor whole_gradient(ShardedParameter& p) {
    const Tensor gradient = redistributed(p.place, p.unsharded, Tensor(p.unsharded->grad));
    p.unsharded->grad.reset();
    return gradient;
  }

  // FSDPParam.to_accumulated_grad_if_needed
  void keep_gradient(ShardedParameter& p) {
    if (!p.unsharded->grad || p.accumulated_grad || !options_.reduce_dtype || p.unsharded->dtype == reduce_) return;
    p.accumulated_grad = unary_no_grad(Tensor(p.unsharded->grad), "accumulated_grad", reduce_);
    device_.set_category(p.accumulated_grad->storage->allocation, Category::gradients);
    p.unsharded->grad.reset();
  }

  // _fsdp_collectives.py, foreach_reduce: copied and cast into one buffer; all whole gradients but the last, which a loop variable still
  // names, go before the output is made.
  void reduce(Group& g, const std::vector<ShardedParameter*>& parameters, std::vector<Tensor> gradients) {
    const OpScope op(device_, "reduce_scatter");
    std::int64_t shard_numel = 0;
    for (const ShardedParameter* p : parameters) shard_numel += p->padded_shard_numel;
    for (const Tensor& gradient : gradients) device_.meter.reads(gradient.bytes_read());
    reduce_scatter_input_ = communication_buffer(shard_numel * ranks_, reduce_);
    device_.scratch(chunk_cat_table(parameters, size_of(reduce_)));
    const Tensor last = gradients.back();
    gradients.clear();

    const With stream(device_.stream, reduce_scatter_stream);
    Tensor output = communication_buffer(shard_numel, reduce_);
    if (options_.replicate > 1) g.all_reduce_input = output;  // reduced where it is
    const With post_reduce(device_.stream, options_.replicate > 1 ? all_reduce_stream : reduce_scatter_stream);
    if (reduce_ != original_) output = communication_buffer(shard_numel, original_);
    const std::int64_t shard_bytes = shard_numel * size_of(reduce_).count;
    device_.meter.communicate(Collective::reduce_scatter, Among::shards, ranks_, shard_bytes * ranks_, reduce_scatter_stream);
    device_.meter.communicate(Collective::all_reduce, Among::copies, options_.replicate, shard_bytes, all_reduce_stream);
    if (offloads_) device_.meter.communicate(Collective::host_copy, Among::host, 0, shard_bytes, reduce_scatter_stream);
    if (offloads_) return;  // copied to the host
    device_.set_category(output->storage->allocation, Category::gradients);
    for (const ShardedParameter* p : parameters)
      if (!p->shard.tensor->grad) p->shard.tensor->grad = detach(output).impl();
  }

  Device& device_;
  DataParallel options_;
  CausalLm::Split split_;
  bool offloads_;  // shards, gradients and optimizer are the host's (CPUOffloadPolicy)
  Dtype original_, compute_ = Dtype::float32, reduce_ = Dtype::float32;
  std::int64_t ranks_, rank_;  // of one copy
  std::vector<Group> groups_;  // the root's, then the layers'
  std::vector<NamedTensor> optimized_;
  std::vector<int> forward_order_;
  Tensor last_all_gather_output_;  // of the forward before
  Tensor reduce_scatter_input_;    // of the reduction before
  bool synchronize_ = true;
};

}  // namespace

Rank fully_sharded(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank;
  const auto sharded = std::make_shared<FullyShardedModel>(device, spec, static_cast<int>(architecture.layers));
  rank.model = std::make_unique<CausalLm>(architecture, spec.training.weights, [&](const TensorRequest& request) {
    const ModuleScope scope(device, module_of(request.name));
    const OpScope op(device, "parameter");
    if (request.kind == TensorRequest::parameter) return sharded->add_parameter(request.name, request.sizes, request.unit);
    const Tensor made = device.empty(request.sizes, request.dtype);
    device.set_category(made->storage->allocation, Category::weights);
    return made;
  });
  rank.optimized = sharded->optimized();
  rank.gradients_are_sharded = true;
  if (spec.tensor.degree > 1) {
    const CausalLm::Split split = tensor_split(spec);
    rank.model->split(split);
    set_mesh_groups(rank, device, split, true);
  }
  rank.hooks = {[sharded](int unit, const Tensor& input) { return sharded->before_forward(unit, input); },
                [sharded](int unit, Tensor output) { return sharded->after_forward(unit, std::move(output)); }};
  rank.before_micro_batch = [sharded](bool synchronize) { sharded->synchronize_gradients(synchronize); };
  rank.after_backward.push_back([sharded] { sharded->backward_is_over(); });
  return rank;
}

}  // namespace llmem
