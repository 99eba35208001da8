#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/linear.h"
#include "model/norms.h"

namespace llmem {

struct NamedLinear {
  std::string name;
  Linear linear;
};

// A model's tensors by name, once they are made.
class ModelTensors {
 public:
  void add(const std::string& name, const Tensor& tensor) { by_name_.emplace(name, tensor); }

  // None where there is none of that name.
  Tensor find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? Tensor() : found->second;
  }
  Linear linear(const std::string& name, Linear::Kind kind = Linear::plain) const {
    Linear made{find(name + ".weight"), find(name + ".bias")};
    made.kind = kind;
    if (made.weight) linears.push_back({name, made});
    return made;
  }
  Norm norm(const std::string& name, NormKind kind) const { return {true, kind, find(name + ".weight"), find(name + ".bias")}; }

  mutable std::vector<NamedLinear> linears;  // in the order in which they were asked for

 private:
  std::unordered_map<std::string, Tensor> by_name_;
};

// A Linear or a norm under the name by which its parent calls it: the trace says whose forward runs.
struct DenseModule {
  std::string name;
  Linear linear;
  bool present() const { return static_cast<bool>(linear.weight); }
  Tensor operator()(const Tensor& input) const;
};
struct NormModule {
  std::string name;
  Norm norm;
  Tensor operator()(const Tensor& input) const;
};

// What Module (model/declaration.h) declared, made: a module's members by their names.
class MadeModule {
 public:
  MadeModule(const ModelTensors& tensors, std::string name) : tensors_(tensors), name_(std::move(name)) {}

  MadeModule child(std::string_view name) const { return {tensors_, path(name)}; }
  MadeModule child(std::string_view name, std::int64_t index) const { return child(std::string(name) + "." + std::to_string(index)); }
  Tensor tensor(std::string_view name) const { return tensors_.find(path(name)); }
  DenseModule dense(std::string_view name, Linear::Kind kind = Linear::plain) const {
    return {std::string(name), tensors_.linear(path(name), kind)};
  }
  NormModule norm(std::string_view name, NormKind kind = NormKind::layer) const {
    return {std::string(name), tensors_.norm(path(name), kind)};
  }

  const ModelTensors& tensors() const { return tensors_; }
  std::string path(std::string_view name) const { return name_.empty() ? std::string(name) : name_ + "." + std::string(name); }

 private:
  const ModelTensors& tensors_;
  std::string name_;
};

}  // namespace llmem
