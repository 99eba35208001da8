#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>

#include "plan/adapt.h"
#include "plan/deepspeed.h"
#include "plan/rank.h"
#include "tensor/autograd.h"
#include "tensor/module_hooks.h"
#include "tensor/ops.h"

// torch/distributed/fsdp (FullyShardedDataParallel) as accelerate builds it: a unit for every decoder layer and one for the rest. Here
// parameters are views of a unit's flat tensor, which has memory only while it is gathered (NO_SHARD: while it is cast, or for good).
// With PEFT's fsdp_auto_wrap_policy (peft/utils/other.py) each adapter's Linear is a unit of its own.
namespace llmem {

namespace {

constexpr std::uint8_t compute_stream = 0, pre_unshard_stream = 1, unshard_stream = 2, post_backward_stream = 3, all_reduce_stream = 4;
// AccumulateGrad of a flat tensor was made as its views were, in this stream's context, and the engine runs its hooks there.
constexpr std::uint8_t accumulating_stream = unshard_stream;
constexpr std::uint8_t freed_gathers = 0;     // _FreeEventQueue: the events that the host waits for before it gathers more
constexpr int most_gathers_in_flight = 2;     // _limiter_utils.py, _max_num_inflight_all_gathers
constexpr std::int64_t alignment_bytes = 16;  // _flat_param.py, FlatParamHandle._get_aligned_numel

// _flat_param.py, FlatParamHandle
struct Unit {
  struct Piece {
    TensorRequest request;
    Tensor parameter;        // a view of the flat tensor
    std::int64_t start = 0;  // in it, elements
    bool trains = true;
    bool has_grad = false;  // since zero_grad
    int nested = 0;         // modules around it that its name here does not show

    std::int64_t end() const { return start + parameter.numel(); }
  };
  std::vector<Piece> pieces;  // in the order of parameters()
  int layer = -1;             // that it is, or that it lies in; -1: none
  Dtype original = Dtype::float32, compute = Dtype::float32, reduce = Dtype::float32;
  std::int64_t numel = 0;  // of all pieces, with what lies between them
  std::int64_t shard_numel = 0;
  Tensor shard;           // what the optimizer updates
  Tensor shard_before;    // … before it was cast
  Tensor flat;            // in the compute dtype, whole
  Tensor uploaded;        // offload without a cast: the shard's copy on the GPU
  Tensor gradient;        // of the shard
  Ref<Storage> incoming;  // the gradient that is being accumulated, which the AccumulateGrad's post hook sees, too
  bool in_backward = false, prefetched = false, needs_forward = false, needs_backward = false, ran_before_backward = false;
  bool resharded = true;
  std::optional<std::size_t> forward_place, post_forward_place;  // _pre_forward_order_index, _post_forward_index
  Ref<Node> makes_input;                                         // of a frozen unit: once backward has come there, it is given back

  bool casts() const { return compute != original; }
};

// Modules are given memory breadth first (_init_utils.py, _materialize_meta_module).
std::ptrdiff_t depth_of(const Unit::Piece& piece) {
  return std::count(piece.request.name.begin(), piece.request.name.end(), '.') + piece.nested;
}

class FullyShardedUnits : public ModuleHooks {
 public:
  FullyShardedUnits(Device& device, const Spec& spec, int layers)
      : device_(device),
        options_(spec.data),
        shards_(spec.data.shards),
        offloads_(spec.offload.parameters),
        upcasts_(spec.training.loop != Loop::plain && spec.training.autocast && !spec.offload.parameters),
        ranks_(spec.data.shard_ranks()),
        rank_(spec.rank % spec.data.shard_ranks()),
        layers_(layers),
        units_(static_cast<std::size_t>(layers) + 1) {
    for (int i = root; i < layers; ++i) begin_unit(unit(i), i, spec.training.weights);
  }

  Tensor add(const TensorRequest& request) {
    if (request.kind == TensorRequest::buffer) {
      buffers_.push_back({request, device_.unallocated(request.sizes, request.dtype)});
      return buffers_.back().parameter;
    }
    return add_to(unit(request.unit), request);
  }

  // What is added from now on trains, or is frozen.
  void adding(bool trains) { trains_ = trains; }

