#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "allocator/replay.h"
#include "trace/trace.h"

namespace llmem {

std::string_view name_of(Category category);  // "optimizer_states"

// The module's path with every number in it as *: "model.layers.3.mlp" -> "model.layers.*.mlp".
std::string folded(std::string_view module);

struct LedgerRow {
  std::string module;  // folded
  std::string op;
  std::int64_t count = 0;  // live allocations
  Bytes bytes;             // whole blocks, as `allocated` counts them
};

struct LedgerEntry {
  std::string_view category;
  Bytes bytes;
  std::vector<LedgerRow> rows;  // the largest first
};

// Which allocations are live after event `event`: indices into Trace::allocations, ascending.
std::vector<std::size_t> live_after(const Trace& trace, std::size_t event);

// What is live after event `event`, by category in the order of the enumeration, then by folded module and op. The rows sum to
// `allocated` at that moment.
std::vector<LedgerEntry> ledger_after(const Trace& trace, const std::vector<Bytes>& block_sizes, std::size_t event);

}  // namespace llmem
