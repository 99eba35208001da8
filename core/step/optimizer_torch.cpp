#include <algorithm>
#include <array>

#include "step/optimizer.h"

// torch.optim, the kinds that keep parameter-shaped states. The step count lives on the CPU but for the fused kernels.
namespace llmem {

namespace {

constexpr const char* none = nullptr;

// What differs between the kinds, without weight decay.
struct Rule {
  std::array<const char*, 2> states;  // of each parameter, in the order in which they are made
  bool states_at_construction;
  bool decoupled_decay;              // else the decay is added to a copy of the gradients
  std::array<const char*, 2> lists;  // foreach: what is made for every parameter before the update, all alive together
  // loop: the temporaries of one parameter, each made of the one before it, which dies; the one at `kept` has a name, so it lives
  // until the next parameter's is made.
  std::array<const char*, 2> temporaries;
  int kept;
};

const Rule& rule_of(OptimizerName name) {
  // torch/optim/adam.py: exp_avg_sq_sqrt; denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)
  static constexpr Rule adamw{{"exp_avg", "exp_avg_sq"}, false, true, {"exp_avg_sq_sqrt", none}, {"exp_avg_sq_sqrt", "denom"}, 1};
  static constexpr Rule adam{{"exp_avg", "exp_avg_sq"}, false, false, {"exp_avg_sq_sqrt", none}, {"exp_avg_sq_sqrt", "denom"}, 1};
  // torch/optim/nadam.py: denom = exp_avg_sq.div(bias_correction2).sqrt()
  static constexpr Rule nadam{{"exp_avg", "exp_avg_sq"}, false, false, {"exp_avg_sq_sqrt", none}, {"exp_avg_sq_corrected", "denom"}, 1};
  // torch/optim/radam.py: bias_corrected_exp_avg, and its product with the rate. Rectification begins at the sixth step.
  static constexpr Rule radam{{"exp_avg", "exp_avg_sq"}, false, false, {"buffer", none}, {"bias_corrected_exp_avg", "update"}, 0};
  // torch/optim/adamax.py: the gradients' absolute values
  static constexpr Rule adamax{{"exp_avg", "exp_inf"}, false, false, {"abs_grad", none}, {"abs_grad", none}, -1};
  // torch/optim/rmsprop.py, adagrad.py
  static constexpr Rule rmsprop{{"square_avg", none}, false, false, {"avg", none}, {"avg", none}, 0};
  static constexpr Rule adagrad{{"sum", none}, true, false, {"std", "numerator"}, {"std", none}, 0};
  switch (name) {
    case OptimizerName::adam: return adam;
    case OptimizerName::nadam: return nadam;
    case OptimizerName::radam: return radam;
    case OptimizerName::adamax: return adamax;
    case OptimizerName::rmsprop: return rmsprop;
    case OptimizerName::adagrad: return adagrad;
    default: return adamw;
  }
}

class Moments : public Optimizer {
 public:
  Moments(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options)
      : Optimizer(device, std::move(parameters)), options_(options), rule_(rule_of(options.name)) {
    if (rule_.states_at_construction) make_states();
  }

  void step() override {
    if (states_.empty()) make_states();
    // exp_avg.lerp_(grad), then exp_avg_sq.addcmul_(grad, grad); one kernel where they are fused
    if (before_update) before_update(1);
    if (before_update && options_.implementation != OptimizerImplementation::fused) before_update(2);
    if (options_.implementation == OptimizerImplementation::foreach) update_foreach();
    if (options_.implementation == OptimizerImplementation::loop) update_one_by_one();
  }

 private:
  bool decays_gradients() const { return options_.weight_decay && !rule_.decoupled_decay; }
  // One copy serves both: the decay is added in place to what maximize has negated.
  bool copies_gradients() const { return options_.maximize || decays_gradients(); }

  void make_states() {
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      const bool counts = options_.capturable || options_.implementation == OptimizerImplementation::fused;
      if (counts) states_.push_back(state("step", {}, Dtype::float32));
      for (const char* name : rule_.states) {
        if (name) states_.push_back(state_like(name, parameter.tensor));
      }
      if (options_.amsgrad) states_.push_back(state_like("max_exp_avg_sq", parameter.tensor));
      if (options_.momentum) states_.push_back(state_like("momentum_buffer", parameter.tensor));
      if (options_.centered) states_.push_back(state_like("grad_avg", parameter.tensor));
    }
  }

