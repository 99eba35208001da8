#include <algorithm>
#include <cmath>

#include "tensor/autograd.h"
#include "tensor/ops.h"
#include "tensor/ring_attention.h"
#include "tensor/unpadded.h"

namespace llmem {

namespace {

// grad_input, and a product of its size while it is made (aten/src/ATen/native/cuda/SoftMax.cu, softmax_backward_cuda)
Tensor softmax(const Tensor& self) {
  Recorder grad("softmax", {&self});
  const Tensor result = self.device().empty(self.sizes(), self.dtype());
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors&) {
    const Tensor saved = result_.unpack();
    const Tensor input_gradient = saved.device().empty(saved.sizes(), saved.dtype());
    saved.device().scratch(saved->storage->bytes);
    return Tensors{input_gradient};
  });
  return result;
}

// softmax(half, dtype=float32) has a kernel of its own, which casts on the way (aten/src/ATen/native/SoftMax.cpp, half_to_float).
Tensor softmax_half_to_float(const Tensor& self) {
  Recorder grad("softmax", {&self});
  const Tensor result = self.device().empty(self.sizes(), Dtype::float32);
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_), dtype = self.dtype()](Tensors&) {
    const Tensor saved = result_.unpack();
    const Tensor input_gradient = saved.device().empty(saved.sizes(), dtype);
    saved.device().scratch(saved->storage->bytes);
    return Tensors{input_gradient};
  });
  return result;
}

// Multiply-adds of query by key and of probabilities by value, or of the half of them that a causal mask leaves; backward has five such products
// for two (FlashAttention-2, section 3.1.2).
void meter_attention(const Tensor& query, const Tensor& key, bool backward, bool causal = true) {
  Device& device = query.device();
  if (device.stopped) return;
  const Dims& q = query.sizes();
  const std::int64_t forward = (causal ? 2 : 4) * q[0] * q[1] * q[2] * key.size(2) * q[3];
  const std::int64_t bytes = 2 * (query.bytes_read() + key.bytes_read());
  device.meter.attention(backward ? forward / 2 * 5 : forward, backward ? 2 * bytes : bytes, query.dtype());
}

// A fresh [B, S, heads, d] seen as [B, heads, S, d]: how the attention kernels lay out what they make.
Tensor token_major(Device& device, const Dims& sizes, Dtype dtype) {
  const Tensor made = device.empty({sizes[0], sizes[2], sizes[1], sizes[3]}, dtype);
  const Tensor seen = detach(made);
  std::swap(seen->layout.sizes[1], seen->layout.sizes[2]);
  std::swap(seen->layout.strides[1], seen->layout.strides[2]);
  return seen;
}

// torch.empty_like of what the kernel sees: query, key or value with tokens before heads.
Tensor like_input(const Tensor& input) {
  return input.device().empty_strided({input.sizes(), strides_like(input.layout())}, input.dtype());
}

Tensors saved_inputs(const Saved& key, const Saved& query, const Saved& value) { return {key.unpack(), query.unpack(), value.unpack()}; }

// aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, mha_bwd: dq, dk, dv; softmax_d [B, H, S'] and the fp32 accumulator of dq
// [B, S', H, d'], S' = S rounded up to 128, d' = d rounded up to 32; with fewer key heads also dk, dv of every query head.
Tensors flash_backward(const Tensor& query, const Tensor& key, const Tensor& value, bool causal = true) {
  Device& device = query.device();
  const Meter::Muted no_kernel(device.meter);
  meter_attention(query, key, true, causal);
  const std::int64_t rows = query.size(0), heads = query.size(1), sequence = divide_up(query.size(2), 128) * 128, d = query.size(3);
  const Tensor dq = like_input(query), dk = like_input(key), dv = like_input(value);
  const Tensor softmax_d = device.empty({rows, heads, sequence}, Dtype::float32);
  const Tensor dq_accumulator = device.empty({rows, sequence, heads, divide_up(d, 32) * 32}, Dtype::float32);
  if (key.size(1) != heads) {
    const Dims expanded{rows, key.size(2), heads, d};
    const Tensor dk_expanded = device.empty(expanded, key.dtype()), dv_expanded = device.empty(expanded, value.dtype());
  }
  return {dq, dk, dv};
}

