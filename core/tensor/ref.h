#pragma once

#include <utility>

namespace llmem {

// A counted pointer, as Python and c10::intrusive_ptr count: the object dies with its last reference. Not thread-safe; nothing
// here has threads. T has `int references` and is deleted through `destroy(T*)`, found by argument-dependent lookup.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* pointer) : pointer_(pointer) { retain(); }
  [[gnu::always_inline]] Ref(const Ref& other) : pointer_(other.pointer_) { retain(); }
  [[gnu::always_inline]] Ref(Ref&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Ref& operator=(const Ref& other) {
    Ref copy(other);
    std::swap(pointer_, copy.pointer_);
    return *this;
  }
  Ref& operator=(Ref&& other) noexcept {
    // The old object dies after the new one is in place, as with a rebound name in Python.
    Ref moved(std::move(other));
    std::swap(pointer_, moved.pointer_);
    return *this;
  }
  [[gnu::always_inline]] ~Ref() { release(); }

  [[gnu::always_inline]] T* get() const { return pointer_; }
  [[gnu::always_inline]] T* operator->() const { return pointer_; }
  [[gnu::always_inline]] T& operator*() const { return *pointer_; }
  [[gnu::always_inline]] explicit operator bool() const { return pointer_ != nullptr; }
  bool operator==(const Ref& other) const { return pointer_ == other.pointer_; }
  void reset() { Ref().swap(*this); }
  void swap(Ref& other) { std::swap(pointer_, other.pointer_); }

 private:
  [[gnu::always_inline]] void retain() {
    if (pointer_) ++pointer_->references;
  }
  [[gnu::always_inline]] void release() {
    if (pointer_ && --pointer_->references == 0) destroy(pointer_);
  }
  T* pointer_ = nullptr;
};

}  // namespace llmem
