#pragma once

#include <functional>
#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"

// torch.distributed.tensor.parallel.parallelize_module with the usual plan of a Llama: q, k, v, gate, up and the head by columns, o and
// down by rows, the embedding by rows of the vocabulary; with sequence parallelism the norms on a part of the sequence each.
namespace llmem {

struct Rank;

CausalLm::Split tensor_split(const Spec& spec);

// Which part of this tensor a rank of the tensor group holds.
Dims split_sizes(const CausalLm::Split& split, const std::string& name, const Dims& sizes);

// Where a gradient lies when backward leaves it.
enum class GradientPlace : std::uint8_t {
  same,      // as its parameter does
  whole,     // of the whole vocabulary, on each rank (the embedding)
  in_parts,  // to be summed over the ranks (norms under sequence parallelism)
};
GradientPlace gradient_place(const CausalLm::Split& split, const std::string& name);

// A parameter that wants a gradient, which may be larger than itself.
void require_split_grad(const CausalLm::Split& split, const std::string& name, const Tensor& parameter, const Dims& whole);

// Brings a gradient to its parameter's place.
Tensor redistributed(GradientPlace place, const Tensor& parameter, const Tensor& gradient);

// Clipping and the optimizer's groups, one a device mesh as Transformers has them. `sharded`: over data-parallel ranks as well.
void set_mesh_groups(Rank& rank, Device& device, const CausalLm::Split& split, bool sharded);

}  // namespace llmem
