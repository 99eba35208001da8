#include "model/declaration.h"

#include <algorithm>

namespace llmem {

std::string Module::path(std::string_view name) const {
  if (name_.empty()) return std::string(name);
  if (name.empty()) return name_;
  std::string whole = name_;
  whole += '.';
  whole += name;
  return whole;
}

void Module::parameter(std::string_view name, Shape shape, std::optional<Dtype> dtype) const {
  tensors_.push_back({path(name), shape, Parameter::Kind::parameter, dtype});
}

void Module::frozen(std::string_view name, Shape shape) const {
  tensors_.push_back({path(name), shape, Parameter::Kind::frozen, Dtype::float32});
}

void Module::buffer(std::string_view name, Shape shape, std::optional<Dtype> dtype) const {
  tensors_.push_back({path(name), shape, Parameter::Kind::buffer, dtype});
}

void Module::embedding(std::string_view name, std::int64_t words, std::int64_t features) const {
  child(name).parameter("weight", {words, features});
}

void Module::linear(std::string_view name, std::int64_t in, std::int64_t out, bool bias) const {
  const Module linear = child(name);
  linear.parameter("weight", {out, in});
  tensors_.back().of_linear = true;
  if (bias) linear.parameter("bias", {out});
}

void Module::conv1d_of_gpt2(std::string_view name, std::int64_t in, std::int64_t out) const {
  const Module conv = child(name);
  conv.parameter("weight", {in, out});
  tensors_.back().of_linear = true;  // PEFT adapts it like one
  conv.parameter("bias", {out});
}

void Module::norm(std::string_view name, std::int64_t features, bool bias) const {
  const Module norm = child(name);
  norm.parameter("weight", {features});
  if (bias) norm.parameter("bias", {features});
}

namespace {

// Walks the tree of modules that dotted names make. A module's tensors lie side by side, whatever their order.
class Tree {
 public:
  Tree(const std::vector<Parameter>& tensors, bool children_first) : tensors_(tensors), children_first_(children_first) {}

  // The tensors begin … end share the first `depth` characters of their names.
  void walk(std::size_t begin, std::size_t end, std::size_t depth) {
    if (!children_first_) own(begin, end, depth);
    for (std::size_t i = begin; i < end;) {
      const std::string_view child = child_of(i, depth);
      std::size_t after = i + 1;
      if (!child.empty()) {
        while (after < end && child_of(after, depth) == child) ++after;
        walk(i, after, depth + child.size());
      }
      i = after;
    }
    if (children_first_) own(begin, end, depth);
  }

  std::vector<std::size_t> order;

 private:
  // "layers." of "model.layers.0.weight" after "model.", "" of a tensor of the module's own.
  std::string_view child_of(std::size_t i, std::size_t depth) const {
    const std::string_view rest = std::string_view(tensors_[i].name).substr(depth);
    return rest.substr(0, rest.find('.') + 1);
  }

  void own(std::size_t begin, std::size_t end, std::size_t depth) {
    for (const bool buffers : {false, true})
      for (std::size_t i = begin; i < end; ++i)
        if ((tensors_[i].kind == Parameter::Kind::buffer) == buffers && child_of(i, depth).empty()) order.push_back(i);
  }

  const std::vector<Parameter>& tensors_;
  bool children_first_;
};

}  // namespace

std::vector<Parameter> in_order_of_parameters(std::vector<Parameter> declared) {
  Tree tree(declared, false);
  tree.walk(0, declared.size(), 0);
  std::vector<Parameter> ordered;
  ordered.reserve(declared.size());
  for (const std::size_t i : tree.order) ordered.push_back(std::move(declared[i]));
  return ordered;
}

std::vector<std::size_t> in_order_of_moving(const std::vector<Parameter>& tensors) {
  Tree tree(tensors, true);
  tree.walk(0, tensors.size(), 0);
  return std::move(tree.order);
}

}  // namespace llmem
