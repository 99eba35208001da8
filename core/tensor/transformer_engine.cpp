#include "tensor/autograd.h"
#include "tensor/megatron.h"
#include "tensor/ops.h"

// TransformerEngine's modules. A weight's gradient is a bf16 tensor of its own or, added to main_grad by the GEMM, a stand-in that all
// weights of one shape share (module/base.py, get_dummy_wgrad).
namespace llmem {

namespace {

// cpp_extensions/gemm.py, get_cublas_workspace_size_bytes: asked for at the first GEMM, for good.
void use_workspace(Device& device, MegatronKernels& kernels) {
  if (device.stopped || kernels.workspace) return;
  const Meter::Muted no_kernel(device.meter);
  const OpScope op(device, "te_workspace");
  const Bytes bytes = device.gpu().compute_capability >= 90 ? 32_MiB + 1_KiB : 4_MiB;
  kernels.workspace = device.empty({bytes.count}, Dtype::uint8);
  device.set_category(kernels.workspace->storage->allocation, Category::workspaces);
}

// get_cublas_workspace(grouped_gemm=True): one for each of the streams (common/util/multi_stream.h, num_streams)
void use_grouped_workspaces(Device& device, MegatronKernels& kernels) {
  constexpr int streams = 4;
  if (device.stopped || !kernels.grouped_workspaces.empty()) return;
  const Meter::Muted no_kernel(device.meter);
  const OpScope op(device, "te_workspace");
  const Bytes bytes = device.gpu().compute_capability >= 90 ? 32_MiB + 1_KiB : 4_MiB;
  for (int i = 0; i < streams; ++i) {
    kernels.grouped_workspaces.push_back(device.empty({bytes.count}, Dtype::uint8));
    device.set_category(kernels.grouped_workspaces.back()->storage->allocation, Category::workspaces);
  }
}

// rows [n, inner] by a weight into [n, m]; `sizes` of the result
Tensor te_gemm(MegatronKernels& kernels, const Tensor& like, const Dims& sizes, std::int64_t inner) {
  Device& device = like.device();
  use_workspace(device, kernels);
  const Meter::Muted no_kernel(device.meter);
  const Tensor result = device.empty(sizes, like.dtype());
  if (device.stopped) return result;
  const std::int64_t m = sizes.back(), n = count_of(sizes) / m, itemsize = like.itemsize();
  device.meter.product(2 * n * m * inner, itemsize * (n * inner + n * m + inner * m), itemsize * (n * inner + n * m), like.dtype());
  return result;
}

void communicate(Device& device, Collective collective, const MegatronKernels& kernels, std::int64_t bytes) {
  if (!device.stopped) device.meter.communicate_and_wait(collective, Among::tensor, kernels.tensor_ranks, bytes);
}

Dims with_last(Dims sizes, std::int64_t last) {
  sizes[sizes.size() - 1] = last;
  return sizes;
}

Dims with_tokens(Dims sizes, std::int64_t tokens) {
  sizes[0] = tokens;
  return sizes;
}

// distributed.py, gather_along_first_dim
Tensor gathered(const MegatronKernels& kernels, const Tensor& part) {
  Device& device = part.device();
  communicate(device, Collective::all_gather, kernels, kernels.tensor_ranks * part.bytes_read());
  const Meter::Muted no_kernel(device.meter);
  return device.empty(with_tokens(part.sizes(), part.size(0) * kernels.tensor_ranks), part.dtype());
}

// distributed.py, reduce_scatter_along_first_dim
Tensor scattered(const MegatronKernels& kernels, const Tensor& whole) {
  Device& device = whole.device();
  communicate(device, Collective::reduce_scatter, kernels, whole.bytes_read());
  const Meter::Muted no_kernel(device.meter);
  return device.empty(with_tokens(whole.sizes(), whole.size(0) / kernels.tensor_ranks), whole.dtype());
}

// What is done with the product of a linear split by rows, or with the input's gradient of one split by columns: in place where all ranks
// keep all tokens.
Tensor reduced(const MegatronKernels& kernels, const Tensor& partial) {
  if (kernels.sequence) return scattered(kernels, partial);
  communicate(partial.device(), Collective::all_reduce, kernels, partial.bytes_read());
  return partial;
}

struct NormStatistics {
  Tensor mean, rsigma;
};

// LayerNorm keeps a mean and a deviation of each token, RMSNorm the latter, in fp32 (transformer_engine/pytorch/csrc/extensions/normalization.cpp).
NormStatistics norm_statistics(const Tensor& input, bool mean) {
  Device& device = input.device();
  const std::int64_t tokens = input.numel() / input.size(-1);
  NormStatistics made;
  if (mean) made.mean = device.empty({tokens}, Dtype::float32);
  made.rsigma = device.empty({tokens}, Dtype::float32);
  return made;
}

// normalization.cpp, layernorm_bwd and rmsnorm_bwd: the input's gradient, then weight's and bias's
void norm_backward(const Tensor& input, const Tensor& weight, const Tensor& bias, Tensors& out) {
  Device& device = input.device();
  out[0] = device.empty(input.sizes(), input.dtype());
  out[1] = device.empty(weight.sizes(), weight.dtype());
  if (bias) out[2] = device.empty(bias.sizes(), bias.dtype());
}

// A weight's gradient, of a product over `inner` rows: its own, or a stand-in of its shape (module/base.py, get_dummy_wgrad). Of several
// experts' weights [experts, out, in], one stand-in serves all.
Tensor weight_gradient(MegatronKernels& kernels, const Tensor& gradient, const Tensor& weight, std::int64_t inner) {
  Device& device = gradient.device();
  const std::int64_t rows = weight.size(-2), columns = weight.size(-1);
  if (!kernels.fuses_gradients) {
    const Tensor flat = te_gemm(kernels, gradient, {weight.numel() / columns, columns}, inner);
    return weight.dim() == 2 ? flat : view(flat, weight.sizes());
  }
  use_workspace(device, kernels);
  if (!device.stopped) {
    const std::int64_t count = weight.numel(), itemsize = gradient.itemsize();
    const std::int64_t outer = itemsize * inner * (rows + columns);
    device.meter.product(2 * count * inner, outer + 8 * count, outer, gradient.dtype());
  }
  Tensor& stand_in = kernels.stand_ins[{rows, columns}];
  if (!stand_in) {
    const OpScope op(device, "dummy_wgrad");
    const Meter::Muted no_kernel(device.meter);
    stand_in = device.empty({rows, columns}, weight.dtype());
    device.set_category(stand_in->storage->allocation, Category::workspaces);
  }
  const Tensor seen = detach(stand_in);
  seen->layout = {weight.sizes(), contiguous_strides(weight.sizes())};
  return seen;
}

struct LinearGradients {
  Tensor input, weight, bias;
};

// Both Functions' backward: the input's gradient, its reduction over ranks, the weight's. `gathers_input`: of a part of the tokens.
LinearGradients linear_backward(MegatronKernels& kernels, const Tensor& gradient, const Tensor& input, const Tensor& weight, bool bias,
                                Split split) {
  Device& device = gradient.device();
  LinearGradients made;
  const bool columns = split == Split::columns, in_parts = kernels.tensor_ranks > 1 && kernels.sequence;
  const Tensor whole_gradient = split == Split::rows && in_parts ? gathered(kernels, gradient) : gradient;
  const Tensor whole_input = columns && in_parts ? gathered(kernels, input) : input;
  Tensor product = te_gemm(kernels, gradient, with_last(whole_gradient.sizes(), weight.size(1)), weight.size(0));
  made.input = columns && kernels.tensor_ranks > 1 ? reduced(kernels, product) : product;
  made.weight = weight_gradient(kernels, gradient, weight, whole_gradient.numel() / weight.size(0));
  if (bias) made.bias = device.empty({weight.size(0)}, gradient.dtype());
  return made;
}

}  // namespace

Tensor te_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& weight, const Tensor& bias, Split split) {
  Recorder grad("te_linear", {&input, &weight, &bias});
  const bool in_parts = kernels.tensor_ranks > 1 && kernels.sequence;
  const auto product = [&] {
    const Tensor whole = split == Split::columns && in_parts ? gathered(kernels, input) : input;
    return te_gemm(kernels, input, with_last(whole.sizes(), weight.size(0)), weight.size(1));
  };
  Tensor result = product();
  if (split == Split::rows && kernels.tensor_ranks > 1) result = reduced(kernels, result);
  Saved input_ = grad.save_if(grad.recording(), input);
  Saved weight_ = grad.save_if(grad.recording(), weight);
  grad.attach(result);
  grad.backward([&kernels, split, input_ = std::move(input_), weight_ = std::move(weight_), bias = grad.needs(2)](Tensors& gradients) {
    const Tensor saved_input = input_.unpack(), saved_weight = weight_.unpack();
    LinearGradients made = linear_backward(kernels, gradients[0], saved_input, saved_weight, bias, split);
    return Tensors{made.input, made.weight, made.bias};
  });
  return result;
}

