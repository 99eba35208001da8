#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "trace/trace.h"

namespace llmem {

// Writes down what a step costs while it is played: FLOPs, bytes moved, collectives. What an op reads is told by its Recorder (forward) or
// by the engine (gradients, saved tensors); what it writes, by the allocator: an op that allocates nothing is a view and moves nothing.
class Meter {
 public:
  explicit Meter(Trace& trace) : trace_(trace) {}

  bool on = false;
  bool again = false;  // what is computed is a recomputation

  void begin_op() { pending_ = 0; }
  // What follows is not written into the entry before.
  void begin_part() { part_ = trace_.work.size(); }
  void reads(std::int64_t bytes) { pending_ += bytes; }

  // A kernel's result was allocated on the compute stream.
  void wrote(std::int64_t bytes) {
    if (!on || muted_ > 0) return;
    add_memory(pending_ + bytes);
    pending_ = 0;
  }
  // A kernel that writes where it reads, or that no allocation tells of.
  void moved(std::int64_t bytes, std::int32_t kernels = 1) {
    if (on && muted_ == 0) add_memory(bytes, kernels);
  }

  void product(std::int64_t flops, std::int64_t bytes, std::int64_t outer, Dtype dtype) {
    add_math(Doing::product, flops, bytes, outer, dtype);
  }
  void attention(std::int64_t flops, std::int64_t bytes, Dtype dtype) { add_math(Doing::attention, flops, bytes, bytes, dtype); }

  void update(std::int64_t bytes, Dtype dtype, std::int64_t tensors) {
    if (!on) return;
    Work work = make(Doing::update);
    work.bytes = bytes;
    work.dtype = dtype;
    work.kernels = static_cast<std::int32_t>(tensors);
    trace_.work.push_back(work);
  }

  // ranks 0: as many as the group has by the spec.
  void communicate(Collective collective, Among group, std::int64_t ranks, std::int64_t bytes, std::uint8_t stream) {
    if (!on || ranks == 1 || bytes == 0) return;
    Work work = make(Doing::communicate);
    work.collective = collective;
    work.group = group;
    work.ranks = static_cast<std::int32_t>(ranks);
    work.bytes = bytes;
    work.stream = stream;
    trace_.work.push_back(work);
  }
  void wait(std::uint8_t stream) {
    if (!on) return;
    Work work = make(Doing::wait);
    work.stream = stream;
    trace_.work.push_back(work);
  }
  // A collective whose result the next kernel needs.
  void communicate_and_wait(Collective collective, Among group, std::int64_t ranks, std::int64_t bytes) {
    if (ranks == 1) return;
    communicate(collective, group, ranks, bytes, blocking_stream);
    wait(blocking_stream);
  }

  static constexpr std::uint8_t blocking_stream = 7;

  // What is allocated meanwhile is not the result of a kernel that only moves memory.
  class Muted {
   public:
    explicit Muted(Meter& meter) : meter_(meter) { ++meter_.muted_; }
    ~Muted() {
      --meter_.muted_;
      meter_.pending_ = 0;
    }
    Muted(const Muted&) = delete;
    Muted& operator=(const Muted&) = delete;

   private:
    Meter& meter_;
  };

 private:
  Work make(Doing doing) const {
    Work work;
    work.doing = doing;
    work.again = again;
    work.phase = static_cast<std::uint32_t>(trace_.phases.size() - 1);
    work.event = trace_.events.size();
    return work;
  }

  void add_memory(std::int64_t bytes, std::int32_t kernels = 1) {
    if (trace_.work.size() > part_) {
      Work& last = trace_.work.back();
      if (last.doing == Doing::memory && last.phase + 1 == trace_.phases.size() && last.again == again) {
        last.bytes += bytes;
        last.kernels += kernels;
        return;
      }
    }
    Work work = make(Doing::memory);
    work.bytes = bytes;
    work.kernels = kernels;
    trace_.work.push_back(work);
  }

  void add_math(Doing doing, std::int64_t flops, std::int64_t bytes, std::int64_t outer, Dtype dtype) {
    pending_ = 0;
    if (!on) return;
    Work work = make(doing);
    work.flops = flops;
    work.bytes = bytes;
    work.outer = outer;
    work.dtype = dtype;
    trace_.work.push_back(work);
  }

  Trace& trace_;
  std::int64_t pending_ = 0;  // bytes that the op in progress reads
  int muted_ = 0;
  std::size_t part_ = 0;  // entries of the work when the part began
};

}  // namespace llmem
