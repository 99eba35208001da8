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

namespace {

// The shape of a reduction's launch: a block is `width` by `height` threads, each taking `vector` values at once.
struct Launch {
  std::int64_t vector, width, height;
  bool across_width;  // the threads along the width share an output
};

// Several blocks share an output, and meet in global memory, where one block each leaves multiprocessors idle and there are inputs enough.
ReductionScratch shared_outputs(const GpuKind& gpu, const Launch& launch, std::int64_t outputs, std::int64_t inputs) {
  const std::int64_t threads = launch.width * launch.height;
  const std::int64_t inputs_of_line = launch.across_width ? divide_up(inputs, launch.width) : inputs;
  const bool across_height = inputs_of_line >= std::min<std::int64_t>(launch.height * 16, 256);
  if (!across_height) return {};
  const std::int64_t per_thread = divide_up(inputs, (launch.across_width ? launch.width : 1) * launch.height);
  const std::int64_t outputs_of_block = (launch.across_width ? 1 : launch.width) * launch.vector;
  const std::int64_t blocks = divide_up(outputs, outputs_of_block);
  const std::int64_t target = gpu.sms * (gpu.threads_per_sm() / threads);
  if (per_thread < 256 || blocks > target) return {};
  const std::int64_t sharing = std::min(std::max(divide_up(target, blocks), divide_up(per_thread, 256)), divide_up(per_thread, 16));
  if (sharing <= 1) return {};
  return {Bytes{4 * outputs * sharing * outputs_of_block / (launch.across_width ? outputs_of_block : 1)}, Bytes{4 * blocks}};
}

std::int64_t limited(std::int64_t n, std::int64_t most) { return n < most ? power_of_two_below(n) : most; }

}  // namespace

// aten/src/ATen/native/cuda/Reduce.cuh, setReduceConfig, with fp32 accumulation.
ReductionScratch column_sum_scratch(const GpuKind& gpu, std::int64_t rows, std::int64_t columns) {
  std::int64_t vector = 4;
  while (vector > 1 && columns % vector != 0) vector /= 2;
  const std::int64_t most_threads = 512 / vector;
  const std::int64_t x = limited(columns / vector, most_threads), y = limited(rows, most_threads);
  const std::int64_t height = std::min(y, most_threads / std::min<std::int64_t>(x, 32));
  return shared_outputs(gpu, {vector, std::min(x, most_threads / height), height, false}, columns, rows);
}

ReductionScratch row_sum_scratch(const GpuKind& gpu, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t most_threads = 512;
  // Along a single row, each thread reads 4 values at once.
  const std::int64_t along = rows == 1 && columns > 128 ? columns / 4 : columns;
  const std::int64_t x = limited(along, most_threads), y = limited(rows, most_threads);
  const std::int64_t height = std::min(y, most_threads / std::min<std::int64_t>(x, 32));
  return shared_outputs(gpu, {1, std::min(x, most_threads / height), height, true}, rows, columns);
}

void reduction_scratch(Device& device, const ReductionScratch& scratch) {
  const std::int32_t partial_sums = device.record_allocation(scratch.partial_sums);
  device.scratch(scratch.semaphores);
  device.record_free(partial_sums);
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
  const bool over_last = sizes.size() > 0 && sizes.back() == 1 && self.size(-1) != 1;  // … and along the last: rows of [columns, the rest]
  if (over_leading) {
    const std::int64_t summed = self.numel() / columns;
    reduction_scratch(device,
                      over_last ? row_sum_scratch(device.gpu(), columns, summed) : column_sum_scratch(device.gpu(), summed, columns));
  }
  // sum(dims, keepdim=True).view(sizes): where dimensions go, the result is a view.
  return sizes.size() < self.dim() ? view(result, sizes) : result;
}

}  // namespace llmem
