#include "time/step_time.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace llmem {
namespace {

// What of a GPU's peak its kernels reach.
struct Efficiencies {
  double product;    // large matrix products
  double attention;  // flash attention, of the causal half of the products
  double memory;     // memory-bound kernels
};

// Products: the best shape's mean of 100 (stas00/ml-engineering, MAMF: A100 SXM 271 of 312 TFLOPS, H100 794 of 989, B200 1745 of 2250), times what
// training shapes reach of it (kTrainingShapes). Memory: BabelStream, A100 1.61 to 1.75 of 2.04 TB/s, H100 2.90 to 3.18 of 3.35, GB200 7.35 of
// 8 (Azure guide). Attention, forward and backward together: on A100 fitted; FlashAttention-2 forward at 8k tokens reaches 328 of 989 TFLOPS on
// H100 (Azure guide), and no more on newer ones; kernels made for them about as much of their products' rate as there.
Efficiencies efficiencies_of(int compute_capability, const Kernels& kernels) {
  const int major = compute_capability / 10;
  if (major == 9) return {0.80, kernels.flash3 ? 0.45 : 0.30, 0.90};
  if (major == 10) return {0.78, kernels.flash3 ? 0.45 : 0.13, 0.90};
  return {0.87, 0.32, 0.85};
}
// kTrainingShapes, A100's attention and kInterference are fitted on the part of the measurements that tests/accuracy/README.md names.
constexpr double kTrainingShapes = 0.80;
constexpr double kFloat8 = 0.71 / 0.80;  // H100: 0.71 of the float8 peak where bfloat16 reaches 0.80 (stas00/ml-engineering)

// A product's time beyond its FLOPs: A100, 1024^3 takes 18 us and 2048^3 77 us where 254 TFLOPS would take 8 and 68 (Azure guide).
constexpr double kProductStart = 9e-6;
constexpr double kKernelStart = 2e-6;
// The host's time to launch one kernel, in Python and from the engine. Floors of small batches: Qwen-1.8B with LoRA and checkpointing 125 ms a
// micro-batch, which are 5.2 ms and about 280 kernels a layer; litgpt, 7B with LoRA, 4.4 ms a layer.
constexpr double kLaunchForward = 20e-6, kLaunchBackward = 12e-6;

// How often the optimizer passes over its parameters' memory, in tensors of their size.
struct Passes {
  double reads_and_writes;
  double kernels;  // a tensor
};
Passes passes_of(const OptimizerOptions& optimizer) {
  const bool fused = optimizer.implementation == OptimizerImplementation::fused;
  switch (optimizer.name) {
    // read p, g, m, v; write p, m, v. torch/optim/adam.py, _multi_tensor_adam: decay 2, lerp 3, mul 2, addcmul 3, sqrt 2, div 2, add 2, div 2,
    // addcdiv 4
    case OptimizerName::adamw:
    case OptimizerName::adam:
    case OptimizerName::nadam:
    case OptimizerName::radam:
    case OptimizerName::adamax:
      return fused ? Passes{7, 1.0 / 30} : Passes{22, optimizer.implementation == OptimizerImplementation::loop ? 9.0 : 0.3};
    case OptimizerName::sgd: return optimizer.momentum ? Passes{8, 0.1} : Passes{3, 0.05};
    case OptimizerName::adamw_8bit:
    case OptimizerName::paged_adamw_8bit:
    case OptimizerName::lion_8bit:
    case OptimizerName::paged_lion_8bit:
    case OptimizerName::ademamix_8bit: return {5, 1};
    // Newton-Schulz: its products are not counted yet
    case OptimizerName::muon: return {30, 10};
    default: return {10, 1};
  }
}

bool is_second_micro_batch(std::string_view phase) {
  constexpr std::string_view name = ".forward1";
  return phase.size() > name.size() && phase.substr(phase.size() - name.size()) == name;
}

// The host launches ahead of the compute stream, which runs ahead of nothing; collectives run on streams of their own over shared links.
class Clocks {
 public:
  Clocks(const Spec& spec, const Machine& machine, const Kernels& kernels)
      : spec_(spec),
        machine_(machine),
        kernels_(kernels),
        efficiencies_(efficiencies_of(spec.cluster.gpu.compute_capability, kernels)),
        bandwidth_(machine.gpu.memory_gbs * 1e9 * efficiencies_.memory) {}

