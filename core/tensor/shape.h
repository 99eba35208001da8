#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

namespace llmem {

// Sizes or strides (in elements) of a tensor of at most `max_dims` dimensions.
class Dims {
 public:
  static constexpr int max_dims = 6;

  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values) {
    for (std::int64_t v : values) push_back(v);
  }
  Dims(int count, std::int64_t value) {
    for (int i = 0; i < count; ++i) push_back(value);
  }

  [[gnu::always_inline]] int size() const { return count_; }
  [[gnu::always_inline]] bool empty() const { return count_ == 0; }
  [[gnu::always_inline]] std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  [[gnu::always_inline]] std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t back() const { return (*this)[count_ - 1]; }
  [[gnu::always_inline]] void push_back(std::int64_t value) { values_[static_cast<std::size_t>(count_++)] = value; }
  void insert(int at, std::int64_t value);
  void erase(int at);
  bool operator==(const Dims& other) const;

 private:
  int count_ = 0;
  std::array<std::int64_t, max_dims> values_{};
};

struct Layout {
  Dims sizes, strides;
};

std::int64_t count_of(const Dims& sizes);
Dims contiguous_strides(const Dims& sizes);
bool is_contiguous(const Layout& layout);
bool is_non_overlapping_and_dense(const Layout& layout);

// The strides with which a tensor can be seen as `sizes` without a copy, if it can (aten/src/ATen/TensorUtils.cpp, computeStride).
std::optional<Dims> view_strides(const Layout& layout, const Dims& sizes);

// The shape to which both broadcast.
Dims broadcast(const Dims& a, const Dims& b);

// Strides of a fresh elementwise result over these operands, already broadcast to `sizes`
// (aten/src/ATen/TensorIterator.cpp, reorder_dimensions and allocate_or_resize_outputs): the result keeps the order of its
// operands' dimensions, the first operand deciding.
Dims elementwise_strides(const Dims& sizes, const std::vector<Dims>& operand_strides);

// Strides of `layout` seen as the larger `sizes`: 0 along what is repeated.
Dims expanded_strides(const Layout& layout, const Dims& sizes);

// Strides of torch.empty_like(…): kept when dense, else the same order of dimensions, packed.
Dims strides_like(const Layout& layout);

}  // namespace llmem