Tensor te_layer_norm_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& norm_weight, const Tensor& norm_bias,
                            const Tensor& weight, const Tensor& bias, Split split) {
  Recorder grad("te_layer_norm_linear", {&input, &norm_weight, &norm_bias, &weight, &bias});
  const bool in_parts = kernels.tensor_ranks > 1 && kernels.sequence;
  const Tensor normed = input.device().empty(input.sizes(), input.dtype());
  const NormStatistics statistics = norm_statistics(input, static_cast<bool>(norm_bias));
  const auto product = [&] {
    const Tensor whole = split == Split::columns && in_parts ? gathered(kernels, normed) : normed;
    return te_gemm(kernels, input, with_last(whole.sizes(), weight.size(0)), weight.size(1));
  };
  const Tensor result = product();
  Saved input_ = grad.save_if(grad.recording(), input), weight_ = grad.save_if(grad.recording(), weight);
  Saved norm_weight_ = grad.save_if(grad.recording(), norm_weight), normed_ = grad.save_if(grad.recording(), normed);
  Saved norm_bias_ = grad.save_if(grad.recording() && norm_bias, norm_bias);
  Saved mean_ = grad.save_if(grad.recording() && statistics.mean, statistics.mean);
  Saved rsigma_ = grad.save_if(grad.recording(), statistics.rsigma);
  grad.attach(result);
  grad.backward([&kernels, split, input_ = std::move(input_), weight_ = std::move(weight_), norm_weight_ = std::move(norm_weight_),
                 norm_bias_ = std::move(norm_bias_), normed_ = std::move(normed_), mean_ = std::move(mean_), rsigma_ = std::move(rsigma_),
                 bias = grad.needs(4)](Tensors& gradients) {
    const Tensor saved_input = input_.unpack(), saved_weight = weight_.unpack(), saved_norm_weight = norm_weight_.unpack();
    const Tensor saved_norm_bias = norm_bias_ ? norm_bias_.unpack() : Tensor();
    const Tensors statistics_of_rows = {mean_ ? mean_.unpack() : Tensor(), rsigma_.unpack()};
    Tensor saved_normed = normed_.unpack();
    LinearGradients made = linear_backward(kernels, gradients[0], saved_normed, saved_weight, bias, split);
    saved_normed.reset();
    Tensors of_norm(3);
    norm_backward(saved_input, saved_norm_weight, saved_norm_bias, of_norm);
    made.input.reset();
    Tensors out(5);
    out[0] = of_norm[0], out[1] = of_norm[1], out[2] = of_norm[2], out[3] = made.weight, out[4] = made.bias;
    return out;
  });
  return result;
}

