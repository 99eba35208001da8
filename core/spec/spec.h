#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

// What is asked: the wire format, version 1, as plain values. Every default here is the wire format's default.
namespace llmem {

enum class Attention : std::uint8_t { sdpa, eager };
enum class Checkpointing : std::uint8_t { none, full };
enum class OptimizerImplementation : std::uint8_t { foreach, fused, loop };
enum class DataKind : std::uint8_t { none, ddp, zero_redundancy, zero1, zero2, fsdp1, fsdp2 };

struct Training {
  Dtype weights = Dtype::bfloat16;  // what the parameters are held in
  std::optional<Dtype> autocast;
  OptimizerImplementation optimizer = OptimizerImplementation::foreach;  // of AdamW
  std::int64_t micro_batch = 1;                                          // rows
  std::int64_t sequence = 2048;                                          // tokens a row
  std::int64_t accumulation = 1;                                         // micro-batches an optimizer step
  Checkpointing checkpointing = Checkpointing::none;
  Attention attention = Attention::sdpa;
  std::optional<double> max_grad_norm;
};

struct DataParallel {
  DataKind kind = DataKind::none;
  std::int64_t degree = 1;  // ranks
  // ddp and zero_redundancy
  std::int64_t bucket_cap_mb = 25;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  bool find_unused_parameters = false;
  // zero1, zero2
  bool auto_buckets = true;                                       // Transformers' sizes for "auto"
  std::optional<std::int64_t> reduce_bucket_size = std::nullopt;  // elements
  // fsdp2
  std::int64_t replicate = 1;  // copies of the sharded model (HSDP); degree counts all ranks
  std::optional<Dtype> param_dtype = Dtype::bfloat16;
  std::optional<Dtype> reduce_dtype = Dtype::float32;
  bool reshard_after_forward = true;  // fsdp1: FULL_SHARD
};

struct TensorParallel {
  std::int64_t degree = 1;  // ranks
  bool sequence = false;    // norms and residuals on a part of the sequence each
  bool loss = false;        // logits and loss on a part of the vocabulary each
};

enum class PipelineSchedule : std::uint8_t { one_forward_one_backward, gpipe };

struct PipelineParallel {
  std::int64_t degree = 1;  // ranks, a stage each
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  std::int64_t microbatches = 1;    // of training.micro_batch rows
  std::int64_t virtual_stages = 1;  // stages a rank; with more than one interleaved 1F1B
};

// What lives in the host's memory.
struct Offload {
  bool optimizer = false;
  bool parameters = false;
};

constexpr std::string_view kDefaultGpu = "a100-sxm-80gb";

struct Gpu {
  std::string id;  // empty: described, not named
  std::string name;
  int compute_capability = 80;  // major * 10 + minor
  int sms = 108;                // streaming multiprocessors
  std::optional<Bytes> memory;  // what CUDA reports as total; none: unknown
};

struct Cluster {
  Gpu gpu;
  std::int64_t gpus_per_node = 8;
  std::int64_t nodes = 1;
  std::optional<Bytes> memory;  // for the allocator; none: what the GPU shows less what lies outside
};

struct AllocatorOptions {
  bool expandable_segments = false;
  std::optional<std::int64_t> max_split_size_mb;
};

// The model as asked for: a preset's id and its config, or the user's own name and pasted config.
struct ModelSource {
  std::string name;
  nlohmann::json config;  // a Hugging Face config.json, not yet understood: that is core/model's work
};

struct Spec {
  ModelSource model;
  Training training;
  DataParallel data;
  TensorParallel tensor;
  PipelineParallel pipeline;
  Offload offload;
  std::int64_t rank = 0;  // the rank that is played
  Cluster cluster;
  AllocatorOptions allocator;
};

}  // namespace llmem
