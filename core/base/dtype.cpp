#include "base/dtype.h"

namespace llmem {
namespace {

// In the order of the enumeration.
constexpr std::string_view kNames[] = {"float64", "float32", "bfloat16", "float16", "int64", "int32", "int8", "uint8", "bool"};

}  // namespace

std::string_view name_of(Dtype dtype) { return kNames[static_cast<int>(dtype)]; }

std::optional<Dtype> dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

}  // namespace llmem
