#include "plan/rank.h"

#include "tensor/autograd.h"

namespace llmem {

Rank whole_model(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank;
  rank.model = std::make_unique<CausalLm>(architecture, spec.training.weights, [&](const TensorRequest& request) {
    const ModuleScope scope(device, module_of(request.name));
    const OpScope op(device, "parameter");
    const Tensor made = device.empty(request.sizes, request.dtype);
    device.set_category(made->storage->allocation, Category::weights);
    if (request.kind == TensorRequest::parameter)
      require_grad(made);
    else
      rank.buffers.push_back(made);
    return made;
  });
  rank.optimized = rank.model->parameters();
  return rank;
}

Rank make_rank(Device& device, const Spec& spec, const Architecture& architecture) {
  if (spec.pipeline.degree > 1) return pipeline_stage(device, spec, architecture);
  if (spec.tensor.degree > 1 && spec.data.kind == DataKind::none) return tensor_parallel(device, spec, architecture);
  switch (spec.data.kind) {
    case DataKind::none: return whole_model(device, spec, architecture);
    case DataKind::ddp: return distributed_data_parallel(device, spec, architecture);
    case DataKind::zero_redundancy: return zero_redundancy(device, spec, architecture);
    case DataKind::zero1:
    case DataKind::zero2: return zero_stage_1_or_2(device, spec, architecture);
    case DataKind::fsdp1: return fully_sharded_1(device, spec, architecture);
    case DataKind::fsdp2: return fully_sharded(device, spec, architecture);
  }
  return {};
}

}  // namespace llmem
