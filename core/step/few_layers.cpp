#include "step/few_layers.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "model/repeated_layers.h"
#include "trace/layers.h"

namespace llmem {
namespace {

// Whether one of the names is of one layer ("layers.3", not "fc1").
bool names_layers(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    for (std::size_t begin = 0; begin <= name.size();) {
      const std::size_t end = std::min(name.size(), name.find('.', begin));
      if (begin < end && name.find_first_not_of("0123456789", begin) >= end) return true;
      begin = end + 1;
    }
    return false;
  });
}

// Every layer does as its neighbours do, whatever their number. Methods that fill buckets, or gather by size, go by all that was before.
bool goes_layer_by_layer(const Spec& spec) {
  const Training& training = spec.training;
  const bool by_layer = (spec.data.kind == DataKind::none || spec.data.kind == DataKind::fsdp2) && spec.pipeline.degree == 1;
  const bool names_none = !names_layers(training.trained) && !names_layers(training.frozen) && !names_layers(training.adapter.targets) &&
                          !names_layers(training.adapter.modules_to_save) &&
                          !(training.base_quantization && names_layers(training.base_quantization->skip));
  return by_layer && names_none && training.stack == Stack::transformers && training.checkpoint_every == 1 && !training.images;
}

}  // namespace

std::optional<Trace> play_few_layers(const Spec& spec, const Architecture& architecture, std::int64_t micro_batches) {
  if (!goes_layer_by_layer(spec)) return std::nullopt;
  const std::optional<RepeatedLayers> repeated = repeated_layers(architecture);
  if (!repeated) return std::nullopt;
  const auto [first, period, times] = *repeated;
  const std::string prefix = layers_prefix(architecture);
  const Trace fewer = play(spec, without_layers(architecture, first, (times + 1) * period), false, micro_batches);
  Trace few = play(spec, without_layers(architecture, first, times * period), false, micro_batches);
  return with_more_layers(fewer, std::move(few), {prefix, first, period, times});
}

}  // namespace llmem
