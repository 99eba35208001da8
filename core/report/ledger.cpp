#include "report/ledger.h"

#include <algorithm>
#include <map>

namespace llmem {
namespace {

bool is_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Of each module of the trace, the number of its folded path; paths in the order in which they first appear.
struct FoldedModules {
  std::vector<std::string> paths;
  std::vector<std::uint32_t> of_module;
};

FoldedModules fold(const std::vector<std::string>& modules) {
  FoldedModules out;
  std::map<std::string, std::uint32_t> numbers;
  out.of_module.reserve(modules.size());
  for (const std::string& module : modules) {
    std::string path = folded(module);
    const auto [at, is_new] = numbers.try_emplace(path, static_cast<std::uint32_t>(out.paths.size()));
    if (is_new) out.paths.push_back(std::move(path));
    out.of_module.push_back(at->second);
  }
  return out;
}

// One live allocation, with what decides its row.
struct Live {
  std::uint64_t row;  // category, folded module, op
  Bytes bytes;
};

constexpr std::uint64_t row_of(Category category, std::uint32_t folded_module, std::uint16_t op) {
  return static_cast<std::uint64_t>(category) << 48 | static_cast<std::uint64_t>(folded_module) << 16 | op;
}

}  // namespace

std::string_view name_of(Category category) {
  static constexpr std::string_view names[category_count] = {"weights",     "gradients",     "optimizer_states", "attention",
                                                             "mlp",         "norms",         "logits_and_loss",  "other_activations",
                                                             "temporaries", "communication", "workspaces"};
  return names[static_cast<int>(category)];
}

std::string folded(std::string_view module) {
  std::string out;
  out.reserve(module.size());
  while (true) {
    const std::size_t dot = module.find('.');
    const std::string_view part = module.substr(0, dot);
    if (is_number(part))
      out += '*';
    else
      out += part;
    if (dot == std::string_view::npos) return out;
    out += '.';
    module.remove_prefix(dot + 1);
  }
}

std::vector<std::size_t> live_after(const Trace& trace, std::size_t event) {
  std::vector<std::uint8_t> live(trace.allocations.size());
  const std::size_t end = std::min(event + 1, trace.events.size());
  for (std::size_t i = 0; i < end; ++i) live[allocation_of(trace.events[i])] = !is_free(trace.events[i]);
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < live.size(); ++i)
    if (live[i]) out.push_back(i);
  return out;
}

std::vector<LedgerEntry> ledger_after(const Trace& trace, const std::vector<Bytes>& block_sizes, std::size_t event) {
  const FoldedModules modules = fold(trace.modules);
  std::vector<Live> live;
  for (const std::size_t i : live_after(trace, event)) {
    const Allocation& a = trace.allocations[i];
    if (block_sizes[i].count > 0) live.push_back({row_of(a.category, modules.of_module[a.module], a.op), block_sizes[i]});
  }
  std::sort(live.begin(), live.end(), [](const Live& a, const Live& b) { return a.row < b.row; });

  std::vector<LedgerEntry> entries;
  for (std::size_t i = 0; i < live.size(); ++i) {
    const std::uint64_t row = live[i].row;
    const std::string_view category = name_of(static_cast<Category>(row >> 48));
    if (entries.empty() || entries.back().category != category) entries.push_back({category, {}, {}});
    LedgerEntry& entry = entries.back();
    if (i == 0 || live[i - 1].row != row) entry.rows.push_back({modules.paths[row >> 16 & 0xFFFFFFFF], trace.ops[row & 0xFFFF], 0, {}});
    entry.rows.back().count += 1;
    entry.rows.back().bytes += live[i].bytes;
    entry.bytes += live[i].bytes;
  }
  for (LedgerEntry& entry : entries)
    std::stable_sort(entry.rows.begin(), entry.rows.end(), [](const LedgerRow& a, const LedgerRow& b) { return a.bytes > b.bytes; });
  return entries;
}

}  // namespace llmem
