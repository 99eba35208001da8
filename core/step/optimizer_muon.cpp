#include <algorithm>

#include "step/optimizer.h"

namespace llmem {

namespace {

constexpr int newton_schulz_steps = 5;

// torch/optim/_muon.py
class Muon : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override {
    if (momentum_.empty()) {
      for (const NamedTensor& parameter : parameters_) {
        const ModuleScope scope = scope_of(parameter);
        momentum_.push_back(state_like("momentum_buffer", parameter.tensor));
      }
    }
    Tensor update;
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      update = like("update", parameter.tensor);
      update = zero_power(update);
    }
  }

 private:
  // _zeropower_via_newtonschulz: in bf16, over the smaller of the matrix's two sides
  Tensor zero_power(const Tensor& gradient) const {
    const OpScope op(device_, "newton_schulz");
    Tensor orthogonal = gradient.dtype() == Dtype::bfloat16 ? gradient : like("ortho_grad", gradient, Dtype::bfloat16);
    {
      const Tensor length = norm(orthogonal);
      like("clamp", length);
    }
    const std::int64_t small = std::min(gradient.size(0), gradient.size(1)), large = std::max(gradient.size(0), gradient.size(1));
    Tensor gram, gram_update;
    for (int i = 0; i < newton_schulz_steps; ++i) {
      gram = device_.empty({small, small}, Dtype::bfloat16);
      gram_update = device_.empty({small, small}, Dtype::bfloat16);
      orthogonal = device_.empty({small, large}, Dtype::bfloat16);
    }
    return orthogonal;
  }

  std::vector<Tensor> momentum_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(Device& device, std::vector<NamedTensor> parameters) {
  return std::make_unique<Muon>(device, std::move(parameters));
}

}  // namespace llmem
