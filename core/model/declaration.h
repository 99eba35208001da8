#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"

namespace llmem {

// A module while its __init__ runs: what it registers is written down by name and shape.
class Module {
 public:
  using Shape = std::initializer_list<std::int64_t>;

  Module(std::vector<Parameter>& tensors, std::string name) : tensors_(tensors), name_(std::move(name)) {}

  Module child(std::string_view name) const { return {tensors_, path(name)}; }
  Module child(std::string_view name, std::int64_t index) const { return child(std::string(name) + "." + std::to_string(index)); }

  void parameter(std::string_view name, Shape shape, std::optional<Dtype> dtype = std::nullopt) const;
  void frozen(std::string_view name, Shape shape) const;  // fp32, without gradient
  void buffer(std::string_view name, Shape shape, std::optional<Dtype> dtype = Dtype::float32) const;

  void embedding(std::string_view name, std::int64_t words, std::int64_t features) const;          // nn.Embedding
  void linear(std::string_view name, std::int64_t in, std::int64_t out, bool bias = false) const;  // nn.Linear
  void conv1d_of_gpt2(std::string_view name, std::int64_t in, std::int64_t out) const;  // transformers Conv1D: [in, out], with a bias
  void norm(std::string_view name, std::int64_t features, bool bias = false) const;     // a weight and maybe a bias

 private:
  std::string path(std::string_view name) const;

  std::vector<Parameter>& tensors_;
  std::string name_;
};

// `declared` in the order of named_parameters(): a module's own tensors before its children's.
std::vector<Parameter> in_order_of_parameters(std::vector<Parameter> declared);

// The order in which Module._apply moves tensors to a device: a module's children first, then its own, buffers last.
// Indices into `tensors`, which must be in the order of named_parameters().
std::vector<std::size_t> in_order_of_moving(const std::vector<Parameter>& tensors);

}  // namespace llmem
