#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "model/architecture.h"

// What a checkpoint says of its tensors: a model.safetensors.index.json, the header of a safetensors file, or {"name": [sizes], …}.
namespace llmem {

bool is_checkpoint(const nlohmann::json& json);

// A checkpoint where a config.json should be: how many parameters it has, and whose names they are.
Problem about_checkpoint(const nlohmann::json& checkpoint);

// Where the checkpoint has other tensors than the config's model. Tied heads and buffers may be in it or not.
Problems check_checkpoint(const nlohmann::json& checkpoint, const Architecture& architecture);

}  // namespace llmem
