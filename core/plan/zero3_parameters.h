#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "spec/spec.h"
#include "tensor/module_hooks.h"

// DeepSpeed's ZeRO-3: parameters of which each rank holds a part, gathered around the modules that own them.
namespace llmem {

// runtime/zero/partition_parameters.py
struct PartitionedParameter {
  enum class Status : std::uint8_t { away, coming, here };
  struct Gather;

  std::string name;
  Tensor tensor;  // the model's: over memory only while gathered
  std::int64_t id = 0, numel = 0, part = 0;
  bool trains = true, persists = false, on_host = false;
  Status status = Status::away;
  std::vector<std::uint64_t> users;  // modules that are running
  std::shared_ptr<Gather> gather;    // that it is on its way with
  Tensor partition;                  // this rank's part; none: in the host's memory, or in a flat tensor

  Bytes part_bytes() const { return size_of(tensor.dtype()) * part; }
};

// One all-gather of several parameters, a flat tensor a dtype.
struct PartitionedParameter::Gather {
  std::vector<PartitionedParameter*> parameters;
  std::vector<Tensor> flat;
  bool complete = false;
};

struct ZeroSizes {
  std::int64_t prefetch_bucket = 0, max_live = 0, max_reuse_distance = 0;
};

// runtime/zero/partitioned_param_coordinator.py and parameter_offload.py: who is gathered and given back when. The first forward and
// backward are written down; from the second on what comes next is known, and is gathered ahead.
class ParameterCoordinator : public ModuleHooks {
 public:
  ParameterCoordinator(Device& device, ZeroSizes sizes, std::int64_t ranks, int wrappers, bool overlap_comm);

  PartitionedParameter& add(std::string name, const Tensor& tensor, bool trains);
  const std::vector<std::unique_ptr<PartitionedParameter>>& parameters() const { return parameters_; }

  void begin_forward();            // reset_step
  void backward_is_over();         // release_backward_leftovers
  void release_all();              // release_and_reset_all
  void gather_and_release_each();  // as gradient hooks are hung on
  void gather_persistent();

  void enter(std::uint64_t module, std::initializer_list<const Tensor*> parameters, Tensor& input) override;
  void leave(std::uint64_t module, Tensor& output) override;
  void look(std::uint64_t module, const Tensor& parameter) override;
  bool of_zero3() const override { return true; }

 private:
  using Parameters = std::vector<PartitionedParameter*>;
  struct Module {
    std::uint64_t key = 0;
    Parameters parameters, recomputed;
  };
  struct Use {
    PartitionedParameter* parameter;
    std::int64_t step;
  };
  enum class Trace : std::uint8_t { none, recording, complete };

  Module& module_of(std::uint64_t key, std::initializer_list<const Tensor*> parameters);
  void before_forward(Module& module);
  void before_backward(Module& module);
  void after_backward(Module& module);
  void follow_trace(Module& module);
  void fetch(Module& module, bool forward);
  void prefetch(const Module& module);
  void gather(Parameters wanted);
  void gather_one(PartitionedParameter& parameter);
  void gather_several(Parameters parameters);
  void wait(PartitionedParameter& parameter);
  void release(PartitionedParameter& parameter);
  void release_module(Module& module, bool forward);
  Parameters to_release(const Module& module) const;
  void verify_same_on_all_ranks(std::size_t integers);
  Tensor buffer(std::int64_t numel, Dtype dtype) const;
  void give_memory(PartitionedParameter& parameter, const Tensor& memory) const;

  Device& device_;
  ZeroSizes sizes_;
  std::int64_t ranks_;
  int wrappers_;                // modules around the model that are called before it
  std::uint8_t gather_stream_;  // its own with overlap_comm
  Ref<Storage> nothing_;
  std::vector<std::unique_ptr<PartitionedParameter>> parameters_;
  std::unordered_map<const TensorImpl*, PartitionedParameter*> by_tensor_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Module>> modules_;
  Trace trace_ = Trace::none;
  std::vector<Module*> order_;
  std::vector<Use> uses_;
  std::deque<Use> queue_;
  std::unordered_map<const PartitionedParameter*, std::int64_t> latest_use_;
  Parameters in_flight_;
  std::vector<Module*> in_backward_;
  std::int64_t step_ = 0, available_ = 0;
};

}  // namespace llmem
