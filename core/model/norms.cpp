#include "model/norms.h"

#include "tensor/device.h"
#include "tensor/ops.h"

namespace llmem {

Tensor RmsNorm::forward(Tensor hidden_states) const {
  const With wrapped(hidden_states.device().wrapped_tensors, on_dtensors);
  const Dtype input_dtype = hidden_states.dtype();
  hidden_states = to(hidden_states, Dtype::float32);
  const Tensor variance = mean_last(square(hidden_states));
  {
    const Tensor scale = rsqrt(add_scalar(variance));
    hidden_states = mul(hidden_states, scale);
  }
  return mul(weight, to(hidden_states, input_dtype));
}

}  // namespace llmem