// flash_api.cpp, num_splits_heuristic: in how many parts the keys are worked on, where rows and heads leave multiprocessors idle.
int flash_splits(const GpuKind& gpu, std::int64_t blocks, std::int64_t key_blocks) {
  const std::int64_t processors = 2 * gpu.sms;
  if (static_cast<float>(blocks) >= 0.8F * static_cast<float>(processors)) return 1;
  const std::int64_t most = std::min<std::int64_t>({128, processors, key_blocks});
  const auto eligible = [&](std::int64_t n) { return n == 1 || divide_up(key_blocks, n) != divide_up(key_blocks, n - 1); };
  const auto efficiency = [&](std::int64_t n) {
    const float waves = static_cast<float>(blocks * n) / static_cast<float>(processors);
    return waves / std::ceil(waves);
  };
  float best = 0.0F;
  for (std::int64_t n = 1; n <= most; ++n) {
    if (eligible(n)) best = std::max(best, efficiency(n));
  }
  for (std::int64_t n = 1; n <= most; ++n) {
    if (eligible(n) && efficiency(n) >= 0.85F * best) return static_cast<int>(n);
  }
  return 1;
}

// flash_api.cpp, set_params_splitkv: log-sum-exp and output of each part, in fp32
Tensors flash_parts(const Tensor& query, const Tensor& key) {
  Device& device = query.device();
  const std::int64_t d = query.size(3), rounded = d <= 192 ? divide_up(d, 32) * 32 : 256;
  const std::int64_t key_block = d <= 64 ? 256 : (d <= 128 ? 128 : 64);
  const Dims& q = query.sizes();
  const int splits = flash_splits(device.gpu(), q[0] * q[1] * divide_up(q[2], 64), divide_up(key.size(2), key_block));
  if (splits == 1) return {};
  const Tensor sums = device.empty({splits, q[0], q[1], q[2]}, Dtype::float32);
  return {sums, device.empty({splits, q[0], q[1], q[2], rounded}, Dtype::float32)};
}

// What the kernel takes: [B, S, heads, d] without gaps.
Tensor as_token_major(const Tensor& states) { return contiguous(transpose(states, 1, 2)); }

// Flash attention keeps q, k, v, the output, its log-sum-exp (fp32 [B, H, S]), the generator's state (2 x 8 bytes) and an 8-byte
// tensor that is not used (flash_api.cpp, mha_fwd), which the package flash-attn has not (csrc/flash_attn/flash_api.cpp, FlashAttnFunc).
enum class FlashBuild : std::uint8_t { pytorch, package };
FlashForward flash_kernel(const Tensor& query, const Tensor& key, double dropout, FlashBuild build, bool causal = true) {
  Device& device = query.device();
  const Meter::Muted no_kernel(device.meter);
  meter_attention(query, key, false, causal);
  FlashForward made;
  made.output = like_input(query);
  made.logsumexp = device.empty({query.size(0), query.size(1), query.size(2)}, Dtype::float32);
  const Tensors parts = dropout > 0 ? Tensors() : flash_parts(query, key);  // "SplitKV is not implemented for dropout"
  made.rng_state = device.empty({2}, Dtype::int64);
  if (build == FlashBuild::pytorch) made.unused = device.empty({1}, Dtype::int64);
  if (dropout > 0 && device.saving_frame) device.scratch(Bytes{16});
  return made;
}