  // `entries`: of the work; when they begin is kept.
  void run(const Trace& trace, const std::vector<std::size_t>& entries = {}) {
    std::size_t next = 0;
    std::vector<bool> forward(trace.phases.size()), after_backward(trace.phases.size());
    for (std::size_t i = 0; i < trace.phases.size(); ++i)
      after_backward[i] = trace.phases[i].find("clip") != std::string::npos || trace.phases[i].find("optimizer") != std::string::npos;
    for (std::size_t i = 0; i < trace.phases.size(); ++i) forward[i] = trace.phases[i].find("backward") == std::string::npos;
    std::uint32_t phase = ~std::uint32_t{0};
    for (std::size_t i = 0; i < trace.work.size(); ++i) {
      for (; next < entries.size() && entries[next] <= i; ++next) keep_moment();
      const Work& work = trace.work[i];
      if (time_.first_micro_batch == 0 && is_second_micro_batch(trace.phases[work.phase])) time_.first_micro_batch = compute_;
      if (work.phase != phase && trace.phases[work.phase].find(".forward") != std::string::npos) starts_.push_back(seconds_so_far());
      phase = work.phase;
      if (backward_end_ < 0 && after_backward[work.phase]) backward_end_ = compute_;
      in_python_ = work.again || forward[work.phase];
      switch (work.doing) {
        case Doing::product: product(work); break;
        case Doing::attention: attention(work); break;
        case Doing::memory: memory(trace, i); break;
        case Doing::update: update(work); break;
        case Doing::communicate: communicate(work); break;
        case Doing::wait: wait(work.stream); break;
      }
    }
    for (; next < entries.size(); ++next) keep_moment();
    for (const double end : stream_) advance_to(end, time_.communication);
  }

  std::vector<double> moments() {
    keep_moment();
    return std::move(moments_);
  }

  StepTime finish() {
    time_.seconds = seconds_so_far();
    time_.hidden = hidden();
    time_.communication += kInterference * time_.hidden;
    if (backward_end_ >= 0) time_.after_backward = compute_ - backward_end_;
    return time_;
  }
  double flops() const { return flops_; }
  // Of one micro-batch that is neither the first nor the last: what they take on average. 0: there is none.
  double middle_micro_batch() const {
    return starts_.size() < 3 ? 0 : (starts_.back() - starts_[1]) / static_cast<double>(starts_.size() - 2);
  }
  Dtype main_dtype() const { return main_dtype_; }

 private:
  double hidden() const { return std::max(0.0, time_.communication_total - time_.communication); }
  double seconds_so_far() const { return compute_ + kInterference * hidden(); }
  void keep_moment() { moments_.push_back(seconds_so_far()); }
  void launch(int kernels) {
    if (!kernels_.at_once) host_ += kernels * (in_python_ ? kLaunchForward : kLaunchBackward);
  }

  void product(const Work& work) {
    const bool low = kernels_.float8 && work.dtype != Dtype::float32 && machine_.gpu.fp8_tflops > 0;
    const double peak = low ? machine_.gpu.fp8_tflops * kFloat8 : machine_.gpu.tflops(work.dtype);
    math(work, peak * efficiencies_.product * kTrainingShapes, kProductStart);
  }
  void attention(const Work& work) { math(work, machine_.gpu.tflops(work.dtype) * efficiencies_.attention, kProductStart); }

  void math(const Work& work, double tflops, double start) {
    const double flops = static_cast<double>(work.flops) / kernels_.tensor * (work.doing == Doing::attention ? kernels_.attention : 1);
    const double seconds =
        std::max(tflops > 0 ? flops / (tflops * 1e12) : 0, static_cast<double>(work.bytes) / kernels_.tensor / bandwidth_) + start;
    if (!work.again) flops_ += flops;
    if (flops > largest_) {
      largest_ = flops;
      main_dtype_ = work.dtype;
    }
    kernel(seconds, 1, time_.compute);
  }

