#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"

namespace llmem {

// Updates parameters from their gradients: makes its states at its first step (Adagrad when it is made) and temporaries at each.
// A kind is a row or a small class in one of the files optimizer_*.cpp, and a line in make_optimizer.
class Optimizer {
 public:
  Optimizer(Device& device, std::vector<NamedTensor> parameters) : device_(device), parameters_(std::move(parameters)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  virtual void step() = 0;
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

  std::function<void(int lists)> before_update;                   // as UpdateGroup's
  std::function<void(const std::function<void()>& step)> around;  // as UpdateGroup's

 protected:
  // A zero-filled state of a parameter.
  Tensor state(const char* name, const Dims& sizes, Dtype dtype) const;
  Tensor state_like(const char* name, const Tensor& parameter) const { return state(name, parameter.sizes(), parameter.dtype()); }
  // What an elementwise op makes of a tensor.
  static Tensor like(const char* name, const Tensor& tensor) { return like(name, tensor, tensor.dtype()); }
  static Tensor like(const char* name, const Tensor& tensor, Dtype dtype);
  // The Euclidean norm of a whole tensor, a scalar.
  static Tensor norm(const Tensor& tensor);
  ModuleScope scope_of(const NamedTensor& parameter) const { return ModuleScope(device_, module_of(parameter.name)); }

  Device& device_;
  std::vector<NamedTensor> parameters_;
};

// Several that share the parameters out among them, one after the other.
using Optimizers = std::vector<std::unique_ptr<Optimizer>>;

// `in_32_bits`: of bitsandbytes' 8-bit kinds, a parameter whose states stay in fp32; none: none.
void append_optimizers(Optimizers& to, Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options,
                       const Tensor& in_32_bits = {});

// A step of each.
void update_all(Device& device, const Optimizers& optimizers);

// Makers of the kinds, for append_optimizers alone.
std::unique_ptr<Optimizer> make_torch_optimizer(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_adafactor(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_muon(Device& device, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_lion(Device& device, std::vector<NamedTensor> parameters);
std::unique_ptr<Optimizer> make_schedule_free(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_torchao(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options);
std::unique_ptr<Optimizer> make_bitsandbytes(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options,
                                             const Tensor& in_32_bits);

// torch.nn.utils.clip_grad_norm_ (foreach) over the gradients of these parameters. Sharded: each gradient is a DTensor of which
// this rank has a part. Returns the norm before clipping, a scalar.
Tensor clip_gradients(Device& device, const std::vector<NamedTensor>& parameters, bool sharded);

}  // namespace llmem
