#include "tensor/autograd.h"

#include <algorithm>

#include "tensor/ops.h"

namespace llmem {

Tensor detach(const Tensor& tensor) {
  Ref<TensorImpl> alias(tensor.device().tensors.make());
  alias->storage = tensor->storage;
  alias->layout = tensor->layout;
  alias->dtype = tensor->dtype;
  return Tensor(std::move(alias));
}

Saved::Saved(const Tensor& tensor) {
  Device& device = tensor.device();
  if (device.stopped) return;
  CheckpointFrame* frame = device.saving_frame.get();
  if (frame && !frame->recomputing()) {
    frame_ = device.saving_frame;
    index_ = frame->number_saved();
    return;
  }
  if (device.offloads_saved && !frame) {
    offload(tensor);
    return;
  }
  // SavedVariable keeps a leaf itself. That shows only where its memory is exchanged while it is saved: `param.data = …`.
  const bool itself = device.module_hooks && !frame && !tensor->grad_fn;
  alias_ = itself ? tensor : detach(tensor);
  device.mark_saved(tensor->storage->allocation);
  if (frame) frame->keep_recomputed(alias_);
}

// torch/autograd/graph.py, save_on_cpu: packed.copy_(tensor) into contiguous memory of the host; a copy on the GPU comes first where the
// tensor is not (aten/src/ATen/native/cuda/Copy.cu, copy_requires_temporaries).
void Saved::offload(const Tensor& tensor) {
  Device& device = tensor.device();
  const Bytes bytes = size_of(tensor.dtype()) * tensor.numel();
  if (!tensor.contiguous()) device.scratch(bytes);
  alias_ = device.unallocated(tensor.sizes(), tensor.dtype());
  index_ = on_host;
}

Saved::~Saved() {
  if (frame_) frame_->forget(index_);
}

Tensor Saved::unpack() const {
  if (index_ == on_host) return alias_.device().empty(alias_.sizes(), alias_.dtype());
  Tensor tensor = frame_ ? frame_->take(index_) : alias_;
  if (tensor) tensor.device().meter.reads(tensor.bytes_read());
  return tensor;
}

void destroy(Node* node) {
  // A graph is as deep as the model is long: its nodes are taken apart one by one, not by recursion.
  std::vector<Edge> pending;
  const auto take_apart = [&](Node& taken) {
    std::move(taken.next.begin(), taken.next.end(), std::back_inserter(pending));
    taken.next.clear();
  };
  take_apart(*node);
  if (node->leaf) node->leaf->weak_accumulator = nullptr;
  node->device.nodes->give_back(node);
  while (!pending.empty()) {
    const Ref<Node> next = std::move(pending.back().node);
    pending.pop_back();
    if (!next || next->references > 1) continue;
    take_apart(*next);
  }
}

bool any_requires_grad(std::initializer_list<const Tensor*> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor* t) { return *t && t->requires_grad(); });
}

namespace {

// torch/csrc/autograd/functions/accumulate_grad.h, accumulateGrad: the first gradient becomes .grad itself when nobody else
// holds it and it lies in memory as the parameter does; later ones are added in place.
void accumulate_grad(TensorImpl& leaf, Tensor gradient) {
  Device& device = leaf.storage->device;
  if (leaf.grad) {
    device.meter.moved(3 * count_of(leaf.layout.sizes) * size_of(leaf.dtype).count);
    return;
  }
  const bool stolen = gradient->references == 1 && gradient.strides() == leaf.layout.strides;
  const Tensor kept = stolen ? detach(gradient) : clone(gradient);
  device.set_category(kept->storage->allocation, Category::gradients);
  leaf.grad = kept.impl();
}

Ref<Node> make_accumulator(const Tensor& tensor) {
  Device& device = tensor.device();
  Ref<Node> node(device.nodes->make(device));
  node->sequence = Node::first_of_all;
  node->op = device.op_named("accumulate_grad");
  node->module = device.module();
  node->outputs.push_back({tensor.sizes(), tensor.dtype()});
  node->keeps_function = true;
  node->backward = [leaf = tensor.get()](Tensors& gradients) {
    accumulate_grad(*leaf, std::move(gradients[0]));
    return Tensors();
  };
  return node;
}

// torch/csrc/autograd/variable.cpp, grad_accumulator: made when the graph first asks for it, and again after the graph is gone.
Ref<Node> accumulator_of_activation(const Tensor& tensor) {
  if (tensor->weak_accumulator) return Ref<Node>(tensor->weak_accumulator);
  Ref<Node> node = make_accumulator(tensor);
  node->leaf = tensor.impl();
  tensor->weak_accumulator = node.get();
  return node;
}

}  // namespace

Edge gradient_edge(const Tensor& tensor) {
  if (!tensor.requires_grad()) return {};
  if (tensor->grad_fn) return {tensor->grad_fn, tensor->output_index};
  return {tensor->accumulator ? tensor->accumulator : accumulator_of_activation(tensor), 0};
}

Recorder::Recorder(const char* op, std::initializer_list<const Tensor*> inputs) {
  device_ = &(*inputs.begin())->device();
  outer_op_ = device_->op();
  device_->set_op(device_->op_named(op));
  if (device_->meter.on) {
    device_->meter.begin_op();
    for (const Tensor* input : inputs)
      if (*input) device_->meter.reads(input->bytes_read());
  }
  if (!device_->grad_enabled || device_->stopped || !any_requires_grad(inputs)) return;
  node_ = Ref<Node>(device_->nodes->make(*device_));
  node_->sequence = device_->next_sequences[static_cast<std::size_t>(device_->thread)]++;
  node_->op = device_->op();
  node_->wrapped = device_->wrapped_tensors;
  node_->module = device_->module();
  for (const Tensor* input : inputs) node_->next.push_back(*input ? gradient_edge(*input) : Edge{});
}