  // Fused, a chain of kernels between two products reads what the first made and writes what the second takes.
  void memory(const Trace& trace, std::size_t i) {
    const Work& work = trace.work[i];
    auto bytes = work.bytes;
    int launches = work.kernels;
    if (kernels_.fused) {
      std::int64_t outer = 0;
      if (i > 0) outer += trace.work[i - 1].outer;
      if (i + 1 < trace.work.size()) outer += trace.work[i + 1].outer;
      if (outer > 0) bytes = std::min(bytes, outer);
      launches = std::min(launches, 2);
    }
    kernel(static_cast<double>(bytes) / kernels_.tensor / bandwidth_ + launches * kKernelStart, launches, time_.memory);
  }

  void update(const Work& work) {
    const Passes passes = passes_of(spec_.training.optimizer);
    const double kernels = passes.kernels * work.kernels / kernels_.update + 1;
    const double bytes = static_cast<double>(work.bytes) / kernels_.update;
    kernel(passes.reads_and_writes * bytes / bandwidth_ + kernels * kKernelStart, static_cast<int>(kernels), time_.memory);
  }

  void kernel(double seconds, int launches, double& share) {
    const double begin = std::max(compute_, host_);
    launch(launches);
    time_.launch += begin - compute_;
    compute_ = begin + seconds;
    share += seconds;
    advance_to(host_, time_.launch);
  }

  // A gather that was asked for early begins at most one unit ahead: its buffers are given back when the compute stream has passed the
  // wait before (rate limiter, and the events that FSDP2 records).
  void communicate(const Work& work) {
    const Placement placement = placement_of(work.group, work.ranks, spec_);
    const double seconds = seconds_of(work.collective, work.bytes, placement, machine_.links);
    launch(1);
    const bool of_weights = work.collective == Collective::all_gather && work.group == Among::shards;
    double& link = link_[work.group == Among::host ? 2 : (placement.crosses_nodes() ? 1 : 0)];
    const double begin = std::max({host_, link, stream_[work.stream], of_weights ? gate_[work.stream] : compute_});
    stream_[work.stream] = link = begin + seconds;
    time_.communication_total += seconds;
  }

  void wait(std::uint8_t stream) {
    gate_[stream] = compute_;
    advance_to(stream_[stream], time_.communication);
  }

  void advance_to(double moment, double& share) {
    if (moment <= compute_) return;
    share += moment - compute_;
    compute_ = moment;
  }

  const Spec& spec_;
  const Machine& machine_;
  Kernels kernels_;
  Efficiencies efficiencies_;
  double bandwidth_;
  bool in_python_ = true;
  double host_ = 0, compute_ = 0;
  std::vector<double> moments_;
  std::vector<double> starts_;    // of compute_: where the micro-batches begin
  std::array<double, 3> link_{};  // when it is free: within the node, the network, to the host
  std::array<double, 8> stream_{}, gate_{};
  double flops_ = 0, largest_ = 0, backward_end_ = -1;
  Dtype main_dtype_ = Dtype::bfloat16;
  StepTime time_;
};

// Gb/s a GPU: the vendor's own systems (DGX A100 8 x 200, DGX H100 and B200 8 x 400, DGX B300 8 x 800); cards share one adapter of 100.
double network_of(const Cluster& cluster, bool nvlink) {
  if (cluster.network_gbps) return static_cast<double>(*cluster.network_gbps);
  if (!nvlink) return 100.0 / static_cast<double>(cluster.gpus_per_node);
  switch (cluster.gpu.compute_capability) {
    case 70: return 100.0 / 8;
    case 80: return 200;
    case 103: return 800;
    default: return 400;
  }
}

}  // namespace

