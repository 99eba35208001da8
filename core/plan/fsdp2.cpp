#include "plan/fsdp2.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "plan/adapt.h"
#include "plan/rank.h"
#include "plan/tensor_parallel.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// torch/distributed/fsdp/_fully_shard: every decoder layer is a group of parameters, what no layer owns is the root's or, in torchtitan,
// one group of the embedding and one of norm and head (torchtitan/distributed/fsdp.py, apply_fsdp_to_decoder); so, too, under a Trainer
// (accelerate/utils/fsdp_utils.py, fsdp2_prepare_model).
namespace llmem {

namespace {

constexpr int buffers = -9;  // in place of a unit
constexpr std::uint8_t all_gather_stream = 1, reduce_scatter_stream = 2, all_reduce_stream = 3;

// One parameter, cut along its first dimension into chunks of equal, padded length (_fsdp_param.py, FSDPParam).
struct ShardedParameter {
  NamedTensor shard;        // what the optimizer updates: this rank's rows
  Tensor unsharded;         // the whole parameter in the dtype it is computed with, with memory only while gathered
  Tensor accumulated_grad;  // of backwards that did not reduce, in the reduce dtype
  std::int64_t padded_shard_numel = 0;
  GradientPlace place = GradientPlace::same;

  Dtype original() const { return shard.tensor.dtype(); }
  Dtype compute() const { return unsharded.dtype(); }
  bool is_cast() const { return original() != compute(); }
  Bytes gathered_from() const { return size_of(compute()) * padded_shard_numel; }  // of each rank
};

// aten/src/ATen/native/cuda/TensorShape.cu: a block copies 128 threads x 16 bytes.
constexpr std::int64_t bytes_per_block = 128 * 16;

// split_with_sizes_copy: a table of addresses, sizes and blocks on the device. Blocks take several rounds where the GPU cannot hold all.
Bytes split_copy_table(const GpuKind& gpu, const std::vector<ShardedParameter>& parameters, std::int64_t ranks) {
  const auto blocks_of = [&](std::int64_t bytes_a_block) {
    std::int64_t blocks = 0;
    for (const ShardedParameter& p : parameters) blocks += divide_up(p.gathered_from().count, bytes_a_block);
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

enum class State : std::uint8_t { idle, forward, pre_backward, post_backward };

// _fsdp_param_group.py, FSDPParamGroup
struct Group {
  std::vector<ShardedParameter> parameters;
  State state = State::idle;
  bool unsharded = false;
  Tensor all_gather_output;  // of an unshard that was not yet waited for
  bool copies = false;       // … of one rank, which gathers nothing
  Tensor all_reduce_input;   // HSDP: kept until the backward is over
};

class FullyShardedModel final : public FullySharded {
 public:
  static constexpr int root = -1;

  FullyShardedModel(Device& device, const Spec& spec, const Architecture& architecture, std::size_t stage = 0)
      : device_(device),
        options_(spec.data),
        reshards_(spec.data.reshard_after_forward),
        split_(tensor_split(spec)),
        offloads_(spec.offload.parameters),
        ranks_(spec.data.shard_ranks() * spec.context.degree),
        rank_(spec.rank / spec.tensor.degree % ranks_),
        layers_(static_cast<int>(architecture.layers)),
        groups_(static_cast<std::size_t>(architecture.layers) + 3),
        around_checkpoint_(spec.software.transformers == Transformers::v5) {
    streams_ = static_cast<std::uint8_t>(3 * (stage % 32));
    const bool titan = spec.training.stack == Stack::torchtitan;
    prepared_ = spec.training.loop != Loop::plain;
    upcasts_ = prepared_ && spec.training.autocast.has_value();
    keeps_items_ = spec.training.checkpointing != Checkpointing::none;
    if (!titan && !prepared_) return;
    ends_apart_ = (prepared_ || spec.software.torchtitan == Torchtitan::v0_2) && !architecture.tied_embeddings;
    keeps_last_layer_ = titan && spec.software.torchtitan == Torchtitan::v0_1;
    reshards_ = options_.reshard_after_forward && spec.pipeline.degree == 1;
    embedding_ = std::string(architecture.names.embedding);
  }

  // A Trainer's model comes from the host: each module's parameters are moved whole, then cut (_fully_shard.py, fully_shard; _fsdp_param.py,
  // _init_sharded_param). Layers, the embedding, norm and head, what is left. Returned is what names keep until the model is prepared: the ends.
  std::vector<Tensor> load_prepared() {
    std::vector<Tensor> named;
    std::vector<int> units;
    for (int layer = 0; layer < layers_; ++layer) units.push_back(layer);
    if (ends_apart_) units.insert(units.end(), {embedding_unit, output_unit});
    units.push_back(root);
    for (const int unit : units) {
      std::vector<Tensor> whole;
      for (const ShardedParameter& p : group(unit).parameters) {
        const ModuleScope scope(device_, module_of(p.shard.name));
        const OpScope op(device_, "parameter");
        whole.push_back(device_.empty(p.unsharded.sizes(), p.original()));
      }
      for (ShardedParameter& p : group(unit).parameters) {
        const ModuleScope scope(device_, module_of(p.shard.name));
        const OpScope op(device_, "parameter");
        allocate(p);
      }
      if (unit < 0) named.insert(named.end(), whole.begin(), whole.end());
    }
    std::stable_sort(named.begin(), named.end(), [](const Tensor& a, const Tensor& b) { return a.numel() > b.numel(); });
    return named;
  }

  // output_dtype of the root's policy: the loss, too, leaves it in that.
  void cast_outputs(const std::vector<Tensor*>& outputs) const {
    if (!options_.param_dtype) return;
    for (Tensor* output : outputs) *output = to(*output, *options_.param_dtype);
  }

  // Over a tensor-parallel mesh: a head that was given memory of its own, and was then tied again. The optimizer does not see it.
  std::string tied_head;

  Tensor request(const TensorRequest& request) override {
    const Dims sizes = split_.ranks > 1 ? split_sizes(split_, request.name, request.sizes) : request.sizes;
    const std::int64_t row = count_of(sizes) / sizes[0];
    const Tensor made = padded(sizes, options_.param_dtype.value_or(request.dtype), ranks_ * divide_up(sizes[0], ranks_) * row);
    TensorRequest& kept = requests_.emplace(made.get(), request).first->second;
    if (ends_apart_ && kept.unit == root) kept.unit = kept.name.find(embedding_ + ".") != std::string::npos ? embedding_unit : output_unit;
    return made;
  }

  void place(const NamedTensor& parameter, bool trains) override {
    const TensorRequest& request = requests_.at(parameter.tensor.get());
    ShardedParameter p;
    p.unsharded = parameter.tensor;
    p.place = gradient_place(split_, request.name);
    Dims local = p.unsharded.sizes();
    const std::int64_t row = count_of(local) / local[0], chunk = divide_up(local[0], ranks_);
    local[0] = std::clamp<std::int64_t>(local[0] - rank_ * chunk, 0, chunk);
    p.padded_shard_numel = chunk * row;
    // accelerate: what trains is held in fp32 under mixed precision.
    const Dtype held = upcasts_ && trains ? Dtype::float32 : request.dtype;
    p.shard = {request.name, padded(local, held, p.padded_shard_numel), request.unit};
    if (!offloads_ && !prepared_) {
      const bool uneven = p.shard.tensor.numel() < p.padded_shard_numel;
      if (uneven)
        unpadded_.push_back(device_.empty(local, request.dtype));
      else
        allocate(p);
    }
    if (trains) require_split_grad(split_, request.name, p.unsharded, request.sizes);
    if (trains && !offloads_ && request.name != tied_head) optimized_.push_back(p.shard);
    group(request.unit).parameters.push_back(std::move(p));
  }

  // _fully_shard.py, FSDPModule._apply: those that are not whole are copied into padded ones.
  void pad(int unit) override {
    if (offloads_) return;
    const auto allocate_missing = [this](Group& g) {
      for (ShardedParameter& p : g.parameters)
        if (!p.shard.tensor->storage->allocated()) allocate(p);
    };
    allocate_missing(group(unit));
    if (unit != root) return;
    if (ends_apart_)
      for (const int end : {embedding_unit, output_unit}) allocate_missing(group(end));
    unpadded_.clear();
  }

  const std::vector<NamedTensor>& optimized() const override { return optimized_; }

  // transformers/modeling_layers.py, GradientCheckpointingLayer: before version 5 the call was computed again, hooks and all.
  UnitHooks hooks() override {
    UnitHooks made{around_checkpoint_, options_.param_dtype, [this](int unit, const Tensor& input) { return before_forward(unit, input); },
                   [this](int unit, Tensor output) { return after_forward(unit, std::move(output)); }};
    made.ends_apart = ends_apart_;
    return made;
  }

  void hold() override { synchronize_ = reshards_after_backward_ = false; }

  void reduce_all() override {
    synchronize_ = reshards_after_backward_ = true;
    const With thread(device_.thread, Thread::autograd);
    for (Group& g : groups_) post_backward(g);
    backward_is_over();
  }

  void unshard_all() override {
    for (Group& g : groups_) unshard(g, device_.stream);
  }
  void wait_for_all() override {
    for (Group& g : groups_) wait_for_unshard(g);
  }
  void reshard_all() override {
    for (Group& g : groups_) reshard(g);
  }

  Tensor before_forward(int unit, const Tensor& given) {
    Group& g = group(unit);
    // cast_forward_inputs: of what a Trainer gives the model beside ids, the number of items.
    if (unit == root && upcasts_) cast_items_ = device_.empty({}, *options_.param_dtype);
    if (g.parameters.empty()) return given;
    const bool other = unit >= 0 && options_.param_dtype && given.dtype() != *options_.param_dtype;
    const Tensor input = other ? to(given, *options_.param_dtype) : given;  // cast_forward_inputs
    if (g.state == State::pre_backward) return input;                       // recomputation: backward has gathered already
    g.state = State::forward;
    if (unit == root && !tied_head.empty()) tie_head(g);
    unshard(g);
    wait_for_unshard(g);
    return run_after_backward(g, input);
  }

  Tensor after_forward(int unit, Tensor output) {
    Group& g = group(unit);
    if (unit == root && !keeps_items_) cast_items_.reset();
    if (g.parameters.empty()) {
      last_all_gather_output_.reset();
      return output;
    }
    if (g.state == State::pre_backward) return output;
    const bool in_backward = device_.thread == Thread::autograd;  // reentrant checkpointing: the layer stays gathered
    if (!in_backward) {
      if (reshards(unit)) reshard(g);
      forward_order_.push_back(unit);
    }
    g.state = State::idle;
    if (output->grad_fn) {
      // A stage's last layer and the stage itself return the same tensor.
      output->grad_fn->pre_hook = [this, unit, before = std::move(output->grad_fn->pre_hook)]() mutable {
        if (before) before();
        pre_backward(unit);
      };
    }
    if (unit == root || in_backward) last_all_gather_output_.reset();
    return output;
  }

  void synchronize_gradients(bool yes) override { synchronize_ = yes; }

  // FSDPState._root_post_backward_final_callback: where a group's inputs want no gradient, nothing else runs its post_backward.
  void backward_is_over() override {
    cast_items_.reset();
    for (Group& g : groups_) {
      if (g.state != State::post_backward) post_backward(g);
      g.state = State::idle;
      if (reshards_after_backward_) g.all_reduce_input.reset();
    }
    if (!reshards_after_backward_) return;
    device_.meter.wait(reduce_scatter_stream);
    device_.meter.wait(all_reduce_stream);
    forward_order_.clear();
    reduce_scatter_input_.reset();
  }

 private:
  // In the order of the model's modules.
  Group& group(int unit) {
    if (unit == root) return groups_[0];
    if (unit == output_unit) return groups_.back();
    return groups_[unit == embedding_unit ? 1 : static_cast<std::size_t>(unit) + 2];
  }

  // get_fsdp_reshard_after_forward_policy: torchtitan's last units would be gathered again at once; in a pipeline none is resharded, and up to
  // version 0.1 the last layer took the place of the head.
  bool reshards(int unit) const {
    if (unit == output_unit || (keeps_last_layer_ && unit == layers_ - 1) || (prepared_ && unit == root)) return false;
    return reshards_;
  }

  // A tensor over memory for `numel` elements, of which it shows the first.
  Tensor padded(const Dims& sizes, Dtype dtype, std::int64_t numel) {
    Tensor made = device_.unallocated(sizes, dtype);
    made->storage->bytes = size_of(dtype) * numel;
    return made;
  }

  // FSDPParam.reset_sharded_param, as the first forward begins: the head's shard is the embedding's from now on. One that is not whole is
  // padded once more, and the embedding's FSDPParam holds what it had.
  void tie_head(Group& g) {
    const Tensor embedding = g.parameters.front().shard.tensor;
    ShardedParameter& head = g.parameters.back();
    if (embedding.numel() < head.padded_shard_numel && !offloads_) {
      padded_again_ = device_.empty({head.padded_shard_numel}, embedding.dtype());
      device_.set_category(padded_again_->storage->allocation, Category::weights);
    }
    head.shard.tensor = embedding;
  }

  void allocate(ShardedParameter& p) {
    p.shard.tensor->storage->allocate();
    device_.set_category(p.shard.tensor->storage->allocation, Category::weights);
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
      Tensor copy = communication_buffer(p.padded_shard_numel, p.original());
      if (p.is_cast()) copy = communication_buffer(p.padded_shard_numel, p.compute());
      uploaded.push_back(std::move(copy));
    }
    return uploaded;
  }

  // foreach_all_gather: shards are cast into one flat tensor, which goes once the gather has its copy; shards that need no cast are
  // copied into the output at once. What is of several dtypes is gathered as bytes.
  void unshard(Group& g) { unshard(g, static_cast<std::uint8_t>(streams_ + all_gather_stream)); }
  void unshard(Group& g, std::uint8_t on) {
    if (g.all_gather_output || g.unsharded || g.parameters.empty()) return;
    if (ranks_ == 1 && !offloads_) {
      g.copies = true;
      return;
    }
    const With stream(device_.stream, on);
    const OpScope op(device_, "all_gather");
    Bytes held, gathered;
    std::int64_t cast = 0;
    for (const ShardedParameter& p : g.parameters) {
      held += size_of(p.original()) * p.padded_shard_numel;
      gathered += p.gathered_from();
      if (p.is_cast()) cast += p.padded_shard_numel;
    }
    Tensor flat;
    const std::vector<Tensor> uploaded = offloads_ ? upload(g) : std::vector<Tensor>();
    if (!offloads_ && cast > 0) flat = communication_buffer(cast, *options_.param_dtype);
    g.all_gather_output = communication_buffer(gathered.count * ranks_, Dtype::uint8);
    if (offloads_) device_.meter.communicate(Collective::host_copy, Among::host, 0, held.count, all_gather_stream);
    device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, gathered.count * ranks_, all_gather_stream);
  }

  // In forward the output lives until the next group's copy-out, so that the gather after it can begin; in backward it goes at once.
  void wait_for_unshard(Group& g) {
    if (std::exchange(g.copies, false)) copy_shards(g);
    if (!g.all_gather_output) return;
    device_.meter.wait(all_gather_stream);
    device_.meter.reads(g.all_gather_output.bytes_read());  // copied out
    {
      const OpScope op(device_, "unsharded_parameter");
      for (ShardedParameter& p : g.parameters) {
        p.unsharded->storage->allocate();
        device_.set_category(p.unsharded->storage->allocation, Category::communication);
      }
      device_.scratch(split_copy_table(device_.gpu(), g.parameters, ranks_));
    }
    g.unsharded = true;
    Tensor output = std::exchange(g.all_gather_output, {});
    if (g.state == State::forward) last_all_gather_output_ = std::move(output);
  }

  // FSDPParamGroup.wait_for_unshard of one rank: each shard is cast, then copied. The cast of the one before lives until the next is made.
  void copy_shards(Group& g) {
    const OpScope op(device_, "unsharded_parameter");
    Tensor input;
    for (ShardedParameter& p : g.parameters) {
      if (p.is_cast()) input = communication_buffer(p.padded_shard_numel, p.compute());
      p.unsharded->storage->allocate();
      device_.set_category(p.unsharded->storage->allocation, Category::communication);
      device_.meter.moved(2 * p.gathered_from().count);
    }
    g.unsharded = true;
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
    g.state = State::post_backward;
    for (ShardedParameter& p : g.parameters)
      if (p.accumulated_grad) p.unsharded->grad.reset();  // added in place
    if (!synchronize_) {
      if (reshards_after_backward_) reshard(g);
      for (ShardedParameter& p : g.parameters) keep_gradient(p);
      return;
    }
    std::vector<ShardedParameter*> reduced;
    std::vector<Tensor> gradients;
    for (ShardedParameter& p : g.parameters) {
      if (!p.accumulated_grad && !p.unsharded->grad) continue;
      reduced.push_back(&p);
      gradients.push_back(p.accumulated_grad ? redistributed(p.place, p.unsharded, std::exchange(p.accumulated_grad, {}))
                                             : whole_gradient(p));
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
    if (!p.unsharded->grad || p.accumulated_grad || !options_.reduce_dtype || p.compute() == *options_.reduce_dtype) return;
    p.accumulated_grad = unary_no_grad(Tensor(p.unsharded->grad), "accumulated_grad", *options_.reduce_dtype);
    device_.set_category(p.accumulated_grad->storage->allocation, Category::gradients);
    p.unsharded->grad.reset();
  }

  // _fsdp_collectives.py, foreach_reduce: copied and cast into one buffer; all whole gradients but the last, which a loop variable still
  // names, go before the output is made.
  void reduce(Group& g, const std::vector<ShardedParameter*>& parameters, std::vector<Tensor> gradients) {
    const OpScope op(device_, "reduce_scatter");
    const Dtype original = parameters.front()->original();
    const Dtype reduced = options_.reduce_dtype.value_or(parameters.front()->compute());
    std::int64_t shard_numel = 0;
    for (const ShardedParameter* p : parameters) shard_numel += p->padded_shard_numel;
    for (const Tensor& gradient : gradients) device_.meter.reads(gradient.bytes_read());
    reduce_scatter_input_ = communication_buffer(shard_numel * ranks_, reduced);
    chunk_cat(parameters, reduced);
    const Tensor last = gradients.back();
    gradients.clear();

    const With stream(device_.stream, static_cast<std::uint8_t>(streams_ + reduce_scatter_stream));
    Tensor output = communication_buffer(shard_numel, reduced);
    if (options_.replicate > 1) g.all_reduce_input = output;  // reduced where it is
    const std::uint8_t reduced_on = options_.replicate > 1 ? all_reduce_stream : reduce_scatter_stream;
    const With post_reduce(device_.stream, static_cast<std::uint8_t>(streams_ + reduced_on));
    if (reduced != original) output = communication_buffer(shard_numel, original);
    const std::int64_t shard_bytes = shard_numel * size_of(reduced).count;
    device_.meter.communicate(Collective::reduce_scatter, Among::shards, ranks_, shard_bytes * ranks_, reduce_scatter_stream);
    device_.meter.communicate(Collective::all_reduce, Among::copies, options_.replicate > 1 ? 0 : 1, shard_bytes, all_reduce_stream);
    if (offloads_) device_.meter.communicate(Collective::host_copy, Among::host, 0, shard_bytes, reduce_scatter_stream);
    if (offloads_) return;  // copied to the host
    device_.set_category(output->storage->allocation, Category::gradients);
    for (const ShardedParameter* p : parameters)
      if (!p->shard.tensor->grad) p->shard.tensor->grad = detach(output).impl();
  }

  // aten/src/ATen/native/cuda/TensorShape.cu, _chunk_cat_out_cuda: one kernel where the dtype stays, or goes from bf16 to fp32. Else
  // (TensorShape.cpp, _pad_chunk) what the ranks do not divide is padded first.
  void chunk_cat(const std::vector<ShardedParameter*>& parameters, Dtype reduced) {
    const Dtype from = parameters.front()->compute();
    if (from == reduced || (from == Dtype::bfloat16 && reduced == Dtype::float32))
      return device_.scratch(chunk_cat_table(parameters, size_of(reduced)));
    std::vector<Tensor> padded;
    for (const ShardedParameter* p : parameters)
      if (p->unsharded.size(0) % ranks_ != 0) padded.push_back(device_.empty({p->padded_shard_numel * ranks_}, from));
  }

  Device& device_;
  DataParallel options_;
  bool reshards_;             // after forward
  std::uint8_t streams_ = 0;  // before those of this instance
  bool reshards_after_backward_ = true;
  bool ends_apart_ = false, keeps_last_layer_ = false;  // torchtitan
  bool prepared_ = false, upcasts_ = false;             // by accelerate
  Tensor cast_items_;                                   // layers that are computed again keep it
  bool keeps_items_ = false;
  std::string embedding_;
  CausalLm::Split split_;
  bool offloads_;              // shards, gradients and optimizer are the host's (CPUOffloadPolicy)
  std::int64_t ranks_, rank_;  // of one copy
  int layers_;
  std::vector<Group> groups_;  // the root's, the embedding's, the layers', the output's
  bool around_checkpoint_;
  std::unordered_map<const TensorImpl*, TensorRequest> requests_;  // found by the tensor, never walked through
  std::vector<NamedTensor> optimized_;
  std::vector<Tensor> unpadded_;  // while the model is given memory
  Tensor padded_again_;           // of a tied head
  std::vector<int> forward_order_;
  Tensor last_all_gather_output_;  // of the forward before
  Tensor reduce_scatter_input_;    // of the reduction before
  bool synchronize_ = true;
};

}  // namespace

std::shared_ptr<FullySharded> fully_shard(Device& device, const Spec& spec, const Architecture& architecture, std::size_t stage) {
  return std::make_shared<FullyShardedModel>(device, spec, architecture, stage);
}

Rank fully_sharded(Device& device, const Spec& spec, const Architecture& tied_or_not) {
  // parallelize_module makes a parameter of its own of each module's weight.
  const Architecture architecture = spec.tensor.degree > 1 ? untied(tied_or_not) : tied_or_not;
  Rank rank;
  const auto sharded = std::make_shared<FullyShardedModel>(device, spec, architecture);
  if (spec.tensor.degree > 1 && tied_or_not.tied_embeddings) sharded->tied_head = std::string(architecture.names.head) + ".weight";
  const Training& training = spec.training;
  std::vector<NamedTensor> tensors;  // in the order in which modules are given memory
  const auto make = [&](const TensorRequest& request) {
    const bool buffer = request.kind == TensorRequest::buffer;
    const Tensor made = buffer ? device.unallocated(request.sizes, request.dtype) : sharded->request(request);
    if (buffer) rank.buffers.push_back(made);
    tensors.push_back({request.name, made, buffer ? buffers : request.unit});
    return made;
  };
  rank.model = std::make_unique<CausalLm>(architecture, training.weights, make);
  rank.model->use_liger(training.liger);
  rank.has_adapters = training.method == Method::lora;
  std::vector<NamedTensor> adapters;
  if (rank.has_adapters) {
    adapters = declare_adapters(*rank.model, training.adapter, [&](const TensorRequest& request) { return sharded->request(request); });
  }
  const auto is_adapter = [&](const NamedTensor& each) {
    return std::any_of(adapters.begin(), adapters.end(), [&](const NamedTensor& a) { return a.tensor.get() == each.tensor.get(); });
  };
  int loading = FullyShardedModel::root;
  const bool prepared = training.loop != Loop::plain;
  const auto finish_layer = [&] {
    if (loading >= 0 && !prepared) sharded->pad(loading);
  };
  for (const NamedTensor& each : with_adapters(tensors, adapters)) {
    if (each.unit != loading) finish_layer();
    loading = each.unit;
    const ModuleScope scope(device, module_of(each.name));
    const OpScope op(device, "parameter");
    if (each.unit != buffers) {
      sharded->place(each, !rank.has_adapters || is_adapter(each));
      continue;
    }
    if (prepared) continue;
    each.tensor->storage->allocate();
    device.set_category(each.tensor->storage->allocation, Category::weights);
  }
  finish_layer();
  if (prepared) {
    rank.begin_training = [sharded, &device](Rank& begun) {
      const std::vector<Tensor> named = sharded->load_prepared();
      for (const Tensor& buffer : begun.buffers) {
        buffer->storage->allocate();
        device.set_category(buffer->storage->allocation, Category::weights);
      }
      begun.optimized = sharded->optimized();
    };
    rank.wrap_outputs = [sharded](const std::vector<Tensor*>& outputs) { sharded->cast_outputs(outputs); };
  } else {
    sharded->pad(FullyShardedModel::root);
    rank.optimized = sharded->optimized();
  }
  rank.gradients_are_sharded = true;
  if (spec.tensor.degree > 1) {
    const CausalLm::Split split = tensor_split(spec);
    rank.model->split(split);
    set_mesh_groups(rank, device, split, true);
  }
  rank.hooks = sharded->hooks();
  rank.before_micro_batch = [sharded](bool synchronize) { sharded->synchronize_gradients(synchronize); };
  rank.after_backward.push_back([sharded] { sharded->backward_is_over(); });
  return rank;
}

}  // namespace llmem
