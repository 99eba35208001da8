#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace llmem {

// ColossalAI's Gemini packs parameters into chunks of one size (colossalai/zero/gemini/chunk/search_utils.py and manager.py, v0.3.0).
// All sizes in elements; a tensor larger than the size gets a chunk of its own.

// search_chunk_configuration with min_chunk_size_mb = search_range_mb = 32 and interval 1024: the size that wastes least over these
// tensors in this order. "32 MB" is compared with element counts there. Fewer elements than that: one chunk of exactly as many.
std::int64_t chunk_size(std::span<const std::int64_t> tensors);

// ChunkManager.register_tensor for each tensor in order. `ranks`: data-parallel degree, of which every chunk is a multiple.
std::vector<std::int64_t> pack(std::span<const std::int64_t> tensors, std::int64_t size, std::int64_t ranks);

}  // namespace llmem
