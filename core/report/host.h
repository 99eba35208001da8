#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "model/architecture.h"
#include "spec/spec.h"

namespace llmem {

struct HostItem {
  std::string_view name;
  Bytes bytes;
};

// What the ranks of one node hold in the host's memory for good, because it is offloaded.
struct HostMemory {
  std::vector<HostItem> what;
  Bytes total;
};
HostMemory host_of(const Spec& spec, const Architecture& architecture, std::int64_t trainable);

}  // namespace llmem
