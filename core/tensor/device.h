#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "tensor/checkpoint.h"
#include "tensor/meter.h"
#include "tensor/pool.h"
#include "tensor/streams.h"
#include "tensor/tensor.h"
#include "trace/trace.h"

namespace llmem {

struct Node;
class ModuleHooks;

// What kernels read of a GPU to size their scratch.
struct GpuKind {
  int compute_capability = 80;  // major * 10 + minor
  int sms = 108;

  // CUDA programming guide, table "Technical specifications per compute capability".
  int threads_per_sm() const {
    if (compute_capability == 75) return 1024;
    const bool reduced = compute_capability == 86 || compute_capability == 87 || compute_capability == 89 || compute_capability >= 120;
    return reduced ? 1536 : 2048;
  }
};

// Autograd runs backward in a thread of its own, with its own cuBLAS handle.
enum class Thread : std::uint8_t { main, autograd };

// One GPU as PyTorch sees it: writes down every request to the allocator, with what asked for it, and carries the modes that a
// PyTorch process has (grad mode, autocast, saved-tensor hooks).
class Device {
 public:
  Device(GpuKind gpu, Trace& trace);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const GpuKind& gpu() const { return gpu_; }

  // A fresh uninitialised tensor (torch.empty). Shapes in elements.
  Tensor empty(const Dims& sizes, Dtype dtype);
  Tensor empty_strided(const Layout& layout, Dtype dtype);
  // A tensor without memory yet; see Storage::allocate.
  Tensor unallocated(const Dims& sizes, Dtype dtype);
  // Memory that a kernel asks for and gives back before it returns.
  void scratch(Bytes bytes);

  // `shape`: index into Trace::shapes.
  std::int32_t record_allocation(Bytes bytes, std::uint32_t shape = 0);
  void record_free(std::int32_t allocation);
  void set_category(std::int32_t allocation, Category category);
  // What backward needs is no longer a temporary: it counts for the module that made it.
  void mark_saved(std::int32_t allocation);

  // cuBLAS asks for its workspace at the first GEMM of each thread and keeps it
  // (aten/src/ATen/cuda/CublasHandlePool.cpp, getCUDABlasLtWorkspace / parseChosenWorkspaceSize).
  void use_cublas();

  void point(std::string at);
  void begin_step();
  void empty_cache();  // torch.cuda.empty_cache()
  void begin_phase(std::string name);

  std::uint32_t enter_module(std::string_view name, std::optional<Category> activations);
  void set_module(std::uint32_t module) { module_ = module; }
  std::uint32_t module() const { return module_; }
  Category activations() const { return modules_[module_].activations; }
  std::uint16_t op_named(const char* literal);
  void set_op(std::uint16_t op) { op_ = op; }
  std::uint16_t op() const { return op_; }

  // Autocast's cache of weights cast once per region (aten/src/ATen/autocast_mode.cpp, cached_cast).
  struct CachedCast {
    TensorImpl* original;
    Tensor cast;
  };

  Meter meter;      // what the step costs in time
  Streams streams;  // which waits for which

  Pool<Storage> storages;
  Pool<TensorImpl> tensors;
  const std::unique_ptr<Pool<Node>> nodes;  // behind a pointer: a node is known only to autograd.h

  bool grad_enabled = true;
  std::optional<Dtype> autocast;
  std::vector<CachedCast> autocast_cache;
  bool inside_autocast = false;
  bool training = true;                        // modules' mode: train() or eval()
  bool always_large_cublas_workspace = false;  // CUBLAS_WORKSPACE_CONFIG=:4096:8, which deterministic runs set
  bool wrapped_tensors = false;                // ops run on DTensors
  ModuleHooks* module_hooks = nullptr;
  Thread thread = Thread::main;
  std::uint8_t stream = 0;
  Ref<CheckpointFrame> saving_frame;     // whose hooks see what is saved; null: tensors are kept as they are
  bool offloads_saved = false;           // inside torch.autograd.graph.save_on_cpu: what is saved goes to the host and comes back as a copy
  bool stopped = false;                  // a recomputation that has all it came for: nothing more is computed
  std::uint64_t next_sequences[2] = {};  // of the next autograd node, by thread
  std::uint64_t backward_passes = 0;
  // Of the node whose backward runs: whether anybody asks for the gradient of its input i (task_should_compute_output).
  bool wants_gradient(int i) const { return (unwanted_gradients >> i & 1) == 0; }
  std::uint32_t unwanted_gradients = 0;  // a bit each

  // Hands the names over to the trace. Call once, when the run is over.
  void finish();

 private:
  struct Module {
    std::uint32_t parent;
    std::string name;
    Category activations;
    struct Child {
      std::size_t hash;  // of its name
      std::uint32_t module;
    };
    std::vector<Child> children;
    std::size_t next_child = 0;  // where the search for a child begins: layers come in order
  };
  std::string path_of(std::uint32_t module) const;
  std::uint32_t numbered(const Dims& sizes, Dtype dtype);  // the shape's index in the trace

  GpuKind gpu_;
  Trace& trace_;
  std::vector<Module> modules_;
  std::uint32_t module_ = 0;
  std::uint16_t op_ = 0;
  std::vector<std::pair<const char*, std::uint16_t>> ops_;  // by address: a name is one literal of the program
  std::map<std::pair<Dtype, std::vector<std::int64_t>>, std::uint32_t> shapes_;
  std::vector<Tensor> cublas_workspaces_;
};

// The module whose forward is running, for the trace: entered on construction, left at the end of the block.
class ModuleScope {
 public:
  ModuleScope(Device& device, std::string_view name, std::optional<Category> activations = std::nullopt)
      : device_(device), outer_(device.module()) {
    device.set_module(device.enter_module(name, activations));
  }
  ~ModuleScope() { device_.set_module(outer_); }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  Device& device_;
  std::uint32_t outer_;
};

// What is being computed, for the trace, where no op of the graph says so.
class OpScope {
 public:
  OpScope(Device& device, const char* name) : device_(device), outer_(device.op()) { device.set_op(device.op_named(name)); }
  ~OpScope() { device_.set_op(outer_); }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  Device& device_;
  std::uint16_t outer_;
};

// Sets a mode of the device for a block: `With mode(device.grad_enabled, false);` reads as `with torch.no_grad():`.
template <class T>
class With {
 public:
  With(T& mode, T value) : mode_(mode), before_(mode) { mode_ = value; }
  ~With() { mode_ = before_; }
  With(const With&) = delete;
  With& operator=(const With&) = delete;

 private:
  T& mode_;
  T before_;
};

}  // namespace llmem
