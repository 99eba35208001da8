#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "report/report.h"
#include "spec/presets.h"

namespace llmem {

// The pipe from a spec's text to the step that was played for it, or everything that is wrong with it.
Result<Played> play_spec(std::string_view spec_text, const ModelPresets& presets, bool keep_shapes = false);

// The pipe to its end: one envelope, {"ok": true, "value": REPORT} or {"ok": false, "problems": […]}, as one line of JSON.
std::string estimate(std::string_view spec_text, const ModelPresets& presets);

}  // namespace llmem
