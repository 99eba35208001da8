#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "trace/trace.h"

namespace llmem {

// Layers of which `few` has one period, `fewer` none, and the whole model `more` beyond that of `few`. The modules of layer 3 are those below `prefix` + "3".
struct LayersMore {
  std::string_view prefix;  // "model.layers."
  std::int64_t first = 0, period = 1, more = 0;
};

// The history of a model from those of two that have fewer layers, event by event. What lies between two layers' events is theirs: where the
// shorter history is the longer one without the layers between, the whole is the longer one with them again, each to its neighbours as they were.
// What is of no layer and yet larger with more of them (the norms of all gradients) grows by as much with each. None where the two are not so.
std::optional<Trace> with_more_layers(const Trace& fewer, Trace few, const LayersMore& layers);

}  // namespace llmem
