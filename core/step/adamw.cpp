#include "step/adamw.h"

#include <algorithm>

#include "tensor/ops.h"

namespace llmem {

namespace {

Tensor zeros(Device& device, const char* name, const Dims& sizes, Dtype dtype) {
  const OpScope op(device, name);
  const Tensor made = device.empty(sizes, dtype);
  device.set_category(made->storage->allocation, Category::optimizer_states);
  return made;
}

}  // namespace

// adam.py, _init_group: the step count lives on the CPU but for the fused kernel, which wants it on the device in fp32.
void AdamW::make_states() {
  for (const NamedTensor& parameter : parameters_) {
    const ModuleScope scope(device_, module_of(parameter.name));
    const Tensor& p = parameter.tensor;
    State state;
    if (implementation_ == OptimizerImplementation::fused) state.step = zeros(device_, "step", {}, Dtype::float32);
    state.exp_avg = zeros(device_, "exp_avg", p.sizes(), p.dtype());
    state.exp_avg_sq = zeros(device_, "exp_avg_sq", p.sizes(), p.dtype());
    states_.push_back(std::move(state));
  }
}

// adam.py, _multi_tensor_adam: all square roots live together.
void AdamW::update_foreach() {
  std::vector<Tensor> square_roots;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ModuleScope scope(device_, module_of(parameters_[i].name));
    square_roots.push_back(unary_no_grad(states_[i].exp_avg_sq, "exp_avg_sq_sqrt", states_[i].exp_avg_sq.dtype()));
  }
}

// adam.py, _single_tensor_adam: denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps); the name keeps the last one until the next is made.
void AdamW::update_one_by_one() {
  Tensor denom;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ModuleScope scope(device_, module_of(parameters_[i].name));
    const Tensor root = unary_no_grad(states_[i].exp_avg_sq, "exp_avg_sq_sqrt", states_[i].exp_avg_sq.dtype());
    Tensor quotient = unary_no_grad(root, "denom", root.dtype());
    denom = std::move(quotient);
  }
}

void AdamW::step() {
  if (states_.empty()) make_states();
  // exp_avg.lerp_(grad), then exp_avg_sq.addcmul_(grad, grad); one kernel where they are fused
  if (before_update_) before_update_(1);
  if (before_update_ && implementation_ != OptimizerImplementation::fused) before_update_(2);
  if (implementation_ == OptimizerImplementation::foreach) update_foreach();
  if (implementation_ == OptimizerImplementation::loop) update_one_by_one();
}

namespace {

// torch/distributed/tensor/_ops/_math_ops.py, _NormPartial: squares, their all-reduce (out of place), roots
Tensor sum_over_ranks(Device& device, const Tensor& norms) {
  const auto like = [&] { return device.empty(norms.sizes(), norms.dtype()); };
  const Tensor squares = like();
  const Tensor reduced = like();
  return like();
}

}  // namespace

// torch/nn/utils/clip_grad.py, _get_total_norm and _clip_grads_with_norm_; aten/src/ATen/native/cuda/ForeachReduceOp.cu: one fp32 partial
// norm for every 65,536 elements of the largest tensor and every tensor, then one norm a tensor.
void clip_gradients(Device& device, const std::vector<NamedTensor>& parameters, bool sharded) {
  constexpr std::int64_t chunk = 65'536;
  if (parameters.empty()) return;  // all on the CPU
  const OpScope op(device, "clip_grad_norm");
  const Dtype dtype = parameters.front().tensor.dtype();
  const auto scalar = [&] { return device.empty({}, dtype); };
  const auto count = static_cast<std::int64_t>(parameters.size());
  std::int64_t largest = 0;
  for (const NamedTensor& p : parameters) largest = std::max(largest, p.tensor.numel());

  Tensor total_norm;
  {
    std::vector<Tensor> norms;
    {
      const Tensor partial = device.empty({count, divide_up(largest, chunk)}, Dtype::float32);
      for (std::int64_t i = 0; i < count; ++i) norms.push_back(scalar());
    }
    const Tensor stacked = device.empty({count}, dtype);
    const Tensor summed = sharded ? sum_over_ranks(device, stacked) : Tensor();
    total_norm = scalar();
  }
  Tensor coefficient;
  {
    const Tensor guarded = scalar(), reciprocal = scalar();
    coefficient = scalar();
  }
  const Tensor clamped = scalar();
}

}  // namespace llmem