  Tensor add_apart(const TensorRequest& request, Dtype dtype) {
    units_.emplace_back();
    begin_unit(units_.back(), request.unit, dtype);
    const Tensor made = add_to(units_.back(), request);
    apart_.emplace(made.get(), static_cast<int>(units_.size()) - 2);
    return made;
  }
  bool has_units_apart() const { return !apart_.empty(); }

  // Out of its unit an adapter shows what it is held in.
  void show(LoraAdapter& adapter) {
    const int index = apart_.at(adapter.a.get());
    if (!unit(index).casts()) return;
    adapter.seen_as = unit(index).original;
    seen_[index] = &adapter;
  }

  // A quantised weight in place of the plain one, or another tensor beside it.
  Tensor pack(const Tensor& weight, const Dims& sizes, bool beside) {
    for (Unit& u : units_) {
      const auto found = std::find_if(u.pieces.begin(), u.pieces.end(), [&](const auto& p) { return p.parameter.get() == weight.get(); });
      if (found == u.pieces.end()) continue;
      Unit::Piece piece = *found;
      piece.request.sizes = sizes;
      piece.parameter = device_.unallocated(sizes, u.compute);
      if (beside)
        u.pieces.insert(std::next(found), piece);
      else
        *found = piece;
      return piece.parameter;
    }
    return {};
  }

  // torch.nn.Module's hooks around the Linears that are units.
  void enter(std::uint64_t module, std::initializer_list<const Tensor*> parameters, Tensor& input) override {
    const auto found = parameters.size() == 1 ? apart_.find((*parameters.begin())->get()) : apart_.end();
    if (found == apart_.end()) return;
    running_[module] = found->second;
    before_forward(found->second, input);
  }
  void leave(std::uint64_t module, Tensor& output) override {
    const auto found = running_.find(module);
    if (found == running_.end()) return;
    output = after_forward(found->second, std::move(output));
    // Without original parameters a module names the view that it had last, as first of the flat tensor as it was made.
    const auto adapter = seen_.find(found->second);
    if (!options_.use_orig_params && adapter != seen_.end()) adapter->second->seen_as.reset();
  }
  void look(std::uint64_t, const Tensor&) override {}

  // PEFT's modules: "q_proj.base_layer.weight", "q_proj.lora_A.default.weight".
  void nest(const std::vector<NamedTensor>& adapters) {
    for (const NamedTensor& adapter : adapters) {
      const std::string_view module = module_of(module_of(adapter.name));
      const auto is_nested = [&](const std::string& name) { return module_of(name) == module || name == adapter.name; };
      for (Unit::Piece& piece : unit(adapter.unit).pieces)
        if (is_nested(piece.request.name)) piece.nested = 1;
    }
  }

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
    for (int layer = 0; layer < layers_; ++layer) {
      load_apart(layer);
      load(unit(layer), {});
    }
    load_apart(root);
    load(unit(root), buffers_);
    for_each_in_order([this](Unit& u) { upcast(u); });
    std::vector<NamedTensor> parts;
    if (offloads_) return parts;
    if (options_.use_orig_params) {
      for (const NamedTensor& p : parameters) add_part(parts, p);
      return parts;
    }
    for_each_in_order([&](const Unit& u) { add_flat(parts, u); });
    return parts;
  }

  Tensor before_forward(int index, const Tensor& input) {
    Unit& u = unit(index);
    if (u.in_backward) return input;
    if (index == root) begin_forward();
    if (first_iteration_ && !u.forward_place) {
      u.forward_place = forward_order_.size();
      forward_order_.push_back(index);
    }
    if (!u.prefetched) unshard_for_forward(u);
    wait_for_gathers();
    u.needs_forward = false;
    if (options_.forward_prefetch) prefetch_for_forward(u);
    give_back_after_backward(u, input);
    return input;
  }

  Tensor after_forward(int index, Tensor output) {
    Unit& u = unit(index);
    if (u.in_backward) return output;
    if (!u.post_forward_place || *u.post_forward_place == 0) u.post_forward_place = post_forward_order_.size();
    post_forward_order_.push_back(index);
    reshard(u, options_.reshard_after_forward && index != root, compute_stream);
    if (!device_.grad_enabled) return output;
    u.needs_backward = static_cast<bool>(output->grad_fn);
    u.ran_before_backward = false;
    if (output->grad_fn) before_node(*output->grad_fn, [this, index] { pre_backward(index); });
    return output;
  }