Tensor flash(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, FlashBuild build = FlashBuild::pytorch) {
  Recorder grad("flash_attention", {&query, &key, &value});
  Saved key_ = grad.save_if(grad.recording(), key);
  Saved query_ = grad.save_if(grad.recording(), query);
  Saved value_ = grad.save_if(grad.recording(), value);
  const auto kernel = [&] {
    const FlashForward made = flash_kernel(query, key, dropout, build);
    return Tensors{made.output, made.logsumexp, made.rng_state, made.unused};
  };
  CheckpointFrame* frame = query.device().saving_frame.get();
  const Tensors made = frame ? frame->attention(kernel) : kernel();
  const Tensor &result = made[0], &logsumexp = made[1], &rng_state = made[2], &unused = made[3];
  Saved logsumexp_ = grad.save_if(grad.recording(), logsumexp);
  Saved result_ = grad.save_if(grad.recording(), result);
  Saved rng_ = grad.save_if(grad.recording(), rng_state);
  Saved unused_ = grad.save_if(grad.recording() && unused, unused);
  grad.attach(result);
  grad.backward([key_ = std::move(key_), query_ = std::move(query_), value_ = std::move(value_), logsumexp_ = std::move(logsumexp_),
                 result_ = std::move(result_), rng_ = std::move(rng_), unused_ = std::move(unused_)](Tensors& gradients) {
    const Tensors in = saved_inputs(key_, query_, value_);
    const Tensors kept = {logsumexp_.unpack(), result_.unpack(), rng_.unpack(), unused_ ? unused_.unpack() : Tensor()};
    const Tensor gradient = as_token_major(gradients[0]), output = as_token_major(kept[1]);
    return flash_backward(in[1], in[0], in[2]);
  });
  return result;
}

// Floats that the memory-efficient backward kernel wants for partial query gradients, of one head of one row
// (aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_backward.h, workspace_elements_gq: per block of queries and
// columns a buffer and four counters). Block shapes per head size from the kernels that are built (kernels/cutlassB.h), as measured
// with the real kernel selection at d = 32 … 256.
std::int64_t efficient_workspace(const GpuKind& gpu, std::int64_t sequence, std::int64_t key_sequence, std::int64_t d,
                                 std::int64_t value_dim, Dtype dtype) {
  const bool half = dtype != Dtype::float32;
  const bool small_shared_memory = gpu.compute_capability == 86 || gpu.compute_capability == 89;
  const bool ampere = gpu.compute_capability >= 80;
  const bool narrow = d <= 64 || d > 128 || !half || !ampere || (small_shared_memory && d <= 96);
  const std::int64_t block_queries = d <= 64 || (!half && !ampere) ? 64 : 128;
  const std::int64_t block_columns = narrow ? 64 : 128;
  const std::int64_t queries = divide_up(sequence, block_queries) * divide_up(d, block_columns) * (block_queries * block_columns + 4);
  // Above 128, outputs in half precision do not stay in registers: key and value gradients have fp32 buffers, too (workspace_elements_gk, _gv).
  const std::int64_t columns = (divide_up(d, 128) + divide_up(value_dim, 128)) * 128;
  const std::int64_t keys = half && d > 128 ? divide_up(key_sequence, 64) * 64 * columns : 0;
  return queries + keys;
}

// aten/src/ATen/native/transformers/cuda/attention_backward.cu, _efficient_attention_backward: dq, dk, dv (and expanded dk, dv where there are
// fewer key heads), delta = (grad * out).sum(-1) made over an fp32 product, then the workspace.
// A bias that wants a gradient has one of its own: [B, H, S, S'], its rows of a multiple of 16 elements.
Tensors efficient_backward(const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias = {}) {
  Device& device = query.device();
  const Tensor token_by_token = contiguous(transpose(gradient, 1, 2));
  const Meter::Muted no_kernel(device.meter);
  meter_attention(query, key, true);
  const std::int64_t rows = query.size(0), heads = query.size(1), sequence = query.size(2), d = query.size(3);
  const auto heads_major = [&](const Tensor& input) { return token_major(device, input.sizes(), input.dtype()); };
  const Tensor dq = heads_major(query), dk = heads_major(key), dv = heads_major(value);
  Tensor dk_expanded, dv_expanded;
  if (key.size(1) != heads) {
    dk_expanded = device.empty({rows, sequence, heads, d}, key.dtype());
    dv_expanded = device.empty({rows, sequence, heads, value.size(3)}, value.dtype());
  }
  Tensor bias_gradient;
  if (bias) {
    const std::int64_t keys = key.size(2);
    const Tensor rows_of_16 = device.empty({rows, heads, sequence, divide_up(keys, 16) * 16}, bias.dtype());
    bias_gradient = keys % 16 == 0 ? rows_of_16 : narrow(rows_of_16, 3, 0, keys);
  }
  Tensor delta;
  if (query.dtype() == Dtype::float32) {
    const Tensor product = device.empty({rows, sequence, heads, value.size(3)}, Dtype::float32);
    const Tensor sum = device.empty({rows, sequence, heads}, Dtype::float32);
    delta = device.empty({rows, heads, sequence}, Dtype::float32);
  } else {
    delta = device.empty({rows, heads, sequence}, Dtype::float32);
  }
  device.scratch(Bytes{4 * rows * heads * efficient_workspace(device.gpu(), sequence, key.size(2), d, value.size(3), query.dtype())});
  return {dq, dk, dv, bias_gradient};
}

