#include "step/optimizer.h"

#include <algorithm>

#include "tensor/ops.h"

namespace llmem {

Tensor Optimizer::state(const char* name, const Dims& sizes, Dtype dtype) const {
  const OpScope op(device_, name);
  const Tensor made = device_.empty(sizes, dtype);
  device_.set_category(made->storage->allocation, Category::optimizer_states);
  return made;
}

Tensor Optimizer::like(const char* name, const Tensor& tensor, Dtype dtype) { return unary_no_grad(tensor, name, dtype); }

Tensor Optimizer::norm(const Tensor& tensor) {
  Device& device = tensor.device();
  const OpScope op(device, "norm");
  const Tensor result = device.empty({}, tensor.dtype());
  reduction_scratch(device, row_sum_scratch(device.gpu(), 1, tensor.numel()));
  return result;
}

namespace {

// Muon's documentation: it takes the hidden matrices; embedding, head and vectors are AdamW's.
bool is_hidden_matrix(const NamedTensor& parameter) {
  return parameter.tensor.dim() == 2 && parameter.name.find("embed") == std::string::npos &&
         parameter.name.find("lm_head") == std::string::npos;
}

}  // namespace

void append_optimizers(Optimizers& to, Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options,
                       const Tensor& in_32_bits) {
  switch (options.name) {
    case OptimizerName::adafactor:
    case OptimizerName::adafactor_hf: to.push_back(make_adafactor(device, std::move(parameters), options)); return;
    case OptimizerName::lion: to.push_back(make_lion(device, std::move(parameters))); return;
    case OptimizerName::schedule_free_adamw: to.push_back(make_schedule_free(device, std::move(parameters), options)); return;
    case OptimizerName::adamw_8bit_torchao:
    case OptimizerName::adamw_4bit_torchao:
    case OptimizerName::adamw_fp8_torchao:
    case OptimizerName::adamw_torchao: to.push_back(make_torchao(device, std::move(parameters), options)); return;
    case OptimizerName::muon: {
      const auto others = std::stable_partition(parameters.begin(), parameters.end(), is_hidden_matrix);
      OptimizerOptions adamw = options;
      adamw.name = OptimizerName::adamw;
      to.push_back(make_muon(device, {parameters.begin(), others}));
      to.push_back(make_torch_optimizer(device, {others, parameters.end()}, adamw));
      return;
    }
    default: break;
  }
  to.push_back(options.name < OptimizerName::muon ? make_torch_optimizer(device, std::move(parameters), options)
                                                  : make_bitsandbytes(device, std::move(parameters), options, in_32_bits));
}

void update_all(Device& device, const Optimizers& optimizers) {
  for (const auto& optimizer : optimizers) {
    if (!optimizer->parameters().empty()) {
      std::int64_t bytes = 0;
      for (const NamedTensor& p : optimizer->parameters()) bytes += p.tensor.numel() * p.tensor.itemsize();
      const auto tensors = static_cast<std::int64_t>(optimizer->parameters().size());
      device.meter.update(bytes, optimizer->parameters().front().tensor.dtype(), tensors);
    }
    const Meter::Muted counted(device.meter);
    if (optimizer->around)
      optimizer->around([&] { optimizer->step(); });
    else
      optimizer->step();
  }
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
Tensor clip_gradients(Device& device, const std::vector<NamedTensor>& parameters, bool sharded) {
  constexpr std::int64_t chunk = 65'536;
  if (parameters.empty()) return {};  // all on the CPU
  const OpScope op(device, "clip_grad_norm");
  const Dtype dtype = parameters.front().tensor.dtype();
  const auto scalar = [&] { return device.empty({}, dtype); };
  const auto count = static_cast<std::int64_t>(parameters.size());
  std::int64_t largest = 0;
  std::int64_t bytes = 0;
  for (const NamedTensor& p : parameters) {
    largest = std::max(largest, p.tensor.numel());
    bytes += p.tensor.numel() * p.tensor.itemsize();
  }
  device.meter.moved(3 * bytes, 2);  // the norms read the gradients, scaling reads and writes them

  Tensor total_norm;
  {
    std::vector<Tensor> norms;
    {
      const Tensor partial = device.empty({count, divide_up(largest, chunk)}, Dtype::float32);
      for (const NamedTensor& p : parameters) {
        const ModuleScope scope(device, module_of(p.name));
        norms.push_back(scalar());
      }
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
  return total_norm;
}

}  // namespace llmem
