#include "tensor/tiled.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/autograd.h"
#include "tensor/device.h"
#include "tensor/ops.h"
#include "tensor/patches.h"

// What TRL's losses are made of (trl/kernels/chunked_logprob.py), and the indexing around them.
namespace llmem {

namespace {

constexpr std::int64_t token_chunk = 4096, word_chunk = 32768;

Dtype compute_dtype(const Tensor& hidden) { return hidden.device().autocast.value_or(hidden.dtype()); }

// Runs over tiles of tokens and words. The names `hidden_chunk` and, in backward, `w_chunk` live until they are bound again; what they are bound
// to at last is returned.
// `bias_gradient`: each tile's columns are summed into it.
Tensors over_tiles(const Tensor& hidden, const Tensor& weight, const Tensor& bias, Dtype dtype, bool keeps_weight_chunk,
                   const Tensor& bias_gradient = {}) {
  Device& device = hidden.device();
  const With no_grad(device.grad_enabled, false);
  const std::int64_t tokens = hidden.size(0), words = weight.size(0), width = hidden.size(1);
  Tensor hidden_chunk, weight_chunk;
  for (std::int64_t start = 0; start < tokens; start += token_chunk) {
    if (hidden.dtype() != dtype) hidden_chunk = device.empty({std::min(token_chunk, tokens - start), width}, dtype);
    for (std::int64_t word = 0; word < words; word += word_chunk) {
      if (weight.dtype() != dtype) weight_chunk = device.empty({std::min(word_chunk, words - word), width}, dtype);
      device.use_cublas();
      const std::int64_t rows = std::min(token_chunk, tokens - start), columns = std::min(word_chunk, words - word);
      const std::int64_t itemsize = size_of(dtype).count;
      for (int i = 0; i < (keeps_weight_chunk ? 3 : 1); ++i)  // backward: the logits again, and two gradients
        device.meter.product(2 * rows * columns * width, itemsize * (rows * columns + (rows + columns) * width), 0, dtype);
      if (!keeps_weight_chunk) weight_chunk.reset();
      if (bias && bias.dtype() != dtype) device.scratch(size_of(dtype) * columns);
      if (bias_gradient) {
        const Tensor sum = device.empty({columns}, Dtype::float32);
        reduction_scratch(device, column_sum_scratch(device.gpu(), rows, columns));
      }
    }
  }
  return {hidden_chunk, weight_chunk};
}

Tensors tiled_gradients(const Tensor& hidden, const Tensor& weight, const Tensor& bias, Dtype dtype, bool wants_weight, bool wants_bias) {
  Device& device = hidden.device();
  Tensor hidden_gradient = device.empty(hidden.sizes(), Dtype::float32);
  Tensor weight_gradient = wants_weight ? device.empty(weight.sizes(), Dtype::float32) : Tensor();
  Tensor bias_gradient = wants_bias ? device.empty(bias.sizes(), Dtype::float32) : Tensor();
  const Tensor tile = device.empty({std::min(hidden.size(0), token_chunk), word_chunk}, dtype);
  const Tensors last = over_tiles(hidden, weight, bias, dtype, true, bias_gradient);
  const Tensor cast_hidden = to(hidden_gradient, hidden.dtype());
  const Tensor cast_weight = weight_gradient ? to(weight_gradient, weight.dtype()) : Tensor();
  return {cast_hidden, cast_weight, bias_gradient ? to(bias_gradient, bias.dtype()) : Tensor()};
}

}  // namespace

namespace {

// aten/src/ATen/native/cuda/Indexing.cu, index_put_with_sort_kernel: keys, which are below `places`, and their order are sorted.
void sort_linear_index(Device& device, std::int64_t count, std::int64_t places) {
  const auto vector = [&] { return device.empty({count}, Dtype::int64); };
  const Tensor sorted = vector(), original = vector();
  const Tensor range = vector();
  device.scratch(sort_scratch(device.gpu(), count, std::max<std::int64_t>(places - 1, 1)));
}

// The same over a tensor of zeros: `indices` makes the two index tensors, which last until the linear index is computed.
template <class Indices>
Tensor put_rows(Device& device, const Dims& sizes, Dtype dtype, std::int64_t count, Indices&& indices) {
  const Tensor out = device.empty(sizes, dtype);
  const auto vector = [&] { return device.empty({count}, Dtype::int64); };
  Tensor linear;
  {
    const auto held = indices();
    {
      const Tensor scaled = vector();
      linear = vector();
    }
    const Tensor product = vector();
    device.scratch(Bytes{8} * count);
  }
  sort_linear_index(device, count, sizes[0] * sizes[1]);
  return out;
}

Dims rows_of(const Dims& sizes, std::int64_t count) {
  Dims rows{count};
  for (int d = 2; d < sizes.size(); ++d) rows.push_back(sizes[d]);
  return rows;
}

// aten/src/ATen/native/cuda/Nonzero.cu: a count by cub::DeviceReduce (a float a block, ten blocks a multiprocessor, unless one block does),
// then cub::DeviceSelect.
void nonzero_scratch(Device& device, std::int64_t count) {
  const Tensor counter = device.empty({1}, Dtype::int32);
  device.scratch(count <= 4096 ? Bytes{1} : Bytes{255} + round_up(Bytes{40} * device.gpu().sms, Bytes{256}));
  device.scratch(Bytes{1023});
}

// nonzero() of a mask of ones
Tensor nonzero(const Tensor& mask) { return nonzero_of(mask, mask.numel()); }

}  // namespace

Tensor nonzero_of(const Tensor& mask, std::int64_t count) {
  nonzero_scratch(mask.device(), mask.numel());
  return mask.device().empty({mask.dim(), count}, Dtype::int64);
}

Tensor index_rows(const Tensor& self, std::int64_t count, const Tensor& first, const Tensor& second) {
  Recorder grad("index", {&self});
  Saved first_ = grad.save_if(grad.recording(), first);
  Saved second_ = grad.save_if(grad.recording(), second);
  const Tensor result = self.device().empty(rows_of(self.sizes(), count), self.dtype());
  grad.attach(result);
  grad.backward([first_ = std::move(first_), second_ = std::move(second_), sizes = self.sizes(), count](Tensors& gradients) {
    const Tensors saved{first_.unpack(), second_.unpack()};
    return Tensors{put_rows(gradients[0].device(), sizes, gradients[0].dtype(), count, [] { return Tensor(); })};
  });
  return result;
}

Tensor index_first(const Tensor& self, const Tensor& indices) {
  Recorder grad("index", {&self});
  Saved indices_ = grad.save_if(grad.recording(), indices);
  Dims sizes = self.sizes();
  sizes[0] = indices.numel();
  const Tensor result = self.device().empty(sizes, self.dtype());
  grad.attach(result);
  grad.backward([indices_ = std::move(indices_), sizes = self.sizes()](Tensors& gradients) {
    const Tensor saved = indices_.unpack();
    Device& device = gradients[0].device();
    const auto vector = [&] { return device.empty({saved.numel()}, Dtype::int64); };
    const Tensor out = device.empty(sizes, gradients[0].dtype());
    Tensor wrapped = vector();
    const Tensor linear = vector();
    wrapped.reset();
    sort_linear_index(device, saved.numel(), sizes[0]);
    return Tensors{out};
  });
  return result;
}

Tensor index_masked(const Tensor& self, const Tensor& mask) {
  Recorder grad("index", {&self});
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Tensor indices = nonzero(mask);
  const Tensor result = self.device().empty(rows_of(self.sizes(), mask.numel()), self.dtype());
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_), sizes = self.sizes()](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    return Tensors{put_rows(saved.device(), sizes, gradients[0].dtype(), saved.numel(), [&] { return nonzero(saved); })};
  });
  return result;
}

