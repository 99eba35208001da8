#include <algorithm>

#include "plan/adapt.h"
#include "plan/deepspeed.h"
#include "plan/rank.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// torch/distributed/fsdp (FullyShardedDataParallel) as accelerate builds it: a unit for every decoder layer and one for the rest. Here
// parameters are views of a unit's flat tensor, which has memory only while it is gathered (NO_SHARD: while it is cast, or for good).
namespace llmem {

namespace {

constexpr std::uint8_t pre_unshard_stream = 1, unshard_stream = 2, post_backward_stream = 3, all_reduce_stream = 4;
constexpr std::int64_t alignment_bytes = 16;  // _flat_param.py, FlatParamHandle._get_aligned_numel

// _flat_param.py, FlatParamHandle
struct Unit {
  struct Piece {
    TensorRequest request;
    Tensor parameter;        // a view of the flat tensor
    std::int64_t start = 0;  // in it, elements
    bool trains = true;
    bool has_grad = false;  // since zero_grad

    std::int64_t end() const { return start + parameter.numel(); }
  };
  std::vector<Piece> pieces;  // in the order of parameters()
  std::int64_t numel = 0;     // of all pieces, with what lies between them
  std::int64_t shard_numel = 0;
  Tensor shard;           // what the optimizer updates
  Tensor flat;            // in the compute dtype, whole
  Tensor uploaded;        // offload without a cast: the shard's copy on the GPU
  Tensor gradient;        // of the shard
  Ref<Storage> incoming;  // the gradient that is being accumulated, which the AccumulateGrad's post hook sees, too
  bool in_backward = false, prefetched = false, needs_forward = false, needs_backward = false, resharded = true;
};

// Modules are given memory breadth first (_init_utils.py, _materialize_meta_module).
std::ptrdiff_t depth_of(const std::string& name) { return std::count(name.begin(), name.end(), '.'); }

class FullyShardedUnits {
 public:
  FullyShardedUnits(Device& device, const Spec& spec, int layers)
      : device_(device),
        options_(spec.data),
        original_(spec.training.weights),
        compute_(spec.data.param_dtype.value_or(original_)),
        reduce_(spec.data.reduce_dtype.value_or(compute_)),
        shards_(spec.data.shards),
        offloads_(spec.offload.parameters),
        ranks_(spec.data.shard_ranks()),
        rank_(spec.rank % spec.data.shard_ranks()),
        units_(static_cast<std::size_t>(layers) + 1) {}

