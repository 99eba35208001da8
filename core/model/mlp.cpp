#include "model/mlp.h"

#include "tensor/ops.h"

namespace llmem {

Tensor Mlp::forward(const Tensor& x) const {
  Device& device = x.device();
  const ModuleScope scope(device, "mlp", Category::mlp);
  const auto named = [&](const char* name, const Linear& projection, const Tensor& input) {
    const ModuleScope inner(device, name);
    return projection.forward(input);
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
