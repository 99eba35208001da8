#include "tensor/megatron.h"

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

// megatron/core/tensor_parallel and megatron/core/fusions.
namespace llmem {

namespace {

void communicate(Device& device, Collective collective, const MegatronKernels& kernels, std::int64_t bytes) {
  if (!device.stopped) device.meter.communicate_and_wait(collective, Among::tensor, kernels.tensor_ranks, bytes);
}

Dims with_tokens(Dims sizes, std::int64_t tokens) {
  sizes[0] = tokens;
  return sizes;
}

// The matrix [tokens, features] that a tensor is to a GEMM.
Tensor rows_of(const Tensor& states) { return reshape(states, {states.numel() / states.size(-1), states.size(-1)}); }

Tensor matrix_product(const Tensor& states, const Tensor& weight, const Dims& sizes) {
  const With no_grad(states.device().grad_enabled, false);
  return view(mm(rows_of(states), weight), sizes);
}

}  // namespace

Tensor global_buffer(Device& device, MegatronKernels& kernels, std::string_view name, const Dims& sizes, Dtype dtype) {
  Tensor& buffer = kernels.global_buffers[name];
  if (!device.stopped && (!buffer || buffer.numel() < count_of(sizes))) {
    const Meter::Muted no_kernel(device.meter);
    const OpScope op(device, "global_buffer");
    buffer.reset();
    buffer = device.empty({count_of(sizes)}, dtype);
    device.set_category(buffer->storage->allocation, Category::communication);
  }
  const Tensor seen = detach(buffer);
  seen->layout = {sizes, contiguous_strides(sizes)};
  return seen;
}

Tensor megatron_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& weight, const Tensor& bias, Split split) {
  Recorder grad("linear_with_grad_accumulation", {&input, &weight, &bias});
  Device& device = input.device();
  const bool gathers = split == Split::columns && kernels.tensor_ranks > 1 && kernels.sequence;
  const bool reduces = split == Split::columns && kernels.tensor_ranks > 1;
  Saved input_ = grad.save_if(grad.recording(), input), weight_ = grad.save_if(grad.recording(), weight);
  const auto whole_input = [](MegatronKernels& from, const Tensor& part) {
    const Dims sizes = with_tokens(part.sizes(), part.size(0) * from.tensor_ranks);
    communicate(part.device(), Collective::all_gather, from, from.tensor_ranks * part.bytes_read());
    return global_buffer(part.device(), from, "mpu", sizes, part.dtype());
  };
  const auto product = [&] {
    const With no_grad(device.grad_enabled, false);
    const Tensor whole = gathers ? whole_input(kernels, input) : input;
    Dims sizes = whole.sizes();
    sizes[sizes.size() - 1] = weight.size(0);
    Tensor made = matrix_product(whole, t(weight), sizes);
    if (bias) made = elementwise(made, bias);
    return made;
  };
  const Tensor result = detach(product());
  grad.attach(result);
  grad.backward([&kernels, gathers, reduces, whole_input, bias = grad.needs(2), input_ = std::move(input_),
                 weight_ = std::move(weight_)](Tensors& gradients) {
    const Tensor saved_input = input_.unpack(), saved_weight = weight_.unpack();
    Device& on = saved_input.device();
    const Tensor gradient = contiguous(gradients[0]);
    const Tensor whole = gathers ? whole_input(kernels, saved_input) : saved_input;
    Tensors out(3);
    Tensor made = matrix_product(gradient, saved_weight, whole.sizes());
    if (gathers) {
      communicate(on, Collective::reduce_scatter, kernels, made.bytes_read());
      out[0] = on.empty(saved_input.sizes(), saved_input.dtype());
    } else {
      if (reduces) communicate(on, Collective::all_reduce, kernels, made.bytes_read());
      out[0] = made;
    }
    out[1] = matrix_product(t(rows_of(gradient)), rows_of(whole), saved_weight.sizes());
    if (bias) out[2] = sum_to(rows_of(gradient), {saved_weight.size(0)});
    return out;
  });
  return result;
}

