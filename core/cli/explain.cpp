#include <algorithm>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/problems.h"
#include "report/estimate.h"
#include "report/ledger.h"
#include "report/words.h"

namespace llmem {
namespace {

constexpr int rows_shown = 8;  // of a category

// "1,234,567"
std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

const char* or_dash(const std::string& text) { return text.empty() ? "-" : text.c_str(); }

void print_head(const Report& report, std::FILE* out) {
  const std::string name = report.model.name.empty() ? "" : report.model.name + ": ";
  std::fprintf(out, "%s%s, %s parameters\n%s\n\n", name.c_str(), report.model.model_class.c_str(), grouped(report.parameters.total).c_str(),
               report.verdict.sentence.c_str());
}

void print_ledger(const std::vector<LedgerEntry>& ledger, std::FILE* out) {
  std::fprintf(out, "%9s  %6s\n", "GiB", "count");
  Bytes total;
  for (const LedgerEntry& entry : ledger) {
    std::fprintf(out, "%9s          %.*s\n", gib(entry.bytes).c_str(), static_cast<int>(entry.category.size()), entry.category.data());
    int shown = 0;
    LedgerRow other;
    for (const LedgerRow& row : entry.rows) {
      if (shown++ < rows_shown) {
        std::fprintf(out, "%9s  %6lld    %s  %s\n", gib(row.bytes).c_str(), static_cast<long long>(row.count), or_dash(row.module),
                     row.op.c_str());
      } else {
        other.count += row.count;
        other.bytes += row.bytes;
      }
    }
    if (other.count > 0) std::fprintf(out, "%9s  %6lld    other\n", gib(other.bytes).c_str(), static_cast<long long>(other.count));
    total += entry.bytes;
  }
  std::fprintf(out, "%9s          total (%s bytes)\n", gib(total).c_str(), grouped(total.count).c_str());
}

void print_largest(const Trace& trace, const Replay& run, std::size_t event, long top, std::FILE* out) {
  std::vector<std::size_t> live = live_after(trace, event);
  const auto larger = [&run](std::size_t a, std::size_t b) { return run.block_sizes[a] > run.block_sizes[b]; };
  std::stable_sort(live.begin(), live.end(), larger);
  live.resize(std::min(live.size(), static_cast<std::size_t>(top)));
  if (live.empty()) return;
  std::fprintf(out, "\nThe largest tensors then\n");
  for (const std::size_t i : live) {
    const Allocation& a = trace.allocations[i];
    std::fprintf(out, "%9s  %s  %s, made in %s\n", gib(run.block_sizes[i]).c_str(), or_dash(trace.modules[a.module]),
                 trace.ops[a.op].c_str(), trace.phases[a.phase].c_str());
  }
}

void print_events(const Trace& trace, std::size_t event, long count, std::FILE* out) {
  if (count == 0) return;
  const auto before = static_cast<std::size_t>(count);
  const std::size_t first = event + 1 > before ? event + 1 - before : 0;
  const std::size_t last = std::min(trace.events.size(), event + 1 + before / 4);
  std::fprintf(out, "\nEvents around it\n");
  for (std::size_t i = first; i < last; ++i) {
    const std::int32_t e = trace.events[i];
    const Allocation& a = trace.allocations[allocation_of(e)];
    std::fprintf(out, "%c %8zu  %-5s %18s  %s  %s%s\n", i == event ? '>' : ' ', i, is_free(e) ? "free" : "alloc",
                 grouped(a.bytes.count).c_str(), or_dash(trace.modules[a.module]), trace.ops[a.op].c_str(),
                 a.stream != 0 ? (" stream " + std::to_string(a.stream)).c_str() : "");
  }
}

void print_host(const HostMemory& host, std::FILE* out) {
  if (host.points.empty()) return;
  std::fprintf(out, "\nIn the memory of a node's host\n");
  for (const HostPoint& point : host.points)
    for (const HostItem& item : point.what)
      std::fprintf(out, "%9s  %s: %s\n", gib(item.bytes).c_str(), std::string(point.at).c_str(), std::string(item.name).c_str());
}

int no_such_point(const Trace& trace, const std::string& at, std::FILE* errors) {
  std::fprintf(errors, "there is no point \"%s\". There are:", at.c_str());
  for (const Point& point : trace.points) std::fprintf(errors, " %s", point.at.c_str());
  std::fprintf(errors, "\n");
  return 1;
}

}  // namespace

int explain(std::string_view spec, const Arguments& arguments, std::FILE* out, std::FILE* errors, const ModelPresets& presets) {
  const Result<Played> played = play_spec(spec, presets);
  if (!played) return print_problems(played.error(), errors);
  const Result<Report> report = report_on(*played);
  if (!report) return print_problems(report.error(), errors);
  const Trace& trace = played->trace;
  const Replay run = replay(trace, settings_of(played->spec));
  const RankReport& rank = report->ranks.front();

  std::size_t event = run.peak_event;
  if (arguments.at) {
    const auto point = std::find_if(trace.points.begin(), trace.points.end(), [&](const Point& p) { return p.at == *arguments.at; });
    if (point == trace.points.end()) return no_such_point(trace, *arguments.at, errors);
    if (point->event == 0) return 0;
    event = point->event - 1;
  }

  print_head(*report, out);
  if (arguments.at) {
    std::fprintf(out, "At %s\n", arguments.at->c_str());
    print_ledger(ledger_after(trace, run.block_sizes, event), out);
  } else {
    std::fprintf(out,
                 "At the peak: %s GiB allocated, %s reserved, %s with what lies outside PyTorch;\n%s, at %s of %s (event %zu of %zu)\n",
                 gib(rank.peak_allocated).c_str(), gib(rank.peak_reserved).c_str(), gib(rank.device_total).c_str(),
                 phase_in_words(rank.peak.phase, played->spec.training.accumulation).c_str(), rank.peak.op.c_str(),
                 or_dash(rank.peak.module), rank.peak.event, trace.events.size());
    print_ledger(rank.ledger, out);
  }
  print_largest(trace, run, event, arguments.top, out);
  print_events(trace, event, arguments.events, out);
  if (!arguments.at) print_host(report->host, out);
  for (const Note& note : report->warnings) std::fprintf(out, "\nNote: %s\n", note.message.c_str());
  return 0;
}

}  // namespace llmem
