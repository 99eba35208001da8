#include "allocator/stream_clocks.h"

#include <algorithm>

namespace llmem {

void StreamClocks::join(Clock& into, const Clock& other) {
  for (std::size_t s = 0; s < into.size(); ++s) into[s] = std::max(into[s], other[s]);
}

void StreamClocks::wait_for_oldest(std::vector<Mark>& queue) {
  join(host_, queue.front().clock);
  queue.erase(queue.begin());
}

bool StreamClocks::follow(const Wait& wait) {
  std::vector<Mark>& queue = marks_[wait.waiting];
  switch (wait.kind) {
    case Wait::Kind::stream:
      record(wait.awaited);
      join(clocks_[wait.waiting], clocks_[wait.awaited]);
      return false;
    case Wait::Kind::mark:
      record(wait.awaited);
      queue.push_back({wait.awaited, clocks_[wait.awaited]});
      return false;
    case Wait::Kind::host_oldest: wait_for_oldest(queue); return true;
    case Wait::Kind::host_at_most:
      while (!queue.empty() && is_over(queue.front().stream, queue.front().clock[queue.front().stream])) queue.erase(queue.begin());
      if (queue.size() <= wait.awaited) return false;
      wait_for_oldest(queue);
      return true;
    case Wait::Kind::host: host_waits(wait.awaited); return true;
  }
  return false;
}

}  // namespace llmem
