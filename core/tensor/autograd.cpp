#include "tensor/autograd.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tensor/module_hooks.h"
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
  const bool itself = device.module_hooks && device.module_hooks->of_zero3() && !frame && !tensor->grad_fn;
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
  // DTensors of two placements: the whole is cut to this rank's part before the sum (torch/distributed/tensor/_redistribute.py).
  if (wrapped && held.numel() < gradient.numel()) {
    const Tensor part = held.device().empty(held.sizes(), gradient.dtype());
    held = add(held, part);
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
    if (edge.node->wrapped && edge.node->keeps_function) continue;  // a parameter split over ranks, of which whole gradients come, too
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

  // torch.autograd.grad: only what is on a way from the roots to the targets runs. Gives the gradients that arrive there.
  struct Root {
    Node* node;
    Tensors gradients;
  };
  std::vector<Tensor> run_to(std::vector<Root> roots, const std::vector<Node*>& targets, bool keeps_graph) {
    keeps_graph_ = keeps_graph;
    restricted_ = true;
    for (Node* each : targets) {
      visit(*each);
      each->role = Node::target;
    }
    for (Root& root : roots) find_way(root.node);
    for (Root& root : roots) {
      root.node->gradients = std::move(root.gradients);
      root.node->role = Node::executed;
      if (root.node->dependencies == 0) push(root.node);
    }
    while (!ready_.empty()) evaluate(*pop());
    std::vector<Tensor> arrived;
    for (Node* each : targets) {
      arrived.push_back(each->gradients.empty() ? Tensor() : std::move(each->gradients[0]));
      each->gradients.clear();
      each->role = Node::executed;
    }
    return arrived;
  }

 private:
  // Marks what is on a way to a target, and counts on how many gradients each such node waits.
  void find_way(Node* root) {
    struct Step {
      Node* node;
      std::size_t edge = 0;
    };
    if (!visit(*root)) return;
    root->role = Node::skipped;
    std::vector<Step> path{{root}};
    while (!path.empty()) {
      Step& step = path.back();
      if (step.edge < step.node->next.size()) {
        Node* next = step.node->next[step.edge++].node.get();
        if (!next) continue;
        if (visit(*next)) {
          next->role = Node::skipped;
          path.push_back({next});
        }
        continue;
      }
      Node& node = *step.node;
      for (const Edge& edge : node.next) {
        if (!edge.node || edge.node->role == Node::skipped) continue;
        node.role = Node::executed;
        ++edge.node->dependencies;
      }
      path.pop_back();
    }
  }

  std::uint32_t unwanted_of(const Node& node) const {
    std::uint32_t unwanted = 0;
    for (std::size_t i = 0; restricted_ && i < node.next.size(); ++i)
      if (node.next[i].node && node.next[i].node->role == Node::skipped) unwanted |= 1u << i;
    return unwanted;
  }

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
    node.role = Node::executed;
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
    if (node.role == Node::target) return;
    if (node.pre_hook) node.pre_hook();
    if (node.captured) *node.captured = node.gradients;
    device_.unwanted_gradients = unwanted_of(node);
    Tensors outputs;
    {
      Tensors inputs = std::move(node.gradients);
      device_.meter.begin_op();
      for (const Tensor& input : inputs)
        if (input) device_.meter.reads(input.bytes_read());
      node.gradients.clear();
      // What got no gradient gives none (the generated code asks whether any is defined).
      const bool any = std::any_of(inputs.begin(), inputs.end(), [](const Tensor& input) { return static_cast<bool>(input); });
      outputs = any ? node.backward(inputs) : Tensors(node.next.size());
      validate(node, outputs);
    }
    device_.unwanted_gradients = 0;
    if (node.post_hook) node.post_hook();
    if (!node.keeps_function && !keeps_graph_) node.backward = nullptr;
    for (std::size_t i = 0; i < outputs.size(); ++i) send(node.next[i], std::move(outputs[i]));
  }

  void send(const Edge& edge, Tensor gradient) {
    if (!edge.node) return;
    Node& next = *edge.node;
    if (next.role == Node::skipped) return;
    if (next.gradients.empty()) next.gradients.resize(next.outputs.size());
    if (gradient) add_gradient(next.gradients[static_cast<std::size_t>(edge.input)], std::move(gradient), next.wrapped);
    if (--next.dependencies == 0) push(&next);
  }

  Device& device_;
  std::uint64_t pass_;
  std::uint64_t pushed_ = 0;
  bool restricted_ = false, keeps_graph_ = false;
  std::vector<Ready> ready_;
};

using NodeSet = std::unordered_set<const Node*>;
using Reversed = std::unordered_map<const Node*, std::vector<Node*>>;