namespace {

// What ChunkedLogProbFunction.forward computes, with or without what TRL's metrics want of it.
TiledStatistics statistics_of(const Tensor& hidden, const Tensor& weight, const Tensor& bias, Dtype dtype, bool all, Tensor& log_z) {
  Device& device = hidden.device();
  const std::int64_t tokens = hidden.size(0);
  const auto one_a_token = [&](Dtype of = Dtype::float32) { return device.empty({tokens}, of); };
  std::vector<Tensor> running;
  for (int i = 0; i < 7; ++i) running.push_back(one_a_token());
  const Tensor tile = device.empty({std::min(tokens, token_chunk), word_chunk}, dtype);
  const Tensors last = over_tiles(hidden, weight, bias, dtype, false);
  {
    const Tensor logarithm = one_a_token();
    log_z = one_a_token();
  }
  TiledStatistics made;
  made.log_probability = one_a_token();
  if (!all) return made;
  {
    const Tensor mean = one_a_token();
    made.entropy = one_a_token();
  }
  const Tensor is_largest = one_a_token(Dtype::boolean), is_first = one_a_token(Dtype::boolean);
  made.is_top1 = one_a_token(Dtype::boolean);
  return made;
}

TiledStatistics tiled(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets, bool all) {
  Recorder grad("ChunkedLogProb", {&hidden, &weight, &bias});
  const Dtype dtype = compute_dtype(hidden);
  Tensor log_z;
  const TiledStatistics made = statistics_of(hidden, weight, bias, dtype, all, log_z);
  Saved hidden_ = grad.save_if(grad.recording(), hidden);
  Saved weight_ = grad.save_if(grad.recording(), weight);
  Saved bias_ = grad.save_if(grad.recording() && bias, bias);
  Saved targets_ = grad.save_if(grad.recording(), targets);
  Saved log_z_ = grad.save_if(grad.recording(), log_z);
  Saved entropy_ = grad.save_if(grad.recording(), all ? made.entropy : log_z);
  grad.attach(made.log_probability);
  if (all) grad.attach(made.entropy);
  grad.backward([hidden_ = std::move(hidden_), weight_ = std::move(weight_), bias_ = std::move(bias_), targets_ = std::move(targets_),
                 log_z_ = std::move(log_z_), entropy_ = std::move(entropy_), dtype, wants_weight = grad.needs(1),
                 wants_bias = grad.needs(2)](Tensors&) {
    const Tensor hidden_rows = hidden_.unpack(), head = weight_.unpack(), head_bias = bias_ ? bias_.unpack() : Tensor();
    const Tensors others{targets_.unpack(), log_z_.unpack(), entropy_.unpack()};
    return tiled_gradients(hidden_rows, head, head_bias, dtype, wants_weight, wants_bias);
  });
  return made;
}

}  // namespace

