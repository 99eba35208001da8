#include <algorithm>

#include "plan/adapt.h"
#include "plan/deepspeed.h"
#include "plan/rank.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// torch/distributed/fsdp (FullyShardedDataParallel) as accelerate builds it: a unit for every decoder layer and one for the rest, original
// parameters kept, mixed precision, backward prefetch before the current gather is used. Here parameters are views of a unit's flat
// tensor, which has memory only while it is gathered.
namespace llmem {

namespace {

constexpr std::uint8_t pre_unshard_stream = 1, unshard_stream = 2, post_backward_stream = 3;
constexpr std::int64_t alignment_bytes = 16;  // _flat_param.py, FlatParamHandle._get_aligned_numel

// _flat_param.py, FlatParamHandle
struct Unit {
  struct Piece {
    TensorRequest request;
    Tensor parameter;        // a view of the flat tensor
    std::int64_t start = 0;  // in it, elements
    bool trains = true;
  };
  std::vector<Piece> pieces;  // in the order of parameters()
  std::int64_t numel = 0;     // padded to a multiple of the ranks
  Tensor shard;               // fp32: what the optimizer updates
  Tensor flat;                // in the compute dtype
  Tensor gradient;            // of the shard
  bool in_backward = false;
};

// Modules are given memory breadth first (_init_utils.py, _materialize_meta_module).
std::ptrdiff_t depth_of(const std::string& name) { return std::count(name.begin(), name.end(), '.'); }

class FullyShardedUnits {
 public:
  FullyShardedUnits(Device& device, const Spec& spec, int layers)
      : device_(device),
        original_(spec.training.weights),
        mixed_(spec.data.param_dtype.has_value()),
        compute_(spec.data.param_dtype.value_or(original_)),
        reduce_(spec.data.reduce_dtype.value_or(compute_)),
        reshards_(spec.data.reshard_after_forward),
        ranks_(spec.data.shard_ranks()),
        replicas_(spec.data.replicate),
        rank_(spec.rank % spec.data.shard_ranks()),
        units_(static_cast<std::size_t>(layers) + 1) {}

  Tensor add(const TensorRequest& request) {
    if (request.kind == TensorRequest::buffer) {
      buffers_.push_back({request, device_.unallocated(request.sizes, request.dtype), 0});
      return buffers_.back().parameter;
    }
    unit(request.unit).pieces.push_back({request, device_.unallocated(request.sizes, compute_), 0, trains_});
    return unit(request.unit).pieces.back().parameter;
  }

  // What is added from now on trains, or is frozen.
  void adding(bool trains) { trains_ = trains; }

  // Adapters lie after the layer that they belong to.
  void interleave(const std::vector<NamedTensor>& in_order) {
    const auto place_of = [&](const Unit::Piece& piece) {
      return std::find_if(in_order.begin(), in_order.end(), [&](const NamedTensor& n) { return n.name == piece.request.name; });
    };
    for (Unit& u : units_)
      std::stable_sort(u.pieces.begin(), u.pieces.end(), [&](const auto& a, const auto& b) { return place_of(a) < place_of(b); });
  }

  // In the order of the model's parameters: this rank's part of each that it has one of.
  std::vector<NamedTensor> load(const std::vector<NamedTensor>& parameters) {
    for (std::size_t i = 1; i < units_.size(); ++i) load(units_[i], {});
    load(units_[0], buffers_);
    std::vector<NamedTensor> parts;
    for (const NamedTensor& p : parameters) add_part(parts, p);
    return parts;
  }

  Tensor before_forward(int index, const Tensor& input) {
    Unit& u = unit(index);
    if (u.in_backward) return input;
    if (index == root) begin_forward();
    unshard(u);
    device_.meter.wait(unshard_stream);
    if (!u.flat->accumulator) return input;  // all frozen
    Recorder grad("split", {&u.flat});
    for (const Unit::Piece& piece : u.pieces) grad.attach(piece.parameter);
    grad.backward([this, &u](Tensors&) {
      const With stream(device_.stream, unshard_stream);
      return Tensors{device_.empty({u.numel}, compute_)};
    });
    return input;
  }

  Tensor after_forward(int index, Tensor output) {
    Unit& u = unit(index);
    if (u.in_backward) return output;
    if (reshards_ && index != root) u.flat->storage->release();
    forward_order_.push_back(index);
    output->grad_fn->pre_hook = [this, index] { pre_backward(index); };
    return output;
  }

  void synchronize_gradients(bool yes) { synchronize_ = yes; }

  void backward_is_over() {
    device_.meter.wait(post_backward_stream);
    for (Unit& u : units_) u.in_backward = false;
    forward_order_.clear();
  }

