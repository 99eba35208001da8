#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"

namespace llmem {

enum class Dtype : std::uint8_t { float64, float32, bfloat16, float16, int64, int32, int8, uint8, boolean };

constexpr Bytes size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64:
    case Dtype::int64: return {8};
    case Dtype::float32:
    case Dtype::int32: return {4};
    case Dtype::bfloat16:
    case Dtype::float16: return {2};
    case Dtype::int8:
    case Dtype::uint8:
    case Dtype::boolean: return {1};
  }
  return {0};
}

constexpr bool is_floating(Dtype dtype) { return dtype <= Dtype::float16; }

// PyTorch's own names: "bfloat16", "float32", …
std::string_view name_of(Dtype dtype);
std::optional<Dtype> dtype_named(std::string_view name);

}  // namespace llmem