  // torch/optim/adam.py, radam.py: `del device_grads` once the moments have them
  bool drops_copies() const {
    return options_.name == OptimizerName::adam || options_.name == OptimizerName::adamw || options_.name == OptimizerName::radam;
  }

  // Of everything, the list of absolute values (Adamax) and Adagrad's numerator are made in the copies of the gradients, if there are any.
  bool reuses_copies(const char* list) const {
    return options_.name == OptimizerName::adamax || (options_.name == OptimizerName::adagrad && list == rule_.lists[1]);
  }

  // aten/src/ATen/native/ForeachUtils.h, _group_tensors_by_first_tensors_device_and_dtype: a hash map, whose last key comes first.
  std::vector<const NamedTensor*> by_dtype() const {
    std::vector<std::vector<const NamedTensor*>> groups;
    for (const NamedTensor& parameter : parameters_) {
      const auto same = [&](const auto& group) { return group.front()->tensor.dtype() == parameter.tensor.dtype(); };
      auto group = std::find_if(groups.begin(), groups.end(), same);
      if (group == groups.end()) group = groups.insert(groups.begin(), std::vector<const NamedTensor*>());
      group->push_back(&parameter);
    }
    std::vector<const NamedTensor*> all;
    for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
    return all;
  }

  void update_foreach() {
    std::vector<Tensor> alive;
    const std::vector<const NamedTensor*> parameters = by_dtype();
    const auto list = [&](const char* name) {
      for (const NamedTensor* parameter : parameters) {
        const ModuleScope scope = scope_of(*parameter);
        alive.push_back(like(name, parameter->tensor));
      }
    };
    if (copies_gradients()) list("copied_grad");
    if (drops_copies()) alive.clear();
    if (options_.capturable) {  // torch._foreach_pow(beta, device_state_steps)
      for (const char* name : {"bias_correction1", "bias_correction2"}) {
        const OpScope op(device_, name);
        for (std::size_t i = 0; i < parameters_.size(); ++i) alive.push_back(device_.empty({}, Dtype::float32));
      }
    }
    for (const char* name : rule_.lists) {
      if (name && !(copies_gradients() && reuses_copies(name))) list(name);
    }
  }

  void update_one_by_one() {
    Tensor gradient, named;
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      gradient.reset();
      if (options_.maximize) gradient = like("negated_grad", parameter.tensor);
      if (decays_gradients()) gradient = like("decayed_grad", parameter.tensor);
      Tensor last;
      for (int i = 0; i < 2; ++i) {
        const char* name = rule_.temporaries[static_cast<std::size_t>(i)];
        if (!name) continue;
        last = like(name, parameter.tensor);
        if (i == rule_.kept) named = last;
      }
    }
  }

  OptimizerOptions options_;
  const Rule& rule_;
  std::vector<Tensor> states_;
};

// torch/optim/sgd.py: the momentum begins as a copy of the first gradient.
class Sgd : public Optimizer {
 public:
  Sgd(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options)
      : Optimizer(device, std::move(parameters)), options_(options) {}

  void step() override {
    const bool loop = options_.implementation == OptimizerImplementation::loop;
    const bool first = options_.momentum && momentum_.empty();
    std::vector<Tensor> copies;
    Tensor gradient;
    if ((options_.weight_decay || options_.maximize) && options_.implementation == OptimizerImplementation::foreach) {
      for (const NamedTensor& parameter : parameters_) {
        const ModuleScope scope = scope_of(parameter);
        copies.push_back(like("copied_grad", parameter.tensor));
      }
    }
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      gradient.reset();
      if (options_.maximize && loop) gradient = like("negated_grad", parameter.tensor);
      if (options_.weight_decay && loop) gradient = like("decayed_grad", parameter.tensor);
      if (first) momentum_.push_back(state_like("momentum_buffer", parameter.tensor));
      if (options_.nesterov && loop) gradient = like("nesterov_grad", parameter.tensor);
    }
  }

 private:
  OptimizerOptions options_;
  std::vector<Tensor> momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_torch_optimizer(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options) {
  if (options.name == OptimizerName::sgd) return std::make_unique<Sgd>(device, std::move(parameters), options);
  return std::make_unique<Moments>(device, std::move(parameters), options);
}

}  // namespace llmem
