#pragma once

#include <compare>
#include <cstdint>

namespace llmem {

// A number of bytes. 64 bits on purpose: size_t has 32 in WebAssembly, and a model does not fit in them.
struct Bytes {
  std::int64_t count = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
  friend constexpr Bytes operator*(Bytes a, std::int64_t times) { return {a.count * times}; }
};

constexpr Bytes operator""_KiB(unsigned long long n) { return {static_cast<std::int64_t>(n) << 10}; }
constexpr Bytes operator""_MiB(unsigned long long n) { return {static_cast<std::int64_t>(n) << 20}; }

// a / b rounded up, for positive numbers: how many b it takes to hold a.
constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr Bytes round_up(Bytes size, Bytes granule) { return granule * divide_up(size.count, granule.count); }

}  // namespace llmem