Recorder::~Recorder() { device_->set_op(outer_op_); }

void Recorder::attach(const Tensor& result) {
  if (!node_) return;
  result->grad_fn = node_;
  result->output_index = static_cast<int>(node_->outputs.size());
  node_->outputs.push_back({result.sizes(), result.dtype()});
}

void Recorder::backward(BackwardFunction function) {
  if (node_) node_->backward = std::move(function);
}

void Recorder::keep(std::shared_ptr<const void> attributes) {
  if (node_) node_->attributes = std::move(attributes);
}

void require_grad(const Tensor& tensor) {
  tensor->requires_grad = true;
  tensor->accumulator = make_accumulator(tensor);
}

namespace {

// torch/csrc/autograd/input_buffer.cpp, accumulate: into the old gradient only where nothing else can see it.
void add_gradient(Tensor& held, Tensor gradient, bool wrapped) {
  if (!held) {
    held = std::move(gradient);
    return;
  }
  const bool in_place = !wrapped && held->references == 1 && held->storage->references == 1 && is_non_overlapping_and_dense(held.layout());
  if (!in_place)
    held = add(held, gradient);
  else
    held.device().meter.moved(3 * held.bytes_read());
}

// torch/csrc/autograd/engine.cpp, validate_outputs: summed over what had been broadcast, cast to what the forward had.
void validate(const Node& node, Tensors& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Edge& edge = node.next[i];
    if (!edge.node || !outputs[i]) continue;
    const Node::Output& wanted = edge.node->outputs[static_cast<std::size_t>(edge.input)];
    if (!(outputs[i].sizes() == wanted.sizes)) outputs[i] = sum_to(outputs[i], wanted.sizes);
    if (outputs[i].dtype() != wanted.dtype) outputs[i] = to(outputs[i], wanted.dtype);
  }
}

class Engine {
 public:
  Engine(Device& device, std::uint64_t pass) : device_(device), pass_(pass) {}

  void run(const Tensor& root, Tensor gradient) {
    count_dependencies(root->grad_fn.get());
    root->grad_fn->gradients.resize(root->grad_fn->outputs.size());
    root->grad_fn->gradients[static_cast<std::size_t>(root->output_index)] = std::move(gradient);
    push(root->grad_fn.get());
    while (!ready_.empty()) evaluate(*pop());
  }

 private:
  void count_dependencies(Node* root) {
    std::vector<Node*> pending{root};
    visit(*root);
    while (!pending.empty()) {
      const Node* node = pending.back();
      pending.pop_back();
      for (const Edge& edge : node->next) {
        if (!edge.node) continue;
        if (visit(*edge.node)) pending.push_back(edge.node.get());
        ++edge.node->dependencies;
      }
    }
  }

  bool visit(Node& node) {
    if (node.pass == pass_) return false;
    node.pass = pass_;
    node.dependencies = 0;
    return true;
  }

  struct Ready {
    Node* node;
    std::uint64_t order;
    bool operator<(const Ready& other) const {
      if (node->sequence != other.node->sequence) return node->sequence < other.node->sequence;
      return order > other.order;
    }
  };

  void push(Node* node) {
    ready_.push_back({node, pushed_++});
    std::push_heap(ready_.begin(), ready_.end());
  }

  Node* pop() {
    std::pop_heap(ready_.begin(), ready_.end());
    Node* node = ready_.back().node;
    ready_.pop_back();
    return node;
  }

  void evaluate(Node& node) {
    device_.set_module(node.module);
    device_.set_op(node.op);
    if (node.pre_hook) node.pre_hook();
    Tensors outputs;
    {
      Tensors inputs = std::move(node.gradients);
      device_.meter.begin_op();
      for (const Tensor& input : inputs)
        if (input) device_.meter.reads(input.bytes_read());
      node.gradients.clear();
      outputs = node.backward(inputs);
      validate(node, outputs);
    }
    if (node.post_hook) node.post_hook();
    if (!node.keeps_function) node.backward = nullptr;
    for (std::size_t i = 0; i < outputs.size(); ++i) send(node.next[i], std::move(outputs[i]));
  }

  void send(const Edge& edge, Tensor gradient) {
    if (!edge.node) return;
    Node& next = *edge.node;
    if (next.gradients.empty()) next.gradients.resize(next.outputs.size());
    if (gradient) add_gradient(next.gradients[static_cast<std::size_t>(edge.input)], std::move(gradient), next.wrapped);
    if (--next.dependencies == 0) push(&next);
  }

  Device& device_;
  std::uint64_t pass_;
  std::uint64_t pushed_ = 0;
  std::vector<Ready> ready_;
};

}  // namespace

void backward(const Tensor& loss, const std::vector<std::function<void()>>& callbacks) {
  backward_from(loss, loss.device().empty(loss.sizes(), loss.dtype()), callbacks);
}

void backward_from(const Tensor& output, const Tensor& gradient, const std::vector<std::function<void()>>& callbacks) {
  Device& device = output.device();
  {
    const With thread(device.thread, Thread::autograd);
    const With grad(device.grad_enabled, false);
    Engine(device, ++device.backward_passes).run(output, gradient);
    for (const auto& callback : callbacks) callback();
  }
  device.set_module(0);
  device.set_op(0);
}

void nested_backward(const Tensor& output, const Tensor& gradient) {
  Device& device = output.device();
  const With grad(device.grad_enabled, false);
  Engine(device, ++device.backward_passes).run(output, gradient);
}

}  // namespace llmem
