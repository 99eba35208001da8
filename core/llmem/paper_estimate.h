#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "llmem/paper_model.h"

// The estimator of LLMem (Kim et al., IJCAI 2024, arXiv 2404.10933) as closed formulas, beside ours, for comparison alone.
// README.md says where paper and code part.
namespace llmem {

enum class PaperMethod : std::uint8_t { cdp, adp, tp, dp_tp };  // in the order in which ties are broken
enum class PaperForm : std::uint8_t { coded, published };

struct PaperSetup {
  PaperForm form = PaperForm::coded;
  std::int64_t gpus = 1;        // gpu_n
  std::int64_t tensor = 1;      // tp_n of DP+TP
  std::int64_t sequence = 512;  // sl
  Bytes base;                   // m_base: what is in use before any chunk
  Bytes memory;                 // m_total
  bool fp32_logits = false;
  bool corrected = false;  // DP+TP keeps m_p16 / tp_n, which equals the published m_p16 * (1 - tp_n / gpu_n) at 4 GPUs and tp_n 2 only
};

// What sums to the peak.
struct PaperParts {
  Bytes base, weights_16, weights_32, optimizer_states, input, outputs, lm_head, backward;

  Bytes total() const { return base + weights_16 + weights_32 + optimizer_states + input + outputs + lm_head + backward; }
};

// One method on one model: what does not depend on the batch is reckoned once.
class PaperEstimate {
 public:
  PaperEstimate(const PaperModel& model, const PaperSetup& setup, PaperMethod method);

  // Per GPU; with tensor parallelism the batch is that of a whole tensor group.
  PaperParts peak(std::int64_t batch) const;
  // The largest batch whose peak fits into setup.memory; 0: not even one sample.
  std::int64_t largest_batch() const;

 private:
  void published_fixed();
  void coded_fixed();
  Bytes gathered(std::int64_t tensor) const;
  Bytes logits(std::int64_t batch) const;

  const PaperModel& model_;
  const PaperSetup& setup_;
  PaperMethod method_;
  std::int64_t holders_, degree_;  // GPUs that hold one copy between them; tensor-parallel degree
  PaperParts fixed_;
};

// Algorithm 1.
struct PaperCandidate {
  PaperMethod method;
  std::int64_t batch;  // the largest that fits
  std::int64_t score;  // twice the paper's `eval`, to stay whole: samples an iteration, half as much again for CDP
};
struct PaperChoice {
  std::vector<PaperCandidate> candidates;  // in the order of PaperMethod
  std::optional<PaperMethod> method;       // none: nothing fits, CPU offloading (heterogeneous training)
};
// DP+TP is a candidate where setup.tensor splits the GPUs; with one GPU CDP alone is.
PaperChoice paper_choice(const PaperModel& model, const PaperSetup& setup);

// A baseline in the manner of DNNMem (Gao et al., ESEC/FSE 2020), which walks a static graph: each tensor once, in fp16, rounded up to the
// allocator's 512 bytes: weights, their gradients, two Adam states, the layers' outputs, the logits; no fp32 copies, no chunks, no loss.
Bytes dnnmem_style(const PaperModel& model, const PaperSetup& setup, std::int64_t batch);

}  // namespace llmem
