#include "report/timeline.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "allocator/replay.h"
#include "base/json.h"
#include "report/estimate.h"
#include "report/json_writer.h"
#include "report/ledger.h"
#include "spec/reader.h"

namespace llmem {
namespace {

constexpr std::int64_t most_samples = 4096;

using Held = std::array<Bytes, category_count>;

// A stretch of events and the fullest instant in it, or its first where nothing is allocated in it.
struct Sample {
  std::size_t event = 0;
  Bytes allocated;
  Bytes reserved;
  Held held{};
};

struct Window {
  std::size_t from = 0, to = 0;  // events, the last one excluded
};

Window window_of(const Trace& trace, const TimelineQuestion& question) {
  const auto end = static_cast<std::int64_t>(trace.events.size());
  const std::int64_t from = std::clamp<std::int64_t>(question.from, 0, end);
  const std::int64_t to = std::clamp(question.to.value_or(end), from, end);
  return {static_cast<std::size_t>(from), static_cast<std::size_t>(to)};
}

// Walks through the events once; each of `samples` stretches of about the same length keeps the instant at which most is allocated.
std::vector<Sample> sampled(const Trace& trace, const Replay& run, Window window, std::size_t samples) {
  const std::size_t length = window.to - window.from;
  samples = std::min(samples, length);
  std::vector<Sample> out;
  out.reserve(samples);
  Held held{};
  Bytes allocated;
  std::size_t change = 0, stretch = 0;
  for (std::size_t event = 0; event < window.to; ++event) {
    const std::int32_t what = trace.events[event];
    const std::size_t id = allocation_of(what);
    Bytes& part = held[static_cast<std::size_t>(trace.allocations[id].category)];
    if (is_free(what)) {
      part -= run.block_sizes[id];
      allocated -= run.block_sizes[id];
    } else {
      part += run.block_sizes[id];
      allocated += run.block_sizes[id];
    }
    while (change < run.reserved.size() && run.reserved[change].event <= event) ++change;
    if (event < window.from) continue;
    const bool begins = event - window.from == stretch * length / samples;
    if (begins) {
      out.emplace_back();
      ++stretch;
    }
    Sample& sample = out.back();
    if (begins || allocated > sample.allocated) sample = {event, allocated, change > 0 ? run.reserved[change - 1].bytes : Bytes{0}, held};
  }
  return out;
}

// By allocation: after which event it is gone; the number of events where it outlives them.
std::vector<std::size_t> ends_of(const Trace& trace) {
  std::vector<std::size_t> ends(trace.allocations.size(), trace.events.size());
  for (std::size_t event = 0; event < trace.events.size(); ++event) {
    if (is_free(trace.events[event])) ends[allocation_of(trace.events[event])] = event;
  }
  return ends;
}

const Shape& shape_of(const Trace& trace, std::size_t allocation) {
  const Shape& shape = trace.shapes[trace.shape_of[allocation]];
  Bytes bytes = size_of(shape.dtype);
  for (const std::int64_t size : shape.sizes) bytes = bytes * size;
  // A part of a storage that was made for more, or less, says nothing of it.
  return bytes == trace.allocations[allocation].bytes ? shape : trace.shapes.front();
}

void write_shape(JsonWriter& json, const Shape& shape) {
  json.key("shape").begin_array();
  for (const std::int64_t size : shape.sizes) json.value(size);
  json.end_array();
  json.member("dtype", shape.sizes.empty() ? std::string_view("") : name_of(shape.dtype));
}

void write_events(JsonWriter& json, const Trace& trace, const Replay& run, const std::vector<Sample>& samples) {
  const std::vector<std::size_t> ends = ends_of(trace);
  json.key("samples").begin_array();
  for (const Sample& sample : samples) {
    const std::int32_t what = trace.events[sample.event];
    const std::size_t id = allocation_of(what);
    const Allocation& a = trace.allocations[id];
    json.begin_object().member("event", sample.event).member("allocated", sample.allocated).member("reserved", sample.reserved);
    json.key("held").begin_array();
    for (const Bytes bytes : sample.held) json.value(bytes);
    json.end_array();
    json.member("do", is_free(what) ? "free" : "alloc").member("bytes", run.block_sizes[id]);
    json.member("module", trace.modules[a.module]).member("op", trace.ops[a.op]).member("category", name_of(a.category));
    write_shape(json, shape_of(trace, id));
    json.key("until");
    if (ends[id] < trace.events.size())
      json.value(ends[id]);
    else
      json.null();
    json.end_object();
  }
  json.end_array();
}

// The phases, each from its first allocation on.
void write_phases(JsonWriter& json, const Trace& trace) {
  json.key("phases").begin_array();
  std::optional<std::uint32_t> phase;
  for (std::size_t event = 0; event < trace.events.size(); ++event) {
    if (is_free(trace.events[event])) continue;
    const std::uint32_t now = trace.allocations[allocation_of(trace.events[event])].phase;
    if (phase == now) continue;
    json.begin_object().member("name", trace.phases[now]).member("from", event).end_object();
    phase = now;
  }
  json.end_array();
}

// One row for each category, module (its numbers folded), op and shape.
void write_ledger(JsonWriter& json, const Trace& trace, const Replay& run, std::size_t event) {
  struct Row {
    std::int64_t count = 0;
    Bytes asked, bytes;
    Shape shape;
  };
  std::map<std::tuple<Category, std::string, std::uint16_t, std::uint32_t>, Row> rows;
  for (const std::size_t id : live_after(trace, event)) {
    const Allocation& a = trace.allocations[id];
    if (run.block_sizes[id].count == 0) continue;
    const Shape& shape = shape_of(trace, id);
    const std::uint32_t number = shape.sizes.empty() ? 0 : trace.shape_of[id];
    Row& row = rows[{a.category, folded(trace.modules[a.module]), a.op, number}];
    row.count += 1;
    row.asked += a.bytes;
    row.bytes += run.block_sizes[id];
    row.shape = shape;
  }
  json.key("ledger").begin_array();
  for (const auto& [key, row] : rows) {
    json.begin_object().member("category", name_of(std::get<Category>(key))).member("module", std::get<std::string>(key));
    json.member("op", trace.ops[std::get<std::uint16_t>(key)]);
    write_shape(json, row.shape);
    json.member("count", row.count).member("asked", row.asked).member("bytes", row.bytes).end_object();
  }
  json.end_array();
}

Reading<TimelineQuestion> read_question(std::string_view text) {
  Reading<nlohmann::json> parsed = parse_json(text, "/timeline");
  Reading<TimelineQuestion> reading{{}, std::move(parsed.problems), {}};
  if (!reading.problems.empty()) return reading;
  TimelineQuestion& question = reading.value;
  ObjectReader reader(&parsed.value, "/timeline", reading.problems);
  std::int64_t number = 0;
  reader.integer("from", question.from, 0, INT32_MAX);
  if (reader.integer("to", number, 0, INT32_MAX)) question.to = number;
  reader.integer("samples", question.samples, 1, most_samples);
  if (reader.integer("ledger_at", number, 0, INT32_MAX)) question.ledger_at = number;
  reader.done();
  return reading;
}

}  // namespace

std::string timeline_of(const Played& played, const TimelineQuestion& question) {
  const Trace& trace = played.trace;
  AllocatorSettings settings = settings_of(played.spec);
  settings.memory = std::nullopt;  // the need, as in the report
  const Replay run = replay(trace, settings);
  const Window window = window_of(trace, question);

  JsonWriter json;
  json.reserve(1 << 18);
  json.begin_object().member("events", trace.events.size()).member("from", window.from).member("to", window.to);
  json.key("peak").begin_object().member("event", run.peak_event).member("allocated", run.peak_allocated).end_object();
  json.key("peak_reserved").begin_object().member("event", run.peak_reserved_event).member("reserved", run.peak_reserved).end_object();
  json.key("categories").begin_array();
  for (int i = 0; i < category_count; ++i) json.value(name_of(static_cast<Category>(i)));
  json.end_array();
  write_phases(json, trace);
  write_events(json, trace, run, sampled(trace, run, window, static_cast<std::size_t>(question.samples)));
  if (question.ledger_at && !trace.events.empty()) {
    const auto last = static_cast<std::int64_t>(trace.events.size()) - 1;
    write_ledger(json, trace, run, static_cast<std::size_t>(std::min(*question.ledger_at, last)));
  }
  return json.end_object().take();
}

std::string timeline(std::string_view spec_text, std::string_view question_text, const ModelPresets& presets) {
  Reading<TimelineQuestion> question = read_question(question_text);
  if (!question.problems.empty()) return problems_to_json(question.problems);
  const Result<Played> played = play_spec(spec_text, presets, true);
  if (!played) return problems_to_json(played.error());
  return "{\"ok\":true,\"value\":" + timeline_of(*played, question.value) + "}";
}

}  // namespace llmem