std::optional<Machine> machine_of(const Cluster& cluster) {
  const std::optional<GpuRates> rates = rates_of(cluster.gpu.id);
  if (!rates) return std::nullopt;
  Machine machine{*rates, {}};
  machine.links.switched = rates->nvlink_gbs > 0;
  machine.links.meshed = machine.links.switched && cluster.gpu.compute_capability == 70;
  machine.links.within_node = 1e9 * (machine.links.switched ? rates->nvlink_gbs : rates->pcie_gbs);
  machine.links.network = 1e9 / 8 * network_of(cluster, machine.links.switched);
  machine.links.host = 1e9 * rates->pcie_gbs;
  return machine;
}

// Ranks are numbered with tensor parallelism innermost, then context, shards, copies, stages.
Placement placement_of(Among group, std::int32_t ranks, const Spec& spec) {
  const std::int64_t shards = spec.data.degree / spec.data.replicate;
  std::int64_t stride = 1, count = ranks;
  switch (group) {
    case Among::tensor: count = ranks == 0 ? spec.tensor.degree : ranks; break;
    case Among::shards:
      count = ranks == 0 ? shards : ranks;
      stride = spec.tensor.degree;
      break;
    case Among::copies:
      stride = spec.tensor.degree * spec.context.degree * (spec.data.replicate > 1 ? shards : 1);
      count = ranks > 0 ? ranks : spec.data.replicate > 1 ? spec.data.replicate : spec.data.degree;
      break;
    case Among::context: stride = spec.tensor.degree; break;
    case Among::pipeline: stride = spec.world() / spec.pipeline.degree; break;
    case Among::host: count = 1; break;  // each GPU has its own link
  }
  const std::int64_t in_node = std::clamp<std::int64_t>(spec.cluster.gpus_per_node / stride, 1, count);
  return {count, in_node};
}

// The time of so many micro-batches more. Its parts grow alike.
void repeat_micro_batches(StepTime& time, std::int64_t times, double each) {
  const double more = time.seconds > 0 ? 1 + static_cast<double>(times) * each / time.seconds : 1;
  for (double* part :
       {&time.seconds, &time.compute, &time.memory, &time.communication, &time.launch, &time.hidden, &time.communication_total})
    *part *= more;
}

StepTime step_time(const Spec& spec, const Trace& trace, const Machine& machine, const Kernels& kernels) {
  Clocks clocks(spec, machine, kernels);
  clocks.run(trace);
  StepTime time = clocks.finish();
  const Training& t = spec.training;
  double flops = clocks.flops();
  if (const std::int64_t left_out = trace.micro_batches_left_out; left_out > 0) {
    flops *= static_cast<double>(t.accumulation) / static_cast<double>(t.accumulation - left_out);
    repeat_micro_batches(time, left_out, clocks.middle_micro_batch());
  }
  std::int64_t microbatches = t.accumulation;
  if (spec.pipeline.degree > 1) {
    // 1F1B and GPipe: of m microbatches in p stages, (p - 1) / m of the time is waited; v stages a rank wait a v-th of it (Megatron-LM,
    // arXiv 2104.04473, section 2.2).
    microbatches = spec.pipeline.microbatches;
    const double ratio = static_cast<double>(spec.pipeline.degree - 1) / static_cast<double>(microbatches * spec.pipeline.virtual_stages);
    time.bubble = ratio * time.seconds;
    time.seconds += time.bubble;
  }
  const auto gpus = static_cast<double>(spec.world());
  const auto tokens = static_cast<double>(t.micro_batch * microbatches * t.sequence * spec.data.degree);
  if (time.seconds > 0) {
    time.tokens_per_second = tokens / time.seconds / gpus;
    time.tflops = flops / time.seconds / 1e12;
  }
  time.peak_tflops = machine.gpu.tflops(clocks.main_dtype());
  return time;
}

std::vector<double> moments_of(const Spec& spec, const Trace& trace, const Machine& machine, const Kernels& kernels,
                               const std::vector<std::size_t>& entries) {
  Clocks clocks(spec, machine, kernels);
  clocks.run(trace, entries);
  return clocks.moments();
}

}  // namespace llmem
