#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace llmem {

// The free blocks of a pool, ordered by size, then address, where PyTorch has a std::set<Block*>: best fit is the first that is not smaller. Kept as
// sorted runs, one per eighth of a power of two, so that nothing is allocated per block.
class FreeBlocks {
 public:
  struct Entry {
    std::int64_t size;
    std::uint64_t address;
    std::int32_t block;
  };
  struct Position {
    int run = runs;
    std::size_t index = 0;
  };

  void insert(std::int64_t size, std::uint64_t address, std::int32_t block);
  void erase(std::int64_t size, std::uint64_t address);
  void erase(Position at);
  // As erase, then insert: what is left of a block, or a block and its neighbour, mostly stays where it was in the order.
  void replace(Position at, const Entry& entry);

  Position find(std::int64_t size, std::uint64_t address) const;
  // The first entry of at least `size` bytes.
  Position lower_bound(std::int64_t size) const;
  Position first() const { return first_from(0); }
  Position next(Position at) const;
  Position last() const;
  Position previous(Position at) const;
  bool is_end(Position at) const { return at.run == runs; }
  const Entry& operator[](Position at) const { return run_[at.run][at.index]; }

 private:
  // Sorted entries with room before them as well as behind: of many blocks of one size the first is taken, and those are moved that are fewer.
  class Run {
   public:
    std::size_t size() const { return entries_.size() - begin_; }
    bool empty() const { return size() == 0; }
    Entry& operator[](std::size_t index) { return entries_[begin_ + index]; }
    const Entry& operator[](std::size_t index) const { return entries_[begin_ + index]; }
    std::size_t position(std::int64_t size, std::uint64_t address) const;
    void insert(std::size_t index, const Entry& entry);
    void erase(std::size_t index);

   private:
    std::vector<Entry> entries_;
    std::size_t begin_ = 0;
  };

  static constexpr int runs = 64 * 8;
  static constexpr int words = runs / 64;
  static int run_of(std::int64_t size);
  Position first_from(int run) const;

  std::array<Run, runs> run_;
  std::array<std::uint64_t, words> filled_{};  // bit r: run r is not empty
};

}  // namespace llmem
