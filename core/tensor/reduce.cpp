#include <algorithm>

#include "tensor/autograd.h"
#include "tensor/device.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

std::int64_t power_of_two_below(std::int64_t n) {
  std::int64_t p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}

}  // namespace

// aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig, for a sum over the rows of a contiguous [rows, columns] with fp32
// accumulation: the block is `width` columns (each thread takes `vector` of them) by `height` rows; where that leaves
// multiprocessors idle and rows enough, several blocks share a column and meet in global memory.
std::pair<Bytes, Bytes> column_sum_scratch(const GpuKind& gpu, std::int64_t rows, std::int64_t columns) {
  std::int64_t vector = 4;
  while (vector > 1 && columns % vector != 0) vector /= 2;
  const std::int64_t most_threads = 512 / vector;
  const std::int64_t along = columns / vector;
  const auto limited = [&](std::int64_t n) { return n < most_threads ? power_of_two_below(n) : most_threads; };
  const std::int64_t x = limited(along), y = limited(rows);
  std::int64_t width = std::min<std::int64_t>(x, 32);
  const std::int64_t height = std::min(y, most_threads / width);
  width = std::min(x, most_threads / height);
  const std::int64_t threads = width * height;

  const bool split = rows >= std::min<std::int64_t>(height * 16, 256);
  if (!split) return {};
  const std::int64_t blocks = divide_up(along, width);
  const std::int64_t rows_per_thread = divide_up(rows, height);
  const std::int64_t target = gpu.sms * (gpu.threads_per_sm() / threads);
  if (rows_per_thread < 256 || blocks > target) return {};
  const std::int64_t sharing =
      std::min(std::max(divide_up(target, blocks), divide_up(rows_per_thread, 256)), divide_up(rows_per_thread, 16));
  if (sharing <= 1) return {};
  return {Bytes{4 * columns * sharing * width * vector}, Bytes{4 * blocks}};
}

// mean_backward: grad.expand(sizes) / n
Tensor mean_last(const Tensor& self) {
  Recorder grad("mean", {&self});
  Dims sizes = self.sizes();
  sizes[self.dim() - 1] = 1;
  const Tensor result = self.device().empty(sizes, self.dtype());
  grad.attach(result);
  grad.backward([layout = self.layout()](Tensors& gradients) {
    // A division of an expanded tensor: elementwise, so the result has the order of the expanded one's dimensions.
    const Dims strides = elementwise_strides(layout.sizes, {expanded_strides(gradients[0].layout(), layout.sizes)});
    return Tensors{gradients[0].device().empty_strided({layout.sizes, strides}, gradients[0].dtype())};
  });
  return result;
}

Tensor sum_to(const Tensor& self, const Dims& sizes) {
  if (self.sizes() == sizes) return self;
  Device& device = self.device();
  const Tensor result = device.empty(sizes, self.dtype());
  // Only sums down the leading dimensions are long enough for several blocks to share a column.
  const std::int64_t columns = count_of(sizes);
  const bool over_leading = sizes.size() < self.dim() && self.strides().back() == 1 && is_non_overlapping_and_dense(self.layout());
  if (over_leading) {
    const auto [partial, semaphores] = column_sum_scratch(device.gpu(), self.numel() / columns, columns);
    const std::int32_t partial_sums = device.record_allocation(partial);
    device.scratch(semaphores);
    device.record_free(partial_sums);
  }
  return result;
}

}  // namespace llmem
