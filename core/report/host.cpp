#include "report/host.h"

#include <algorithm>

#include "base/text.h"

namespace llmem {

namespace {

// from transformers/modeling_utils.py, save_pretrained: max_shard_size, and its default before version 5
constexpr Bytes shard_in_v5{50'000'000'000}, shard_in_v4{5'000'000'000};

std::int64_t states_of(const OptimizerOptions& optimizer) {
  if (optimizer.name == OptimizerName::sgd) return optimizer.momentum ? 1 : 0;
  return 2 + (optimizer.amsgrad ? 1 : 0);
}

void add(HostPoint& point, std::string_view name, Bytes bytes) {
  if (bytes.count == 0) return;
  point.what.push_back({name, bytes});
  point.total += bytes;
}

class Host {
 public:
  Host(const Spec& spec, const Architecture& architecture, std::int64_t trainable)
      : spec_(spec),
        training_(spec.training),
        kind_(spec.data.kind),
        here_(std::min(spec.world(), spec.cluster.gpus_per_node)),
        trainable_(trainable),
        adapters_(training_.method == Method::lora) {
    for (const Parameter& parameter : parameters_of(architecture)) {
      parameters_ += parameter.count();
      model_ += bytes_of(parameter, architecture);
    }
  }

  // A quantised base goes tensor by tensor to the GPU, and so does what ZeRO-3 partitions as it is made (zero.Init). FSDP with
  // cpu_ram_efficient_loading: modeling_utils.py, _move_missing_keys_from_meta_to_device: is_local_dist_rank_0 alone has values.
  HostPoint loading() const {
    HostPoint point{"loading", {}, {}};
    if (!is_of_transformers() || training_.base_quantization || kind_ == DataKind::zero3) return point;
    const bool once = here_ == 1 || (is_fsdp() && spec_.data.cpu_ram_efficient_loading);
    add(point, once ? "the model, in one process" : "the model, in each process", model_ * (once ? 1 : here_));
    return point;
  }

  // FSDP2's CPUOffloadPolicy: shards, their gradients and the optimizer's states in the dtype that parameters are held in. DeepSpeed
  // (stage_1_and_2.py, stage3.py): master weights, their gradients and states in fp32, a half-precision copy of the part (ZeRO-1, -2) or of
  // its gradients (ZeRO-3), and with offload_param the parts themselves.
  HostPoint training() const {
    HostPoint point{"training", {}, {}};
    if (!spec_.offload.optimizer && !spec_.offload.parameters) return point;
    const std::int64_t frozen = adapters_ ? parameters_ : 0, states = states_of(training_.optimizer);
    const Bytes held = size_of(training_.weights), single = size_of(Dtype::float32);
    if (is_fsdp()) {
      const Bytes trained = trained_size();
      add(point, "parameters", on_node(frozen, held) + on_node(trainable_, trained));
      add(point, "gradients", on_node(trainable_, trained));
      add(point, "optimizer states", on_node(trainable_, trained * states));
      return point;
    }
    if (spec_.offload.parameters && kind_ == DataKind::zero3) add(point, "parameters", on_node(frozen + trainable_, held));
    if (!spec_.offload.optimizer) return point;
    add(point, "master weights", on_node(trainable_, single));
    add(point, "gradients", on_node(trainable_, single + held));
    add(point, "optimizer states", on_node(trainable_, single * states));
    return point;
  }

  // transformers/trainer.py, save_model and _save_checkpoint; accelerate/accelerator.py, get_state_dict.
  HostPoint saving() const {
    HostPoint point{saving_point, {}, {}};
    if (!is_of_transformers()) return point;
    const Bytes whole = adapters_ ? model_ + adapters() : model_;
    if (is_fsdp()) {
      // rank 0 gathers all of it; FSDP1's full optimizer state (FullOptimStateDictConfig) comes after the weights have gone
      add(point, "full state dict", whole);
      const Bytes states = trained_size() * (trainable_ * states_of(training_.optimizer));
      if (kind_ == DataKind::fsdp1 && states > whole) point = {saving_point, {{"full optimizer state", states}}, states};
    } else if (kind_ == DataKind::zero1 || kind_ == DataKind::zero2) {
      add(point, "state dict, in each process", whole * here_);  // clone_tensors_for_torch_save, on every rank
    } else if (kind_ == DataKind::zero3) {
      add(point, "full state dict",
          adapters_ ? adapters() : size_of(training_.weights) * parameters_);  // _zero3_consolidated_16bit_state_dict
    } else {
      // safetensors/torch.py, _flatten_as_ptr: all tensors of a file wait on the host
      const Bytes file = spec_.software.transformers == Transformers::v5 ? shard_in_v5 : shard_in_v4;
      add(point, "tensors of a file", adapters_ ? adapters() : std::min(model_, file));
    }
    if (spec_.offload.optimizer || spec_.offload.parameters) {
      const HostPoint offloaded = training();
      for (const HostItem& item : offloaded.what) add(point, item.name, item.bytes);
    }
    return point;
  }

 private:
  bool is_fsdp() const { return kind_ == DataKind::fsdp1 || kind_ == DataKind::fsdp2; }
  bool is_of_transformers() const {
    return training_.stack == Stack::transformers && spec_.tensor.degree == 1 && spec_.pipeline.degree == 1;
  }

  Bytes trained_size() const { return adapters_ ? size_of(Dtype::float32) : size_of(training_.weights); }
  Bytes adapters() const { return trained_size() * trainable_; }

  Bytes bytes_of(const Parameter& parameter, const Architecture& architecture) const {
    const std::optional<BaseQuantization>& base = training_.base_quantization;
    if (base && parameter.of_linear && parameter.name != std::string(architecture.names.head) + ".weight")
      return Bytes{parameter.count() * base->bits / 8};
    return size_of(parameter.dtype.value_or(training_.weights)) * parameter.count();
  }

  // What the ranks of a node hold of something that is shared out.
  Bytes on_node(std::int64_t parameters, Bytes each) const {
    const bool whole = kind_ == DataKind::fsdp1 && !spec_.data.shards;  // NO_SHARD
    const std::int64_t ranks = whole ? 1 : spec_.data.shard_ranks() * spec_.context.degree;
    return each * (divide_up(parameters, ranks) * here_);
  }

  const Spec& spec_;
  const Training& training_;
  DataKind kind_;
  std::int64_t here_;  // processes of a node
  std::int64_t trainable_, parameters_ = 0;
  bool adapters_;
  Bytes model_;
};

}  // namespace

const HostPoint* HostMemory::needed() const {
  const HostPoint* most = nullptr;
  for (const HostPoint& point : points)
    if (point.at != saving_point && (most == nullptr || point.total > most->total)) most = &point;
  return most;
}

HostMemory host_of(const Spec& spec, const Architecture& architecture, std::int64_t trainable) {
  const Host host(spec, architecture, trainable);
  HostMemory memory;
  for (HostPoint point : {host.loading(), host.training(), host.saving()})
    if (!point.what.empty()) memory.points.push_back(std::move(point));
  return memory;
}

}  // namespace llmem
