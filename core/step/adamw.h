#pragma once

#include <functional>
#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"

namespace llmem {

// torch.optim.AdamW (torch/optim/adam.py): two states a parameter, in the parameter's dtype, made at the first step.
class AdamW {
 public:
  AdamW(Device& device, std::vector<NamedTensor> parameters, OptimizerImplementation implementation,
        std::function<void(int lists)> before_update = {})
      : device_(device), parameters_(std::move(parameters)), implementation_(implementation), before_update_(std::move(before_update)) {}

  void step();

 private:
  void make_states();
  void update_foreach();
  void update_one_by_one();

  Device& device_;
  std::vector<NamedTensor> parameters_;
  OptimizerImplementation implementation_;
  std::function<void(int lists)> before_update_;  // as UpdateGroup's
  struct State {
    Tensor step, exp_avg, exp_avg_sq;
  };
  std::vector<State> states_;
};

// torch.nn.utils.clip_grad_norm_ (foreach) over the gradients of these parameters. Sharded: each gradient is a DTensor of which this
// rank has a part.
void clip_gradients(Device& device, const std::vector<NamedTensor>& parameters, bool sharded);

}  // namespace llmem
