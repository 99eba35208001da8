#include "tensor/shape.h"

#include <algorithm>
#include <utility>

namespace llmem {

void Dims::insert(int at, std::int64_t value) {
  push_back(0);
  for (int i = count_ - 1; i > at; --i) (*this)[i] = (*this)[i - 1];
  (*this)[at] = value;
}

void Dims::erase(int at) {
  for (int i = at; i + 1 < count_; ++i) (*this)[i] = (*this)[i + 1];
  --count_;
}

bool Dims::operator==(const Dims& other) const {
  return count_ == other.count_ && std::equal(values_.begin(), values_.begin() + count_, other.values_.begin());
}

std::int64_t count_of(const Dims& sizes) {
  std::int64_t n = 1;
  for (int i = 0; i < sizes.size(); ++i) n *= sizes[i];
  return n;
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (int i = sizes.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * std::max<std::int64_t>(sizes[i + 1], 1);
  return strides;
}

bool is_contiguous(const Layout& layout) {
  std::int64_t expected = 1;
  for (int i = layout.sizes.size() - 1; i >= 0; --i) {
    if (layout.sizes[i] == 1) continue;
    if (layout.strides[i] != expected) return false;
    expected *= layout.sizes[i];
  }
  return true;
}

bool is_non_overlapping_and_dense(const Layout& layout) {
  // From the innermost dimension outwards, each must begin where the one inside it ends.
  std::int64_t expected = 1;
  std::array<bool, Dims::max_dims> seen{};
  for (int round = 0; round < layout.sizes.size(); ++round) {
    for (int d = 0; d < layout.sizes.size(); ++d) {
      if (seen[static_cast<std::size_t>(d)] || layout.sizes[d] < 2 || layout.strides[d] != expected) continue;
      seen[static_cast<std::size_t>(d)] = true;
      expected *= layout.sizes[d];
      break;
    }
  }
  return expected == count_of(layout.sizes);
}

std::optional<Dims> view_strides(const Layout& layout, const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  int view = sizes.size() - 1;
  std::int64_t base = layout.strides.empty() ? 1 : layout.strides.back();
  std::int64_t chunk = 1, seen = 1;
  for (int d = layout.sizes.size() - 1; d >= 0; --d) {
    chunk *= layout.sizes[d];
    // A chunk ends where the next dimension does not continue this one in memory.
    if (d != 0 && (layout.sizes[d - 1] == 1 || layout.strides[d - 1] == chunk * base)) continue;
    while (view >= 0 && (seen < chunk || sizes[view] == 1)) {
      strides[view] = seen * base;
      seen *= sizes[view];
      --view;
    }
    if (seen != chunk) return std::nullopt;
    if (d > 0) {
      base = layout.strides[d - 1];
      chunk = seen = 1;
    }
  }
  if (view != -1) return std::nullopt;
  return strides;
}

Dims broadcast(const Dims& a, const Dims& b) {
  const int n = std::max(a.size(), b.size());
  Dims out(n, 1);
  for (int i = 1; i <= n; ++i) {
    const std::int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const std::int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    out[n - i] = x == 1 ? y : x;
  }
  return out;
}

Dims expanded_strides(const Layout& layout, const Dims& sizes) {
  const int lead = sizes.size() - layout.sizes.size();
  Dims strides(sizes.size(), 0);
  for (int i = 0; i < layout.sizes.size(); ++i)
    if (layout.sizes[i] == sizes[lead + i]) strides[lead + i] = layout.strides[i];
  for (int i = 0; i < layout.sizes.size(); ++i)
    if (layout.sizes[i] == 1 && sizes[lead + i] != 1) strides[lead + i] = 0;
  return strides;
}

namespace {

// Which of two dimensions is the outer one: > 0 if `a` has larger strides than `b`, 0 if no operand can tell.
int compare_dims(int a, int b, const Dims& sizes, const std::vector<Dims>& operands) {
  for (const Dims& strides : operands) {
    if (strides[a] == 0 || strides[b] == 0) continue;
    if (strides[a] != strides[b]) return strides[a] < strides[b] ? -1 : 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

}  // namespace

Dims elementwise_strides(const Dims& sizes, const std::vector<Dims>& operands) {
  const int n = sizes.size();
  std::array<int, Dims::max_dims> order{};  // from the innermost dimension outwards
  for (int i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = n - 1 - i;
  for (int i = 1; i < n; ++i) {
    int moved = i;
    for (int j = i - 1; j >= 0; --j) {
      const int comparison = compare_dims(order[static_cast<std::size_t>(j)], order[static_cast<std::size_t>(moved)], sizes, operands);
      if (comparison < 0) break;
      if (comparison == 0) continue;
      std::swap(order[static_cast<std::size_t>(j)], order[static_cast<std::size_t>(moved)]);
      moved = j;
    }
  }
  Dims strides(n, 1);
  std::int64_t stride = 1;
  for (int i = 0; i < n; ++i) {
    const int d = order[static_cast<std::size_t>(i)];
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

Dims strides_like(const Layout& layout) {
  if (is_non_overlapping_and_dense(layout)) return layout.strides;
  return elementwise_strides(layout.sizes, {layout.strides});
}

}  // namespace llmem