  void synchronize_gradients(bool yes) { synchronize_ = yes; }

  // _post_backward_final_callback
  void backward_is_over() {
    device_.meter.wait(post_backward_stream);
    if (synchronize_) wait_for_reductions();
    for (Unit& u : units_) {
      if (!u.resharded) reshard(u, frees_in_backward(), compute_stream);  // _catch_all_reshard
      u.in_backward = u.prefetched = u.needs_backward = u.ran_before_backward = false;
      u.post_forward_place.reset();
      u.makes_input = {};
      if (!synchronize_ || !u.gradient) continue;
      if (offloads_)
        u.gradient.reset();
      else if (!options_.use_orig_params)
        u.shard->grad = std::exchange(u.gradient, {}).impl();
    }
    post_forward_order_.clear();
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
    const auto half = std::find_if(parts.begin(), parts.end(), [](const NamedTensor& p) { return p.tensor.dtype() != Dtype::float32; });
    if (half != parts.end()) const Tensor scale = device_.empty({}, half->tensor.dtype());
  }

 private:
  static constexpr int root = -1;
  Unit& unit(int index) { return units_[static_cast<std::size_t>(index + 1)]; }

  void begin_unit(Unit& u, int layer, Dtype original) const {
    u.layer = layer;
    u.original = original;
    u.compute = options_.param_dtype.value_or(original);
    u.reduce = options_.reduce_dtype.value_or(u.compute);
  }

  Tensor add_to(Unit& u, const TensorRequest& request) {
    u.pieces.push_back({request, device_.unallocated(request.sizes, u.compute), 0, trains_});
    return u.pieces.back().parameter;
  }

  void for_each_apart(int layer, const std::function<void(Unit& u)>& act) {
    for (std::size_t i = static_cast<std::size_t>(layers_) + 1; i < units_.size(); ++i)
      if (units_[i].layer == layer) act(units_[i]);
  }

  // As torch.nn.Module.modules() comes to them.
  void for_each_in_order(const std::function<void(Unit& u)>& act) {
    for (int i = root; i < layers_; ++i) {
      act(unit(i));
      for_each_apart(i, act);
    }
  }

  // wrap.py, _recursive_wrap: children first.
  void load_apart(int layer) {
    for_each_apart(layer, [this](Unit& u) { load(u, {}); });
  }

  static void add_flat(std::vector<NamedTensor>& parts, const Unit& u) {
    if (u.flat->accumulator) parts.push_back({"_flat_param", u.shard, u.layer});
  }

  static void before_node(Node& node, std::function<void()> hook) {
    if (!node.pre_hook) {
      node.pre_hook = std::move(hook);
      return;
    }
    const auto first = std::make_shared<Closure<void()>>(std::move(node.pre_hook));
    node.pre_hook = [first, hook = std::move(hook)] {
      (*first)();
      hook();
    };
  }

  // _register_post_backward_reshard_only_hook: a frozen unit has no gradient to wait for.
  void give_back_after_backward(Unit& u, const Tensor& input) {
    if (!device_.grad_enabled || u.flat->accumulator || u.makes_input || !input || !input.requires_grad()) return;
    u.makes_input = gradient_edge(input).node;
    before_node(*u.makes_input, [this, &u] {
      reshard(u, frees_in_backward(), compute_stream);
      if (options_.backward_prefetch == BackwardPrefetch::after) prefetch_for_backward(u);
    });
  }

