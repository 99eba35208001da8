#include "spec/gpus.h"

#include "base/text.h"

namespace llmem {
namespace {

constexpr GpuPreset kPresets[] = {
    {"p100-16gb", "Tesla P100 16GB", 60, 56, 17070817280},
    {"v100-sxm2-16gb", "Tesla V100 SXM2 16GB", 70, 80, 16913530880},
    {"v100-sxm2-32gb", "Tesla V100 SXM2 32GB", 70, 80, 34069828076},
    {"t4", "Tesla T4", 75, 40, 15633680957},
    {"rtx-2080-ti", "GeForce RTX 2080 Ti", 75, 68, 11554258944},
    {"rtx-3060-12gb", "GeForce RTX 3060 12GB", 86, 28, 12510560256},
    {"rtx-3080-10gb", "GeForce RTX 3080 10GB", 86, 68, 10490457620},
    {"rtx-3090", "GeForce RTX 3090", 86, 82, 25436943811},
    {"rtx-3090-ti", "GeForce RTX 3090 Ti", 86, 84, 25285361664},
    {"rtx-a4000", "RTX A4000", 86, 48, 16879221473},
    {"rtx-a5000", "RTX A5000", 86, 64, 25285361664},
    {"rtx-a6000", "RTX A6000", 86, 84, 51040485376},
    {"a2", "A2", 86, 10, 0},
    {"a10", "A10", 86, 72, 23686744637},
    {"a10g", "A10G", 86, 80, 23684186112},
    {"a16", "A16 (one of the four GPUs of a board)", 86, 10, 0},
    {"a30", "A30", 80, 56, 25232932864},
    {"a40", "A40", 86, 84, 47622127616},
    {"a100-40gb", "A100 40GB", 80, 108, 42284875776},
    {"a100-sxm-80gb", "A100 SXM 80GB", 80, 108, 84986665370},
    {"a100-pcie-80gb", "A100 PCIe 80GB", 80, 108, 84986665370},
    {"rtx-4060-ti-16gb", "GeForce RTX 4060 Ti 16GB", 89, 34, 16750372454},
    {"rtx-4070", "GeForce RTX 4070", 89, 46, 12562779341},
    {"rtx-4070-ti-super", "GeForce RTX 4070 Ti SUPER", 89, 66, 16749953024},
    {"rtx-4080", "GeForce RTX 4080", 89, 76, 16828596224},
    {"rtx-4090", "GeForce RTX 4090", 89, 128, 25254407700},
    {"l4", "L4", 89, 58, 23654532383},
    {"l40s", "L40S", 89, 142, 47663399567},
    {"rtx-6000-ada", "RTX 6000 Ada", 89, 142, 50865307648},
    {"h100-sxm-80gb", "H100 SXM 80GB", 90, 132, 85027979264},
    {"h100-pcie-80gb", "H100 PCIe 80GB", 90, 114, 84943044608},
    {"h100-nvl-94gb", "H100 NVL 94GB", 90, 132, 99965363814},
    {"h200-sxm-141gb", "H200 SXM 141GB", 90, 132, 150109945856},
    {"h20-96gb", "H20 96GB", 90, 78, 102112847462},
    {"gh200-96gb", "GH200 96GB", 90, 132, 101468602368},
    {"gh200-144gb", "GH200 144GB", 90, 132, 0},
    {"b100", "B100", 100, 148, 0},
    {"b200-sxm-180gb", "B200 SXM 180GB", 100, 148, 191502483456},
    {"gb200", "GB200 (one GPU)", 100, 152, 197901355581},
    {"b300-sxm-288gb", "B300 SXM 288GB", 103, 148, 287429948867},
    {"gb300", "GB300 (one GPU)", 103, 152, 0},
    {"rtx-pro-6000-blackwell", "RTX PRO 6000 Blackwell", 120, 188, 101974016000},
    {"rtx-5060-ti-16gb", "GeForce RTX 5060 Ti 16GB", 120, 36, 16610492416},
    {"rtx-5070-ti", "GeForce RTX 5070 Ti", 120, 70, 16600048599},
    {"rtx-5080", "GeForce RTX 5080", 120, 84, 16610786017},
    {"rtx-5090", "GeForce RTX 5090", 120, 170, 33672543601},
    {"dgx-spark-128gb", "DGX Spark (GB10)", 121, 48, 130602405888},
    {"jetson-agx-orin-64gb", "Jetson AGX Orin 64GB", 87, 16, 65927747994},
    {"jetson-agx-orin-32gb", "Jetson AGX Orin 32GB", 87, 14, 32109494272},
    {"jetson-agx-thor-128gb", "Jetson AGX Thor 128GB", 110, 20, 131855495987},
};

// What an id that is not listed may begin with: enough to play the step, but the memory is not known.
struct Family {
  std::string_view prefix;
  int compute_capability;
  int sms;
};
constexpr Family kFamilies[] = {
    {"v100", 70, 80},   {"t4", 75, 40},   {"a100", 80, 108},     {"a800", 80, 108},      {"a30", 80, 56},
    {"a10", 86, 72},    {"a40", 86, 84},  {"rtx-a6000", 86, 84}, {"rtx-3090", 86, 82},   {"rtx-4090", 89, 128},
    {"l4", 89, 58},     {"l40", 89, 142}, {"h100", 90, 132},     {"h100-pcie", 90, 114}, {"h200", 90, 132},
    {"gh200", 90, 132}, {"h20", 90, 78},  {"b200", 100, 148},    {"rtx-5090", 120, 170},
};

bool begins_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

}  // namespace

std::span<const GpuPreset> gpu_presets() { return kPresets; }

std::optional<Gpu> gpu_named(std::string_view asked) {
  const std::string id = lower(asked);
  for (const GpuPreset& row : kPresets) {
    if (row.id != id) continue;
    const auto memory = row.memory ? std::optional(Bytes{row.memory}) : std::nullopt;
    return Gpu{std::string(row.id), std::string(row.name), row.compute_capability, row.sms, memory};
  }
  const Family* longest = nullptr;
  for (const Family& family : kFamilies) {
    if (begins_with(id, family.prefix) && (!longest || family.prefix.size() > longest->prefix.size())) longest = &family;
  }
  if (!longest) return std::nullopt;
  return Gpu{std::string(asked), std::string(asked), longest->compute_capability, longest->sms, std::nullopt};
}

}  // namespace llmem
