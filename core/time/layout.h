#pragma once

#include <cstdint>

#include "time/step_time.h"

namespace llmem {

enum class Sharding : std::uint8_t { none, optimizer, gradients, weights };  // DDP, ZeRO-1, ZeRO-2, ZeRO-3 and FSDP

// A way of splitting that core/plan does not play yet, laid over the step of one GPU: of a model with the layers of one stage, over the
// tokens of one context rank.
struct RankLayout {
  std::int64_t tensor = 1;  // with sequence parallelism
  std::int64_t pipeline = 1, virtual_stages = 1;
  std::int64_t context = 1;
  std::int64_t data = 1;
  Sharding sharding = Sharding::none;
  std::int64_t shards = 1;          // ranks that share one copy of what is sharded; data / shards copies
  std::int64_t gradient_bytes = 2;  // of an element while it is reduced
  std::int64_t microbatches = 1;    // an optimizer step: the played ones stand for all
  std::int64_t parameters = 0;      // of the played model; of them trainable:
  std::int64_t trainable = 0;
  std::int64_t layers = 0;  // of the played model
  std::int64_t hidden_size = 0, kv_size = 0;
  bool masters = false;        // weights and states in fp32 beside 16-bit weights
  bool recomputes = false;     // with collectives of its own
  bool gathers_ahead = false;  // the updated weights of ZeRO-1 and 2 come while the next forward runs; else nothing runs meanwhile

  std::int64_t gpus() const { return tensor * pipeline * context * data; }
};

// As step_time, of spec.training without any parallelism in it. The whole sequence is spec.training.sequence x context.
StepTime laid_out(const Spec& spec, const Trace& trace, const Machine& machine, const Kernels& kernels, const RankLayout& layout);

}  // namespace llmem