  // The unit's tensors as they are, flattened, cut.
  void load(Unit& u, const std::vector<Unit::Piece>& buffers) {
    const OpScope op(device_, "parameter");
    place(u);
    std::vector<Tensor> originals;
    std::vector<const Unit::Piece*> order;
    for (const Unit::Piece& piece : u.pieces) order.push_back(&piece);
    for (const Unit::Piece& buffer : buffers) order.push_back(&buffer);
    std::stable_sort(order.begin(), order.end(), [](const Unit::Piece* a, const Unit::Piece* b) { return depth_of(*a) < depth_of(*b); });
    for (const Unit::Piece* piece : order) {
      if (piece->request.kind == TensorRequest::parameter) {
        originals.push_back(device_.empty(piece->request.sizes, u.original));
      } else {
        piece->parameter->storage->allocate();
        device_.set_category(piece->parameter->storage->allocation, Category::weights);
      }
    }
    Tensor whole = flattened(u);
    if (!shards_) {
      u.shard = whole;
      if (!u.casts() && !offloads_) u.flat->storage = whole->storage;
    } else {
      const std::int64_t own = std::clamp<std::int64_t>(u.numel - rank_ * u.shard_numel, 0, u.shard_numel);
      u.shard = device_.empty({own}, u.original);
      if (own < u.shard_numel) u.shard = device_.empty({u.shard_numel}, u.original);
    }
    device_.set_category(u.shard->storage->allocation, Category::weights);
    share_storage(u);
    whole.reset();
    if (offloads_) u.shard = device_.unallocated({u.shard_numel}, u.original);
  }

  // accelerator.py, prepare_model: under mixed precision what trains is held in fp32.
  void upcast(Unit& u) {
    if (!upcasts_ || !u.flat->accumulator || u.original == Dtype::float32) return;
    u.original = Dtype::float32;
    if (options_.use_orig_params) u.shard_before = u.shard;  // the original parameters are views of it until the unit is given back
    u.shard = device_.empty({u.shard_numel}, u.original);
    device_.set_category(u.shard->storage->allocation, Category::weights);
  }

  // FlatParamHandle._init_flat_param_and_metadata: padding is made as ones, times a value.
  Tensor flattened(const Unit& u) {
    std::vector<Tensor> padding;
    for (const std::int64_t gap : gaps(u)) {
      if (gap == 0) continue;
      const Tensor ones = device_.empty({gap}, u.original);
      padding.push_back(device_.empty({gap}, u.original));
    }
    return device_.empty({u.numel}, u.original);
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
    const std::int64_t aligned = options_.use_orig_params ? alignment_bytes / size_of(u.compute).count : 1;
    for (std::size_t i = 0; i < u.pieces.size(); ++i) {
      u.pieces[i].start = u.numel;
      u.numel += u.pieces[i].parameter.numel();
      if (i + 1 < u.pieces.size()) u.numel = divide_up(u.numel, aligned) * aligned;
    }
    if (options_.use_orig_params) u.numel = divide_up(u.numel, ranks_) * ranks_;
    u.shard_numel = shards_ ? divide_up(u.numel, ranks_) : u.numel;
    u.flat = device_.unallocated({u.numel}, u.compute);
    u.flat->storage->bytes = size_of(u.compute) * gathered(u);
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
    const auto apart = apart_.find(parameter.tensor.get());
    Unit& u = unit(apart == apart_.end() ? parameter.unit : apart->second);
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
    // _wait_for_computation_stream
    device_.streams.wait(unshard_stream, compute_stream);
    device_.streams.wait(pre_unshard_stream, compute_stream);
    if (std::exchange(initialized_, true)) return;
    const Dtype of_buffers = options_.buffer_dtype.value_or(options_.param_dtype.value_or(Dtype::float32));
    for (const Unit::Piece& buffer : buffers_) {
      if (!options_.param_dtype || of_buffers == buffer.request.dtype) break;
      const Tensor cast = device_.empty(buffer.request.sizes, of_buffers);
      device_.set_category(cast->storage->allocation, Category::weights);
      buffer.parameter->storage = cast->storage;
      buffer.parameter->dtype = of_buffers;
    }
    const OpScope op(device_, "init_flat_parameter");
    for_each_in_order([this](const Unit& u) { init_flat_parameter(u); });
  }

  // FlatParamHandle.init_flat_param_attributes
  void init_flat_parameter(const Unit& u) {
    if (u.casts()) device_.scratch(size_of(u.compute) * u.shard_numel);
    if (!shards_) return;
    device_.scratch(size_of(u.compute) * gathered(u));
    if (u.casts()) device_.scratch(size_of(u.original) * gathered(u));
  }

