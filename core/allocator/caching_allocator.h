#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/free_blocks.h"
#include "base/bytes.h"

// PyTorch's CUDA caching allocator without the CUDA: which block serves a request, what that counts for, and what the process
// asks of the device. Follows c10/cuda/CUDACachingAllocator.cpp as of PyTorch 2.14; functions here are named after theirs.
namespace llmem {

// PYTORCH_ALLOC_CONF, and the device.
struct AllocatorSettings {
  bool expandable_segments = false;
  std::optional<std::int64_t> max_split_size_mb;  // larger blocks are not split; none: no limit
  std::int64_t roundup_power2_divisions = 0;      // 0 or 1: off; else a power of two
  std::optional<Bytes> memory;                    // what the device has for the allocator; none: no limit
};

// Beyond any device, and exact in a JSON number: "no limit" is 8 PiB. A request that does not fit in it fails.
inline constexpr Bytes no_memory_limit{std::int64_t{1} << 53};

// The four numbers torch.cuda reports: memory_allocated, max_memory_allocated, memory_reserved, max_memory_reserved.
struct Counters {
  Bytes allocated, peak_allocated, reserved, peak_reserved;
};

// What was asked of the device, in order: cudaMalloc, cudaFree, or the mapping of pages of an expandable segment.
struct DeviceCall {
  enum class Kind : std::uint8_t { allocate, free, map, unmap } kind;
  Bytes bytes;
  bool operator==(const DeviceCall&) const = default;
};

class CachingAllocator {
 public:
  // `keys`: the caller's names for live blocks are the integers below this.
  CachingAllocator(const AllocatorSettings& settings, std::size_t keys);

  // Serves a request of `request` bytes on a stream (0: the compute stream) and remembers its block by `key`. False: out of memory,
  // even after the cache was given back to the device; nothing is then remembered. A request of no bytes takes no block.
  [[nodiscard]] bool allocate(std::size_t key, Bytes request, std::uint8_t stream = 0);
  // As allocate, but false as soon as the device has too little, before any of the cache is given back to it; without expandable
  // segments nothing has then changed.
  [[nodiscard]] bool try_allocate(std::size_t key, Bytes request, std::uint8_t stream = 0);
  // What allocate does where try_allocate failed: gives the cache back first.
  [[nodiscard]] bool allocate_giving_back(std::size_t key, Bytes request, std::uint8_t stream = 0);
  // Frees the block remembered by `key`; nothing happens if there is none.
  void release(std::size_t key);
  // Frees it for the counters only (free, where other streams have used the block): it can be given out again after give_back (free_block).
  void retire(std::size_t key);
  void give_back(std::size_t key);

  void empty_cache();                                     // torch.cuda.empty_cache()
  void reset_peaks();                                     // torch.cuda.reset_peak_memory_stats()
  void lift_limit() { memory_ = no_memory_limit.count; }  // from now on the device has enough for anything

  const Counters& counters() const { return counters_; }
  Bytes block_size(std::size_t key) const;             // what the live block counts for in `allocated`
  std::uint64_t block_address(std::size_t key) const;  // ascends with the age of segments
  Bytes segment_size_for(Bytes request) const;         // what a request asks of the device if no free block serves it
  int retries() const { return retries_; }             // num_alloc_retries
  // Where the live blocks lie, by age, and the free ones, and how often the cache was given back: where two of these are equal, the same
  // requests are served in the same way.
  std::vector<std::uint64_t> standing() const;
  const std::vector<DeviceCall>& device_calls() const { return device_calls_; }

 private:
  static constexpr std::int32_t none = -1;

  // A piece of a segment. Neighbours in it are linked, so that free ones can merge.
  struct Block {
    std::uint64_t address = 0;
    std::int64_t size = 0;
    std::int32_t before = none, after = none;
    std::uint16_t pool = 0;  // index into pools_
    bool allocated = false;
    bool mapped = true;  // false: address space of an expandable segment behind which there is no memory
    bool expandable = false;
  };

  // Free blocks of one stream, of one of the two sizes. PyTorch keeps all streams in one std::set ordered by stream first.
  struct Pool {
    FreeBlocks free;
    std::vector<std::int32_t> unmapped;  // sorted by address
  };

  bool is_small(std::uint16_t pool) const { return pool % 2 == 0; }
  std::uint16_t pool_of(std::int64_t size, std::uint8_t stream);
  std::int64_t round_size(std::int64_t request) const;
  bool should_split(const Block& block, std::int64_t size) const;

  std::int32_t new_block(const Block& block);
  void drop_block(std::int32_t index) { unused_.push_back(index); }
  void make_free(std::int32_t index);
  void take_free(std::int32_t index);
  bool can_merge(const Block& block, std::int32_t neighbour) const;
  void merge(std::int32_t into, std::int32_t neighbour);
  void merge_and_make_free(std::int32_t index);
  void join(std::int32_t into, std::int32_t neighbour);
  std::int32_t split(std::int32_t index, std::int64_t size);

  std::int32_t get_free_block(std::uint16_t pool, std::int64_t size);
  std::int32_t alloc_anew(std::uint16_t pool, std::int64_t size);
  std::int32_t alloc_after_giving_back(std::uint16_t pool, std::int64_t size);
  void hand_out(std::size_t key, std::int32_t index);
  std::int32_t alloc_block(std::uint16_t pool, std::int64_t size);
  std::int32_t alloc_segment(std::uint16_t pool, std::int64_t size);
  bool release_available_cached_blocks(std::uint16_t pool, std::int64_t size);
  void release_cached_blocks();
  void release_blocks(std::uint16_t pool);
  void release_block(std::int32_t index);

  std::int64_t page_size(std::uint16_t pool) const;
  std::int32_t try_allocate_expandable_block(std::uint16_t pool, std::int64_t size);
  std::int32_t find_expandable_block(std::uint16_t pool, std::int64_t size);
  bool has_available_address_space(std::int32_t index, std::int64_t size) const;
  bool map_block(std::int32_t index, std::int64_t size);
  void unmap_block(std::int32_t index);
  void make_unmapped(std::int32_t index);
  void take_unmapped(std::int32_t index);

  bool device_has(std::int64_t bytes) const { return bytes <= memory_ - counters_.reserved.count; }
  void count_reserved(DeviceCall::Kind kind, std::int64_t bytes);
  std::uint64_t new_addresses(std::int64_t bytes);

  bool expandable_segments_;
  std::int64_t max_split_size_, roundup_power2_divisions_, memory_;
  std::vector<Block> blocks_;
  std::vector<std::int32_t> unused_;  // entries of blocks_ that hold nothing
  std::vector<std::int32_t> block_of_key_;
  std::vector<Pool> pools_;  // [2 * stream]: small, [2 * stream + 1]: large
  std::uint64_t next_address_ = 0;
  Counters counters_;
  int retries_ = 0;
  std::vector<DeviceCall> device_calls_;
};

}  // namespace llmem
