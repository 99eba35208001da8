#include "report/words.h"

namespace llmem {
namespace {

constexpr std::int64_t GiB = std::int64_t{1} << 30;

// `decimals` decimals of bytes / 1 GiB, rounded: 1.5 GiB with two is 150.
std::int64_t scaled(std::int64_t bytes, int decimals) {
  std::int64_t power = 1;
  for (int i = 0; i < decimals; ++i) power *= 10;
  // Whole and part apart: bytes * power would overflow.
  return bytes / GiB * power + (bytes % GiB * power + GiB / 2) / GiB;
}

std::string ordinal(std::string_view step) {
  if (step == "0") return "first";
  if (step == "1") return "second";
  return "step " + std::string(step);
}

// Splits "backward12" into "backward" and "12".
std::string_view trailing_number(std::string_view& name) {
  std::size_t end = name.size();
  while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9') --end;
  const std::string_view number = name.substr(end);
  name = name.substr(0, end);
  return number;
}

std::string one_more(std::string_view number) {
  std::int64_t n = 0;
  for (const char c : number) n = n * 10 + (c - '0');
  return std::to_string(n + 1);
}

std::string pass_in_words(std::string_view pass) {
  if (pass == "forward") return "forward pass";
  if (pass == "backward") return "backward pass";
  if (pass == "clip") return "gradient clipping";
  if (pass == "optimizer") return "optimizer step";
  return std::string(pass);
}

}  // namespace

std::string gib(Bytes bytes) {
  if (bytes.count < 0) return "-" + gib(Bytes{-bytes.count});
  if (bytes.count == 0) return "0";
  int decimals = 2;  // of 1.00 to 9.99
  for (std::int64_t whole = bytes.count / GiB; whole >= 10 && decimals > 0; whole /= 10) --decimals;
  for (std::int64_t part = bytes.count; part < GiB && decimals < 6; part *= 10) ++decimals;
  std::int64_t digits = scaled(bytes.count, decimals);
  if (digits >= 1000 && decimals > 0) digits = scaled(bytes.count, --decimals);  // 9.996 rounds to 10.0
  std::string text = std::to_string(digits);
  if (decimals == 0) return text;
  const auto places = static_cast<std::size_t>(decimals);
  if (text.size() <= places) text.insert(0, places + 1 - text.size(), '0');
  return text.insert(text.size() - places, ".");
}

std::string with_gib(Bytes bytes) { return gib(bytes) + " GiB"; }

std::string times(int n) { return n == 1 ? "once" : std::to_string(n) + " times"; }

std::string phase_in_words(std::string_view phase, std::int64_t accumulation) {
  if (phase == "evaluated") return "during the evaluation";
  const std::size_t dot = phase.find('.');
  if (phase.substr(0, 4) != "step" || dot == std::string_view::npos) return "while loading the model";
  const std::string_view step = phase.substr(4, dot - 4);
  std::string_view pass = phase.substr(dot + 1);
  const std::string_view micro_batch = trailing_number(pass);
  std::string words = "in the " + ordinal(step) + (pass == "optimizer" ? " " : " step's ") + pass_in_words(pass);
  if (accumulation > 1 && !micro_batch.empty()) words += " of micro-batch " + one_more(micro_batch);
  return words;
}

std::string what_in_words(const Trace& trace, const Allocation& allocation) {
  const std::string& module = trace.modules[allocation.module];
  const std::string& op = trace.ops[allocation.op];
  if (module.empty() || op.empty()) return module + op;
  switch (allocation.category) {
    case Category::weights: return "the weights of " + module;
    case Category::gradients: return "the gradient of " + module;
    case Category::optimizer_states: return op + " of " + module;
    default: return op + " in " + module;
  }
}

}  // namespace llmem
