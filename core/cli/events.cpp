#include <string>

#include "cli/commands.h"
#include "cli/problems.h"
#include "report/estimate.h"
#include "report/json_writer.h"
#include "report/ledger.h"

namespace llmem {
namespace {

// The phase of a free is that of the last request before it: a trace says when something was made only for what was made.
std::string event_line(const Trace& trace, std::int32_t event, std::uint32_t phase) {
  const std::size_t id = allocation_of(event);
  const Allocation& a = trace.allocations[id];
  JsonWriter json;
  json.begin_object().member("do", is_free(event) ? "free" : "alloc").member("bytes", a.bytes).member("id", id);
  json.member("phase", trace.phases[phase]).member("module", trace.modules[a.module]).member("op", trace.ops[a.op]);
  json.member("category", name_of(a.category));
  if (a.stream != 0) json.member("stream", int{a.stream});
  return json.end_object().take() + "\n";
}

}  // namespace

int events(std::string_view spec, std::FILE* out, std::FILE* errors, const ModelPresets& presets) {
  const Result<Played> played = play_spec(spec, presets);
  if (!played) return print_problems(played.error(), errors);
  const Trace& trace = played->trace;
  std::uint32_t phase = 0;
  for (const std::int32_t event : trace.events) {
    const Allocation& a = trace.allocations[allocation_of(event)];
    if (a.bytes.count == 0) continue;  // PyTorch's allocator never hears of these
    if (!is_free(event)) phase = a.phase;
    const std::string line = event_line(trace, event, phase);
    std::fwrite(line.data(), 1, line.size(), out);
  }
  return 0;
}

}  // namespace llmem
