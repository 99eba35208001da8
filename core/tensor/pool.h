#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace llmem {

// Memory for many small objects of one type that come and go: a step makes tens of thousands of tensors and nodes, and the general
// allocator would take longer than all else. Every object must be gone before its pool.
template <class T>
class Pool {
 public:
  template <class... Args>
  T* make(Args&&... args) {
    if (!free_) grow();
    Slot* slot = free_;
    free_ = slot->next;
    return new (slot->bytes) T(std::forward<Args>(args)...);
  }

  void give_back(T* object) {
    object->~T();
    auto* slot = reinterpret_cast<Slot*>(object);
    slot->next = free_;
    free_ = slot;
  }

 private:
  union Slot {
    Slot* next;
    alignas(T) std::byte bytes[sizeof(T)];
  };
  static constexpr std::size_t slots_a_block = 256;

  void grow() {
    blocks_.emplace_back(new Slot[slots_a_block]);  // not make_unique: it would zero them
    for (std::size_t i = 0; i < slots_a_block; ++i) {
      Slot& slot = blocks_.back()[i];
      slot.next = free_;
      free_ = &slot;
    }
  }

  std::vector<std::unique_ptr<Slot[]>> blocks_;
  Slot* free_ = nullptr;
};

}  // namespace llmem