  void unshard_for_forward(Unit& u) {
    unshard(u);
    if (!u.flat->accumulator) return;  // all frozen
    Recorder grad("split", {&u.flat});
    for (const Unit::Piece& piece : u.pieces) grad.attach(piece.parameter);
    // torch/csrc/autograd/FunctionsManual.cpp, split_with_sizes_backward: zeros for what got no gradient, padding too
    grad.backward([this, &u](Tensors& gradients) {
      const With stream(device_.stream, unshard_stream);
      // torch/csrc/autograd/input_buffer.cpp, InputBuffer::add: a gradient that another stream takes
      for (const Tensor& gradient : gradients)
        if (gradient) device_.streams.use(*gradient->storage, unshard_stream);
      device_.streams.wait(unshard_stream, compute_stream);
      const std::vector<std::int64_t> between = gaps(u);
      std::vector<Tensor> zeros;
      for (std::size_t i = 0; i < between.size(); ++i) {
        if (between[i] > 0) zeros.push_back(device_.empty({between[i]}, u.compute));
        if (i < u.pieces.size() && !gradients[i]) zeros.push_back(device_.empty({u.pieces[i].parameter.numel()}, u.compute));
      }
      const Tensor whole = device_.empty({u.numel}, u.compute);
      u.incoming = whole->storage;
      return Tensors{whole};
    });
  }

  // FlatParamHandle.pre_unshard, unshard and post_unshard
  void unshard(Unit& u) {
    u.resharded = false;
    const bool here = u.flat->storage->allocated();
    const OpScope op(device_, "all_gather");
    Tensor low_precision;
    if (!here || (offloads_ && shards_)) {
      low_precision = pre_unshard(u);
      if (u.casts() || offloads_) device_.streams.wait(unshard_stream, pre_unshard_stream);
    }
    limit_gathers();
    if (low_precision) device_.streams.use(*low_precision->storage, unshard_stream);
    if (here || !shards_) return;
    const With stream(device_.stream, unshard_stream);
    u.flat->storage->allocate();
    device_.set_category(u.flat->storage->allocation, Category::communication);
    device_.meter.communicate(Collective::all_gather, Among::shards, ranks_, gathered(u) * size_of(u.compute).count, unshard_stream);
    device_.streams.communicate(unshard_stream);
    if (!options_.use_orig_params) u.uploaded.reset();  // with original parameters they stay views of it
  }

  // The shard in the compute dtype, on the GPU.
  Tensor pre_unshard(Unit& u) {
    const With stream(device_.stream, pre_unshard_stream);
    if (offloads_)
      device_.meter.communicate(Collective::host_copy, Among::host, 0, u.shard_numel * size_of(u.original).count, pre_unshard_stream);
    if (!shards_) {
      u.flat->storage->allocate();
      device_.set_category(u.flat->storage->allocation, Category::communication);
      if (u.casts() && offloads_) device_.scratch(size_of(u.original) * u.shard_numel);
      return {};
    }
    Tensor made;
    if (u.casts() || offloads_) {
      made = device_.empty({u.shard_numel}, u.compute);
      device_.set_category(made->storage->allocation, Category::communication);
    }
    if (u.casts() && offloads_) device_.scratch(size_of(u.original) * u.shard_numel);
    if (offloads_ && !u.casts()) u.uploaded = made;
    return made;
  }

  // _unshard: the host waits before it lets more units be whole at once.
  void limit_gathers() {
    if (freed_ < most_gathers_in_flight) return;
    device_.streams.host_waits_for_oldest(freed_gathers);
    --freed_;
  }

  void wait_for_gathers() {
    device_.meter.wait(unshard_stream);
    device_.streams.wait(compute_stream, unshard_stream);
  }

  void wait_for_reductions() {
    device_.streams.wait(compute_stream, post_backward_stream);
    if (options_.replicate > 1) device_.streams.wait(compute_stream, all_reduce_stream);
    if (offloads_) device_.streams.host_waits(compute_stream);
  }

  // FlatParamHandle.reshard and post_reshard, called on this stream
  void reshard(Unit& u, bool free, std::uint8_t stream) {
    u.prefetched = false;
    u.resharded = true;
    u.shard_before.reset();
    u.uploaded.reset();
    if (shards_ ? free : u.casts() || offloads_) {
      device_.streams.use(*u.flat->storage, stream);
      u.flat->storage->release();
    }
    if (!free || !shards_ || !options_.limit_all_gathers) return;
    device_.streams.mark(freed_gathers, stream);
    ++freed_;
  }

