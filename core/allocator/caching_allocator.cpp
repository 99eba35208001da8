#include "allocator/caching_allocator.h"

#include <algorithm>
#include <limits>

namespace llmem {
namespace {

// c10/core/AllocatorConfig.h
constexpr std::int64_t MiB = std::int64_t{1} << 20;
constexpr std::int64_t min_block_size = 512;               // kMinBlockSize
constexpr std::int64_t small_size = MiB;                   // kSmallSize: the largest request of the small pool
constexpr std::int64_t small_buffer = 2 * MiB;             // kSmallBuffer: a segment of the small pool
constexpr std::int64_t large_buffer = 20 * MiB;            // large_segment_size's default
constexpr std::int64_t min_large_alloc = 10 * MiB;         // kMinLargeAlloc: from here on a request gets a segment of its own
constexpr std::int64_t round_large = 2 * MiB;              // kRoundLarge
constexpr std::int64_t max_non_split_rounding = 20 * MiB;  // max_non_split_rounding_size's default

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t rounded_up(std::int64_t size, std::int64_t granule) { return (size + granule - 1) / granule * granule; }

std::int64_t power2_floor(std::int64_t n) { return std::int64_t{1} << (63 - __builtin_clzll(static_cast<std::uint64_t>(n))); }

// roundup_power2_next_division: 1200 with 4 divisions between 1024 and 2048 is 1280.
std::int64_t roundup_power2_next_division(std::int64_t size, std::int64_t divisions) {
  const std::int64_t floor = power2_floor(size);
  return floor == size ? size : rounded_up(size, floor / power2_floor(divisions));
}

// get_allocation_size
std::int64_t segment_size(std::int64_t size) {
  if (size <= small_size) return small_buffer;
  if (size < min_large_alloc) return large_buffer;
  return rounded_up(size, round_large);
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorSettings& settings, std::size_t keys)
    : expandable_segments_(settings.expandable_segments),
      max_split_size_(settings.max_split_size_mb ? std::min(*settings.max_split_size_mb, unlimited / MiB) * MiB : unlimited),
      roundup_power2_divisions_(settings.roundup_power2_divisions),
      memory_(std::clamp(settings.memory.value_or(no_memory_limit), Bytes{0}, no_memory_limit).count),
      block_of_key_(keys, none) {
  blocks_.reserve(1024);
}

// ---------------------------------------------------------------- requests and frees

bool CachingAllocator::allocate(std::size_t key, Bytes request, std::uint8_t stream) {
  return try_allocate(key, request, stream) || allocate_giving_back(key, request, stream);
}

bool CachingAllocator::allocate_giving_back(std::size_t key, Bytes request, std::uint8_t stream) {
  if (request > no_memory_limit) return false;
  const std::int64_t size = round_size(request.count);
  const std::int32_t made = alloc_after_giving_back(pool_of(size, stream), size);
  if (made != none) hand_out(key, made);
  return made != none;
}

bool CachingAllocator::try_allocate(std::size_t key, Bytes request, std::uint8_t stream) {
  if (request.count <= 0) return true;
  if (request > no_memory_limit) return false;
  const std::int64_t size = round_size(request.count);
  const std::uint16_t pool = pool_of(size, stream);
  std::int32_t found = get_free_block(pool, size);
  if (found == none) found = alloc_anew(pool, size);
  if (found != none) hand_out(key, found);
  return found != none;
}

// From the device, cut to size.
std::int32_t CachingAllocator::alloc_anew(std::uint16_t pool, std::int64_t size) {
  const std::int32_t made = alloc_block(pool, size);
  if (made != none && should_split(blocks_[made], size)) make_free(split(made, size));
  return made;
}

std::int32_t CachingAllocator::alloc_after_giving_back(std::uint16_t pool, std::int64_t size) {
  if (release_available_cached_blocks(pool, size))
    if (const std::int32_t made = alloc_anew(pool, size); made != none) return made;
  release_cached_blocks();
  ++retries_;
  return alloc_anew(pool, size);
}

void CachingAllocator::hand_out(std::size_t key, std::int32_t index) {
  Block& block = blocks_[index];
  block.allocated = true;
  block_of_key_[key] = index;
  counters_.allocated += Bytes{block.size};
  counters_.peak_allocated = std::max(counters_.peak_allocated, counters_.allocated);
}

void CachingAllocator::release(std::size_t key) {
  const std::int32_t index = block_of_key_[key];
  if (index == none) return;
  retire(key);
  give_back(key);
}

void CachingAllocator::retire(std::size_t key) { counters_.allocated -= block_size(key); }

void CachingAllocator::give_back(std::size_t key) {
  const std::int32_t index = block_of_key_[key];
  if (index == none) return;
  block_of_key_[key] = none;
  blocks_[index].allocated = false;
  merge_and_make_free(index);
}

void CachingAllocator::empty_cache() { release_cached_blocks(); }

void CachingAllocator::reset_peaks() {
  counters_.peak_allocated = counters_.allocated;
  counters_.peak_reserved = counters_.reserved;
}

Bytes CachingAllocator::block_size(std::size_t key) const {
  const std::int32_t index = block_of_key_[key];
  return index == none ? Bytes{} : Bytes{blocks_[index].size};
}

std::uint64_t CachingAllocator::block_address(std::size_t key) const {
  const std::int32_t index = block_of_key_[key];
  return index == none ? 0 : blocks_[index].address;
}

Bytes CachingAllocator::segment_size_for(Bytes request) const {
  return request > no_memory_limit ? request : Bytes{segment_size(round_size(request.count))};
}

std::vector<std::uint64_t> CachingAllocator::standing() const {
  std::vector<std::uint64_t> all{static_cast<std::uint64_t>(retries_)};
  const auto add = [&all](const Block& block) { all.insert(all.end(), {block.address, static_cast<std::uint64_t>(block.size)}); };
  for (const std::int32_t index : block_of_key_)
    if (index != none) add(blocks_[index]);
  for (const Pool& pool : pools_) {
    all.push_back(pool.unmapped.size());
    for (FreeBlocks::Position at = pool.free.first(); !pool.free.is_end(at); at = pool.free.next(at)) add(blocks_[pool.free[at].block]);
    for (const std::int32_t index : pool.unmapped) add(blocks_[index]);
  }
  return all;
}

// ---------------------------------------------------------------- sizes

std::int64_t CachingAllocator::round_size(std::int64_t request) const {
  if (request < min_block_size) return min_block_size;
  const std::int64_t divisions = roundup_power2_divisions_;
  if (divisions > 1 && request > min_block_size * divisions) return roundup_power2_next_division(request, divisions);
  return rounded_up(request, min_block_size);
}

std::uint16_t CachingAllocator::pool_of(std::int64_t size, std::uint8_t stream) {
  const std::size_t pool = 2 * std::size_t{stream} + (size > small_size);
  if (pool >= pools_.size()) pools_.resize(2 * std::size_t{stream} + 2);
  return static_cast<std::uint16_t>(pool);
}

bool CachingAllocator::should_split(const Block& block, std::int64_t size) const {
  const std::int64_t rest = block.size - size;
  if (is_small(block.pool) || expandable_segments_) return rest >= min_block_size;
  return size < max_split_size_ && rest > small_size;
}

// ---------------------------------------------------------------- blocks

std::int32_t CachingAllocator::new_block(const Block& block) {
  if (unused_.empty()) {
    blocks_.push_back(block);
    return static_cast<std::int32_t>(blocks_.size() - 1);
  }
  const std::int32_t index = unused_.back();
  unused_.pop_back();
  blocks_[index] = block;
  return index;
}

void CachingAllocator::make_free(std::int32_t index) {
  const Block& block = blocks_[index];
  pools_[block.pool].free.insert(block.size, block.address, index);
}

void CachingAllocator::take_free(std::int32_t index) {
  const Block& block = blocks_[index];
  pools_[block.pool].free.erase(block.size, block.address);
}

bool CachingAllocator::can_merge(const Block& block, std::int32_t neighbour) const {
  return neighbour != none && !blocks_[neighbour].allocated && blocks_[neighbour].mapped == block.mapped;
}

// try_merge_blocks: `into`, which is in no list, swallows a neighbour that is free like itself.
void CachingAllocator::merge(std::int32_t into, std::int32_t neighbour) {
  if (!can_merge(blocks_[into], neighbour)) return;
  if (blocks_[neighbour].mapped)
    take_free(neighbour);
  else
    take_unmapped(neighbour);
  join(into, neighbour);
}

// A mapped block that is in no list becomes free, with its free neighbours. One of these leaves its place in the list to all of them.
void CachingAllocator::merge_and_make_free(std::int32_t index) {
  const Block& block = blocks_[index];
  const std::int32_t before = can_merge(block, block.before) ? block.before : none;
  const std::int32_t after = can_merge(block, block.after) ? block.after : none;
  if (before != none && after != none) {
    take_free(after);
    join(index, after);
  }
  const std::int32_t replaced = before != none ? before : after;
  if (replaced == none) return make_free(index);
  FreeBlocks& free = pools_[block.pool].free;
  const FreeBlocks::Position place = free.find(blocks_[replaced].size, blocks_[replaced].address);
  join(index, replaced);
  free.replace(place, {block.size, block.address, index});
}

// `into` takes over the bytes and the links of a neighbour, which is in no list any more.
void CachingAllocator::join(std::int32_t into, std::int32_t neighbour) {
  Block& kept = blocks_[into];
  Block& gone = blocks_[neighbour];
  if (kept.before == neighbour) {
    kept.address = gone.address;
    kept.before = gone.before;
    if (kept.before != none) blocks_[kept.before].after = into;
  } else {
    kept.after = gone.after;
    if (kept.after != none) blocks_[kept.after].before = into;
  }
  kept.size += gone.size;
  drop_block(neighbour);
}

// alloc_found_block: what `size` leaves over of a block, behind it, as a block that is in no list yet.
std::int32_t CachingAllocator::split(std::int32_t index, std::int64_t size) {
  Block rest = blocks_[index];
  rest.address += static_cast<std::uint64_t>(size);
  rest.size -= size;
  rest.before = index;
  const std::int32_t behind = new_block(rest);
  if (rest.after != none) blocks_[rest.after].before = behind;
  Block& block = blocks_[index];
  block.after = behind;
  block.size = size;
  return behind;
}

// The smallest free block that is large enough, cut to size and out of the free list; none if there is none that may be used.
std::int32_t CachingAllocator::get_free_block(std::uint16_t pool, std::int64_t size) {
  FreeBlocks& free = pools_[pool].free;
  FreeBlocks::Position at = free.lower_bound(size);
  if (free.is_end(at)) return none;
  if (expandable_segments_) {
    // A block that can grow counts with the address space behind it, so that the open end of the segment is used last.
    const auto expandable_size = [this](std::int32_t index) {
      const Block& block = blocks_[index];
      if (block.after == none) return block.size;
      const Block& after = blocks_[block.after];
      return after.mapped ? block.size : block.size + after.size;
    };
    for (FreeBlocks::Position next = free.next(at);
         !free.is_end(next) && expandable_size(free[next].block) < expandable_size(free[at].block); next = free.next(next))
      at = next;
  }
  const FreeBlocks::Entry& entry = free[at];
  if (size < max_split_size_ && entry.size >= max_split_size_) return none;                 // not an oversized block for a smaller request,
  if (size >= max_split_size_ && entry.size >= size + max_non_split_rounding) return none;  // nor one that would waste too much
  const std::int32_t index = entry.block;
  if (!should_split(blocks_[index], size)) {
    free.erase(at);
    return index;
  }
  const std::int32_t rest = split(index, size);
  free.replace(at, {blocks_[rest].size, blocks_[rest].address, rest});
  return index;
}

// ---------------------------------------------------------------- the device

std::int32_t CachingAllocator::alloc_block(std::uint16_t pool, std::int64_t size) {
  return expandable_segments_ ? try_allocate_expandable_block(pool, size) : alloc_segment(pool, segment_size(size));
}

// Between free blocks of one size PyTorch takes that of the oldest segment, then the lowest address (BlockComparatorSizeCounterAddress).
// Addresses that ascend and are never given out again put both in one number.
std::uint64_t CachingAllocator::new_addresses(std::int64_t bytes) {
  const std::uint64_t address = next_address_;
  next_address_ += static_cast<std::uint64_t>(bytes);
  return address;
}

// cudaMalloc
std::int32_t CachingAllocator::alloc_segment(std::uint16_t pool, std::int64_t size) {
  if (!device_has(size)) return none;
  count_reserved(DeviceCall::Kind::allocate, size);
  Block block;
  block.address = new_addresses(size);
  block.size = size;
  block.pool = pool;
  return new_block(block);
}

// Under max_split_size: gives back oversized free blocks, only as many as the request needs.
bool CachingAllocator::release_available_cached_blocks(std::uint16_t pool, std::int64_t size) {
  if (max_split_size_ == unlimited || expandable_segments_) return false;
  FreeBlocks& free = pools_[pool].free;
  const std::int64_t wanted = std::max(size, max_split_size_);
  if (const FreeBlocks::Position at = free.lower_bound(wanted); !free.is_end(at)) {
    release_block(free[at].block);
    return true;
  }
  std::int64_t released = 0;  // no single one is large enough: the largest ones first
  while (released < wanted) {
    const FreeBlocks::Position at = free.last();
    if (free.is_end(at) || free[at].size < max_split_size_) return false;
    released += free[at].size;
    release_block(free[at].block);
  }
  return true;
}

void CachingAllocator::release_cached_blocks() {
  for (const std::size_t small : {std::size_t{1}, std::size_t{0}})  // the large pool first
    for (std::size_t pool = small; pool < pools_.size(); pool += 2) release_blocks(static_cast<std::uint16_t>(pool));
}

// Gives back every segment of which no part is in use, and of expandable segments every page.
void CachingAllocator::release_blocks(std::uint16_t pool) {
  std::vector<std::int32_t> unused;
  const FreeBlocks& free = pools_[pool].free;
  for (FreeBlocks::Position at = free.first(); !free.is_end(at); at = free.next(at)) {
    const Block& block = blocks_[free[at].block];
    if (block.expandable || (block.before == none && block.after == none)) unused.push_back(free[at].block);
  }
  for (const std::int32_t index : unused) {
    if (blocks_[index].expandable)
      unmap_block(index);
    else
      release_block(index);
  }
}

// cudaFree
void CachingAllocator::release_block(std::int32_t index) {
  const Block& block = blocks_[index];
  take_free(index);
  count_reserved(DeviceCall::Kind::free, block.size);
  drop_block(index);
}

void CachingAllocator::count_reserved(DeviceCall::Kind kind, std::int64_t bytes) {
  const bool more = kind == DeviceCall::Kind::allocate || kind == DeviceCall::Kind::map;
  counters_.reserved += Bytes{more ? bytes : -bytes};
  counters_.peak_reserved = std::max(counters_.peak_reserved, counters_.reserved);
  device_calls_.push_back({kind, Bytes{bytes}});
}

// ---------------------------------------------------------------- expandable segments

std::int64_t CachingAllocator::page_size(std::uint16_t pool) const { return is_small(pool) ? small_buffer : large_buffer; }

// Maps pages until a free block of `size` bytes stands at the lowest address where there is room for it.
std::int32_t CachingAllocator::try_allocate_expandable_block(std::uint16_t pool, std::int64_t size) {
  std::int32_t candidate = find_expandable_block(pool, size);
  if (candidate == none) return none;
  // Here: unmapped; or unmapped, free, …; or free, unmapped, …: together at least `size` bytes.
  const auto block = [this](std::int32_t index) -> const Block& { return blocks_[index]; };
  if (!block(candidate).mapped && !map_block(candidate, std::min(block(candidate).size, size))) return none;
  while (block(candidate).size < size) {
    const std::int32_t next = block(candidate).after;
    if (!map_block(next, std::min(size - block(candidate).size, block(next).size))) return none;
    candidate = next;  // which has swallowed the one before it
  }
  take_free(candidate);
  return candidate;
}

std::int32_t CachingAllocator::find_expandable_block(std::uint16_t pool, std::int64_t size) {
  for (const std::int32_t unmapped : pools_[pool].unmapped) {
    const std::int32_t before = blocks_[unmapped].before;
    const bool before_is_free = before != none && !blocks_[before].allocated;
    const std::int32_t candidate = before_is_free ? before : unmapped;
    if (has_available_address_space(candidate, size)) return candidate;
  }
  // A new segment: address space for 1 1/8 of the device's memory.
  Block block;
  block.size = rounded_up(memory_ + memory_ / 8, page_size(pool));
  if (block.size < size) return none;
  block.address = new_addresses(block.size);
  block.pool = pool;
  block.mapped = false;
  block.expandable = true;
  const std::int32_t index = new_block(block);
  make_unmapped(index);
  return index;
}

bool CachingAllocator::has_available_address_space(std::int32_t index, std::int64_t size) const {
  std::int64_t bytes = 0;
  while (bytes < size && index != none && !blocks_[index].allocated) {
    bytes += blocks_[index].size;
    index = blocks_[index].after;
  }
  return bytes >= size;
}

// Puts memory behind the first `size` bytes, in whole pages, of an unmapped block, which is thereby free. False: the device has not enough.
bool CachingAllocator::map_block(std::int32_t index, std::int64_t size) {
  const std::int64_t bytes = rounded_up(size, page_size(blocks_[index].pool));
  if (!device_has(bytes)) return false;
  take_unmapped(index);
  if (bytes < blocks_[index].size) {
    Block rest = blocks_[index];
    rest.address += static_cast<std::uint64_t>(bytes);
    rest.size -= bytes;
    rest.before = index;
    const std::int32_t behind = new_block(rest);
    if (rest.after != none) blocks_[rest.after].before = behind;
    blocks_[index].after = behind;
    blocks_[index].size = bytes;
    make_unmapped(behind);
  }
  Block& block = blocks_[index];
  block.mapped = true;
  merge_and_make_free(index);
  count_reserved(DeviceCall::Kind::map, bytes);
  return true;
}

// Gives back the whole pages of a free block; what hangs over at its ends stays free.
void CachingAllocator::unmap_block(std::int32_t index) {
  const Block whole = blocks_[index];
  const auto page = static_cast<std::uint64_t>(page_size(whole.pool));
  // Pages count from the segment's start, which is only page-aligned relative to itself.
  std::int32_t head = index;
  while (blocks_[head].before != none) head = blocks_[head].before;
  const std::uint64_t start = blocks_[head].address;
  const std::uint64_t first = start + (whole.address - start + page - 1) / page * page;
  const std::uint64_t last = start + (whole.address + static_cast<std::uint64_t>(whole.size) - start) / page * page;
  if (first >= last) return;
  take_free(index);

  const auto cut_off = [&](std::uint64_t address, std::uint64_t end, std::int32_t before, std::int32_t after) {
    Block piece = whole;
    piece.address = address;
    piece.size = static_cast<std::int64_t>(end - address);
    piece.before = before;
    piece.after = after;
    const std::int32_t made = new_block(piece);
    if (before != none) blocks_[before].after = made;
    if (after != none) blocks_[after].before = made;
    make_free(made);
  };
  if (first > whole.address) cut_off(whole.address, first, whole.before, index);
  if (const std::uint64_t end = whole.address + static_cast<std::uint64_t>(whole.size); last < end) cut_off(last, end, index, whole.after);

  Block& block = blocks_[index];
  block.address = first;
  block.size = static_cast<std::int64_t>(last - first);
  block.mapped = false;
  count_reserved(DeviceCall::Kind::unmap, block.size);
  merge(index, block.before);
  merge(index, block.after);
  if (block.before == none && block.after == none)
    drop_block(index);  // release_expandable_segment
  else
    make_unmapped(index);
}

void CachingAllocator::make_unmapped(std::int32_t index) {
  auto& unmapped = pools_[blocks_[index].pool].unmapped;
  const auto by_address = [this](std::int32_t a, std::int32_t b) { return blocks_[a].address < blocks_[b].address; };
  unmapped.insert(std::lower_bound(unmapped.begin(), unmapped.end(), index, by_address), index);
}

void CachingAllocator::take_unmapped(std::int32_t index) {
  auto& unmapped = pools_[blocks_[index].pool].unmapped;
  unmapped.erase(std::find(unmapped.begin(), unmapped.end(), index));
}

}  // namespace llmem
