#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace llmem {

template <class Signature>
class Closure;

// A function object that is moved, never copied, and needs no memory of its own while what it captures is small: every node of the
// graph has one.
template <class Result, class... Args>
class Closure<Result(Args...)> {
 public:
  Closure() = default;
  Closure(std::nullptr_t) {}
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, Closure>) Closure(F function) {
    if constexpr (sizeof(F) <= capacity) {
      new (bytes_) F(std::move(function));
      call_ = [](void* f, Args... args) -> Result { return (*static_cast<F*>(f))(args...); };
      move_ = [](void* from, void* to) {
        if (to) new (to) F(std::move(*static_cast<F*>(from)));
        static_cast<F*>(from)->~F();
      };
    } else {
      *this = Closure([large = std::make_unique<F>(std::move(function))](Args... args) -> Result { return (*large)(args...); });
    }
  }
  Closure(Closure&& other) noexcept { take(other); }
  Closure& operator=(Closure&& other) noexcept {
    reset();
    take(other);
    return *this;
  }
  Closure(const Closure&) = delete;
  Closure& operator=(const Closure&) = delete;
  ~Closure() { reset(); }

  explicit operator bool() const { return call_ != nullptr; }
  Result operator()(Args... args) { return call_(bytes_, args...); }

 private:
  static constexpr std::size_t capacity = 80;

  void take(Closure& other) {
    if (!other.call_) return;
    other.move_(other.bytes_, bytes_);
    call_ = std::exchange(other.call_, nullptr);
    move_ = std::exchange(other.move_, nullptr);
  }
  void reset() {
    if (!call_) return;
    call_ = nullptr;
    std::exchange(move_, nullptr)(bytes_, nullptr);
  }

  alignas(std::max_align_t) std::byte bytes_[capacity];
  Result (*call_)(void*, Args...) = nullptr;
  void (*move_)(void* from, void* to) = nullptr;  // to nowhere: destroys
};

}  // namespace llmem
