#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace llmem {

// What must be over by a moment of a run, and no more: a vector clock for each stream and one for the host (happened-before, of Lamport and
// Mattern). A stream's own time goes on with every event that is recorded on it.
class StreamClocks {
 public:
  using Time = std::uint32_t;

  // Records an event on a stream: when it is over, all that the stream was asked for before is.
  Time record(std::uint8_t stream) { return ++clocks_[stream][stream]; }
  // Whether the host can know that it is over, since it has waited for something that comes after it.
  bool is_over(std::uint8_t stream, Time event) const { return host_[stream] >= event; }

  // True if the host waited.
  bool follow(const Wait& wait);
  // The host waits for this event.
  void host_waits(std::uint8_t stream) {
    record(stream);
    join(host_, clocks_[stream]);
  }

 private:
  using Clock = std::array<Time, stream_count>;

  static void join(Clock& into, const Clock& other);

  struct Mark {
    std::uint8_t stream;
    Clock clock;
  };
  void wait_for_oldest(std::vector<Mark>& queue);

  std::array<Clock, stream_count> clocks_{};
  Clock host_{};
  std::array<std::vector<Mark>, stream_count> marks_;  // queues
};

}  // namespace llmem
