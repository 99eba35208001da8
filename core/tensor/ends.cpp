#include <algorithm>

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

constexpr Bytes aligned_256(std::int64_t bytes) { return round_up(Bytes{bytes}, Bytes{256}); }

// cub's look-back state over tiles: 16 bytes a tile (8 for values of 4) and 32 more tiles, as measured at 3,073 … 262,144 items.
Bytes look_back_scratch(std::int64_t count, std::int64_t tile, std::int64_t state = 16) {
  return Bytes{255 + 256} + aligned_256((32 + divide_up(count, tile)) * state);
}

// cub::DeviceRadixSort::SortPairs of `count` 8-byte keys up to `largest` with 8-byte values (onesweep): histograms of 256 8-byte bins a
// pass, counters, one 256-entry look-back row a tile, and a second copy of keys and values where there is more than one pass.
// Tile sizes: read off the sizes that the real library asks for, at 3,073 … 262,144 keys.
}  // namespace

Bytes sort_scratch(const GpuKind& gpu, std::int64_t count, std::int64_t largest) {
  const auto bits_of = [](std::int64_t n) {
    int bits = 1;
    for (; n > 1; n /= 2) ++bits;
    return bits;
  };
  constexpr std::int64_t single_tile = 2304;  // 256 threads, 9 keys each: sorted in one block, which needs no scratch
  if (count <= single_tile) return Bytes{1};
  const std::int64_t tile = gpu.compute_capability >= 90 ? 4608 : 3840;
  const std::int64_t passes = divide_up(bits_of(largest), 8);
  Bytes bytes = Bytes{255} + aligned_256(passes * 256 * 8) + Bytes{256} + Bytes{divide_up(count, tile) * 256 * 4};
  if (passes > 1) bytes += aligned_256(count * 8) * 2;
  return bytes;
}

// aten/src/ATen/native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu: more than 3072 ids are sorted, and each run of equal ids is
// summed in parts of 10 rows, in fp32.
Tensor embedding_gradient(const Tensor& given, const Dims& weight) {
  Device& device = given.device();
  const Tensor gradient = contiguous(given);
  const std::int64_t ids = gradient.numel() / gradient.size(-1);
  if (ids <= 3072) return device.empty(weight, gradient.dtype());

  const auto vector_of = [&](std::int64_t n) { return device.empty({n}, Dtype::int64); };
  const std::int64_t segments = std::min(ids, weight[0]), parts = ids / 10 + segments;
  const std::int64_t unique_tile = device.gpu().compute_capability >= 90 ? 4608 : 1280;
  const Tensor sorted = vector_of(ids), original = vector_of(ids);
  {
    const Tensor range = vector_of(ids);
    device.scratch(sort_scratch(device.gpu(), ids, weight[0]));
  }
  const Tensor result = device.empty(weight, gradient.dtype());
  const Tensor segment_offsets = vector_of(ids), segment_count = vector_of(1);
  {
    const Tensor dummy = vector_of(ids);
    device.scratch(look_back_scratch(ids, unique_tile));
  }
  const Tensor parts_per_segment = vector_of(segments), part_offsets = vector_of(segments);
  device.scratch(scan_scratch(segments));
  const Tensor part_count = vector_of(1), part_starts = vector_of(parts);
  const Tensor partial_sums = device.empty({parts, weight[1]}, Dtype::float32);
  return result;
}

Bytes scan_scratch(std::int64_t count) { return look_back_scratch(count, 896); }
Bytes scan_scratch_of(std::int64_t count, std::int64_t itemsize) { return look_back_scratch(count, 896 * 8 / itemsize, 2 * itemsize); }

namespace {

// A copy of what is not contiguous.
Tensor in_order(const Tensor& ids) { return ids.contiguous() ? ids : ids.device().empty(ids.sizes(), ids.dtype()); }

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& ids) {
  Recorder grad("embedding", {&weight});
  Saved ids_ = grad.save_if(grad.recording(), ids);
  Tensor result;
  {
    const Tensor in_a_row = in_order(ids);  // indices.reshape(-1)
    result = weight.device().empty({ids.size(0), ids.size(1), weight.size(1)}, weight.dtype());
  }
  grad.attach(result);
  grad.backward([ids_ = std::move(ids_), sizes = weight.sizes()](Tensors& gradients) {
    const Tensor saved = ids_.unpack();
    const Tensor in_a_row = in_order(saved);
    return Tensors{embedding_gradient(gradients[0], sizes)};
  });
  return result;
}

// grad - exp(result) * sum(grad)
Tensor log_softmax(const Tensor& self) {
  Recorder grad("log_softmax", {&self});
  const Tensor result = self.device().empty(self.sizes(), self.dtype());
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors&) {
    const Tensor saved = result_.unpack();
    return Tensors{saved.device().empty(saved.sizes(), saved.dtype())};
  });
  return result;
}

namespace {

// nll_loss_backward: zeros like the log-probabilities, one value a row
Tensor nll_loss(const Tensor& self, const Tensor& target, bool of_each) {
  Recorder grad("nll_loss", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  Saved target_ = grad.save_if(grad.recording(), target);
  const Tensor result = self.device().empty(of_each ? Dims{self.size(0)} : Dims{}, self.dtype());
  const Tensor total_weight = self.device().empty({}, self.dtype());
  Saved total_weight_ = grad.save_if(grad.recording(), total_weight);
  grad.attach(result);
  grad.backward([self_ = std::move(self_), target_ = std::move(target_), total_weight_ = std::move(total_weight_)](Tensors&) {
    const Tensors saved = {self_.unpack(), target_.unpack(), total_weight_.unpack()};
    return Tensors{saved[0].device().empty(saved[0].sizes(), saved[0].dtype())};
  });
  return result;
}

}  // namespace

// Autocast leaves log_softmax alone and runs nll_loss in fp32 (aten/src/ATen/autocast_mode.h).
Tensor cross_entropy(const Tensor& logits, const Tensor& target, bool of_each) {
  const Tensor logarithms = log_softmax(logits);
  return nll_loss(autocast_float(logarithms), target, of_each);
}

}  // namespace llmem