// All experts' products lie one after the other; so do all the weights' gradients.
Tensor te_grouped_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& weights, bool grouped) {
  Recorder grad("te_grouped_linear", {&input, &weights});
  if (grouped) use_grouped_workspaces(input.device(), kernels);
  const Tensor result = te_gemm(kernels, input, {input.size(0), weights.size(1)}, weights.size(2));
  Saved input_ = grad.save_if(grad.recording(), input), weights_ = grad.save_if(grad.recording(), weights);
  grad.attach(result);
  grad.backward([&kernels, input_ = std::move(input_), weights_ = std::move(weights_)](Tensors& gradients) {
    const Tensor saved_input = input_.unpack(), saved_weights = weights_.unpack();
    Tensors out(2);
    out[0] = te_gemm(kernels, gradients[0], saved_input.sizes(), saved_weights.size(1));
    out[1] = weight_gradient(kernels, gradients[0], saved_weights, saved_input.size(0) / saved_weights.size(0));
    return out;
  });
  return result;
}

Tensor fused_norm(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  Recorder grad("fused_norm", {&input, &weight, &bias});
  const Tensor result = input.device().empty(input.sizes(), input.dtype());
  const NormStatistics statistics = norm_statistics(input, static_cast<bool>(bias));
  Saved input_ = grad.save_if(grad.recording(), input), weight_ = grad.save_if(grad.recording(), weight);
  Saved bias_ = grad.save_if(grad.recording() && bias, bias);
  Saved mean_ = grad.save_if(grad.recording() && statistics.mean, statistics.mean);
  Saved rsigma_ = grad.save_if(grad.recording(), statistics.rsigma);
  grad.attach(result);
  grad.backward([input_ = std::move(input_), weight_ = std::move(weight_), bias_ = std::move(bias_), mean_ = std::move(mean_),
                 rsigma_ = std::move(rsigma_)](Tensors&) {
    const Tensor saved_input = input_.unpack(), saved_weight = weight_.unpack(), saved_bias = bias_ ? bias_.unpack() : Tensor();
    const Tensors statistics_of_rows = {mean_ ? mean_.unpack() : Tensor(), rsigma_.unpack()};
    Tensors out(3);
    norm_backward(saved_input, saved_weight, saved_bias, out);
    return out;
  });
  return result;
}