  bool frees_in_backward() const { return synchronize_ || options_.reshard_after_forward; }

  // _exec_order_utils.py, get_handle_to_backward_prefetch and get_handle_to_forward_prefetch
  void prefetch_for_backward(const Unit& u) {
    if (!u.post_forward_place || *u.post_forward_place == 0) return;
    Unit& next = unit(post_forward_order_[*u.post_forward_place - 1]);
    if (!next.needs_backward || next.prefetched) return;
    unshard(next);
    next.prefetched = true;
  }
  void prefetch_for_forward(const Unit& u) {
    if (first_iteration_ || *u.forward_place + 1 >= forward_order_.size()) return;
    Unit& next = unit(forward_order_[*u.forward_place + 1]);
    if (!next.needs_forward || next.prefetched) return;
    unshard_for_forward(next);
    next.prefetched = true;
  }

  void pre_backward(int index) {
    Unit& u = unit(index);
    if (u.ran_before_backward) return;
    u.in_backward = true;
    if (u.needs_backward && !u.prefetched) unshard(u);
    if (u.needs_backward)
      wait_for_gathers();
    else
      device_.meter.wait(unshard_stream);
    u.needs_backward = false;
    if (options_.backward_prefetch == BackwardPrefetch::before) prefetch_for_backward(u);
    u.ran_before_backward = true;
  }

  // _post_backward_hook
  void post_backward(Unit& u) {
    const Ref<Storage> incoming = std::exchange(u.incoming, {});
    const OpScope op(device_, "reduce_scatter");
    reshard(u, frees_in_backward(), accumulating_stream);
    if (options_.backward_prefetch == BackwardPrefetch::after) prefetch_for_backward(u);
    if (!synchronize_) return show_whole_gradient(u);
    const Tensor whole(std::exchange(u.flat->grad, {}));
    device_.streams.wait(post_backward_stream, accumulating_stream);
    device_.streams.use(*whole->storage, post_backward_stream);
    const With stream(device_.stream, post_backward_stream);
    Tensor gradient = whole;
    if (u.reduce != u.compute) gradient = device_.empty({u.numel}, u.reduce);
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
    const With stream(device_.stream, accumulating_stream);
    for (Unit::Piece& piece : u.pieces) {
      const std::int64_t own = own_part(u, piece);
      const bool as_it_is = !u.casts() && own == piece.parameter.numel() && (!shards_ || piece.parameter.dim() == 1);
      if (!std::exchange(piece.has_grad, true) && !as_it_is && own > 0) device_.scratch(size_of(u.original) * own);
    }
  }

  // _reduce_grad
  void reduce_shard(Unit& u, const Tensor& gradient) {
    Tensor padded = gradient;
    if (u.numel < gathered(u)) padded = device_.empty({gathered(u)}, u.reduce);
    device_.meter.communicate(Collective::reduce_scatter, Among::shards, ranks_, gathered(u) * size_of(u.reduce).count,
                              post_backward_stream);
    device_.meter.communicate(Collective::all_reduce, Among::copies, options_.replicate, u.shard_numel * size_of(u.reduce).count,
                              post_backward_stream);
    const Tensor reduced = device_.empty({u.shard_numel}, u.reduce);
    device_.streams.communicate(post_backward_stream);
    if (options_.replicate > 1) {
      device_.streams.wait(all_reduce_stream, post_backward_stream);
      device_.streams.use(*reduced->storage, all_reduce_stream);
    }
    const With stream(device_.stream, options_.replicate > 1 ? all_reduce_stream : post_backward_stream);
    u.gradient = u.reduce == u.original ? reduced : device_.empty({u.shard_numel}, u.original);
    if (offloads_)
      device_.meter.communicate(Collective::host_copy, Among::host, 0, u.shard_numel * size_of(u.original).count, post_backward_stream);
  }

  // _reduce_grad_no_shard
  void reduce_whole(Unit& u, Tensor gradient) {
    device_.meter.communicate(Collective::all_reduce, Among::shards, ranks_, u.numel * size_of(u.reduce).count, post_backward_stream);
    u.gradient = u.reduce == u.original ? std::move(gradient) : device_.empty({u.numel}, u.original);
  }