  // FullyShardedDataParallel.clip_grad_norm_
  void clip(const std::vector<NamedTensor>& parts) {
    const OpScope op(device_, "clip_grad_norm");
    const auto scalar = [&] { return device_.empty({}, Dtype::float32); };
    if (!zero_) zero_ = scalar();
    Tensor stacked;
    {
      std::vector<Tensor> norms;
      for (const NamedTensor& part : parts) {
        norms.push_back(scalar());
        whole_reduction_scratch(device_, part.tensor.numel(), static_cast<int>(size_of(original_).count));
      }
      stacked = device_.empty({static_cast<std::int64_t>(parts.size())}, Dtype::float32);
    }
    const Tensor local = scalar();
    stacked.reset();
    Tensor squared = scalar();
    const Tensor total = scalar();
    squared.reset();
    Tensor coefficient;
    {
      const Tensor guarded = scalar(), reciprocal = scalar();
      coefficient = scalar();
    }
    const Tensor clamped = scalar();
  }

 private:
  static constexpr int root = -1;
  Unit& unit(int index) { return units_[static_cast<std::size_t>(index + 1)]; }

  // The unit's tensors as they are, flattened, cut.
  void load(Unit& u, const std::vector<Unit::Piece>& buffers) {
    const OpScope op(device_, "parameter");
    place(u);
    std::vector<Tensor> originals;
    std::vector<const Unit::Piece*> order;
    for (const Unit::Piece& piece : u.pieces) order.push_back(&piece);
    for (const Unit::Piece& buffer : buffers) order.push_back(&buffer);
    std::stable_sort(order.begin(), order.end(),
                     [](const Unit::Piece* a, const Unit::Piece* b) { return depth_of(a->request.name) < depth_of(b->request.name); });
    for (const Unit::Piece* piece : order) {
      if (piece->request.kind == TensorRequest::parameter) {
        originals.push_back(device_.empty(piece->request.sizes, original_));
      } else {
        piece->parameter->storage->allocate();
        device_.set_category(piece->parameter->storage->allocation, Category::weights);
      }
    }
    const Tensor whole = device_.empty({u.numel}, original_);
    u.shard = device_.empty({u.numel / ranks_}, original_);
    device_.set_category(u.shard->storage->allocation, Category::weights);
  }

  void place(Unit& u) {
    const std::int64_t aligned = alignment_bytes / size_of(compute_).count;
    for (std::size_t i = 0; i < u.pieces.size(); ++i) {
      u.pieces[i].start = u.numel;
      u.numel += u.pieces[i].parameter.numel();
      if (i + 1 < u.pieces.size()) u.numel = divide_up(u.numel, aligned) * aligned;
    }
    u.numel = divide_up(u.numel, ranks_) * ranks_;
    u.flat = device_.unallocated({u.numel}, compute_);
    // One parameter that trains is enough for the whole flat tensor to have a gradient.
    if (std::any_of(u.pieces.begin(), u.pieces.end(), [](const Unit::Piece& piece) { return piece.trains; })) {
      require_grad(u.flat);
      u.flat->accumulator->post_hook = [this, &u] { post_backward(u); };
    }
    for (const Unit::Piece& piece : u.pieces) piece.parameter->storage = u.flat->storage;
  }

  void add_part(std::vector<NamedTensor>& parts, const NamedTensor& parameter) {
    Unit& u = unit(parameter.unit);
    const auto piece =
        std::find_if(u.pieces.begin(), u.pieces.end(), [&](const Unit::Piece& p) { return p.request.name == parameter.name; });
    if (!piece->trains) return;
    const std::int64_t length = u.numel / ranks_, start = rank_ * length;
    const std::int64_t count = std::min(piece->start + piece->parameter.numel(), start + length) - std::max(piece->start, start);
    if (count <= 0) return;
    const Tensor part = detach(u.shard);
    part->layout = {{count}, {1}};
    parts.push_back({parameter.name, part, parameter.unit});
  }

  // _runtime_utils.py, _root_pre_forward: gradients that zero_grad only hid go now; at the first forward _lazy_init.
  void begin_forward() {
    for (Unit& u : units_) u.gradient.reset();
    if (initialized_) return;
    initialized_ = true;
    for (const Unit::Piece& buffer : buffers_) {
      if (!mixed_) break;
      const Tensor cast = device_.empty(buffer.request.sizes, compute_);
      device_.set_category(cast->storage->allocation, Category::weights);
      buffer.parameter->storage = cast->storage;
      buffer.parameter->dtype = compute_;
    }
    const OpScope op(device_, "init_flat_parameter");
    for (const Unit& u : units_) {
      if (casts()) device_.scratch(size_of(compute_) * (u.numel / ranks_));
      device_.scratch(size_of(compute_) * u.numel);
      if (casts()) device_.scratch(size_of(original_) * u.numel);
    }
  }

