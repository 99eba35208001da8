#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "trace/work.h"

namespace llmem {

// What an allocation is for. `temporary` until the step knows better: a tensor that backward needs becomes an activation, a
// parameter's .grad a gradient.
enum class Category : std::uint8_t {
  weights,
  gradients,
  optimizer_states,
  attention,
  mlp,
  norms,
  logits_and_loss,
  other_activations,
  temporaries,
  communication,
  workspaces,
};
inline constexpr int category_count = 11;

// One request to PyTorch's caching allocator.
struct Allocation {
  Bytes bytes;  // as requested, before any rounding
  Category category = Category::temporaries;
  std::uint8_t stream = 0;   // 0: the compute stream. Each stream has its own free blocks.
  std::uint16_t op = 0;      // index into Trace::ops
  std::uint32_t module = 0;  // index into Trace::modules
  std::uint32_t phase = 0;   // index into Trace::phases
  std::uint8_t used_by = 0;  // bit s: of the other streams, s has used it (Tensor.record_stream)
};

// A moment at which the memory counters are read, as the oracle reads them ("step0.forward0").
struct Point {
  std::string at;
  std::size_t event = 0;  // after how many events
};

// What an allocation was made to hold: sizes in elements.
struct Shape {
  std::vector<std::int64_t> sizes;
  Dtype dtype = Dtype::float32;
  bool operator==(const Shape&) const = default;
};

// Who waits for whom, where that decides when memory that another stream has used comes back. Streams run on their own, the host ahead of them all.
struct Wait {
  enum class Kind : std::uint8_t {
    stream,        // `waiting` goes on when `awaited` has come as far as the host has by now
    mark,          // nobody waits yet: an event behind the last that `awaited` was asked for, to the queue `waiting`
    host_oldest,   // the host waits for the oldest event of the queue `waiting`
    host_at_most,  // … once more than `awaited` are left of it, when those that are known to be over have gone
    host,          // … for all that the stream `awaited` was asked for
  };
  Kind kind;
  std::uint8_t waiting = 0, awaited = 0;
  std::size_t event = 0;  // after how many events
};
inline constexpr int stream_count = 8;

// The allocation history of one rank: every request and free, in order.
struct Trace {
  std::vector<Allocation> allocations;
  std::vector<std::int32_t> events;  // i: allocation i is made; ~i: it is freed
  std::vector<Point> points;
  std::vector<std::size_t> peak_resets;    // after how many events the peaks start anew (each training step)
  std::vector<std::size_t> cache_flushes;  // after how many events torch.cuda.empty_cache() is called
  std::vector<Wait> waits;                 // … who waits
  std::vector<Work> work;                  // of the last step played, for its time
  // Of each step, before its last: so many micro-batches do what the one before them did, and are not in the trace.
  std::int64_t micro_batches_left_out = 0;
  std::vector<std::string> modules, ops, phases;

  // Only where someone asks for them, since they take time: of each allocation an index into `shapes`; 0: bytes of no shape.
  bool keep_shapes = false;
  std::vector<std::uint32_t> shape_of;
  std::vector<Shape> shapes;
};

constexpr bool is_free(std::int32_t event) { return event < 0; }
constexpr std::size_t allocation_of(std::int32_t event) { return static_cast<std::size_t>(event < 0 ? ~event : event); }

}  // namespace llmem
