#pragma once

#include <string>

#include "model/attention.h"
#include "model/made.h"
#include "model/mixture.h"
#include "model/mlp.h"

// The blocks that decoders share, of the tensors under a module's name; their members are those of Architecture::names.
namespace llmem {

AttentionBlock build_attention(const ModelTensors& tensors, const std::string& name, const Architecture& a, int layer);
Mlp build_mlp(const ModelTensors& tensors, const std::string& name, const Architecture& a);
Mixture build_mixture(const ModelTensors& tensors, const std::string& name, const Architecture& a);

}  // namespace llmem
