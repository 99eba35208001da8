#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "spec/spec.h"

namespace llmem {

struct GpuPreset {
  std::string_view id;     // "h100-sxm-80gb"
  std::string_view name;   // as the vendor writes it
  int compute_capability;  // major * 10 + minor
  int sms;                 // streaming multiprocessors
  std::int64_t memory;     // bytes that CUDA reports as total; 0: not known
};

// Every GPU that can be named. tests/unit/spec_test.cpp holds it to presets/gpus.json, which has the sources.
std::span<const GpuPreset> gpu_presets();

// The preset of this id; failing that, the GPU family with the longest name that the id begins with ("a100-sxm-96gb" is an A100),
// whose memory is not known.
std::optional<Gpu> gpu_named(std::string_view id);

}  // namespace llmem
