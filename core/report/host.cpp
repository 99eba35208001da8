#include "report/host.h"

#include <algorithm>

namespace llmem {

namespace {

std::int64_t states_of(const OptimizerOptions& optimizer) {
  if (optimizer.name == OptimizerName::sgd) return optimizer.momentum ? 1 : 0;
  return 2 + (optimizer.amsgrad ? 1 : 0);
}

}  // namespace

// FSDP2's CPUOffloadPolicy: shards, their gradients and the optimizer's states in the dtype that parameters are held in. DeepSpeed
// (stage_1_and_2.py, stage3.py): master weights, their gradients and states in fp32, a half-precision copy of the part (ZeRO-1, -2) or of its
// gradients (ZeRO-3), and with offload_param the parts themselves.
HostMemory host_of(const Spec& spec, const Architecture& architecture, std::int64_t trainable) {
  HostMemory host;
  if (!spec.offload.optimizer && !spec.offload.parameters) return host;
  std::int64_t all = 0;
  for (const Parameter& parameter : parameters_of(architecture)) all += parameter.count();
  const bool adapters = spec.training.method == Method::lora;
  const std::int64_t frozen = adapters ? all : 0;
  const bool whole = spec.data.kind == DataKind::fsdp1 && !spec.data.shards;  // NO_SHARD
  const std::int64_t ranks = whole ? 1 : spec.data.shard_ranks() * spec.context.degree,
                     here = std::min(spec.world(), spec.cluster.gpus_per_node);
  const auto on_node = [&](std::int64_t parameters, Bytes each) { return each * (divide_up(parameters, ranks) * here); };
  const auto add = [&](std::string_view name, Bytes bytes) {
    if (bytes.count == 0) return;
    host.what.push_back({name, bytes});
    host.total += bytes;
  };
  const std::int64_t states = states_of(spec.training.optimizer);
  const Bytes held = size_of(spec.training.weights), single = size_of(Dtype::float32);
  if (spec.data.kind == DataKind::fsdp1 || spec.data.kind == DataKind::fsdp2) {
    const Bytes trained = adapters ? single : held;
    add("parameters", on_node(frozen, held) + on_node(trainable, trained));
    add("gradients", on_node(trainable, trained));
    add("optimizer states", on_node(trainable, trained * states));
    return host;
  }
  if (spec.offload.parameters && spec.data.kind == DataKind::zero3) add("parameters", on_node(frozen + trainable, held));
  if (!spec.offload.optimizer) return host;
  add("master weights", on_node(trainable, single));
  add("gradients", on_node(trainable, single + held));
  add("optimizer states", on_node(trainable, single * states));
  return host;
}

}  // namespace llmem
