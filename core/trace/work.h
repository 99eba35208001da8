#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace llmem {

// What a stretch of the step asks of the GPU or of its links.
enum class Doing : std::uint8_t {
  product,      // a matrix product
  attention,    // one fused attention kernel
  memory,       // kernels whose time is that of the memory they read and write
  update,       // the optimizer: `bytes` of parameters; how often each is passed over depends on the optimizer
  communicate,  // a collective, on a stream of its own
  wait,         // until the collectives of `stream` are over, the compute stream does nothing
};

enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, send, host_copy };

// Which ranks take part.
enum class Among : std::uint8_t { shards, copies, tensor, context, pipeline, host };

// One entry of the work that a rank does, in the order in which it is asked for.
struct Work {
  Doing doing = Doing::memory;
  Dtype dtype = Dtype::bfloat16;  // product, attention: of the operands
  Collective collective = Collective::all_reduce;
  Among group = Among::shards;
  std::uint8_t stream = 0;   // communicate, wait
  bool again = false;        // computed a second time, for checkpointing
  std::uint32_t phase = 0;   // index into Trace::phases
  std::int32_t kernels = 1;  // launches
  std::int32_t ranks = 1;    // communicate; 0: as many as the group has by the spec
  std::int64_t flops = 0;    // product, attention
  std::int64_t bytes = 0;    // moved to and from GPU memory; communicate: of the whole tensor, gathered or not yet reduced
  std::int64_t outer = 0;    // product, attention: of the bytes, the activations that other kernels write or read
  std::size_t event = 0;     // after how many requests and frees it was written down
};

}  // namespace llmem