// Out of its part of the vocabulary a rank looks up nothing.
Tensor vocabulary_parallel_embedding(MegatronKernels& kernels, const Tensor& weight, const Tensor& ids) {
  if (kernels.tensor_ranks == 1) return embedding(weight, ids);
  Device& device = weight.device();
  Tensor mask, masked;
  {
    const auto booleans = [&] { return device.empty(ids.sizes(), Dtype::boolean); };
    const Tensor below = booleans(), above = booleans();
    mask = booleans();
    const Tensor copy = device.empty(ids.sizes(), Dtype::int64);
    masked = device.empty(ids.sizes(), Dtype::int64);
  }
  const Tensor own = embedding(weight, masked);
  communicate(device, Collective::all_reduce, kernels, own.bytes_read());
  Recorder grad("vocabulary_parallel_embedding", {&own});
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Tensor result = detach(own);
  grad.attach(result);
  // output_parallel[input_mask, :] = 0.0: the gradient is copied, its masked rows are set to 0 (index_put_'s self)
  grad.backward([mask_ = std::move(mask_)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

Tensor scatter_to_sequence(MegatronKernels& kernels, const Tensor& input) {
  Recorder grad("scatter_to_sequence", {&input});
  const Tensor result = input.device().empty(with_tokens(input.sizes(), input.size(0) / kernels.tensor_ranks), input.dtype());
  grad.attach(result);
  grad.backward([&kernels](Tensors& gradients) {
    Device& device = gradients[0].device();
    communicate(device, Collective::all_gather, kernels, kernels.tensor_ranks * gradients[0].bytes_read());
    return Tensors{device.empty(with_tokens(gradients[0].sizes(), gradients[0].size(0) * kernels.tensor_ranks), gradients[0].dtype())};
  });
  return result;
}

Tensor gather_from_sequence(MegatronKernels& kernels, const Tensor& input, bool partial_gradient) {
  Recorder grad("gather_from_sequence", {&input});
  communicate(input.device(), Collective::all_gather, kernels, kernels.tensor_ranks * input.bytes_read());
  const Tensor result = input.device().empty(with_tokens(input.sizes(), input.size(0) * kernels.tensor_ranks), input.dtype());
  grad.attach(result);
  grad.backward([&kernels, partial_gradient](Tensors& gradients) {
    Device& device = gradients[0].device();
    if (partial_gradient) communicate(device, Collective::reduce_scatter, kernels, gradients[0].bytes_read());
    return Tensors{device.empty(with_tokens(gradients[0].sizes(), gradients[0].size(0) / kernels.tensor_ranks), gradients[0].dtype())};
  });
  return result;
}

Tensor reduce_from_tensor_ranks(MegatronKernels& kernels, const Tensor& input) {
  if (kernels.tensor_ranks == 1) return input;
  Recorder grad("reduce_from_tensor_ranks", {&input});
  const bool scatters = kernels.sequence;
  communicate(input.device(), scatters ? Collective::reduce_scatter : Collective::all_reduce, kernels, input.bytes_read());
  const Tensor result =
      scatters ? input.device().empty(with_tokens(input.sizes(), input.size(0) / kernels.tensor_ranks), input.dtype()) : detach(input);
  grad.attach(result);
  grad.backward([&kernels, scatters](Tensors& gradients) {
    if (!scatters) return Tensors{gradients[0]};
    Device& device = gradients[0].device();
    communicate(device, Collective::all_gather, kernels, kernels.tensor_ranks * gradients[0].bytes_read());
    return Tensors{device.empty(with_tokens(gradients[0].sizes(), gradients[0].size(0) * kernels.tensor_ranks), gradients[0].dtype())};
  });
  return result;
}

Tensor scaled_masked_softmax(const Tensor& scores) {
  Recorder grad("scaled_masked_softmax", {&scores});
  const Tensor result = empty_like(scores, scores.dtype());
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors& gradients) {
    const Tensor saved = result_.unpack();
    saved.device().meter.moved(3 * saved.bytes_read());
    return Tensors{contiguous(gradients[0])};
  });
  return result;
}

Tensor fused_rotary(const Tensor& states) {
  Recorder grad("fused_rotary", {&states});
  const Tensor result = states.device().empty(states.sizes(), states.dtype());
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0].device().empty(gradients[0].sizes(), gradients[0].dtype())}; });
  return result;
}

Tensor repeat_heads(const Tensor& states, std::int64_t times) {
  const Dims& sizes = states.sizes();
  const Tensor repeated = expand(unsqueeze(states, 3), {sizes[0], sizes[1], sizes[2], times, sizes[3]});
  return reshape(contiguous(repeated), {sizes[0], sizes[1], sizes[2] * times, sizes[3]});
}

Tensors split_heads(const Tensor& mixed, const std::vector<std::int64_t>& lengths) { return split_last(mixed, lengths); }

namespace {

Tensor narrower(const Tensor& input) {
  Dims sizes = input.sizes();
  sizes[sizes.size() - 1] /= 2;
  return input.device().empty(sizes, input.dtype());
}

}  // namespace

Tensor fused_activation(const Tensor& input, const Tensor& bias, bool gated) {
  Recorder grad("fused_activation", {&input, &bias});
  Saved input_ = grad.save_if(grad.recording(), input), bias_ = grad.save_if(grad.recording() && bias, bias);
  const Tensor result = gated ? narrower(input) : empty_like(input, input.dtype());
  grad.attach(result);
  grad.backward([input_ = std::move(input_), bias_ = std::move(bias_)](Tensors&) {
    const Tensor saved = input_.unpack(), saved_bias = bias_ ? bias_.unpack() : Tensor();
    const Tensor gradient = empty_like(saved, saved.dtype());
    return Tensors{gradient, saved_bias ? gradient : Tensor()};
  });
  return result;
}

