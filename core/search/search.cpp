#include "search/search.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "report/json_writer.h"
#include "search/advice.h"
#include "search/candidate.h"
#include "search/largest.h"
#include "search/rank.h"
#include "search/screen.h"
#include "search/strategies.h"

namespace llmem {

using Json = nlohmann::json;

namespace {

constexpr std::int64_t kMostRows = 1 << 16, kMostTokens = 1 << 24;

// What changes are made of: objects, words, integers, truth values.
void write(JsonWriter& json, const Json& value) {
  if (value.is_object()) {
    json.begin_object();
    for (const auto& [key, member] : value.items()) {
      json.key(key);
      write(json, member);
    }
    json.end_object();
  } else if (value.is_string()) {
    json.value(std::string_view(value.get_ref<const std::string&>()));
  } else if (value.is_number_integer()) {
    json.value(value.get<std::int64_t>());
  } else if (value.is_boolean()) {
    json.value(value.get<bool>());
  } else {
    json.null();
  }
}

void write(JsonWriter& json, const Summary& summary) {
  json.begin_object();
  if (!summary.problems.empty()) {
    const Problem& first = summary.problems.front();
    json.key("problem").begin_object().member("at", first.at).member("code", first.code).member("message", first.message).end_object();
    json.end_object();
    return;
  }
  json.member("status", name_of(summary.status)).member("fits", summary.fits()).member("needed", summary.needed);
  json.member("capacity", summary.capacity).member("gpus", summary.gpus);
  json.member("microseconds", std::int64_t{summary.seconds ? std::llround(*summary.seconds * 1e6) : 0});
  json.member("tokens_per_second", std::int64_t{std::llround(summary.tokens_per_second)}).member("exact", summary.exact).end_object();
}

void write(JsonWriter& json, const Strategy& strategy) {
  json.begin_object().member("label", strategy.label).member("gpus", strategy.gpus).member("price", strategy.price).key("change");
  write(json, strategy.change);
  json.end_object();
}

void write(JsonWriter& json, const LeftOut& left_out) {
  json.begin_object().member("why", left_out.why).member("count", left_out.count).member("example", left_out.example).end_object();
}

void write(JsonWriter& json, const Advice& advice) {
  json.begin_object().member("label", advice.label).key("change");
  write(json, advice.change);
  json.member("changes_result", advice.changes_result).key("after");
  write(json, advice.after);
  json.end_object();
}

template <class T>
void write_list(JsonWriter& json, std::string_view name, const std::vector<T>& list) {
  json.key(name).begin_array();
  for (const T& each : list) write(json, each);
  json.end_array();
}

void write_indices(JsonWriter& json, std::string_view name, const std::vector<std::size_t>& list) {
  json.key(name).begin_array();
  for (const std::size_t each : list) json.value(each);
  json.end_array();
}

void write_members(JsonWriter& json, const Ranking& ranking) {
  write_indices(json, "order", ranking.order);
  write_indices(json, "front", ranking.front);
  json.member("fewest_gpus", ranking.fewest).member("cheapest", ranking.cheapest);
  write_indices(json, "unsettled", ranking.unsettled);
}

JsonWriter answer() {
  JsonWriter json;
  json.begin_object().member("ok", true).key("value");
  return json;
}

std::string problem(const char* at, const char* code, const char* message) { return problems_to_json({{at, code, message}}); }

Candidate candidate_of(const Summary& summary, const Strategy& strategy) {
  const std::int64_t microseconds = summary.seconds ? std::llround(*summary.seconds * 1e6) : 0;
  return {summary.fits(), summary.needed, summary.gpus, microseconds, strategy.price, summary.exact};
}

std::int64_t integer(const Json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

}  // namespace

std::string enumerate(std::string_view text, const ModelPresets& presets) {
  Reading<Json> parsed = parse_json(text);
  if (!parsed.problems.empty()) return problems_to_json(parsed.problems);
  const Reading<SearchQuestion> question = read_search_question(std::move(parsed.value));
  if (!question.problems.empty()) return problems_to_json(question.problems);
  const Strategies strategies = strategies_of(question.value, presets);
  JsonWriter json = answer();
  json.begin_object();
  write_list(json, "strategies", strategies.tried);
  write_list(json, "left_out", strategies.left_out);
  return json.end_object().end_object().take();
}

std::string screen(std::string_view text, const ModelPresets& presets) {
  const Reading<Json> parsed = parse_json(text);
  if (!parsed.problems.empty()) return problems_to_json(parsed.problems);
  const Json& question = parsed.value;
  if (!question.is_object() || !question.contains("spec") || !question.contains("changes") || !question["changes"].is_array())
    return problem("", "missing", "give {\"spec\": …, \"changes\": [change, …]}");
  JsonWriter json = answer();
  json.begin_array();
  Screener screener(question["spec"], presets);
  const bool whole = question.contains("whole") && question["whole"].is_boolean() && question["whole"].get<bool>();
  for (const Json& change : question["changes"]) write(json, whole ? screener.whole(change) : screener.screen(change));
  return json.end_array().end_object().take();
}

std::string rank(std::string_view text) {
  const Reading<Json> parsed = parse_json(text);
  if (!parsed.problems.empty()) return problems_to_json(parsed.problems);
  if (!parsed.value.is_array()) return problem("", "type", "give a list of what screen or estimate said");
  std::vector<Candidate> candidates;
  for (const Json& each : parsed.value) {
    const auto truth = [&](const char* key) { return each.contains(key) && each[key].is_boolean() && each[key].get<bool>(); };
    const bool fits = each.is_object() && truth("fits");
    candidates.push_back(fits ? Candidate{true,
                                          {integer(each, "needed")},
                                          integer(each, "gpus"),
                                          integer(each, "microseconds"),
                                          integer(each, "price"),
                                          truth("exact")}
                              : Candidate{});
  }
  JsonWriter json = answer();
  json.begin_object();
  write_members(json, ranked(candidates));
  return json.end_object().end_object().take();
}

std::string largest(std::string_view text, const ModelPresets& presets) {
  const Reading<Json> parsed = parse_json(text);
  if (!parsed.problems.empty()) return problems_to_json(parsed.problems);
  const Json& question = parsed.value;
  if (!question.is_object() || !question.contains("spec") || !question.contains("of") || !question["of"].is_string())
    return problem("", "missing", "give {\"spec\": …, \"of\": \"micro_batch\" or \"sequence\"}");
  const std::string of = question["of"].get<std::string>();
  if (of != "micro_batch" && of != "sequence") return problem("/of", "unknown_value", "must be \"micro_batch\" or \"sequence\"");
  const Json& spec = question["spec"];
  // Sequences go by 128 tokens: attention kernels work on blocks of that many.
  const std::int64_t step = of == "sequence" ? 128 : 1;
  const Variants variants(spec, presets);
  const auto at = [&](std::int64_t n) { return summary_of(variants.read({{"training", {{of, n * step}}}})); };
  const Summary one = at(1);
  if (!one.problems.empty()) return problems_to_json(one.problems);
  if (one.status == Status::unknown) return problem("/cluster/gpu", "missing", "how much memory this GPU has is not known");
  const std::int64_t n = largest_that_fits(of == "sequence" ? kMostTokens / step : kMostRows, [&](std::int64_t m) { return at(m).fits(); });
  JsonWriter json = answer();
  json.begin_object().member("of", of).member("largest", n * step).key("there");
  if (n > 0)
    write(json, at(n));
  else
    json.null();
  json.key("beyond");
  write(json, at(n + 1));
  return json.end_object().end_object().take();
}

std::string advise(std::string_view text, const ModelPresets& presets) {
  const Reading<Json> parsed = parse_json(text);
  if (!parsed.problems.empty()) return problems_to_json(parsed.problems);
  const AdviceList list = advice_on(parsed.value, presets);
  if (!list.now.problems.empty()) return problems_to_json(list.now.problems);
  JsonWriter json = answer();
  json.begin_object().key("now");
  write(json, list.now);
  write_list(json, "advice", list.advice);
  return json.end_object().end_object().take();
}

std::string search(std::string_view text, const ModelPresets& presets) {
  Reading<Json> parsed = parse_json(text);
  if (!parsed.problems.empty()) return problems_to_json(parsed.problems);
  const Reading<SearchQuestion> question = read_search_question(std::move(parsed.value));
  if (!question.problems.empty()) return problems_to_json(question.problems);
  const Strategies strategies = strategies_of(question.value, presets);
  std::vector<Summary> summaries;
  std::vector<Candidate> candidates;
  Screener screener(question.value.spec, presets);
  for (std::size_t i = 0; i < strategies.tried.size(); ++i) {
    summaries.push_back(screener.screen(strategies.tried[i].change));
    candidates.push_back(candidate_of(summaries.back(), strategies.tried[i]));
  }
  // What comes out in front is estimated in full; if that changes the order, what comes to the front instead is, too.
  Ranking ranking = ranked(candidates);
  for (; !ranking.unsettled.empty(); ranking = ranked(candidates)) {
    for (const std::size_t i : ranking.unsettled) {
      summaries[i] = screener.whole(strategies.tried[i].change);
      candidates[i] = candidate_of(summaries[i], strategies.tried[i]);
    }
  }
  JsonWriter json = answer();
  json.begin_object().key("strategies").begin_array();
  for (std::size_t i = 0; i < strategies.tried.size(); ++i) {
    const Strategy& strategy = strategies.tried[i];
    json.begin_object().member("label", strategy.label).member("price", strategy.price).key("change");
    write(json, strategy.change);
    json.key("estimate");
    write(json, summaries[i]);
    json.end_object();
  }
  json.end_array();
  write_members(json, ranking);
  write_list(json, "left_out", strategies.left_out);
  return json.end_object().end_object().take();
}

}  // namespace llmem
