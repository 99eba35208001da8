#pragma once

#include <span>
#include <string_view>

namespace llmem {

// A model known by its id. The rows are made from presets/models/*.json when a build embeds them.
struct ModelPreset {
  std::string_view id;    // "Qwen/Qwen2.5-7B"
  std::string_view text;  // the file: {"id", "config": its config.json, "parameters": how many, …}
};

// The presets a build carries: the command line embeds all of them, the WebAssembly build none (the page sends the config).
// Sorted by id, bytewise.
using ModelPresets = std::span<const ModelPreset>;

}  // namespace llmem
