#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

namespace llmem {

// A vector that is nearly always short: the first `inline_count` elements need no memory of their own.
template <class T, std::size_t inline_count>
class Few {
 public:
  Few() = default;
  explicit Few(std::size_t size) { resize(size); }
  Few(std::initializer_list<T> values) {
    for (const T& v : values) push_back(v);
  }
  template <class Iterator>
  Few(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  Few(const Few&) = default;
  Few& operator=(const Few&) = default;
  Few(Few&& other) noexcept : few_(std::move(other.few_)), many_(std::move(other.many_)), size_(std::exchange(other.size_, 0)) {}
  Few& operator=(Few&& other) noexcept {
    few_ = std::move(other.few_);
    many_ = std::move(other.many_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  ~Few() = default;

  [[gnu::always_inline]] std::size_t size() const { return size_; }
  [[gnu::always_inline]] bool empty() const { return size_ == 0; }
  [[gnu::always_inline]] T* begin() { return many_.empty() ? few_.data() : many_.data(); }
  T* end() { return begin() + size_; }
  [[gnu::always_inline]] const T* begin() const { return many_.empty() ? few_.data() : many_.data(); }
  const T* end() const { return begin() + size_; }
  [[gnu::always_inline]] T& operator[](std::size_t i) { return begin()[i]; }
  [[gnu::always_inline]] const T& operator[](std::size_t i) const { return begin()[i]; }
  T& front() { return *begin(); }
  const T& front() const { return *begin(); }
  T& back() { return begin()[size_ - 1]; }
  const T& back() const { return begin()[size_ - 1]; }

  void push_back(T value) {
    if (size_ == inline_count && many_.empty()) {
      many_.reserve(2 * inline_count);
      std::move(few_.begin(), few_.end(), std::back_inserter(many_));
      few_ = {};
    }
    if (size_ < inline_count && many_.empty())
      few_[size_] = std::move(value);
    else
      many_.push_back(std::move(value));
    ++size_;
  }
  void resize(std::size_t size) {
    while (size_ < size) push_back(T());
  }
  void clear() {
    for (T& value : few_) value = T();
    many_.clear();
    size_ = 0;
  }

 private:
  std::array<T, inline_count> few_{};
  std::vector<T> many_;
  std::size_t size_ = 0;
};

}  // namespace llmem
