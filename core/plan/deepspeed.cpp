#include "plan/deepspeed.h"

#include <algorithm>

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

void cast_parameters(Device& device, const std::vector<NamedTensor>& parameters, Dtype dtype) {
  for (const NamedTensor& each : parameters) {
    if (!each.tensor->storage->allocated() || each.tensor.dtype() == dtype) continue;
    const ModuleScope scope(device, module_of(each.name));
    const Tensor cast = unary_no_grad(each.tensor, "parameter", dtype);
    device.set_category(cast->storage->allocation, Category::weights);
    set_data(each.tensor, cast);
    if (each.tensor->accumulator) each.tensor->accumulator->outputs[0].dtype = dtype;
  }
}

std::vector<Tensor> states_of_first_adagrad(Device& device, const std::vector<NamedTensor>& parameters) {
  const OpScope op(device, "sum");
  std::vector<Tensor> states;
  for (const NamedTensor& p : parameters) {
    states.push_back(device.empty(p.tensor.sizes(), p.tensor.dtype()));
    device.set_category(states.back()->storage->allocation, Category::optimizer_states);
  }
  return states;
}

// aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig, for all elements of one contiguous tensor: blocks of 512 threads, as many as
// the GPU holds at once or as leave each thread 256 values, meet in global memory.
void whole_reduction_scratch(Device& device, std::int64_t numel, std::int64_t accumulated_size) {
  constexpr std::int64_t threads = 512;
  const std::int64_t per_thread = divide_up(numel, threads);
  if (per_thread < 256) return;
  const std::int64_t held = device.gpu().sms * (device.gpu().threads_per_sm() / threads);
  const std::int64_t blocks = std::max(std::min(held, divide_up(per_thread, 16)), divide_up(per_thread, 256));
  const std::int32_t partial = device.record_allocation(Bytes{blocks * accumulated_size});
  device.scratch(Bytes{4});
  device.record_free(partial);
}

namespace {

Tensor scalar(Device& device, Dtype dtype) { return device.empty({}, dtype); }
Tensor boolean(Device& device) { return scalar(device, Dtype::boolean); }

// aten/src/ATen/native/TensorCompare.cpp, isfinite: (self == self) * (self.abs() != inf)
Tensor is_finite(Device& device, Dtype dtype) {
  const Tensor magnitude = scalar(device, dtype), bounded = boolean(device), number = boolean(device);
  return boolean(device);
}

Tensor extreme_is_finite(const Tensor& gradient) {
  const Tensor extreme = scalar(gradient.device(), gradient.dtype());
  whole_reduction_scratch(gradient.device(), gradient.numel(), gradient.itemsize());
  return is_finite(gradient.device(), gradient.dtype());
}

Tensor invalid(Device& device) {
  Tensor finite = is_finite(device, Dtype::float32);
  const Tensor not_finite = boolean(device);
  finite.reset();
  const Tensor negative = boolean(device);
  return boolean(device);
}

}  // namespace

Tensor has_inf_or_nan(const Tensor& gradient) {
  Device& device = gradient.device();
  Tensor both;
  {
    const Tensor high = extreme_is_finite(gradient), low = extreme_is_finite(gradient);
    both = boolean(device);
  }
  return boolean(device);
}

Tensor norm_in_double(Device& device, std::int64_t numel) {
  const Tensor cast = device.empty({numel}, Dtype::float64);
  const Tensor norm = scalar(device, Dtype::float64);
  whole_reduction_scratch(device, numel, 8);
  return norm;
}

Tensor group_norm(Device& device, const std::vector<Tensor>& norms) {
  const auto count = static_cast<std::int64_t>(norms.size());
  Tensor sum;
  if (norms.empty()) {
    sum = scalar(device, Dtype::float32);
  } else {
    Tensor doubles;
    {
      Tensor squares;
      {
        const Tensor stacked = device.empty({count}, Dtype::float64);
        squares = device.empty({count}, Dtype::float64);
      }
      doubles = scalar(device, Dtype::float64);
    }
    sum = scalar(device, Dtype::float32);
  }
  const Tensor root = scalar(device, Dtype::float32);
  sum.reset();
  // mask_nan_or_inf_with_val_inplace
  Tensor magnitude = scalar(device, Dtype::float32);
  const Tensor infinite = boolean(device);
  magnitude.reset();
  const Tensor not_a_number = boolean(device), either = boolean(device), replacement = scalar(device, Dtype::float32);
  return root;
}

Tensor combined_norm(Device& device, std::int64_t groups) {
  const Tensor stacked = device.empty({groups}, Dtype::float32);
  Tensor wrong = invalid(device);
  const Tensor any = boolean(device);
  wrong.reset();
  const Tensor combined = scalar(device, Dtype::float32), infinity = scalar(device, Dtype::float32);
  return scalar(device, Dtype::float32);
}

void check_norm(Device& device) {
  Tensor wrong = invalid(device);
  const Tensor any = boolean(device);
  wrong.reset();
}

void clip_by_norm(Device& device) {
  const auto next = [&] { return scalar(device, Dtype::float32); };
  check_norm(device);
  Tensor clip = next();  // norm / loss scale
  clip = next();         // + 1e-6
  clip = next();         // / clip_grad
  clip = next();         // clamped
  const Tensor scale = next(), reciprocal = next(), factor = next();
}

}  // namespace llmem