// The memory-efficient kernel keeps q, k, v, the output, its log-sum-exp (fp32, S rounded up to 32) and the generator's seed and offset.
// A bias [B, 1, S, S'] is kept as well. With dropout, seed and offset are numbers of the host (attention.cu, _efficient_attention_forward).
Tensor efficient(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias, double dropout) {
  Recorder grad("efficient_attention", {&query, &key, &value, &bias});
  Device& device = query.device();
  Saved bias_ = grad.save_if(grad.recording() && bias, bias);
  Saved key_ = grad.save_if(grad.recording(), key);
  Saved query_ = grad.save_if(grad.recording(), query);
  Saved value_ = grad.save_if(grad.recording(), value);
  const Meter::Muted no_kernel(device.meter);
  meter_attention(query, key, false);
  Tensor seed, offset;
  if (dropout <= 0) {
    seed = device.empty({1}, Dtype::int64);
    offset = device.empty({1}, Dtype::int64);
  }
  Dims sizes = query.sizes();
  sizes[3] = value.size(3);
  const Tensor result = token_major(device, sizes, query.dtype());
  const std::int64_t sums = grad.recording() ? divide_up(query.size(2), 32) * 32 : 0;  // compute_log_sumexp
  const Tensor logsumexp = device.empty({query.size(0), query.size(1), sums}, Dtype::float32);
  if (query.dtype() != Dtype::float32 && std::max(query.size(3), value.size(3)) > 128)
    device.scratch(Bytes{4 * result.numel()});  // the output in fp32, where it does not stay in registers
  Saved logsumexp_ = grad.save_if(grad.recording(), logsumexp);
  Saved result_ = grad.save_if(grad.recording(), result);
  Saved offset_ = grad.save_if(grad.recording() && offset, offset);
  Saved seed_ = grad.save_if(grad.recording() && seed, seed);
  grad.attach(result);
  grad.backward([bias_ = std::move(bias_), key_ = std::move(key_), query_ = std::move(query_), value_ = std::move(value_),
                 logsumexp_ = std::move(logsumexp_), result_ = std::move(result_), offset_ = std::move(offset_), seed_ = std::move(seed_),
                 of_bias = grad.needs(3)](Tensors& gradients) {
    const Tensor mask = bias_ ? bias_.unpack() : Tensor();
    const Tensors in = saved_inputs(key_, query_, value_);
    const Tensors kept = {logsumexp_.unpack(), result_.unpack(), offset_ ? offset_.unpack() : Tensor(), seed_ ? seed_.unpack() : Tensor()};
    return efficient_backward(gradients[0], in[1], in[0], in[2], of_bias ? mask : Tensor());
  });
  return result;
}

}  // namespace

Tensor softmax_float(const Tensor& self) {
  if (self.dtype() == Dtype::float16) return softmax_half_to_float(self);
  return softmax(to(self, Dtype::float32));
}

Tensor softmax_in(const Tensor& self, Dtype dtype) { return dtype == Dtype::float32 ? softmax_float(self) : softmax(to(self, dtype)); }