Tensor weighted_activation(const Tensor& input, const Tensor& factors, bool gated) {
  if (!gated) {
    const Tensor activated = gelu(input);
    return mul(activated, factors);
  }
  Recorder grad("weighted_activation", {&input, &factors});
  Saved input_ = grad.save_if(grad.recording(), input), factors_ = grad.save_if(grad.recording(), factors);
  const Tensor result = narrower(input);
  grad.attach(result);
  grad.backward([input_ = std::move(input_), factors_ = std::move(factors_)](Tensors&) {
    const Tensor saved = input_.unpack(), saved_factors = factors_.unpack();
    return Tensors{empty_like(saved, saved.dtype()), empty_like(saved_factors, saved_factors.dtype())};
  });
  return result;
}

// residual: the gradient as it is; input: masked and scaled; bias: its sum over the tokens
Tensor bias_dropout_add(const Tensor& input, const Tensor& bias, const Tensor& residual, double probability) {
  Recorder grad("bias_dropout_add", {&input, &bias, &residual});
  const Tensor result = empty_like(residual, residual.dtype());
  const bool drops = probability > 0;
  const Tensor mask = drops ? empty_like(input, Dtype::boolean) : Tensor();
  Saved mask_ = grad.save_if(grad.recording() && drops, mask);
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_), need_input = grad.needs(0), need_bias = grad.needs(1)](Tensors& gradients) {
    const Tensor saved = mask_ ? mask_.unpack() : Tensor();
    const Tensor& gradient = gradients[0];
    Tensors out(3);
    if (need_input) out[0] = saved ? empty_like(gradient, gradient.dtype()) : gradient;
    if (need_bias) out[1] = gradient.device().empty({gradient.size(-1)}, gradient.dtype());
    out[2] = gradient;
    return out;
  });
  return result;
}

namespace {

// Of one value a token, as the Function makes and drops them.
class TokenValues {
 public:
  explicit TokenValues(const Tensor& target) : device_(target.device()), sizes_(target.sizes()) {}
  Tensor of(Dtype dtype) const { return device_.empty(sizes_, dtype); }

 private:
  Device& device_;
  Dims sizes_;
};

}  // namespace

// The logits in fp32 become their own exponentials and probabilities, and backward the gradient, which the engine casts. Fused, compiled
// functions return the exponentials as a tensor of its own, and the gradient in bfloat16.
Tensor vocabulary_parallel_cross_entropy(const Tensor& logits, const Tensor& target, bool fused) {
  Recorder grad("vocabulary_parallel_cross_entropy", {&logits});
  const TokenValues values(target);
  Tensor floats = logits.device().empty(logits.sizes(), Dtype::float32);
  Tensor maximum = values.of(Dtype::float32);
  { const Tensor places = values.of(Dtype::int64); }
  Tensor exponentials = floats;
  if (fused) exponentials = logits.device().empty(logits.sizes(), Dtype::float32);
  Tensor mask, masked_target;
  Tensor loss;
  {
    mask = values.of(Dtype::boolean);
    masked_target = values.of(Dtype::int64);
    const Tensor predicted = values.of(Dtype::float32), sums = values.of(Dtype::float32);
    loss = values.of(Dtype::float32);
  }
  Saved exponentials_ = grad.save_if(grad.recording(), exponentials), mask_ = grad.save_if(grad.recording(), mask);
  Saved target_ = grad.save_if(grad.recording(), masked_target);
  grad.attach(loss);
  grad.backward([exponentials_ = std::move(exponentials_), mask_ = std::move(mask_), target_ = std::move(target_), fused,
                 dtype = logits.dtype()](Tensors&) {
    const Tensors saved = {exponentials_.unpack(), mask_.unpack(), target_.unpack()};
    saved[0].device().meter.moved(2 * saved[0].bytes_read());
    if (fused) return Tensors{empty_like(saved[0], dtype)};
    return Tensors{saved[0]};
  });
  return loss;
}

// common/triton/cross_entropy.py, cross_entropy_forward: the loss of each token, and three statistics of it from every rank.
Tensor te_cross_entropy(const Tensor& logits, const Tensor& target, std::int64_t ranks) {
  Recorder grad("te_cross_entropy", {&logits});
  Device& device = logits.device();
  const std::int64_t tokens = target.numel();
  const Tensor loss = device.empty(target.sizes(), Dtype::float32);
  {
    const Tensor statistics = device.empty({tokens * 3}, Dtype::float32);
    const Tensor gathered = ranks > 1 ? device.empty({tokens * 3 * ranks}, Dtype::float32) : Tensor();
  }
  Saved logits_ = grad.save_if(grad.recording(), logits);
  grad.attach(loss);
  grad.backward([logits_ = std::move(logits_)](Tensors&) {
    const Tensor saved = logits_.unpack();
    saved.device().meter.moved(2 * saved.bytes_read());
    return Tensors{saved};
  });
  return loss;
}

}  // namespace llmem
