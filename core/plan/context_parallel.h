#pragma once

#include <vector>

#include "spec/spec.h"
#include "tensor/ring_attention.h"

namespace llmem {

Ring ring_of(const Spec& spec);

// Gives this rank its part of ids and labels, which become each position's next word, and the positions that belong to them. What is
// returned lives as long as the step's context.
std::vector<Tensor> split_batch(const Ring& ring, const Tensor& ids, const Tensor& labels, Tensor& own_ids, Tensor& own_labels,
                                Tensor& positions);

}  // namespace llmem
