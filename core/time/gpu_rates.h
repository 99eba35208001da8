#pragma once

#include <optional>
#include <string_view>

#include "base/dtype.h"

namespace llmem {

// What a GPU can do at best, by its data sheet. TFLOPS are dense, of tensor cores with fp32 accumulation; GB/s are decimal and of one
// direction. 0: it cannot, or it is not known.
struct GpuRates {
  std::string_view id;
  double bf16_tflops, fp16_tflops, fp8_tflops, fp32_tflops;
  double memory_gbs;
  double nvlink_gbs;  // to the other GPUs of its node, all at once
  double pcie_gbs;    // to the host; and to the other GPUs where there is no NVLink

  double tflops(Dtype dtype) const;
};

// Of a GPU's id, or of the family that it begins with; none: not known.
std::optional<GpuRates> rates_of(std::string_view gpu_id);

}  // namespace llmem
