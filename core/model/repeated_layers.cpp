#include "model/repeated_layers.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

namespace llmem {
namespace {

void mix(std::uint64_t& hash, std::uint64_t with) { hash = (hash ^ with) * 0x9E3779B97F4A7C15u; }

// The layer in "model.layers.3.mlp.up_proj.weight", and what follows it; -1: in none.
std::int64_t layer_of(std::string_view name, std::string_view prefix, std::string_view& rest) {
  if (name.substr(0, prefix.size()) != prefix) return -1;
  const std::size_t begin = prefix.size();
  rest = name.substr(std::min(name.size(), name.find('.', begin)));
  return std::atoll(name.data() + begin);
}

// Equal for layers that are alike.
std::vector<std::uint64_t> kinds_of_layers(const Architecture& a) {
  std::vector<std::uint64_t> kinds(static_cast<std::size_t>(a.layers));
  const std::string prefix = layers_prefix(a);
  for (const Parameter& each : a.tensors) {
    std::string_view rest;
    const std::int64_t layer = layer_of(each.name, prefix, rest);
    if (layer < 0 || layer >= a.layers) continue;
    std::uint64_t& kind = kinds[static_cast<std::size_t>(layer)];
    mix(kind, std::hash<std::string_view>()(rest));
    for (const std::int64_t size : each.shape) mix(kind, static_cast<std::uint64_t>(size));
    mix(kind, static_cast<std::uint64_t>(each.kind) * 64 + (each.dtype ? static_cast<std::uint64_t>(*each.dtype) + 1 : 0));
  }
  for (const std::vector<bool>* flags : {&a.sliding, &a.unturned, &a.experts.layers, &a.attends, &a.crosses})
    for (std::size_t i = 0; i < std::min(flags->size(), kinds.size()); ++i) mix(kinds[i], (*flags)[i] ? 1 : 0);
  for (std::size_t i = 0; i < std::min(a.layer_kinds.size(), kinds.size()); ++i)
    mix(kinds[i], static_cast<std::uint64_t>(a.layer_kinds[i]));
  return kinds;
}

template <class List>
void erase_layers(List& list, std::int64_t first, std::int64_t count) {
  if (list.empty()) return;
  const auto begin = list.begin() + static_cast<std::ptrdiff_t>(first);
  list.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
}

}  // namespace

std::string layers_prefix(const Architecture& a) { return std::string(a.names.model) + "." + std::string(a.names.layers) + "."; }

std::optional<RepeatedLayers> repeated_layers(const Architecture& a) {
  if (a.decoder_layers > 0) return std::nullopt;
  const std::vector<std::uint64_t> kinds = kinds_of_layers(a);
  const std::int64_t all = a.layers;
  RepeatedLayers best;
  std::int64_t fewest = all;
  for (std::int64_t period = 1; period <= all / 4; ++period) {
    for (std::int64_t begin = 0, end = 0; begin + 3 * period <= all; begin = end + 1) {
      end = begin;
      while (end + period < all && kinds[static_cast<std::size_t>(end)] == kinds[static_cast<std::size_t>(end + period)]) ++end;
      // Before those that come again a layer of each kind stays, for the first of a kind is the last to let go of what they share (angles), and the
      // first of all asks for more (cuBLAS's workspace); behind them one that is as they have beside them.
      const std::int64_t first = std::max<std::int64_t>(begin + period, 2);
      const std::int64_t times = (end - first - 1) / period, played = 2 * (all - times * period) - period;
      if (times <= 0 || played >= fewest) continue;
      fewest = played;
      best = {first, period, times};
    }
  }
  return best.times > 0 ? std::optional(best) : std::nullopt;
}

Architecture without_layers(const Architecture& architecture, std::int64_t first, std::int64_t count) {
  Architecture a = architecture;
  a.layers -= count;
  for (std::vector<bool>* flags : {&a.sliding, &a.unturned, &a.experts.layers, &a.attends, &a.crosses}) erase_layers(*flags, first, count);
  erase_layers(a.layer_kinds, first, count);
  a.tensors.clear();
  const std::string prefix = layers_prefix(a);
  for (const Parameter& each : architecture.tensors) {
    std::string_view rest;
    const std::int64_t layer = layer_of(each.name, prefix, rest);
    if (layer >= first && layer < first + count) continue;
    a.tensors.push_back(each);
    if (layer >= first) a.tensors.back().name = prefix + std::to_string(layer - count) + std::string(rest);
  }
  return a;
}

}  // namespace llmem
