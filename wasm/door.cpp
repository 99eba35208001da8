#include <emscripten/bind.h>
#include <emscripten/emscripten.h>

#include <cstring>
#include <string>

#include "report/estimate.h"
#include "report/paper.h"
#include "report/timeline.h"
#include "search/search.h"

// In place of strtod (linked with --wrap): JavaScript's reading of numbers is correctly rounded too, and the libc's, which goes by
// way of long double, is 5 kB of download. The JSON parser, its only caller, has seen to it that all of `text` is a number.
EM_JS(double, number_of, (const char* text), { return Number(UTF8ToString(text)); });
extern "C" double __wrap_strtod(const char* text, char** end) {
  if (end) *end = const_cast<char*>(text) + std::strlen(text);
  return number_of(text);
}

// The whole of what the page can call: text in, envelope out.
namespace {

// No presets here: the page sends a model's config along, so that a new preset is no new engine.
constexpr llmem::ModelPresets none{};

std::string estimate(const std::string& spec) { return llmem::estimate(spec, none); }
std::string enumerate(const std::string& question) { return llmem::enumerate(question, none); }
std::string screen(const std::string& question) { return llmem::screen(question, none); }
std::string rank(const std::string& estimates) { return llmem::rank(estimates); }
std::string largest(const std::string& question) { return llmem::largest(question, none); }
std::string advise(const std::string& spec) { return llmem::advise(spec, none); }

std::string paper(const std::string& question) { return llmem::paper(question, none); }

std::string timeline(const std::string& spec, const std::string& question) { return llmem::timeline(spec, question, none); }

}  // namespace

EMSCRIPTEN_BINDINGS(llmem) {
  emscripten::function("estimate", &estimate);
  emscripten::function("timeline", &timeline);
  emscripten::function("enumerate", &enumerate);
  emscripten::function("screen", &screen);
  emscripten::function("rank", &rank);
  emscripten::function("largest", &largest);
  emscripten::function("advise", &advise);
  emscripten::function("paper", &paper);
}
