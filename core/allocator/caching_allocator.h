#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace llmem {

struct AllocatorSettings {
  bool expandable_segments = false;
  std::optional<std::int64_t> max_split_size_mb;
  std::optional<Bytes> memory;    // what the device has for the allocator; none: no limit
};

}  // namespace llmem
