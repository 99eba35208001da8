#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "model/architecture.h"
#include "spec/spec.h"

namespace llmem {

inline constexpr std::string_view saving_point = "saving";

struct HostItem {
  std::string_view name;
  Bytes bytes;
};

// What the processes of one node hold in the host's memory at one time. Pages of a mapped checkpoint file are not counted: the system takes
// them back when it needs them.
struct HostPoint {
  std::string_view at;  // "loading", "training", saving_point
  std::vector<HostItem> what;
  Bytes total;
};

// The points at which something is held, in their order.
struct HostMemory {
  std::vector<HostPoint> points;
  // What no run can do without: the most of loading and training, for a state dict may be saved in shards. Null: nothing.
  const HostPoint* needed() const;
};

// Loading: what from_pretrained has made before the model is on the GPUs. Training: what is offloaded. Saving: a full state dict on its way to
// the disk, of the node that writes it. Loading and saving as Transformers and accelerate do it; of other stacks and of tensor and pipeline
// parallelism, whose scripts are the user's own, training alone.
HostMemory host_of(const Spec& spec, const Architecture& architecture, std::int64_t trainable);

}  // namespace llmem
