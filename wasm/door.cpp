#include <emscripten/bind.h>

#include <string>

#include "report/estimate.h"

// The whole of what the page can call: text in, envelope out.
namespace {

// No presets here: the page sends a model's config along, so that a new preset is no new engine.
std::string estimate(const std::string& spec) { return llmem::estimate(spec, llmem::ModelPresets{}); }

}  // namespace

EMSCRIPTEN_BINDINGS(llmem) { emscripten::function("estimate", &estimate); }
