#include <cmath>

#include "report/json_writer.h"
#include "report/report.h"

// The JSON of core/report/README.md.
namespace llmem {
namespace {

constexpr int version = 1;

void write(JsonWriter& json, const Verdict& verdict) {
  json.begin_object();
  json.member("status", name_of(verdict.status)).member("sentence", verdict.sentence).member("rank", verdict.rank);
  json.member("needed", verdict.needed)
      .member("needed_high", verdict.needed_high)
      .member("capacity", verdict.capacity)
      .member("margin", verdict.margin);
  json.end_object();
}

void write(JsonWriter& json, const PointRow& point) {
  const Counters& c = point.counters;
  json.begin_object().member("at", point.at).member("allocated", c.allocated).member("peak_allocated", c.peak_allocated);
  json.member("reserved", c.reserved).member("peak_reserved", c.peak_reserved).end_object();
}

void write(JsonWriter& json, const OutsideItem& item) {
  json.begin_object().member("name", item.name).member("low", item.low).member("high", item.high).member("used", item.used);
  json.member("source", item.source).end_object();
}

void write(JsonWriter& json, const HostItem& item) {
  json.begin_object().member("name", item.name).member("bytes", item.bytes).end_object();
}

void write(JsonWriter& json, const LedgerRow& row) {
  json.begin_object().member("module", row.module).member("op", row.op).member("count", row.count).member("bytes", row.bytes).end_object();
}

template <class T>
void write_list(JsonWriter& json, std::string_view name, const std::vector<T>& list);

void write(JsonWriter& json, const HostPoint& point) {
  json.begin_object().member("at", point.at).member("bytes", point.total);
  write_list(json, "what", point.what);
  json.end_object();
}

void write(JsonWriter& json, const LedgerEntry& entry) {
  json.begin_object().member("category", entry.category).member("bytes", entry.bytes);
  write_list(json, "rows", entry.rows);
  json.end_object();
}

void write(JsonWriter& json, const Note& note) { json.begin_object().member("at", note.at).member("text", note.message).end_object(); }

void write(JsonWriter& json, std::int64_t number) { json.value(number); }

void write(JsonWriter& json, const Outside& outside) {
  json.begin_object().member("low", outside.low).member("high", outside.high).member("used", outside.used);
  write_list(json, "what", outside.what);
  json.end_object();
}

void write(JsonWriter& json, const Peak& peak) {
  json.begin_object().member("after", peak.after).member("phase", peak.phase).member("module", peak.module);
  json.member("op", peak.op).member("event", peak.event).end_object();
}

void write(JsonWriter& json, const OutOfMemoryReport& failure) {
  json.begin_object().member("after", failure.after).member("tried", failure.tried).member("allocated", failure.allocated);
  json.member("reserved", failure.reserved).member("phase", failure.phase).member("what", failure.what).end_object();
}

void write_failure(JsonWriter& json, const std::optional<OutOfMemoryReport>& failure) {
  json.key("out_of_memory");
  if (failure)
    write(json, *failure);
  else
    json.null();
}

void write(JsonWriter& json, const RankReport::Late& late) {
  json.begin_object();
  write_list(json, "points", late.points);
  json.member("peak_reserved", late.peak_reserved).member("device_total", late.device_total).member("retries", late.retries);
  write_failure(json, late.out_of_memory);
  json.end_object();
}

void write(JsonWriter& json, const RankReport& rank) {
  json.begin_object();
  write_list(json, "ranks", rank.ranks);
  json.member("stage", rank.stage);
  write_list(json, "points", rank.points);
  json.member("peak_allocated", rank.peak_allocated).member("peak_reserved", rank.peak_reserved);
  json.key("outside");
  write(json, rank.outside);
  json.member("device_total", rank.device_total);
  json.key("peak");
  write(json, rank.peak);
  write_list(json, "ledger", rank.ledger);
  json.member("retries", rank.retries);
  write_failure(json, rank.out_of_memory);
  json.key("late");
  if (rank.late)
    write(json, *rank.late);
  else
    json.null();
  json.end_object();
}

std::int64_t microseconds(double seconds) { return std::llround(seconds * 1e6); }

// Integers throughout: what native and WebAssembly print is the same to the byte.
void write(JsonWriter& json, const StepTime& time) {
  const auto share = [&](double part) { return time.seconds > 0 ? std::llround(1000 * part / time.seconds) : 0; };
  json.begin_object().member("microseconds", microseconds(time.seconds));
  json.member("low_microseconds", microseconds(time.seconds * (1 - kTimeUncertainty)));
  json.member("high_microseconds", microseconds(time.seconds * (1 + kTimeUncertainty)));
  json.member("tokens_per_second", std::int64_t{std::llround(time.tokens_per_second)});
  json.member("flops_utilisation", std::int64_t{std::llround(1000 * time.flops_utilisation())});
  json.key("shares").begin_object().member("compute", std::int64_t{share(time.compute)}).member("memory", std::int64_t{share(time.memory)});
  json.member("communication", std::int64_t{share(time.communication)}).member("bubble", std::int64_t{share(time.bubble)});
  json.member("launch", std::int64_t{share(time.launch)}).end_object();
  json.member("communication_microseconds", microseconds(time.communication_total)).end_object();
}

template <class T>
void write_list(JsonWriter& json, std::string_view name, const std::vector<T>& list) {
  json.key(name).begin_array();
  for (const T& item : list) write(json, item);
  json.end_array();
}

}  // namespace

std::string to_json(const Report& report) {
  JsonWriter json;
  json.reserve(16384);
  json.begin_object().member("version", version);
  json.key("model").begin_object().member("name", report.model.name).member("type", report.model.type);
  json.member("class", report.model.model_class).member("layers", report.model.layers);
  json.member("hidden_size", report.model.hidden_size).member("vocab_size", report.model.vocab_size).end_object();
  json.key("parameters").begin_object().member("total", report.parameters.total);
  json.member("trainable", report.parameters.trainable).end_object();
  json.key("verdict");
  write(json, report.verdict);
  write_list(json, "ranks", report.ranks);
  json.key("step_time");
  if (report.step_time)
    write(json, *report.step_time);
  else
    json.null();
  json.key("host");
  if (!report.host.points.empty()) {
    const HostPoint* most = report.host.needed();
    json.begin_object().member("needed", most ? most->total : Bytes{}).member("capacity", report.host_capacity);
    write_list(json, "points", report.host.points);
    json.end_object();
  } else {
    json.null();
  }
  write_list(json, "assumptions", report.assumptions);
  write_list(json, "warnings", report.warnings);
  return json.end_object().take();
}

std::string problems_to_json(const Problems& problems) {
  JsonWriter json;
  json.begin_object().member("ok", false).key("problems").begin_array();
  for (const Problem& problem : problems)
    json.begin_object().member("at", problem.at).member("code", problem.code).member("message", problem.message).end_object();
  return json.end_array().end_object().take();
}

}  // namespace llmem
