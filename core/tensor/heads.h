#pragma once

#include <vector>

#include "tensor/tensor.h"

// What some attentions do to queries, keys and values before they meet.
namespace llmem {

// torch.cat of any number of parts along a dimension
Tensor cat_of(const std::vector<Tensor>& parts, int d);
Tensor clamp_in_place(const Tensor& self);

}  // namespace llmem
