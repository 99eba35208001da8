#include "time/gpu_rates.h"

#include "base/text.h"

namespace llmem {
namespace {

// presets/gpus.json, "speed"; tests/unit/time_test.cpp holds this to it.
constexpr GpuRates kRates[] = {
    {"p100-16gb", 0, 18.7, 0, 9.3, 732, 0, 15.75},
    {"v100-sxm2-16gb", 0, 125, 0, 15.7, 900, 150, 15.75},
    {"v100-sxm2-32gb", 0, 125, 0, 15.7, 900, 150, 15.75},
    {"t4", 0, 65, 0, 8.1, 320, 0, 15.75},
    {"rtx-2080-ti", 0, 53.8, 0, 13.4, 616, 0, 15.75},
    {"rtx-3060-12gb", 25.5, 25.5, 0, 12.7, 360, 0, 31.5},
    {"rtx-3080-10gb", 59.5, 59.5, 0, 29.8, 760, 0, 31.5},
    {"rtx-3090", 71.2, 71.2, 0, 35.6, 936, 0, 31.5},
    {"rtx-3090-ti", 80, 80, 0, 40, 1008, 0, 31.5},
    {"rtx-a4000", 76.7, 76.7, 0, 19.2, 448, 0, 31.5},
    {"rtx-a5000", 111.1, 111.1, 0, 27.8, 768, 0, 31.5},
    {"rtx-a6000", 154.8, 154.8, 0, 38.7, 768, 0, 31.5},
    {"a2", 18, 18, 0, 4.5, 200, 0, 15.75},
    {"a10", 125, 125, 0, 31.2, 600, 0, 31.5},
    {"a10g", 70, 70, 0, 31.5, 600, 0, 31.5},
    {"a16", 18, 18, 0, 4.5, 200, 0, 31.5},
    {"a30", 165, 165, 0, 10.3, 933, 0, 31.5},
    {"a40", 149.7, 149.7, 0, 37.4, 696, 0, 31.5},
    {"a100-40gb", 312, 312, 0, 19.5, 1555, 300, 31.5},
    {"a100-sxm-80gb", 312, 312, 0, 19.5, 2039, 300, 31.5},
    {"a100-pcie-80gb", 312, 312, 0, 19.5, 1935, 0, 31.5},
    {"rtx-4060-ti-16gb", 44.1, 44.1, 88.3, 22.1, 288, 0, 15.75},
    {"rtx-4070", 58.3, 58.3, 116.6, 29.1, 504, 0, 31.5},
    {"rtx-4070-ti-super", 88.2, 88.2, 176.4, 44.1, 672, 0, 31.5},
    {"rtx-4080", 97.5, 97.5, 194.9, 48.7, 716.8, 0, 31.5},
    {"rtx-4090", 165.2, 165.2, 330.3, 82.6, 1008, 0, 31.5},
    {"l4", 121, 121, 242, 30.3, 300, 0, 31.5},
    {"l40s", 362, 362, 733, 91.6, 864, 0, 31.5},
    {"rtx-6000-ada", 364.2, 364.2, 728.5, 91.1, 960, 0, 31.5},
    {"h100-sxm-80gb", 989, 989, 1979, 67, 3350, 450, 63},
    {"h100-pcie-80gb", 756, 756, 1513, 51, 2000, 0, 63},
    {"h100-nvl-94gb", 835.5, 835.5, 1671, 60, 3938, 0, 63},
    {"h200-sxm-141gb", 989, 989, 1979, 67, 4800, 450, 63},
    {"h20-96gb", 148, 148, 296, 44, 4000, 450, 63},
    {"gh200-96gb", 989, 989, 1979, 67, 4000, 450, 450},
    {"gh200-144gb", 989, 989, 1979, 67, 4800, 450, 450},
    {"b100", 1750, 1750, 3500, 60, 8000, 900, 63},
    {"b200-sxm-180gb", 2250, 2250, 4500, 80, 8000, 900, 63},
    {"gb200", 2500, 2500, 5000, 80, 8000, 900, 450},
    {"b300-sxm-288gb", 2250, 2250, 4500, 80, 8000, 900, 126},
    {"gb300", 2500, 2500, 5000, 80, 8000, 900, 450},
    {"rtx-pro-6000-blackwell", 503.8, 503.8, 1007.6, 126, 1792, 0, 63},
    {"rtx-5060-ti-16gb", 47.4, 47.4, 94.9, 23.7, 448, 0, 31.5},
    {"rtx-5070-ti", 87.9, 87.9, 175.8, 43.9, 896, 0, 63},
    {"rtx-5080", 112.6, 112.6, 225.1, 56.3, 960, 0, 63},
    {"rtx-5090", 209.5, 209.5, 419, 104.8, 1792, 0, 63},
    {"dgx-spark-128gb", 125, 125, 250, 31, 273, 0, 0},
    {"jetson-agx-orin-64gb", 42.5, 42.5, 0, 5.3, 204.8, 0, 0},
    {"jetson-agx-orin-32gb", 27, 27, 0, 3.3, 204.8, 0, 0},
    {"jetson-agx-thor-128gb", 258, 258, 517, 8, 273, 0, 0},
};

// As core/spec/gpus.cpp has families: whose rates an id that is not listed has.
struct Family {
  std::string_view prefix, id;
};
constexpr Family kFamilies[] = {
    {"v100", "v100-sxm2-32gb"},
    {"a100", "a100-sxm-80gb"},
    {"a800", "a100-sxm-80gb"},
    {"rtx-a6000", "rtx-a6000"},
    {"rtx-3090", "rtx-3090"},
    {"rtx-4090", "rtx-4090"},
    {"l40", "l40s"},
    {"h100", "h100-sxm-80gb"},
    {"h100-pcie", "h100-pcie-80gb"},
    {"h200", "h200-sxm-141gb"},
    {"b200", "b200-sxm-180gb"},
    {"rtx-5090", "rtx-5090"},
    {"gh200", "gh200-96gb"},
};

}  // namespace

double GpuRates::tflops(Dtype dtype) const {
  switch (dtype) {
    case Dtype::bfloat16: return bf16_tflops;
    case Dtype::float16: return fp16_tflops;
    case Dtype::int8:
    case Dtype::uint8: return fp8_tflops;
    default: return fp32_tflops;
  }
}

std::optional<GpuRates> rates_of(std::string_view gpu_id) {
  const std::string id = lower(gpu_id);
  for (const GpuRates& rates : kRates)
    if (rates.id == id) return rates;
  const Family* longest = nullptr;
  for (const Family& family : kFamilies)
    if (id.compare(0, family.prefix.size(), family.prefix) == 0 && (!longest || family.prefix.size() > longest->prefix.size()))
      longest = &family;
  if (!longest) return std::nullopt;
  return rates_of(longest->id);
}

}  // namespace llmem
