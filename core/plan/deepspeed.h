#pragma once

#include <optional>
#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

// What DeepSpeed's ZeRO stages share (deepspeed/runtime, 0.19).
namespace llmem {

// A size that was given, or Transformers' for "auto", or DeepSpeed's own.
inline std::int64_t size_of_option(std::optional<std::int64_t> given, bool automatic, std::int64_t of_transformers,
                                   std::int64_t of_deepspeed) {
  if (given && *given != ZeroOptimization::automatic) return *given;
  return given || automatic ? of_transformers : of_deepspeed;
}

// runtime/engine.py, _cast_module_mixed_precision: every parameter that is held in another floating dtype, fp32 adapters among them.
void cast_parameters(Device& device, const std::vector<NamedTensor>& parameters, Dtype dtype);

// torch's Adagrad makes its states with itself. initialize_optimizer_states makes another over this rank's part; the engine keeps the first
// (basic_optimizer).
std::vector<Tensor> states_of_first_adagrad(Device& device, const std::vector<NamedTensor>& parameters);

// Scratch of a reduction of `numel` contiguous elements to one, with partial results of so many bytes.
void whole_reduction_scratch(Device& device, std::int64_t numel, std::int64_t accumulated_size);

// runtime/utils.py, has_inf_or_nan: a boolean scalar.
Tensor has_inf_or_nan(const Tensor& gradient);

// zero/utils.py, get_norm_dtype: torch.linalg.vector_norm of `numel` elements cast to float64, a scalar.
Tensor norm_in_double(Device& device, std::int64_t numel);

// The root of the sum of squares of these norms, all-reduced, with what is not finite replaced (get_grad_norm_direct).
Tensor group_norm(Device& device, const std::vector<Tensor>& norms);

// runtime/utils.py, combine_grad_norm_groups over the norms of all parameter groups.
Tensor combined_norm(Device& device, std::int64_t groups);

// runtime/utils.py, is_invalid_grad_norm
void check_norm(Device& device);

// unscale_and_clip_grads of one flat gradient.
void clip_by_norm(Device& device);

}  // namespace llmem