Tensor tiled_log_probabilities(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets) {
  return tiled(hidden, weight, bias, targets, false).log_probability;
}

TiledStatistics tiled_statistics(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets) {
  return tiled(hidden, weight, bias, targets, true);
}

namespace {

// out-of-place masked_scatter: a copy of the zeros, a prefix sum over the mask
Tensor scattered(const Tensor& source, const Tensor& mask) {
  Device& device = source.device();
  const Tensor result = device.empty(mask.sizes(), source.dtype());
  const Tensor positions = device.empty({mask.numel()}, Dtype::int64);
  device.scratch(scan_scratch(mask.numel()));
  return result;
}

}  // namespace

// zeros.masked_scatter(ones, source). Its gradient selects by the mask; a mask without values selects nothing, and what is missing is made of
// zeros (FunctionsManual.cpp, masked_scatter_backward).
Tensor scatter_into_zeros(const Tensor& source, const Dims& sizes) {
  Recorder grad("masked_scatter", {&source});
  Device& device = source.device();
  const Tensor zeros = device.empty(sizes, source.dtype());
  const Tensor mask = device.empty(sizes, Dtype::boolean);
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Tensor result = scattered(source, mask);
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_), count = source.numel()](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    Device& owner = saved.device();
    nonzero_scratch(owner, saved.numel());
    const Tensor missing = owner.empty({count}, gradients[0].dtype());
    return Tensors{owner.empty({count}, gradients[0].dtype())};
  });
  return result;
}

// backward: grad.masked_select(mask), which indexes by the mask
Tensor scatter_masked(const Tensor& source, const Tensor& mask) {
  Recorder grad("masked_scatter", {&source});
  const Tensor zeros = source.device().empty(mask.sizes(), source.dtype());
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Tensor result = scattered(source, mask);
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    const Tensor indices = nonzero(saved);
    return Tensors{saved.device().empty({saved.numel()}, gradients[0].dtype())};
  });
  return result;
}

// aten/src/ATen/native/cuda/ReduceSumProdKernel.cu: the values are cast first
Tensor sum_of_booleans(const Tensor& self) {
  const OpScope op(self.device(), "sum");
  Device& device = self.device();
  const Tensor result = device.empty({}, Dtype::int64);
  const Tensor cast = device.empty({self.numel()}, Dtype::int64);
  ReductionScratch scratch = row_sum_scratch(device.gpu(), 1, self.numel());
  scratch.partial_sums = scratch.partial_sums * 2;  // of 8 bytes, not floats
  reduction_scratch(device, scratch);
  return result;
}

// mean(): backward: grad.expand(sizes) / n
Tensor mean_all(const Tensor& self) {
  Recorder grad("mean", {&self});
  Device& device = self.device();
  const Tensor result = device.empty({}, self.dtype());
  reduction_scratch(device, row_sum_scratch(device.gpu(), 1, self.numel()));
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())}; });
  return result;
}