  Device& device_;
  DataParallel options_;
  bool shards_, offloads_, upcasts_;
  bool trains_ = true, synchronize_ = true;
  std::int64_t ranks_, rank_;
  int layers_;
  std::vector<Unit> units_;                           // the root's, the layers', those of adapters
  std::unordered_map<const TensorImpl*, int> apart_;  // the unit of each parameter that is one
  std::unordered_map<std::uint64_t, int> running_;    // … and of each module
  std::unordered_map<int, LoraAdapter*> seen_;
  std::vector<Unit::Piece> buffers_;
  std::vector<int> forward_order_;       // of the first iteration
  std::vector<int> post_forward_order_;  // of this one
  Tensor zero_;
  bool initialized_ = false, first_iteration_ = true;
  int freed_ = 0;  // whole units that were given back, for which the host has not waited yet
};

// Adapters that are made on a base that has memory (peft, cast_adapter_dtype).
Dtype dtype_of_adapters(const Training& training) {
  if (training.base_quantization && training.loop == Loop::sft_trainer) return Dtype::bfloat16;
  return training.adapter.upcast ? Dtype::float32 : training.weights;
}

std::vector<NamedTensor> add_adapters_to(FullyShardedUnits& units, const Spec& spec, const CausalLm& model) {
  const Training& training = spec.training;
  units.adding(true);
  const bool apart = spec.data.adapters_apart;
  const auto adapters = declare_adapters(model, training.adapter, [&](const TensorRequest& request) {
    return apart ? units.add_apart(request, dtype_of_adapters(training)) : units.add(request);
  });
  units.nest(adapters);
  for (const NamedLinear& each : model.linears())
    if (apart && each.linear.parts->adapter) units.show(*each.linear.parts->adapter);
  std::vector<NamedTensor> parameters = with_adapters(model.parameters(), adapters);
  if (!apart) units.interleave(parameters);
  return parameters;
}

}  // namespace

Rank fully_sharded_1(Device& device, const Spec& spec, const Architecture& tied_or_not) {
  // Modules that are given memory one by one are untied by it; a Trainer's model is whole on the host.
  const Architecture architecture = spec.training.loop == Loop::plain ? untied(tied_or_not) : tied_or_not;
  Rank rank;
  const auto units = std::make_shared<FullyShardedUnits>(device, spec, static_cast<int>(architecture.layers));
  const Training& training = spec.training;
  rank.has_adapters = training.method == Method::lora;
  units->adding(!rank.has_adapters);
  rank.model =
      std::make_unique<CausalLm>(architecture, training.weights, [&](const TensorRequest& request) { return units->add(request); });
  if (training.base_quantization)
    quantize_linears(device, *rank.model, *training.base_quantization, training.weights,
                     [&](const Tensor& weight, const Dims& sizes, bool beside) { return units->pack(weight, sizes, beside); });
  rank.model->use_liger(training.liger);
  const std::vector<NamedTensor> parameters = rank.has_adapters ? add_adapters_to(*units, spec, *rank.model) : rank.model->parameters();
  const auto wrap = [units, parameters, shards = spec.data.shards](Rank& wrapped) {
    wrapped.optimized = units->load(parameters);
    if (shards)
      wrapped.clip = [units, parts = wrapped.optimized] { units->clip(parts); };
    else
      wrapped.before_clip = [units] { units->make_zero(); };
  };
  if (training.loop == Loop::plain)
    wrap(rank);
  else
    rank.begin_training = wrap;
  // As under FSDP2: before version 5 a checkpointed layer was called again, hooks and all.
  rank.hooks = {spec.software.transformers == Transformers::v5,
                {},
                [units](int unit, const Tensor& input) { return units->before_forward(unit, input); },
                [units](int unit, Tensor output) { return units->after_forward(unit, std::move(output)); }};
  if (units->has_units_apart()) device.module_hooks = units.get();
  rank.before_micro_batch = [units](bool synchronize) { units->synchronize_gradients(synchronize); };
  rank.after_backward.push_back([units] { units->backward_is_over(); });
  return rank;
}

}  // namespace llmem
