#include "step/optimizer.h"

namespace llmem {

namespace {

// lion_pytorch/lion_pytorch.py, update_fn: update = exp_avg.clone().mul_(beta1).add(grad, …).sgn_()
class Lion : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override {
    const bool first = states_.empty();
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      if (first) states_.push_back(state_like("exp_avg", parameter.tensor));
      const Tensor copy = like("exp_avg_clone", parameter.tensor);
      const Tensor update = like("update", copy);
    }
  }

 private:
  std::vector<Tensor> states_;
};

// schedulefree/adamw_schedulefree.py: z begins as a copy of the parameter.
class ScheduleFreeAdamW : public Optimizer {
 public:
  ScheduleFreeAdamW(Device& device, std::vector<NamedTensor> parameters, bool foreach)
      : Optimizer(device, std::move(parameters)), foreach_(foreach) {}

  void step() override {
    if (states_.empty()) {
      for (const NamedTensor& parameter : parameters_) {
        const ModuleScope scope = scope_of(parameter);
        states_.push_back(state_like("z", parameter.tensor));
        states_.push_back(state_like("exp_avg_sq", parameter.tensor));
      }
    }
    std::vector<Tensor> list;
    Tensor denom;
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      denom = like("denom", parameter.tensor);
      if (foreach_) list.push_back(denom);
    }
  }

 private:
  bool foreach_;
  std::vector<Tensor> states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(Device& device, std::vector<NamedTensor> parameters) {
  return std::make_unique<Lion>(device, std::move(parameters));
}

std::unique_ptr<Optimizer> make_schedule_free(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options) {
  return std::make_unique<ScheduleFreeAdamW>(device, std::move(parameters), options.implementation != OptimizerImplementation::loop);
}

}  // namespace llmem