// fused_attn/fused_attn_f16_arbitrary_seqlen.cu: keeps q, k, v, the output, the softmax's statistics (fp32 [b, heads, s]) and the
// generator's state; backward it makes the gradients, and as a workspace the sums over the output's gradient and the query's gradient, in fp32.
Tensor cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  Recorder grad("cudnn_attention", {&query, &key, &value});
  Device& device = query.device();
  const Meter::Muted no_kernel(device.meter);
  const std::int64_t s = query.size(0), b = query.size(1), heads = query.size(2);
  const auto meter = [s, b, heads, d = query.size(3), keys = key.size(0), dtype = query.dtype()](Device& on, std::int64_t products) {
    if (!on.stopped) on.meter.attention(products * b * heads * s * keys * d, 4 * b * heads * s * d, dtype);
  };
  meter(device, 2);
  const Tensor result = device.empty({s, b, heads, value.size(3)}, query.dtype());
  const Tensor statistics = device.empty({b, heads, s}, Dtype::float32), rng_state = device.empty({2}, Dtype::int64);
  Saved query_ = grad.save_if(grad.recording(), query), key_ = grad.save_if(grad.recording(), key);
  Saved value_ = grad.save_if(grad.recording(), value), result_ = grad.save_if(grad.recording(), result);
  Saved statistics_ = grad.save_if(grad.recording(), statistics), rng_ = grad.save_if(grad.recording(), rng_state);
  grad.attach(result);
  grad.backward([meter, query_ = std::move(query_), key_ = std::move(key_), value_ = std::move(value_), result_ = std::move(result_),
                 statistics_ = std::move(statistics_), rng_ = std::move(rng_)](Tensors& gradients) {
    const Tensors in = {query_.unpack(), key_.unpack(), value_.unpack()};
    const Tensors kept = {result_.unpack(), statistics_.unpack(), rng_.unpack()};
    Device& on = in[0].device();
    const Meter::Muted no_kernel_of_its_own(on.meter);
    meter(on, 5);
    const Tensor gradient = contiguous(gradients[0]);
    const auto like = [&](const Tensor& each) { return on.empty(each.sizes(), each.dtype()); };
    Tensors out = {like(in[0]), like(in[1]), like(in[2])};
    const Tensor sums = on.empty(kept[1].sizes(), Dtype::float32), accumulator = on.empty(in[0].sizes(), Dtype::float32);
    return out;
  });
  return result;
}

Tensor te_flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, bool deterministic) {
  Recorder grad("flash_attention", {&query, &key, &value});
  Device& device = query.device();
  const Meter::Muted no_kernel(device.meter);
  const std::int64_t b = query.size(0), s = query.size(1), heads = query.size(2), d = query.size(3), keys = key.size(1);
  const auto meter = [=, dtype = query.dtype()](Device& on, std::int64_t products) {
    if (!on.stopped) on.meter.attention(products * b * heads * s * keys * d, 4 * b * heads * s * d, dtype);
  };
  meter(device, 2);
  const Tensor result = device.empty(query.sizes(), query.dtype());
  const Tensor logsumexp = device.empty({b, heads, s}, Dtype::float32), rng_state = device.empty({2}, Dtype::int64);
  Saved query_ = grad.save_if(grad.recording(), query), key_ = grad.save_if(grad.recording(), key);
  Saved value_ = grad.save_if(grad.recording(), value), result_ = grad.save_if(grad.recording(), result);
  Saved logsumexp_ = grad.save_if(grad.recording(), logsumexp), rng_ = grad.save_if(grad.recording(), rng_state);
  grad.attach(result);
  grad.backward([=, query_ = std::move(query_), key_ = std::move(key_), value_ = std::move(value_), result_ = std::move(result_),
                 logsumexp_ = std::move(logsumexp_), rng_ = std::move(rng_)](Tensors& gradients) {
    const Tensors in = {query_.unpack(), key_.unpack(), value_.unpack()};
    const Tensors kept = {result_.unpack(), logsumexp_.unpack(), rng_.unpack()};
    Device& on = in[0].device();
    const Meter::Muted no_kernel_of_its_own(on.meter);
    meter(on, 5);
    const Tensor gradient = contiguous(gradients[0]);
    const auto like = [&](const Tensor& each) { return on.empty(each.sizes(), each.dtype()); };
    Tensors out = {like(in[0]), like(in[1]), like(in[2])};
    const std::int64_t rounded = divide_up(s, 128) * 128, width = divide_up(d, 32) * 32;
    const std::int64_t parts = deterministic ? divide_up(on.gpu().sms, b * heads) : 1;
    const Tensor sums = on.empty({b, heads, rounded}, Dtype::float32);
    const Tensor accumulator = on.empty({parts, b, rounded, heads, width}, Dtype::float32);
    if (in[1].size(2) != heads) {
      const Dims expanded{b, keys, heads, d};
      const Tensor dk = on.empty(expanded, in[1].dtype()), dv = on.empty(expanded, in[2].dtype());
    }
    return out;
  });
  return result;
}

}  // namespace llmem
