#include "plan/tensor_parallel.h"

#include <algorithm>
#include <string_view>

#include "plan/rank.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

bool contains(const std::string& name, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return name.find(word) != std::string::npos; });
}

bool by_columns(const std::string& name) { return contains(name, {"q_proj.", "k_proj.", "v_proj.", "gate_proj.", "up_proj."}); }
bool by_rows(const std::string& name) { return contains(name, {"o_proj.", "down_proj."}); }
bool by_vocabulary(const std::string& name) { return contains(name, {"embed_tokens.", "lm_head."}); }
bool of_a_head(const std::string& name) { return contains(name, {"q_norm.", "k_norm."}); }  // not in the plan

// Whether the parameter is on the tensor-parallel mesh.
bool on_mesh(const CausalLm::Split& split, const std::string& name) {
  if (of_a_head(name)) return false;
  return split.sequence || by_columns(name) || by_rows(name) || by_vocabulary(name);
}

// Parameters whose gradients live on the same mesh, and so are clipped and updated together.
struct MeshGroup {
  std::vector<NamedTensor> parameters;
  std::vector<GradientPlace> places;
  std::vector<std::size_t> replicated;  // which gradients are the same along one of the mesh's dimensions: their norms count once
  int mesh_dims = 0;                    // over how many the norm is reduced

  Dtype dtype() const { return parameters.front().tensor.dtype(); }
};

Tensor scalar(Device& device, Dtype dtype) { return device.empty({}, dtype); }

// torch/nn/utils/clip_grad.py, _get_total_norm over DTensors (torch/distributed/tensor/_ops/_math_ops.py, _NormPartial).
Tensor total_norm(Device& device, const MeshGroup& group) {
  constexpr std::int64_t chunk = 65'536;
  const auto count = static_cast<std::int64_t>(group.parameters.size());
  const auto scope_of = [&](std::size_t i) { return ModuleScope(device, module_of(group.parameters[i].name)); };
  const auto norm_of = [&](std::size_t i) {
    const ModuleScope scope = scope_of(i);
    return scalar(device, group.dtype());
  };
  std::vector<Tensor> norms;
  {
    std::vector<Tensor> reduced;
    std::int64_t largest = 0;
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& parameter = group.parameters[i].tensor;
      const ModuleScope scope = scope_of(i);
      if (group.places[i] == GradientPlace::in_parts) reduced.push_back(device.empty(parameter.sizes(), parameter.dtype()));
      const bool whole = group.places[i] == GradientPlace::whole;
      largest = std::max(largest, whole ? Tensor(parameter->grad).numel() : parameter.numel());
    }
    const Tensor partial = device.empty({count, divide_up(largest, chunk)}, Dtype::float32);
    for (std::size_t i = 0; i < group.parameters.size(); ++i) norms.push_back(norm_of(i));
  }
  Tensor stacked;
  {
    std::vector<Tensor> shares;
    for (const std::size_t i : group.replicated) shares.push_back(norm_of(i));
    stacked = device.empty({count}, group.dtype());
  }
  const Tensor own = stacked;
  for (int i = 0; i < group.mesh_dims; ++i) {
    const auto like = [&] { return device.empty({count}, group.dtype()); };
    const Tensor squares = like(), reduced = like();
    stacked = like();
  }
  return scalar(device, group.dtype());
}

// _clip_grads_with_norm_
void scale_gradients(Device& device, Dtype dtype) {
  Tensor coefficient;
  {
    const Tensor guarded = scalar(device, dtype), reciprocal = scalar(device, dtype);
    coefficient = scalar(device, dtype);
  }
  const Tensor clamped = scalar(device, dtype);
}

void clip_groups(Device& device, const std::vector<MeshGroup>& groups) {
  const OpScope op(device, "clip_grad_norm");
  const Dtype dtype = groups.front().dtype();
  std::vector<Tensor> norms;
  for (const MeshGroup& group : groups) norms.push_back(total_norm(device, group));
  Tensor total;
  if (groups.size() > 1) {
    const Tensor stacked = device.empty({static_cast<std::int64_t>(groups.size())}, dtype);
    total = scalar(device, dtype);
  }
  for (const MeshGroup& group : groups) scale_gradients(device, group.dtype());
}

// The gradients as a foreach op of the optimizer gets them, `lists` times at once.
void redistribute_for_update(const MeshGroup& group, int lists) {
  std::vector<Tensor> made;
  for (int i = 0; i < lists; ++i) {
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
      if (group.places[p] == GradientPlace::same) continue;
      const Tensor& parameter = group.parameters[p].tensor;
      const ModuleScope scope(parameter.device(), module_of(group.parameters[p].name));
      made.push_back(redistributed(group.places[p], parameter, Tensor(parameter->grad)));
    }
  }
}

