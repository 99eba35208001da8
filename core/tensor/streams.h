#pragma once

#include <cstdint>

#include "tensor/tensor.h"
#include "trace/trace.h"

namespace llmem {

// Writes down which stream is made to wait for which, when the host waits for one, and what memory a stream uses that is not its own: the
// allocator gives such a block out again only when that stream has come to where the block was freed (CUDACachingAllocator::free, insert_events).
class Streams {
 public:
  explicit Streams(Trace& trace) : trace_(trace) {}

  // Tensor.record_stream
  void use(const Storage& storage, std::uint8_t stream) {
    if (!storage.allocated()) return;
    Allocation& made = trace_.allocations[static_cast<std::size_t>(storage.allocation)];
    if (made.stream != stream) made.used_by |= static_cast<std::uint8_t>(1 << stream);
  }

  void wait(std::uint8_t waiting, std::uint8_t awaited) {
    if (waiting != awaited) add(Wait::Kind::stream, waiting, awaited);
  }
  // An event that the host may wait for later, in the queue of this number.
  void mark(std::uint8_t queue, std::uint8_t stream) { add(Wait::Kind::mark, queue, stream); }
  void host_waits_for_oldest(std::uint8_t queue) { add(Wait::Kind::host_oldest, queue, 0); }
  void host_leaves_at_most(std::uint8_t queue, std::uint8_t events) { add(Wait::Kind::host_at_most, queue, events); }
  // The host reads a value, or synchronizes.
  void host_waits(std::uint8_t stream) { add(Wait::Kind::host, 0, stream); }

  // A collective that runs on this stream: those of one communicator run one after the other, whatever streams they are asked for on (NCCL,
  // "Using multiple streams"; enqueue.cc, ncclLaunchPrepare).
  void communicate(std::uint8_t stream) {
    wait(stream, communicator);
    wait(communicator, stream);
  }

 private:
  static constexpr std::uint8_t communicator = stream_count - 1;

  void add(Wait::Kind kind, std::uint8_t waiting, std::uint8_t awaited) {
    trace_.waits.push_back({kind, waiting, awaited, trace_.events.size()});
  }

  Trace& trace_;
};

}  // namespace llmem