  Tensor add(const TensorRequest& request) {
    if (request.kind == TensorRequest::buffer) {
      buffers_.push_back({request, device_.unallocated(request.sizes, request.dtype)});
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

  // What the optimizer is given. With original parameters, in the order of the model's: this rank's part of each that it has one of.
  // Else the flat ones, the root's first.
  std::vector<NamedTensor> load(const std::vector<NamedTensor>& parameters) {
    for (std::size_t i = 1; i < units_.size(); ++i) load(units_[i], {});
    load(units_[0], buffers_);
    std::vector<NamedTensor> parts;
    if (offloads_) return parts;
    if (options_.use_orig_params) {
      for (const NamedTensor& p : parameters) add_part(parts, p);
      return parts;
    }
    for (std::size_t i = 0; i < units_.size(); ++i) parts.push_back({"_flat_param", units_[i].shard, static_cast<int>(i) - 1});
    return parts;
  }

  Tensor before_forward(int index, const Tensor& input) {
    Unit& u = unit(index);
    if (u.in_backward) return input;
    if (index == root) begin_forward();
    if (!u.prefetched) unshard_for_forward(u);
    device_.meter.wait(unshard_stream);
    u.needs_forward = false;
    if (!first_iteration_ && options_.forward_prefetch && index + 2 < static_cast<int>(units_.size())) {
      Unit& next = unit(index + 1);
      if (next.needs_forward && !next.prefetched) {
        unshard_for_forward(next);
        next.prefetched = true;
      }
    }
    return input;
  }

  Tensor after_forward(int index, Tensor output) {
    Unit& u = unit(index);
    if (u.in_backward) return output;
    reshard(u, options_.reshard_after_forward && index != root);
    u.needs_backward = static_cast<bool>(output->grad_fn);
    forward_order_.push_back(index);
    if (output->grad_fn) output->grad_fn->pre_hook = [this, index] { pre_backward(index); };
    return output;
  }

  void synchronize_gradients(bool yes) { synchronize_ = yes; }

  // _post_backward_final_callback
  void backward_is_over() {
    device_.meter.wait(post_backward_stream);
    for (Unit& u : units_) {
      if (!u.resharded) reshard(u, frees_in_backward());  // _catch_all_reshard
      u.in_backward = u.prefetched = u.needs_backward = false;
      if (!synchronize_ || !u.gradient) continue;
      if (offloads_)
        u.gradient.reset();
      else if (!options_.use_orig_params)
        u.shard->grad = std::exchange(u.gradient, {}).impl();
    }
    forward_order_.clear();
    first_iteration_ = false;
  }

  // FullyShardedDataParallel.clip_grad_norm_; under NO_SHARD it is torch.nn.utils' from here on.
  void make_zero() {
    if (!zero_) zero_ = device_.empty({}, Dtype::float32);
  }
  void clip(const std::vector<NamedTensor>& parts) {
    const OpScope op(device_, "clip_grad_norm");
    const auto scalar = [&] { return device_.empty({}, Dtype::float32); };
    make_zero();
    Tensor local = zero_;
    if (offloads_) {
      local = scalar();
    } else if (!parts.empty()) {
      Tensor stacked;
      {
        std::vector<Tensor> norms;
        for (const NamedTensor& part : parts) {
          norms.push_back(scalar());
          whole_reduction_scratch(device_, part.tensor.numel(), size_of(Dtype::float32).count);
        }
        stacked = device_.empty({static_cast<std::int64_t>(parts.size())}, Dtype::float32);
      }
      local = scalar();
    }
    Tensor squared = scalar();
    const Tensor total = scalar();
    squared.reset();
    if (offloads_) return;
    Tensor coefficient;
    {
      const Tensor guarded = scalar(), reciprocal = scalar();
      coefficient = scalar();
    }
    const Tensor clamped = scalar();
    if (original_ != Dtype::float32 && !parts.empty()) const Tensor scale = device_.empty({}, original_);
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
    Tensor whole = flattened(u);
    if (!shards_) {
      u.shard = whole;
      if (!casts() && !offloads_) u.flat->storage = whole->storage;
    } else {
      const std::int64_t own = std::clamp<std::int64_t>(u.numel - rank_ * u.shard_numel, 0, u.shard_numel);
      u.shard = device_.empty({own}, original_);
      if (own < u.shard_numel) u.shard = device_.empty({u.shard_numel}, original_);
    }
    device_.set_category(u.shard->storage->allocation, Category::weights);
    share_storage(u);
    whole.reset();
    if (offloads_) u.shard = device_.unallocated({u.shard_numel}, original_);
  }

  // FlatParamHandle._init_flat_param_and_metadata: padding is made as ones, times a value.
  Tensor flattened(const Unit& u) {
    std::vector<Tensor> padding;
    for (const std::int64_t gap : gaps(u)) {
      if (gap == 0) continue;
      const Tensor ones = device_.empty({gap}, original_);
      padding.push_back(device_.empty({gap}, original_));
    }
    return device_.empty({u.numel}, original_);
  }

  // What lies before each piece, and after the last, elements.
  static std::vector<std::int64_t> gaps(const Unit& u) {
    std::vector<std::int64_t> all;
    std::int64_t end = 0;
    for (const Unit::Piece& piece : u.pieces) {
      all.push_back(piece.start - end);
      end = piece.end();
    }
    all.push_back(u.numel - end);
    return all;
  }

  void place(Unit& u) {
    const std::int64_t aligned = options_.use_orig_params ? alignment_bytes / size_of(compute_).count : 1;
    for (std::size_t i = 0; i < u.pieces.size(); ++i) {
      u.pieces[i].start = u.numel;
      u.numel += u.pieces[i].parameter.numel();
      if (i + 1 < u.pieces.size()) u.numel = divide_up(u.numel, aligned) * aligned;
    }
    if (options_.use_orig_params) u.numel = divide_up(u.numel, ranks_) * ranks_;
    u.shard_numel = shards_ ? divide_up(u.numel, ranks_) : u.numel;
    u.flat = device_.unallocated({u.numel}, compute_);
    u.flat->storage->bytes = size_of(compute_) * gathered(u);
    // One parameter that trains is enough for the whole flat tensor to have a gradient.
    if (std::any_of(u.pieces.begin(), u.pieces.end(), [](const Unit::Piece& piece) { return piece.trains; })) {
      require_grad(u.flat);
      u.flat->accumulator->post_hook = [this, &u] { post_backward(u); };
    }
  }

  static void share_storage(Unit& u) {
    for (const Unit::Piece& piece : u.pieces) piece.parameter->storage = u.flat->storage;
  }

  std::int64_t gathered(const Unit& u) const { return shards_ ? u.shard_numel * ranks_ : u.numel; }

  // How much of a piece lies in this rank's shard, elements.
  std::int64_t own_part(const Unit& u, const Unit::Piece& piece) const {
    if (!shards_) return piece.parameter.numel();
    const std::int64_t start = rank_ * u.shard_numel;
    return std::max<std::int64_t>(0, std::min(piece.end(), start + u.shard_numel) - std::max(piece.start, start));
  }

  void add_part(std::vector<NamedTensor>& parts, const NamedTensor& parameter) {
    Unit& u = unit(parameter.unit);
    const auto piece =
        std::find_if(u.pieces.begin(), u.pieces.end(), [&](const Unit::Piece& p) { return p.request.name == parameter.name; });
    if (!piece->trains) return;
    const std::int64_t count = own_part(u, *piece);
    if (count <= 0) return;
    const Tensor part = detach(u.shard);
    part->layout = {{count}, {1}};
    if (!shards_) part->layout = {piece->request.sizes, contiguous_strides(piece->request.sizes)};
    parts.push_back({parameter.name, part, parameter.unit});
  }

  // _runtime_utils.py, _root_pre_forward: gradients that zero_grad only hid go now; at the first forward _lazy_init.
  void begin_forward() {
    for (Unit& u : units_) {
      u.needs_forward = true;
      u.prefetched = false;
      if (!options_.use_orig_params || !u.gradient) continue;
      u.gradient.reset();
      for (Unit::Piece& piece : u.pieces) piece.has_grad = false;
    }
    if (std::exchange(initialized_, true)) return;
    const Dtype of_buffers = options_.buffer_dtype.value_or(compute_);
    for (const Unit::Piece& buffer : buffers_) {
      if (!options_.param_dtype || of_buffers == buffer.request.dtype) break;
      const Tensor cast = device_.empty(buffer.request.sizes, of_buffers);
      device_.set_category(cast->storage->allocation, Category::weights);
      buffer.parameter->storage = cast->storage;
      buffer.parameter->dtype = of_buffers;
    }
    const OpScope op(device_, "init_flat_parameter");
    for (const Unit& u : units_) {
      if (casts()) device_.scratch(size_of(compute_) * u.shard_numel);
      if (!shards_) continue;
      device_.scratch(size_of(compute_) * gathered(u));
      if (casts()) device_.scratch(size_of(original_) * gathered(u));
    }
  }

  void unshard_for_forward(Unit& u) {
    unshard(u);
    if (!u.flat->accumulator) return;  // all frozen
    Recorder grad("split", {&u.flat});
    for (const Unit::Piece& piece : u.pieces) grad.attach(piece.parameter);
    // torch/csrc/autograd/FunctionsManual.cpp, split_with_sizes_backward: zeros for what got no gradient, padding too
    grad.backward([this, &u](Tensors& gradients) {
      const With stream(device_.stream, unshard_stream);
      const std::vector<std::int64_t> between = gaps(u);
      std::vector<Tensor> zeros;
      for (std::size_t i = 0; i < between.size(); ++i) {
        if (between[i] > 0) zeros.push_back(device_.empty({between[i]}, compute_));
        if (i < u.pieces.size() && !gradients[i]) zeros.push_back(device_.empty({u.pieces[i].parameter.numel()}, compute_));
      }
      const Tensor whole = device_.empty({u.numel}, compute_);
      u.incoming = whole->storage;
      return Tensors{whole};
    });
  }

  // FlatParamHandle.pre_unshard, unshard and post_unshard
  void unshard(Unit& u) {
    u.resharded = false;
    const bool here = u.flat->storage->allocated();
    if (here && (!offloads_ || !shards_)) return;
    const OpScope op(device_, "all_gather");
    Tensor low_precision = pre_unshard(u);
    if (here || !shards_) return;
    const With stream(device_.stream, unshard_stream);
    u.flat->storage->allocate();
    device_.set_category(u.flat->storage->allocation, Category::communication);
    device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, gathered(u) * size_of(compute_).count, unshard_stream);
    if (!options_.use_orig_params) u.uploaded.reset();  // with original parameters they stay views of it
  }

  // The shard in the compute dtype, on the GPU.
  Tensor pre_unshard(Unit& u) {
    const With stream(device_.stream, pre_unshard_stream);
    if (offloads_)
      device_.meter.communicate(Collective::host_copy, Among::host, 0, u.shard_numel * size_of(original_).count, pre_unshard_stream);
    if (!shards_) {
      u.flat->storage->allocate();
      device_.set_category(u.flat->storage->allocation, Category::communication);
      if (casts() && offloads_) device_.scratch(size_of(original_) * u.shard_numel);
      return {};
    }
    Tensor made;
    if (casts() || offloads_) {
      made = device_.empty({u.shard_numel}, compute_);
      device_.set_category(made->storage->allocation, Category::communication);
    }
    if (casts() && offloads_) device_.scratch(size_of(original_) * u.shard_numel);
    if (offloads_ && !casts()) u.uploaded = made;
    return made;
  }

  // FlatParamHandle.reshard and post_reshard
  void reshard(Unit& u, bool free) {
    u.prefetched = false;
    u.resharded = true;
    u.uploaded.reset();
    if (shards_ ? free : casts() || offloads_) u.flat->storage->release();
  }

  bool frees_in_backward() const { return synchronize_ || options_.reshard_after_forward; }

  void prefetch_for_backward(int index) {
    const auto here = std::find(forward_order_.rbegin(), forward_order_.rend(), index);
    if (here == forward_order_.rend() || std::next(here) == forward_order_.rend()) return;
    Unit& next = unit(*std::next(here));
    if (!next.needs_backward || next.prefetched) return;
    unshard(next);
    next.prefetched = true;
  }

  void pre_backward(int index) {
    Unit& u = unit(index);
    if (u.in_backward) return;
    u.in_backward = true;
    if (u.needs_backward && !u.prefetched) unshard(u);
    device_.meter.wait(unshard_stream);
    u.needs_backward = false;
    if (options_.backward_prefetch == BackwardPrefetch::before) prefetch_for_backward(index);
  }

  // _post_backward_hook
  void post_backward(Unit& u) {
    const Ref<Storage> incoming = std::exchange(u.incoming, {});
    const OpScope op(device_, "reduce_scatter");
    reshard(u, frees_in_backward());
    if (options_.backward_prefetch == BackwardPrefetch::after) prefetch_for_backward(static_cast<int>(&u - units_.data()) - 1);
    if (!synchronize_) return show_whole_gradient(u);
    const Tensor whole(std::exchange(u.flat->grad, {}));
    const With stream(device_.stream, post_backward_stream);
    Tensor gradient = whole;
    if (reduce_ != compute_) gradient = device_.empty({u.numel}, reduce_);
    if (shards_)
      reduce_shard(u, gradient);
    else
      reduce_whole(u, std::move(gradient));
    device_.set_category(u.gradient->storage->allocation, Category::gradients);
  }

  // _use_unsharded_grad_views of a gradient that stays whole: an original parameter that has none yet, and is of another shape or dtype,
  // is given one of its own shape first.
  void show_whole_gradient(Unit& u) {
    if (!options_.use_orig_params || offloads_) return;
    for (Unit::Piece& piece : u.pieces) {
      const std::int64_t own = own_part(u, piece);
      const bool as_it_is = !casts() && own == piece.parameter.numel() && (!shards_ || piece.parameter.dim() == 1);
      if (!std::exchange(piece.has_grad, true) && !as_it_is && own > 0) device_.scratch(size_of(original_) * own);
    }
  }

  // _reduce_grad
  void reduce_shard(Unit& u, const Tensor& gradient) {
    Tensor padded = gradient;
    if (u.numel < gathered(u)) padded = device_.empty({gathered(u)}, reduce_);
    device_.meter.communicate(Collective::reduce_scatter, Among::shards, ranks_, gathered(u) * size_of(reduce_).count,
                              post_backward_stream);
    device_.meter.communicate(Collective::all_reduce, Among::copies, options_.replicate, u.shard_numel * size_of(reduce_).count,
                              post_backward_stream);
    const Tensor reduced = device_.empty({u.shard_numel}, reduce_);
    const With stream(device_.stream, options_.replicate > 1 ? all_reduce_stream : post_backward_stream);
    u.gradient = reduce_ == original_ ? reduced : device_.empty({u.shard_numel}, original_);
    if (offloads_)
      device_.meter.communicate(Collective::host_copy, Among::host, 0, u.shard_numel * size_of(original_).count, post_backward_stream);
  }

  // _reduce_grad_no_shard
  void reduce_whole(Unit& u, Tensor gradient) {
    device_.meter.communicate(Collective::all_reduce, Among::shards, ranks_, u.numel * size_of(reduce_).count, post_backward_stream);
    u.gradient = reduce_ == original_ ? std::move(gradient) : device_.empty({u.numel}, original_);
  }

  bool casts() const { return compute_ != original_; }

  Device& device_;
  DataParallel options_;
  Dtype original_, compute_, reduce_;
  bool shards_, offloads_;
  bool trains_ = true, synchronize_ = true;
  std::int64_t ranks_, rank_;
  std::vector<Unit> units_;  // the root's, then the layers'
  std::vector<Unit::Piece> buffers_;
  std::vector<int> forward_order_;
  Tensor zero_;
  bool initialized_ = false, first_iteration_ = true;
};

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
  rank.hooks = {true,
                {},
                [units](int unit, const Tensor& input) { return units->before_forward(unit, input); },
                [units](int unit, Tensor output) { return units->after_forward(unit, std::move(output)); }};
  rank.before_micro_batch = [units](bool synchronize) { units->synchronize_gradients(synchronize); };
  rank.after_backward.push_back([units] { units->backward_is_over(); });
  if (spec.data.shards)
    rank.clip = [units, parts = rank.optimized] { units->clip(parts); };
  else
    rank.before_clip = [units] { units->make_zero(); };
  return rank;
}

}  // namespace llmem
