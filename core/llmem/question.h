#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "llmem/paper_estimate.h"
#include "spec/presets.h"

namespace llmem {

// What `llmem paper` is asked, as one JSON object:
//   {"model": a preset's id or {"name", "config"}, "method": null (all, and the choice) | "cdp" | "adp" | "tp" | "dp_tp", "gpus": 4, "tensor": 2,
//    "batch": null (the largest that fits), "sequence": 512, "form": "coded" | "published", "base_mb": null (modelled), "memory_mb": 16384,
//    "gpu": "v100-sxm2-16gb", "logits": null (by family) | "float16" | "float32", "corrected": false}
// MB are MiB, as nvidia-smi and the paper write them.
struct PaperQuestion {
  std::string name;
  PaperModel model;
  PaperSetup setup;  // its base is 0 where `base_given` is false
  std::optional<PaperMethod> method;
  std::optional<std::int64_t> batch;
  bool base_given = false;
  int compute_capability = 70;  // of the GPU, for a base that is modelled
};

Reading<PaperQuestion> read_paper_question(std::string_view text, const ModelPresets& presets);

}  // namespace llmem
