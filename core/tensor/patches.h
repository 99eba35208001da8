#pragma once

#include "tensor/tensor.h"

// What towers over images do beside the ops of text.
namespace llmem {

// nn.Conv2d and nn.Conv3d whose kernel is as large as its stride: input [N, C, …], weight [O, C, k…], bias [O] or none; [N, O, …].
// Through cuDNN, whose workspace is not known and not counted.
Tensor patch_convolution(const Tensor& input, const Tensor& weight, const Tensor& bias);

// torch.cat(list(self), dim=0): [N, T, h] to [N * T, h]
Tensor rows_in_a_row(const Tensor& self);

// self.masked_scatter(mask, source): self [B, S, h], mask [B, S, 1] with as many ones as source has rows
Tensor scatter_rows(const Tensor& self, const Tensor& mask, const Tensor& source);

// nonzero(): for each of `count` ones an index a dimension, [dimensions, count]
Tensor nonzero_of(const Tensor& mask, std::int64_t count);

// nn.AvgPool2d whose kernel is as large as its stride: [N, C, H, W] to [N, C, H / k, W / k]
Tensor average_pool(const Tensor& self, std::int64_t kernel);

}  // namespace llmem
