#include <emscripten/bind.h>

#include <string>

#include "report/estimate.h"
#include "report/timeline.h"

// The whole of what the page can call: text in, envelope out.
namespace {

// No presets here: the page sends a model's config along, so that a new preset is no new engine.
std::string estimate(const std::string& spec) { return llmem::estimate(spec, llmem::ModelPresets{}); }

std::string timeline(const std::string& spec, const std::string& question) {
  return llmem::timeline(spec, question, llmem::ModelPresets{});
}

}  // namespace

EMSCRIPTEN_BINDINGS(llmem) {
  emscripten::function("estimate", &estimate);
  emscripten::function("timeline", &timeline);
}