// construct_reverse_graph
Reversed reversed_graph(Node* root) {
  Reversed reversed;
  std::vector<Node*> pending{root};
  for (std::size_t i = 0; i < pending.size(); ++i) {
    for (const Edge& edge : pending[i]->next) {
      if (!edge.node) continue;
      std::vector<Node*>& parents = reversed[edge.node.get()];
      if (parents.empty()) pending.push_back(edge.node.get());
      parents.push_back(pending[i]);
    }
  }
  return reversed;
}

// reverse_closure: all from which `root` can be reached, as far as the first of `border` each way, which are given in `met`.
NodeSet reverse_closure(const Node* root, const NodeSet& border, const Reversed& reversed, std::vector<Node*>& met) {
  NodeSet closure{root};
  std::vector<const Node*> pending{root};
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const auto parents = reversed.find(pending[i]);
    if (parents == reversed.end()) continue;
    for (Node* parent : parents->second) {
      if (border.count(parent) > 0) {
        if (std::find(met.begin(), met.end(), parent) == met.end()) met.push_back(parent);
      } else if (closure.insert(parent).second) {
        pending.push_back(parent);
      }
    }
  }
  return closure;
}

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

SplitBackward::SplitBackward(const Tensor& output, const Tensor& gradient, const Tensor& input, const std::vector<Tensor>& parameters,
                             const std::vector<std::function<void()>>& callbacks) {
  Device& device = output.device();
  Node* root = output->grad_fn.get();
  const Ref<Node> target = gradient_edge(input).node;
  const Reversed reversed = reversed_graph(root);
  std::vector<Node*> none;
  const NodeSet on_the_way = reverse_closure(target.get(), {}, reversed, none);
  for (const Tensor& parameter : parameters) {
    std::vector<Node*> met;
    reverse_closure(parameter->accumulator.get(), on_the_way, reversed, met);
    if (met.empty()) continue;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& each) {
      return std::any_of(each.nodes.begin(), each.nodes.end(), [&](const Ref<Node>& node) { return node.get() == met.front(); });
    });
    if (group == groups_.end()) group = groups_.insert(group, Group());
    group->parameters.push_back(parameter);
    for (Node* node : met)
      if (std::none_of(group->nodes.begin(), group->nodes.end(), [&](const Ref<Node>& each) { return each.get() == node; }))
        group->nodes.emplace_back(node);
  }
  for (Group& group : groups_) {
    group.gradients.resize(group.nodes.size());
    for (std::size_t i = 0; i < group.nodes.size(); ++i) group.nodes[i]->captured = &group.gradients[i];
  }
  {
    const With thread(device.thread, Thread::autograd);
    const With grad(device.grad_enabled, false);
    Tensors gradients(output->grad_fn->outputs.size());
    gradients[static_cast<std::size_t>(output->output_index)] = gradient;
    Engine engine(device, ++device.backward_passes);
    std::vector<Engine::Root> roots;
    roots.push_back({root, std::move(gradients)});
    const std::vector<Tensor> arrived = engine.run_to(std::move(roots), {target.get()}, true);
    for (const auto& callback : callbacks) callback();
    input->grad = arrived[0].impl();
  }
  for (Group& group : groups_)
    for (const Ref<Node>& node : group.nodes) node->captured = nullptr;
  output->grad_fn.reset();
  device.set_module(0);
  device.set_op(0);
}

void SplitBackward::run() {
  std::vector<Tensor> made;  // dweights, a local of the function
  for (Group& group : groups_) {
    Device& device = group.parameters.front().device();
    std::vector<Engine::Root> roots;
    for (std::size_t i = 0; i < group.nodes.size(); ++i) roots.push_back({group.nodes[i].get(), group.gradients[i]});
    const std::vector<Ref<Node>> nodes = std::exchange(group.nodes, {});
    std::vector<Node*> targets;
    for (const Tensor& parameter : group.parameters) targets.push_back(parameter->accumulator.get());
    {
      const With thread(device.thread, Thread::autograd);
      const With grad(device.grad_enabled, false);
      made = Engine(device, ++device.backward_passes).run_to(std::move(roots), targets, false);
    }
    group.gradients.clear();
    for (std::size_t i = 0; i < made.size(); ++i) {
      const Tensor& parameter = group.parameters[i];
      if (!made[i] || parameter->grad) continue;  // added in place
      device.set_category(made[i]->storage->allocation, Category::gradients);
      parameter->grad = made[i].impl();
    }
    device.set_module(0);
    device.set_op(0);
  }
  groups_.clear();
}

}  // namespace llmem