  // FlatParamHandle.pre_unshard, unshard and post_unshard
  void unshard(Unit& u) {
    if (u.flat->storage->allocated()) return;
    const OpScope op(device_, "all_gather");
    Tensor low_precision;
    if (casts()) {
      const With stream(device_.stream, pre_unshard_stream);
      low_precision = device_.empty({u.numel / ranks_}, compute_);
      device_.set_category(low_precision->storage->allocation, Category::communication);
    }
    const With stream(device_.stream, unshard_stream);
    u.flat->storage->allocate();
    device_.set_category(u.flat->storage->allocation, Category::communication);
    device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, u.numel * size_of(compute_).count, unshard_stream);
  }

  void pre_backward(int index) {
    Unit& u = unit(index);
    if (u.in_backward) return;
    u.in_backward = true;
    unshard(u);
    device_.meter.wait(unshard_stream);
    const auto here = std::find(forward_order_.rbegin(), forward_order_.rend(), index);
    if (here != forward_order_.rend() && std::next(here) != forward_order_.rend()) unshard(unit(*std::next(here)));
  }

  // _post_backward_hook, _reduce_grad
  void post_backward(Unit& u) {
    const OpScope op(device_, "reduce_scatter");
    u.flat->storage->release();
    if (!synchronize_) return;  // no_sync: the whole gradient stays
    const Tensor whole(std::exchange(u.flat->grad, {}));
    const With stream(device_.stream, post_backward_stream);
    device_.meter.communicate(Collective::reduce_scatter, Among::shards, ranks_, u.numel * size_of(reduce_).count, post_backward_stream);
    device_.meter.communicate(Collective::all_reduce, Among::copies, replicas_, u.numel / ranks_ * size_of(reduce_).count,
                              post_backward_stream);
    const Tensor reduced = device_.empty({u.numel / ranks_}, reduce_);
    u.gradient = reduce_ == original_ ? reduced : device_.empty({u.numel / ranks_}, original_);
    device_.set_category(u.gradient->storage->allocation, Category::gradients);
  }

  bool casts() const { return compute_ != original_; }

  Device& device_;
  Dtype original_;
  bool mixed_;  // MixedPrecision: else parameters are gathered, and buffers left, as they are
  Dtype compute_, reduce_;
  bool reshards_, trains_ = true, synchronize_ = true;
  std::int64_t ranks_, replicas_, rank_;
  std::vector<Unit> units_;  // the root's, then the layers'
  std::vector<Unit::Piece> buffers_;
  std::vector<int> forward_order_;
  Tensor zero_;
  bool initialized_ = false;
};

// A param_init_fn that gives modules memory one by one, as from the meta device, unties the head: it becomes a parameter of its own.
Architecture untied(Architecture architecture) {
  if (!architecture.tied_embeddings) return architecture;
  architecture.tied_embeddings = false;
  Parameter head;
  head.name = std::string(architecture.names.head) + ".weight";
  head.shape = {architecture.vocab_size, architecture.hidden_size};
  architecture.tensors.push_back(std::move(head));
  return architecture;
}

}  // namespace

Rank fully_sharded_1(Device& device, const Spec& spec, const Architecture& tied_or_not) {
  const Architecture architecture = untied(tied_or_not);
  Rank rank;
  const auto units = std::make_shared<FullyShardedUnits>(device, spec, static_cast<int>(architecture.layers));
  const Training& training = spec.training;
  rank.has_adapters = training.method == Method::lora;
  units->adding(!rank.has_adapters);
  rank.model =
      std::make_unique<CausalLm>(architecture, training.weights, [&](const TensorRequest& request) { return units->add(request); });
  rank.model->use_liger(training.liger);
  std::vector<NamedTensor> parameters = rank.model->parameters();
  if (rank.has_adapters) {
    units->adding(true);
    const auto adapters =
        declare_adapters(*rank.model, training.adapter, [&](const TensorRequest& request) { return units->add(request); });
    parameters = with_adapters(parameters, adapters);
    units->interleave(parameters);
  }
  rank.optimized = units->load(parameters);
  rank.hooks = {[units](int unit, const Tensor& input) { return units->before_forward(unit, input); },
                [units](int unit, Tensor output) { return units->after_forward(unit, std::move(output)); }};
  rank.before_micro_batch = [units](bool synchronize) { units->synchronize_gradients(synchronize); };
  rank.after_backward.push_back([units] { units->backward_is_over(); });
  rank.clip = [units, parts = rank.optimized] { units->clip(parts); };
  return rank;
}

}  // namespace llmem
