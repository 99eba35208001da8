#include "time/layout.h"

#include <algorithm>

namespace llmem {
namespace {

// Ranks `stride` apart.
Placement strided(std::int64_t ranks, std::int64_t stride, const Cluster& cluster) {
  return {ranks, std::clamp<std::int64_t>(cluster.gpus_per_node / stride, 1, ranks)};
}

// Megatron-LM with sequence parallelism (arXiv 2205.05198, figure 5): an all-gather into each block and a reduce-scatter out of it, forward and
// backward, for attention and MLP.
double tensor_seconds(const Spec& spec, const RankLayout& layout, const Links& links) {
  if (layout.tensor == 1) return 0;
  const std::int64_t bytes = 2 * spec.training.micro_batch * spec.training.sequence * layout.hidden_size;
  const Placement placement = strided(layout.tensor, 1, spec.cluster);
  const double pair = seconds_of(Collective::all_reduce, bytes, placement, links);
  return static_cast<double>(layout.layers * 2 * (layout.recomputes ? 3 : 2)) * pair;
}

// Keys and values go round while attention runs; what cannot hide is what exceeds it. Backward they go round with their gradients.
double context_seconds(const Spec& spec, const RankLayout& layout, const Links& links) {
  if (layout.context == 1) return 0;
  const std::int64_t bytes = 2 * 2 * spec.training.micro_batch * spec.training.sequence * layout.kv_size * layout.context / layout.tensor;
  const double round = seconds_of(Collective::all_gather, bytes, strided(layout.context, layout.tensor, spec.cluster), links);
  return static_cast<double>(layout.layers) * 3 * round;
}

double pipeline_seconds(const Spec& spec, const RankLayout& layout, const Links& links) {
  if (layout.pipeline == 1) return 0;
  const std::int64_t bytes = 2 * spec.training.micro_batch * spec.training.sequence * layout.hidden_size / layout.tensor;
  const Placement placement = strided(2, layout.tensor * layout.context * layout.data, spec.cluster);
  return static_cast<double>(2 * layout.virtual_stages) * seconds_of(Collective::send, bytes, placement, links);
}

struct DataTraffic {
  double each = 0;    // seconds a micro-batch
  double once = 0;    // an optimizer step
  double update = 0;  // of the updated weights
};

DataTraffic data_traffic(const Spec& spec, const RankLayout& layout, const Links& links) {
  if (layout.data == 1) return {0, 0, 0};
  const std::int64_t stride = layout.tensor * layout.context, shards = std::max<std::int64_t>(layout.shards, 1);
  const Placement every = strided(layout.data, stride, spec.cluster), sharers = strided(shards, stride, spec.cluster);
  const Placement copies = strided(layout.data / shards, stride * shards, spec.cluster);
  const std::int64_t all = layout.parameters / layout.tensor, trained = layout.trainable / layout.tensor;
  // A unit a layer: each collective starts anew.
  const std::int64_t units = std::max<std::int64_t>(layout.layers, 1);
  const auto over_units = [&](Collective collective, std::int64_t bytes, const Placement& placement) {
    return placement.ranks == 1 ? 0 : static_cast<double>(units) * seconds_of(collective, bytes / units, placement, links);
  };
  const std::int64_t gradients = layout.gradient_bytes * trained;
  const double reduce =
      over_units(Collective::reduce_scatter, gradients, sharers) + over_units(Collective::all_reduce, gradients / shards, copies);
  switch (layout.sharding) {
    case Sharding::none: return {0, over_units(Collective::all_reduce, gradients, every), 0};
    case Sharding::optimizer: return {0, reduce, over_units(Collective::all_gather, 2 * trained, sharers)};
    // DeepSpeed reduces the gradients of every micro-batch.
    case Sharding::gradients: return {reduce, 0, over_units(Collective::all_gather, 2 * trained, sharers)};
    case Sharding::weights: return {2 * over_units(Collective::all_gather, 2 * all, sharers) + reduce, 0, 0};
  }
  return {0, 0, 0};
}

}  // namespace

StepTime laid_out(const Spec& spec, const Trace& trace, const Machine& machine, const Kernels& kernels, const RankLayout& layout) {
  Kernels split = kernels;
  split.tensor = static_cast<double>(layout.tensor);
  split.attention = static_cast<double>(layout.context);
  const bool shards_update = layout.sharding != Sharding::none;
  split.update = static_cast<double>(layout.tensor * (shards_update ? layout.data : 1)) / (layout.masters ? 2 : 1);
  const StepTime played = step_time(spec, trace, machine, split);

  const auto m = static_cast<double>(layout.microbatches);
  StepTime time = played;
  const double after = played.after_backward;
  double one = played.first_micro_batch > 0 ? played.first_micro_batch : played.seconds - after;
  const double parts = std::max(played.seconds - played.communication - after, 1e-12);
  const double played_batches = played.first_micro_batch > 0 ? parts / one : 1;

  const DataTraffic data = data_traffic(spec, layout, machine.links);
  const double blocking = tensor_seconds(spec, layout, machine.links) + pipeline_seconds(spec, layout, machine.links);
  const double hidden = std::max(0.0, context_seconds(spec, layout, machine.links) - 0.5 * one);
  // Gathers and reductions run beside the computation of other units.
  const auto beside = [](double communication, double computation) {
    const double rest = std::max(0.0, communication - computation);
    return rest + kInterference * (communication - rest);
  };
  const double exposed = beside(data.each, one);
  const double busy = one + blocking + hidden + exposed;
  // The updated weights: at the end of the optimizer's step (deepspeed/runtime/zero/stage_1_and_2.py, step: all_gather_dp_groups), or beside the
  // forward (megatron/core/distributed, overlap_param_gather), which is a third of the computation.
  const double update = layout.gathers_ahead ? beside(data.update, one / 3) : data.update;
  const double once = beside(data.once, 2.0 / 3 * one) + update;
  time.bubble = busy * static_cast<double>(layout.pipeline - 1) / static_cast<double>(layout.virtual_stages);
  time.communication = m * (blocking + hidden + exposed) + once;
  time.seconds = m * busy + time.bubble + once + after;
  const double scale = m / played_batches;
  time.compute *= scale;
  time.memory = (time.memory - after) * scale + after;
  time.launch *= scale;
  time.communication_total = m * (blocking + data.each) + data.once + data.update;
  const auto gpus = static_cast<double>(layout.gpus());
  const auto tokens = static_cast<double>(spec.training.micro_batch * spec.training.sequence * layout.context * layout.data) * m;
  time.tokens_per_second = tokens / time.seconds / gpus;
  time.tflops = played.tflops * played.seconds * scale / time.seconds;
  return time;
}

}  // namespace llmem
