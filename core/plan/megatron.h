#pragma once

#include <memory>
#include <vector>

#include "model/megatron_model.h"

// What a rank of Megatron-LM holds: one model chunk for each virtual stage, main gradients in one buffer each
// (megatron/core/distributed), and the optimizer's fp32 copies and states (megatron/core/optimizer).
namespace llmem {

MegatronRank megatron_rank(const Spec& spec);

// The layers of stage `index` of all, counted along the pipeline first (transformer_block.py, get_num_layers_to_build).
MegatronModel::Chunk megatron_chunk(const Spec& spec, std::int64_t layers, std::int64_t stage, std::int64_t virtual_stage);

// A contiguous buffer of gradients; with the distributed optimizer parameters lie in one, too (param_and_grad_buffer.py).
class MegatronBuffer {
 public:
  MegatronBuffer(Device& device, const Spec& spec, std::vector<MegatronParameter> parameters, std::int64_t ranks);

  // The values of each parameter that this rank updates.
  struct Part {
    std::string name;
    std::int64_t count = 0;
  };
  const std::vector<Part>& parts() const { return parts_; }

 private:
  void lay_out(std::int64_t bucket_size);
  void add_parts_of_bucket(std::int64_t start, std::int64_t end, std::size_t first, std::size_t last);

  const Spec& spec_;
  std::vector<MegatronParameter> parameters_;
  std::int64_t ranks_;
  bool distributed_;
  std::int64_t count_ = 0;
  std::vector<std::int64_t> starts_;  // of each parameter, from the last to the first
  std::vector<Part> parts_;
  Tensor parameter_data_, gradient_data_;
};

// Float16OptimizerWithFloat16Params and DistributedOptimizer over FusedAdam: fp32 copies when it is made, states at the first step, no
// temporaries of their size.
class MegatronOptimizer {
 public:
  MegatronOptimizer(Device& device, const Spec& spec, const std::vector<std::unique_ptr<MegatronBuffer>>& buffers);
  void step();
  void zero_gradients();  // fp16: the fp32 copies of gradients

 private:
  Device& device_;
  const Spec& spec_;
  std::vector<MegatronBuffer::Part> parts_;
  std::vector<Tensor> copies_, states_, gradients_;
};

}  // namespace llmem