Tensor softmax_last(const Tensor& self) { return softmax(autocast_float(self)); }

namespace {

// aten/src/ATen/native/transformers/attention.cpp, convert_boolean_attn_mask: 0 where a query may look, else -inf.
Tensor bias_of(const Tensor& mask, Dtype dtype) {
  Device& device = mask.device();
  const OpScope op(device, "attn_mask");
  Tensor bias;
  if (mask.dtype() != Dtype::boolean) {
    bias = autocast(mask);  // numbers already
  } else {
    const Tensor zero = device.empty({}, dtype), minus_infinity = device.empty({}, dtype);
    bias = device.empty(mask.sizes(), dtype);
  }
  return bias;
}

// preprocess_mask, pad_bias<8>: rows of a multiple of 8 elements, of which the kernel sees the first.
constexpr std::int64_t kMaskAlignment = 8;
Tensor padded_bias_of(const Tensor& mask, Dtype dtype) {
  const Tensor bias = bias_of(mask, dtype);
  const std::int64_t keys = mask.size(-1);
  if (keys % kMaskAlignment == 0) return bias;
  Device& device = mask.device();
  const OpScope op(device, "attn_mask");
  Dims padded = mask.sizes();
  padded[padded.size() - 1] = divide_up(keys, kMaskAlignment) * kMaskAlignment;
  return device.empty(padded, dtype);
}

}  // namespace

namespace {

// preprocess_mask of numbers that want a gradient
Tensor trained_bias(const Tensor& query, const Tensor& key, const Tensor& mask) {
  const std::int64_t keys = key.size(2), missing = divide_up(keys, kMaskAlignment) * kMaskAlignment - keys;
  Tensor bias = autocast(mask);
  if (missing > 0) bias = narrow(pad_along(bias, 3, missing), 3, 0, keys);
  return expand(bias, {query.size(0), query.size(1), query.size(2), keys});
}

// transformers/attention.cpp, pad_last_dim<8>: the kernel takes head sizes that are multiples of 8.
Tensor flash_of_any_head(const Tensor& query, const Tensor& key, const Tensor& value, double dropout,
                         FlashBuild build = FlashBuild::pytorch) {
  const std::int64_t d = query.size(3), padding = divide_up(d, 8) * 8 - d;
  if (padding == 0) return flash(query, key, value, dropout, build);
  const Tensor q = pad_last(query, padding);
  const Tensor k = pad_last(key, padding);
  const Tensor v = pad_last(value, padding);
  return narrow(flash(q, k, v, dropout, build), 3, 0, d);
}

}  // namespace

