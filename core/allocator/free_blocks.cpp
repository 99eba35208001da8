#include "allocator/free_blocks.h"

#include <algorithm>

namespace llmem {
namespace {

bool is_before(const FreeBlocks::Entry& entry, std::int64_t size, std::uint64_t address) {
  return entry.size != size ? entry.size < size : entry.address < address;
}

}  // namespace

// Linear for the short runs that are the rule, then by halves.
std::size_t FreeBlocks::Run::position(std::int64_t size, std::uint64_t address) const {
  std::size_t low = begin_, high = entries_.size();
  while (high - low > 8) {
    const std::size_t middle = (low + high) / 2;
    if (is_before(entries_[middle], size, address))
      low = middle + 1;
    else
      high = middle;
  }
  while (low < high && is_before(entries_[low], size, address)) ++low;
  return low - begin_;
}

void FreeBlocks::Run::insert(std::size_t index, const Entry& entry) {
  const auto at = entries_.begin() + static_cast<std::ptrdiff_t>(begin_ + index);
  if (begin_ > 0 && index < size() / 2) {
    const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(begin_--);
    *std::move(first, at, first - 1) = entry;
  } else {
    entries_.insert(at, entry);
  }
}

void FreeBlocks::Run::erase(std::size_t index) {
  const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(begin_), at = first + static_cast<std::ptrdiff_t>(index);
  if (index < size() / 2) {
    std::move_backward(first, at, at + 1);
    ++begin_;
  } else {
    entries_.erase(at);
  }
  if (empty()) {
    entries_.clear();
    begin_ = 0;
  }
}

// Monotonic in size: the exponent of two, then the three bits that follow the leading one.
int FreeBlocks::run_of(std::int64_t size) {
  const int exponent = 63 - __builtin_clzll(static_cast<std::uint64_t>(size) | 8);
  return exponent * 8 + static_cast<int>((size >> (exponent - 3)) & 7);
}

void FreeBlocks::insert(std::int64_t size, std::uint64_t address, std::int32_t block) {
  const int r = run_of(size);
  auto& run = run_[r];
  run.insert(run.position(size, address), {size, address, block});
  filled_[r / 64] |= std::uint64_t{1} << (r % 64);
}

FreeBlocks::Position FreeBlocks::find(std::int64_t size, std::uint64_t address) const {
  const int r = run_of(size);
  return {r, run_[r].position(size, address)};
}

void FreeBlocks::erase(std::int64_t size, std::uint64_t address) { erase(find(size, address)); }

void FreeBlocks::erase(Position at) {
  auto& run = run_[at.run];
  run.erase(at.index);
  if (run.empty()) filled_[at.run / 64] &= ~(std::uint64_t{1} << (at.run % 64));
}

void FreeBlocks::replace(Position at, const Entry& entry) {
  if (run_of(entry.size) != at.run) {
    erase(at);
    insert(entry.size, entry.address, entry.block);
    return;
  }
  auto& run = run_[at.run];
  std::size_t index = at.index;
  for (; index + 1 < run.size() && is_before(run[index + 1], entry.size, entry.address); ++index) run[index] = run[index + 1];
  for (; index > 0 && !is_before(run[index - 1], entry.size, entry.address); --index) run[index] = run[index - 1];
  run[index] = entry;
}

FreeBlocks::Position FreeBlocks::first_from(int run) const {
  if (run >= runs) return {};
  int word = run / 64;
  std::uint64_t bits = filled_[word] & (~std::uint64_t{0} << (run % 64));
  while (bits == 0) {
    if (++word == words) return {};
    bits = filled_[word];
  }
  return {word * 64 + __builtin_ctzll(bits), 0};
}

FreeBlocks::Position FreeBlocks::lower_bound(std::int64_t size) const {
  const int r = run_of(size);
  const auto& run = run_[r];
  const std::size_t index = run.position(size, 0);
  return index < run.size() ? Position{r, index} : first_from(r + 1);
}

FreeBlocks::Position FreeBlocks::next(Position at) const {
  if (at.index + 1 < run_[at.run].size()) return {at.run, at.index + 1};
  return first_from(at.run + 1);
}

FreeBlocks::Position FreeBlocks::last() const { return previous({runs, 0}); }

FreeBlocks::Position FreeBlocks::previous(Position at) const {
  if (at.index > 0) return {at.run, at.index - 1};
  for (int r = at.run - 1; r >= 0; --r)
    if (const auto& run = run_[r]; !run.empty()) return {r, run.size() - 1};
  return {};
}

}  // namespace llmem
