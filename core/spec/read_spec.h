#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "spec/presets.h"
#include "spec/spec.h"

namespace llmem {

// A spec in the wire format, version 1, as text. Every problem is found at once. What the format has and this build cannot answer is a
// problem too ("unsupported"), never ignored. The model's config is passed on unread: read_architecture (model/config.h) reads it.
Reading<Spec> read_spec(std::string_view text, const ModelPresets& presets);
// The same of JSON that is parsed.
Reading<Spec> read_parsed_spec(nlohmann::json json, const ModelPresets& presets);

}  // namespace llmem
