#include "model/mlp.h"

#include "tensor/ops.h"

namespace llmem {

Tensor Mlp::forward(const Tensor& input) const {
  Device& device = input.device();
  const ModuleScope scope(device, "mlp", Category::mlp);
  const Tensor x = gate_proj.gathered(input);
  const auto named = [&](const char* name, const Linear& projection, const Tensor& from) {
    const ModuleScope inner(device, name);
    return projection.forward(from);
  };
  Tensor product;
  {
    const Tensor activated = silu(named("gate_proj", gate_proj, x));
    const Tensor up = named("up_proj", up_proj, x);
    product = mul(activated, up);
  }
  return named("down_proj", down_proj, product);
}

}  // namespace llmem
