#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "tensor/closure.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

// The autograd graph and its engine (torch/csrc/autograd), as far as memory can tell.
namespace llmem {

// A tensor kept for backward (torch/csrc/autograd/saved_variable.cpp). Under checkpointing it keeps only its number in the
// frame that will compute it again.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& tensor);
  Saved(Saved&& other) noexcept = default;
  Saved& operator=(Saved&& other) noexcept = default;
  ~Saved();
  explicit operator bool() const { return static_cast<bool>(alias_) || frame_; }
  Tensor unpack() const;

 private:
  [[gnu::cold]] void offload(const Tensor& tensor);

  static constexpr int on_host = -1;
  Tensor alias_;  // shares the memory, not the place in the graph; on the host: has none
  Ref<CheckpointFrame> frame_;
  int index_ = 0;
};

// The same memory under a new tensor without history (Tensor.detach(), tensor_data()).
Tensor detach(const Tensor& tensor);
// The same under another layout: a view, which keeps its base alive, also outside the graph.
Tensor alias(const Tensor& self, const Layout& layout);

struct Edge {
  Ref<Node> node;
  int input = 0;
};

// From the gradients of an op's outputs to those of its inputs, one an edge; an undefined tensor is no gradient.
using BackwardFunction = Closure<Tensors(Tensors& gradients)>;

struct Node {
  explicit Node(Device& owner) : device(owner) {}
  static constexpr std::uint64_t first_of_all = std::numeric_limits<std::uint64_t>::max();

  Device& device;
  int references = 0;
  std::uint64_t sequence = 0;  // later nodes run first
  std::uint16_t op = 0;
  std::uint32_t module = 0;
  Few<Edge, 3> next;
  struct Output {  // what the forward op made: gradients are brought to its shape and dtype
    Dims sizes;
    Dtype dtype = Dtype::float32;
  };
  Few<Output, 1> outputs;
  BackwardFunction backward;               // holds what was saved; dropped as soon as it ran
  Closure<void()> pre_hook;                // before backward, with the gradients in hand
  Closure<void()> post_hook;               // after an AccumulateGrad
  bool keeps_function = false;             // AccumulateGrad serves every step
  Ref<TensorImpl> leaf;                    // of the AccumulateGrad of an activation: the graph keeps it and its .grad
  std::shared_ptr<const void> attributes;  // of a torch.autograd.Function's ctx, beside what it saved: they live as long as the node
  bool wrapped = false;                    // its gradients are DTensors, which are never added in place (InputBuffer::accumulate)

  // Of the pass in progress.
  std::uint64_t pass = 0;
  enum Role : std::uint8_t { executed, target, skipped } role = executed;  // in a pass to certain targets
  Tensors* captured = nullptr;                                             // where the gradients that it gets are kept, too
  int dependencies = 0;
  Tensors gradients;
};
void destroy(Node* node);

// Whether an op over these inputs goes on the graph.
bool any_requires_grad(std::initializer_list<const Tensor*> inputs);

// Puts an op on the graph while it computes. Usage, in the order in which PyTorch's generated code does things
// (torch/csrc/autograd/generated/VariableType_*.cpp): construct; save inputs; compute; save outputs; attach.
class Recorder {
 public:
  Recorder(const char* op, std::initializer_list<const Tensor*> inputs);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  bool recording() const { return static_cast<bool>(node_); }
  // Whether input i will want a gradient.
  bool needs(int i) const { return node_ && node_->next[static_cast<std::size_t>(i)].node; }
  Saved save_if(bool needed, const Tensor& tensor) const { return needed ? Saved(tensor) : Saved(); }
  // Makes `result` an output of the op. Call it in the order of the outputs.
  void attach(const Tensor& result);
  void backward(BackwardFunction function);
  // Sets attributes of a torch.autograd.Function's ctx.
  void keep(std::shared_ptr<const void> attributes);

 private:
  Device* device_ = nullptr;
  std::uint16_t outer_op_ = 0;
  Ref<Node> node_;
};

Edge gradient_edge(const Tensor& tensor);

// A parameter: a leaf that wants a gradient.
void require_grad(const Tensor& tensor);
// tensor.requires_grad_() of an activation without history: its gradient lives as long as the graph over it.
inline void require_grad_of_activation(const Tensor& tensor) { tensor->requires_grad = true; }

// loss.backward(). `callbacks` run once the graph is through, as those that modules queue while backward runs
// (Variable._execution_engine.queue_callback).
void backward(const Tensor& loss, const std::vector<std::function<void()>>& callbacks = {});
// torch.autograd.backward(output, gradient) from within a backward function: a pass of its own in the same thread.
void nested_backward(const Tensor& output, const Tensor& gradient);

// torch.autograd.backward(output, gradient)
void backward_from(const Tensor& output, const Tensor& gradient, const std::vector<std::function<void()>>& callbacks = {});

// The gradient of a stage's input first, those of its parameters later (torch/distributed/pipelining/_backward.py).
class SplitBackward {
 public:
  SplitBackward() = default;
  // stage_backward_input: adds to the input's .grad and keeps the graph, with the gradients that the parameters' will be made of.
  SplitBackward(const Tensor& output, const Tensor& gradient, const Tensor& input, const std::vector<Tensor>& parameters,
                const std::vector<std::function<void()>>& callbacks);
  // stage_backward_weight
  void run();

 private:
  // Parameters whose gradients begin at the same nodes, which are those on the way to the input.
  struct Group {
    std::vector<Tensor> parameters;
    std::vector<Ref<Node>> nodes;
    std::vector<Tensors> gradients;
  };
  std::vector<Group> groups_;
};

// `with torch.autocast("cuda", dtype)`: casts of weights are kept until the outermost region ends.
class AutocastRegion {
 public:
  AutocastRegion(Device& device, std::optional<Dtype> dtype) : device_(device), mode_(device.autocast, dtype) {
    outermost_ = !device_.inside_autocast;
    device_.inside_autocast = true;
  }
  ~AutocastRegion() {
    if (!outermost_) return;
    device_.inside_autocast = false;
    device_.autocast_cache.clear();
  }
  AutocastRegion(const AutocastRegion&) = delete;
  AutocastRegion& operator=(const AutocastRegion&) = delete;

 private:
  Device& device_;
  With<std::optional<Dtype>> mode_;
  bool outermost_ = false;
};

}  // namespace llmem