MeshGroup& group_of(std::vector<MeshGroup>& groups, std::vector<int>& keys, int key) {
  const auto found = std::find(keys.begin(), keys.end(), key);
  if (found != keys.end()) return groups[static_cast<std::size_t>(found - keys.begin())];
  keys.push_back(key);
  return groups.emplace_back();
}

}  // namespace

CausalLm::Split tensor_split(const Spec& spec) {
  return {spec.tensor.degree, spec.rank % spec.tensor.degree, spec.tensor.sequence, spec.tensor.loss};
}

Dims split_sizes(const CausalLm::Split& split, const std::string& name, const Dims& sizes) {
  Dims local = sizes;
  if (by_columns(name) || by_vocabulary(name)) local[0] /= split.ranks;
  if (by_rows(name) && sizes.size() == 2) local[1] /= split.ranks;
  return local;
}

GradientPlace gradient_place(const CausalLm::Split& split, const std::string& name) {
  if (split.ranks == 1) return GradientPlace::same;
  if (contains(name, {"embed_tokens."})) return GradientPlace::whole;
  const bool norm = !by_columns(name) && !by_rows(name) && !by_vocabulary(name) && !of_a_head(name);
  return split.sequence && norm ? GradientPlace::in_parts : GradientPlace::same;
}

namespace {

// A tied embedding's gradient is the sum of its own, which is whole, and the head's, which lies as the parameter does; so does the sum.
bool serves_as_head(const Tensor& parameter) { return parameter->accumulator->wrapped; }

}  // namespace

void require_split_grad(const CausalLm::Split& split, const std::string& name, const Tensor& parameter, const Dims& whole) {
  require_grad(parameter);
  if (gradient_place(split, name) == GradientPlace::whole) parameter->accumulator->outputs[0].sizes = whole;
}

Tensor redistributed(GradientPlace place, const Tensor& parameter, const Tensor& gradient) {
  if (place == GradientPlace::same) return gradient;
  const char* op = place == GradientPlace::whole ? "split" : "all_reduce";
  Device& device = parameter.device();
  const OpScope scope(device, op);
  return device.empty(parameter.sizes(), gradient.dtype());
}

void set_mesh_groups(Rank& rank, Device& device, const CausalLm::Split& split, bool sharded) {
  const auto groups = std::make_shared<std::vector<MeshGroup>>();
  std::vector<int> keys;
  for (const NamedTensor& p : rank.optimized) {
    const bool meshed = on_mesh(split, p.name);
    MeshGroup& group = group_of(*groups, keys, meshed);
    const GradientPlace place = !sharded && serves_as_head(p.tensor) ? GradientPlace::same : gradient_place(split, p.name);
    group.mesh_dims = (meshed ? 1 : 0) + (sharded ? 1 : 0);
    // A shard's gradient has been brought to its place by the reduction.
    group.places.push_back(sharded ? GradientPlace::same : place);
    if (place == GradientPlace::in_parts || (place == GradientPlace::whole && !sharded))
      group.replicated.push_back(group.parameters.size());
    group.parameters.push_back(p);
  }
  rank.clip = [&device, groups] { clip_groups(device, *groups); };
  rank.update_groups.clear();
  for (const MeshGroup& group : *groups) {
    UpdateGroup update{group.parameters, {}};
    const bool moves =
        std::any_of(group.places.begin(), group.places.end(), [](GradientPlace place) { return place != GradientPlace::same; });
    if (moves) update.before_update = [&group](int lists) { redistribute_for_update(group, lists); };
    rank.update_groups.push_back(std::move(update));
  }
}

Rank tensor_parallel(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank;
  const CausalLm::Split split = tensor_split(spec);
  rank.model = std::make_unique<CausalLm>(architecture, spec.training.weights, [&](const TensorRequest& request) {
    const ModuleScope scope(device, module_of(request.name));
    const OpScope op(device, "parameter");
    const bool parameter = request.kind == TensorRequest::parameter;
    const Tensor made = device.empty(parameter ? split_sizes(split, request.name, request.sizes) : request.sizes, request.dtype);
    device.set_category(made->storage->allocation, Category::weights);
    if (parameter) require_split_grad(split, request.name, made, request.sizes);
    return made;
  });
  rank.model->split(split);
  if (architecture.tied_embeddings) {  // parallelize_module gave the head a parameter of its own, which goes once they are tied again
    const Tensor& embedding = rank.model->embedding_weight();
    device.scratch(embedding->storage->bytes);
    embedding->accumulator->wrapped = true;
    embedding->accumulator->outputs[0].sizes = embedding.sizes();
  }
  rank.optimized = rank.model->parameters();
  set_mesh_groups(rank, device, split, false);
  return rank;
}

}  // namespace llmem
