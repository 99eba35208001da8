#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "spec/spec.h"
#include "time/gpu_rates.h"
#include "time/links.h"
#include "trace/trace.h"

namespace llmem {

// How the kernels are made, where a spec does not say it: Transformers runs eager PyTorch.
struct Kernels {
  bool fused = false;   // chains of memory-bound kernels are one (torch.compile, Megatron with Transformer Engine)
  bool flash3 = false;  // attention kernels made for Hopper and newer
  bool float8 = false;  // matrix products in float8
  // The host takes no time to launch: nothing is faster than that. (What waits less for the host may wait as much more for collectives, which
  // counts half of what they hide beside kernels.)
  bool at_once = false;
  // By how many ranks the work is divided that is played whole: all of it, the attention (divided by less than the tokens say), the update.
  double tensor = 1, attention = 1, update = 1;
};

// What is computed beside collectives takes longer, by this part of their time: they occupy multiprocessors and memory. Fitted (see
// tests/accuracy/README.md).
inline constexpr double kInterference = 0.5;

// How far off the time of a step may be, either way: see tests/accuracy/README.md for how it was checked.
inline constexpr double kTimeUncertainty = 0.25;

// Seconds on one rank, of one optimizer step.
struct StepTime {
  double seconds = 0;
  // What the compute stream does of these: matrix products and attention, memory-bound kernels, waiting for collectives (and copies), for other
  // stages of the pipeline, for the host to launch.
  double compute = 0, memory = 0, communication = 0, bubble = 0, launch = 0;
  double first_micro_batch = 0;    // of `seconds`: the first of several micro-batches; 0: there is one
  double hidden = 0;               // of communication_total: beside computation
  double after_backward = 0;       // of `seconds`: clipping and the optimizer
  double communication_total = 0;  // of all collectives, hidden behind computation or not
  double tokens_per_second = 0;    // a GPU
  double tflops = 0;               // a GPU, of the products and attention without what is computed again
  double peak_tflops = 0;          // of the GPU, in the dtype of most of its products
  double flops_utilisation() const { return peak_tflops > 0 ? tflops / peak_tflops : 0; }
};

// What parts of the machine the work of one rank of the spec runs on. None if the GPU's speed is not known.
struct Machine {
  GpuRates gpu;
  Links links;
};
std::optional<Machine> machine_of(const Cluster& cluster);

Placement placement_of(Among group, std::int32_t ranks, const Spec& spec);

StepTime step_time(const Spec& spec, const Trace& trace, const Machine& machine, const Kernels& kernels = {});

// Seconds that the step has taken when each of these entries of its work begins, in ascending order, and at the end.
std::vector<double> moments_of(const Spec& spec, const Trace& trace, const Machine& machine, const Kernels& kernels,
                               const std::vector<std::size_t>& entries);

}  // namespace llmem