namespace {

// sdp_utils.cpp: the memory-efficient kernel takes heads by minimum_gemm_alignment, and no bfloat16 before Ampere.
bool efficient_takes(const Tensor& query) {
  const bool ampere = query.device().gpu().compute_capability >= 80;
  const std::int64_t alignment = query.dtype() != Dtype::float32 ? 8 : ampere ? 4 : 1;
  return query.size(3) % alignment == 0 && (ampere || query.dtype() != Dtype::bfloat16);
}

// ones({L, S}).tril() as numbers
Tensor causal_bias(Device& device, std::int64_t queries, std::int64_t keys, Dtype dtype) {
  Tensor mask = device.empty({queries, keys}, Dtype::boolean);
  mask = device.empty({queries, keys}, Dtype::boolean);
  return bias_of(mask, dtype);
}

// repeat_interleave over the heads
Tensor for_each_head(const Tensor& states, std::int64_t heads) {
  const Dims& s = states.sizes();
  if (s[1] == heads) return states;
  return reshape(expand(unsqueeze(states, 2), {s[0], s[1], heads / s[1], s[2], s[3]}), {s[0], heads, s[2], s[3]});
}

// aten/src/ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math: in fp32. `half_weights` is its other result.
Tensor composite(const Tensor& q, const Tensor& k, const Tensor& v, double probability, bool causal, Tensor& half_weights) {
  Device& device = q.device();
  const With no_autocast(device.autocast, std::optional<Dtype>());
  const Dtype origin = q.dtype();
  const auto accurate = [&](const Tensor& states) { return origin == Dtype::float32 ? states : to(states, Dtype::float32); };
  const Tensor query_acc = accurate(q);
  const Tensor key_acc = accurate(k);
  const Tensor value_acc = accurate(v);
  const Tensor query = mul_scalar(query_acc);
  const Tensor bias = causal ? causal_bias(device, q.size(2), k.size(2), query.dtype()) : Tensor();
  const Tensor keys = for_each_head(key_acc, q.size(1));
  const Tensor values = for_each_head(value_acc, q.size(1));
  const auto scores = [&] {
    const Tensor scaled = mul_scalar(transpose(keys, 2, 3));
    return matmul(query, scaled);
  };
  Tensor weights = scores();
  {  // _safe_softmax
    const Tensor probabilities = softmax_last(weights);
    Dims rows = weights.sizes();
    rows[3] = 1;
    {
      const Tensor masked = device.empty(weights.sizes(), Dtype::boolean), masked_rows = device.empty(rows, Dtype::boolean);
      device.scratch(size_of(Dtype::float32));
    }
    weights = probabilities;
  }
  weights = dropout(weights, probability);
  if (origin != Dtype::float32) half_weights = unary_no_grad(weights, "to", origin);
  const auto product = [&] {
    const Tensor whole = matmul(weights, values);
    return origin == Dtype::float32 ? whole : to(whole, origin);
  };
  return product();
}

Tensor composite(const Tensor& q, const Tensor& k, const Tensor& v, double probability, bool causal) {
  Tensor half_weights;
  return composite(q, k, v, probability, causal, half_weights);
}

}  // namespace

// aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, select_sdp_backend: flash attention takes half precision only, and no mask.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double dropout) {
  const Tensor v = autocast(value);
  const Tensor k = autocast(key);
  const Tensor q = autocast(query);
  if (mask.requires_grad()) return efficient(q, k, v, trained_bias(q, k, mask), dropout);
  if (mask && !efficient_takes(q)) {
    const Tensor bias = bias_of(mask, q.dtype());
    return composite(q, k, v, dropout, false);
  }
  if (mask) return efficient(q, k, v, padded_bias_of(mask, q.dtype()), dropout);
  const bool flash =
      q.dtype() != Dtype::float32 && v.size(3) == q.size(3) && q.size(3) <= 256 && query.device().gpu().compute_capability >= 80;
  if (flash) return flash_of_any_head(q, k, v, dropout);
  return efficient_takes(q) ? efficient(q, k, v, {}, dropout) : composite(q, k, v, dropout, q.size(2) > 1);
}

// transformers modeling_flash_attention_utils.py, fa_peft_integration_check: what is not in half precision is cast.
Tensor flash_attention_2(const Tensor& query, const Tensor& key, const Tensor& value, Dtype half, const Tensor& mask) {
  const Tensor q = query.dtype() == Dtype::float32 ? to(query, half) : query;
  const Tensor k = key.dtype() == Dtype::float32 ? to(key, half) : key;
  const Tensor v = value.dtype() == Dtype::float32 ? to(value, half) : value;
  if (mask) return unpadded_attention(q, k, v, mask);
  return flash_of_any_head(q, k, v, 0, FlashBuild::package);
}

FlashForward flash_forward(const Tensor& query, const Tensor& key, double dropout, bool causal) {
  FlashForward made = flash_kernel(query, key, dropout, FlashBuild::pytorch, causal);
  // Called from Python, the generator's state is given back in a tensor of its own.
  if (dropout > 0 && !query.device().saving_frame) made.rng_state = query.device().empty({2}, Dtype::int64);
  return made;
}

Tensors flash_backward(const Tensor& gradient, const Tensor& output, const Tensor& query, const Tensor& key, const Tensor& value,
                       bool causal) {
  const Tensor upstream = as_token_major(gradient), out = as_token_major(output);
  return flash_backward(query, key, value, causal);
}

}  // namespace llmem
