#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/architecture.h"

namespace llmem {

// Decoder layers that come again and again: from `first` on, `period` together, `times` times more than once. What is before them and what is
// left behind them is as it would be without.
struct RepeatedLayers {
  std::int64_t first = 0, period = 1, times = 0;
};

// None where too few come again. Layers are alike where they register the same tensors and are the same in all that is said of each layer.
std::optional<RepeatedLayers> repeated_layers(const Architecture& architecture);

// The model without `count` layers from `first` on.
Architecture without_layers(const Architecture& architecture, std::int64_t first, std::int64_t count);

// What the names of the layers' modules begin with: "model.layers.".
std::string layers_prefix(const Architecture& architecture);

}  // namespace llmem
