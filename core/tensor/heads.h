#pragma once

#include <vector>

#include "tensor/tensor.h"

// What some layers do to queries, keys and values before they meet, and to what they return.
namespace llmem {

// torch.cat of any number of parts along a dimension
Tensor cat_of(const std::vector<Tensor>& parts, int d);
Tensor clamp_in_place(const Tensor& self);
// self *= other, which wants no gradient
Tensor mul_in_place_by(const Tensor& self, const Tensor& other);

}  // namespace llmem