// backward: grad.expand(sizes)
Tensor sum_all(const Tensor& self) {
  Recorder grad("sum", {&self});
  Device& device = self.device();
  const Tensor result = device.empty({}, self.dtype());
  reduction_scratch(device, row_sum_scratch(device.gpu(), 1, self.numel()));
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{expand(gradients[0], sizes)}; });
  return result;
}

// backward: grad.expand(sizes), cast back
Tensor sum_last_float(const Tensor& self) {
  Recorder grad("sum", {&self});
  Device& device = self.device();
  Dims sizes = self.sizes();
  sizes[self.dim() - 1] = 1;
  const Tensor result = device.empty(sizes, Dtype::float32);
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{expand(gradients[0], sizes)}; });
  return result;
}

// backward: zeros of self's size, the gradient scattered into them
Tensor gather_last(const Tensor& self, const Tensor& index) {
  Recorder grad("gather", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  Saved index_ = grad.save_if(grad.recording(), index);
  Dims sizes = self.sizes();
  sizes[self.dim() - 1] = 1;
  const Tensor result = self.device().empty(sizes, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_), index_ = std::move(index_)](Tensors& gradients) {
    const Tensor saved = self_.unpack(), at = index_.unpack();
    return Tensors{saved.device().empty(saved.sizes(), gradients[0].dtype())};
  });
  return result;
}

// In place: the same memory, a step further in the graph.
Tensor add_in_place(const Tensor& self, const Tensor& other) {
  Recorder grad("add_", {&self, &other});
  const Tensor result = detach(self);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0], gradients[0]}; });
  return result;
}

Tensor mul_in_place(const Tensor& self) {
  Recorder grad("mul_", {&self});
  const Tensor result = detach(self);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0].device().empty(gradients[0].sizes(), gradients[0].dtype())}; });
  return result;
}

// backward: grad.masked_fill(mask, 0)
Tensor masked_fill_in_place(const Tensor& self, const Tensor& mask) {
  Recorder grad("masked_fill_", {&self});
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Tensor result = detach(self);
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    return Tensors{gradients[0].device().empty(gradients[0].sizes(), gradients[0].dtype())};
  });
  return result;
}

// sum(1) of a matrix: backward: grad.unsqueeze(1).expand(sizes)
Tensor sum_rows(const Tensor& self) {
  Recorder grad("sum", {&self});
  Device& device = self.device();
  const Tensor result = device.empty({self.size(0)}, self.dtype());
  reduction_scratch(device, row_sum_scratch(device.gpu(), self.size(0), self.size(1)));
  grad.attach(result);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{expand(unsqueeze(gradients[0], 1), sizes)}; });
  return result;
}

// Pieces of `length` along dimension 0; backward: their gradients, concatenated.
std::vector<Tensor> split(const Tensor& self, std::int64_t length) {
  Recorder grad("split", {&self});
  std::vector<Tensor> pieces;
  {
    const With no_grad(self.device().grad_enabled, false);
    for (std::int64_t start = 0; start < self.size(0); start += length)
      pieces.push_back(narrow(self, 0, start, std::min(length, self.size(0) - start)));
  }
  for (const Tensor& piece : pieces) grad.attach(piece);
  grad.backward([sizes = self.sizes()](Tensors& gradients) { return Tensors{gradients[0].device().empty(sizes, gradients[0].dtype())}; });
  return pieces;
}

// Views of the gradient; here a chain of nodes, one for each part, of which none allocates.
Tensor cat_vectors(const std::vector<Tensor>& parts) {
  std::int64_t count = 0;
  for (const Tensor& part : parts) count += part.numel();
  Tensor result = parts.front().device().empty({count}, parts.front().dtype());
  for (const Tensor& part : parts) {
    Recorder grad("cat", {&result, &part});
    const Tensor next = detach(result);
    grad.attach(next);
    grad.backward([length = part.numel()](Tensors& gradients) { return Tensors{gradients[0], narrow(gradients[0], 0, 0, length)}; });
    result = next;
  }
  return result;
}

// log_sigmoid_forward: the result, and on the CPU only a buffer; backward: grad * …
Tensor log_sigmoid(const Tensor& self) {
  Recorder grad("log_sigmoid", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = self.device().empty(self.sizes(), self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    return Tensors{gradients[0].device().empty(saved.sizes(), saved.dtype())};
  });
  return result;
}

}  // namespace llmem
