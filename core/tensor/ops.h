#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

// The ops of a training step. Each does what PyTorch's does to memory: allocates its output and its scratch, saves for backward
// what the generated autograd code saves, and its gradient allocates what PyTorch's allocates, in the same order. Formulas and
// what is saved: tools/autograd/derivatives.yaml; inside one formula, gradients are made in alphabetical order of the inputs' names.
// N: tokens, in/out: features, B: rows, H: heads, S: sequence, d: head size, V: vocabulary.
namespace llmem {

// ---- views: no memory of their own (aten/src/ATen/native/TensorShape.cpp)
Tensor view(const Tensor& self, const Dims& sizes);         // sizes must be reachable without a copy
Tensor unsafe_view(const Tensor& self, const Dims& sizes);  // as view, of a fresh tensor that nobody else sees
Tensor transpose(const Tensor& self, int a, int b);
Tensor t(const Tensor& self);  // of a matrix
Tensor unsqueeze(const Tensor& self, int at);
Tensor expand(const Tensor& self, const Dims& sizes);
Tensor narrow(const Tensor& self, int d, std::int64_t start, std::int64_t length);
Tensor select(const Tensor& self, int d);                                          // self[..., i, ...]: without that dimension
Tensors split_last(const Tensor& self, const std::vector<std::int64_t>& lengths);  // along the last dimension
Tensors split_along(const Tensor& self, int d, const std::vector<std::int64_t>& lengths);
Tensor index_along(const Tensor& self, int d, const Tensor& index);  // copies of these places along d
Tensor index_one(const Tensor& self, int d);                         // self[..., [i], ...]: of one place
// zeros(…, width).index_copy_(-1, columns, source)
Tensor place_columns(const Tensor& source, const Tensor& columns, std::int64_t width);
Tensor copy_into_slice(const Tensor& base, const Tensor& source);  // base[slice].copy_(source): the same memory, a step further
Tensor pad_last(const Tensor& self, std::int64_t count);           // constant_pad_nd of the last dimension; a copy
Tensor reshape(const Tensor& self, const Dims& sizes);             // a view where it can be, else a copy
Tensor contiguous(const Tensor& self);                             // self where it is, else a copy

// ---- pointwise (aten/src/ATen/native/cuda/Binary*.cu, Unary*.cu): the result has the promoted dtype
Tensor mul(const Tensor& self, const Tensor& other);
Tensor add(const Tensor& self, const Tensor& other);
Tensor div(const Tensor& self, const Tensor& other);  // self may want a gradient
Tensor mul_scalar(const Tensor& self);
Tensor add_scalar(const Tensor& self);
Tensor neg(const Tensor& self);
Tensor square(const Tensor& self);  // pow(2)
Tensor rsqrt(const Tensor& self);
Tensor silu(const Tensor& self);
Tensor to(const Tensor& self, Dtype dtype);  // self where it already is
Tensor clone(const Tensor& self);
void set_data(const Tensor& self, const Tensor& data);                  // self.data = data
Tensor unary_no_grad(const Tensor& self, const char* op, Dtype dtype);  // any elementwise op outside the graph
Tensor cat(const Tensors& parts, int d);                                // of two or three
Tensor sub(const Tensor& self, const Tensor& other);
Tensor power(const Tensor& self);  // pow of a number other than 2
Tensor gelu(const Tensor& self);   // exact or by tanh
Tensor relu(const Tensor& self);
Tensor masked_fill(const Tensor& self, const Tensor& mask);  // by a number
Tensor clamp(const Tensor& self);
Tensor cumulative_sum(const Tensor& self);                                       // along the rows of [B, S], no gradient
Tensor where(const Tensor& mask, const Tensor& self, const Tensor& otherwise);   // otherwise: no gradient
Tensor where_both(const Tensor& mask, const Tensor& self, const Tensor& other);  // of one shape, both with gradients
Tensor minimum(const Tensor& self, const Tensor& other);                         // other: no gradient
Tensor expm1_of(const Tensor& self);
Tensor masked_by_number(const Tensor& mask, const Tensor& self);  // where(mask, self, number)
Tensor tanh_of(const Tensor& self);
Tensor dropout(const Tensor& self, double probability);
// torch.nn.functional.layer_norm over the last dimension; weight and bias may be none.
Tensor layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias);

// ---- over the last dimension
Tensor every_second(const Tensor& self);                  // [..., ::2]
Tensor stack_last(const Tensor& a, const Tensor& b);      // stack((a, b), dim=-1)
std::pair<Tensor, Tensor> halves_of(const Tensor& self);  // chunk(2, dim=-1)
Tensor repeat_interleave_no_grad(const Tensor& self);     // repeat_interleave(2, dim=-1)

// ---- reductions (aten/src/ATen/native/cuda/Reduce.cuh)
Tensor mean_last(const Tensor& self);                  // mean(-1, keepdim=True)
Tensor sum_to(const Tensor& self, const Dims& sizes);  // at::sum_to: over what was broadcast
// What a sum asks the allocator for while it runs, over a contiguous [rows, columns]: down each column, or along each row.
struct ReductionScratch {
  Bytes partial_sums, semaphores;
  bool operator==(const ReductionScratch&) const = default;
};
ReductionScratch column_sum_scratch(const struct GpuKind& gpu, std::int64_t rows, std::int64_t columns);
ReductionScratch row_sum_scratch(const struct GpuKind& gpu, std::int64_t rows, std::int64_t columns);
void reduction_scratch(Device& device, const ReductionScratch& scratch);

// Scratch of a scan over `count` 8-byte values of one row (cub::DeviceScan), and of a sort of as many 8-byte keys with values.
Bytes scan_scratch(std::int64_t count);
Bytes scan_scratch_of(std::int64_t count, std::int64_t itemsize);  // the same of other values
Bytes sort_scratch(const struct GpuKind& gpu, std::int64_t count, std::int64_t largest);

Tensor sum_of_booleans(const Tensor& self);  // sum(): an int64 scalar
Tensor mean_all(const Tensor& self);         // mean()
Tensor sum_all(const Tensor& self);          // sum()
Tensor sum_last_float(const Tensor& self);   // sum(-1, keepdim=True, dtype=float32)
Tensor sum_rows(const Tensor& self);         // sum(1) of a matrix

// ---- matrices (cuBLAS)
Tensor mm(const Tensor& self, const Tensor& mat2);   // [n,k] @ [k,m]
Tensor bmm(const Tensor& self, const Tensor& mat2);  // [b,n,k] @ [b,k,m]
Tensor matmul(const Tensor& a, const Tensor& b);     // 4-D @ 4-D
// input + scale * batch1 @ batch2, input without gradient
Tensor baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2);
// transformers' Conv1D: addmm(bias, input, weight), weight [in, out].
Tensor conv1d_of_gpt2(const Tensor& input, const Tensor& weight, const Tensor& bias);
// transformers' FalconLinear: input @ weight.T, then + bias (or none).
Tensor falcon_linear(const Tensor& input, const Tensor& weight, const Tensor& bias);
// torch.nn.functional.linear: input [..., in], weight [out, in], bias [out] or none.
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias);

// ---- attention and softmax
Tensor softmax_float(const Tensor& self);            // softmax(-1, dtype=float32)
Tensor softmax_last(const Tensor& self);             // softmax(-1); autocast runs it in fp32
Tensor softmax_in(const Tensor& self, Dtype dtype);  // softmax(-1, dtype)
// scaled_dot_product_attention(is_causal=True, enable_gqa=…). query [B,H,S,d], key and value [B,Hkv,S,d].
// With a mask [B,1,S,S] of booleans, key and value have as many heads as query.
// With dropout, flash attention does not work on the keys in parts.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask = {},
                                    double dropout = 0);
// The package flash-attn: causal, whatever the window. What comes in fp32 is cast to `half`. With a mask [B, S] of booleans, over the tokens that
// are no padding, all of them (the most): unpadded before, padded after.
Tensor flash_attention_2(const Tensor& query, const Tensor& key, const Tensor& value, Dtype half, const Tensor& mask = {});

// ---- convolutions over [B, C, S] with a weight [C, 1, k] and a bias [C] or none
Tensor depthwise_conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias);  // [B, C, S + k - 1]
Tensor causal_conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias, std::int64_t sequence);
// conv1d with a kernel of one place, in groups or not: weight [out, C / groups], unsqueezed. cuDNN's workspace is not known.
Tensor channel_conv1d(const Tensor& input, const Tensor& weight);

// ---- scans: state-space models and linear attention
Tensor exp_of(const Tensor& self);
Tensor softplus(const Tensor& self);
Tensor clamp_both(const Tensor& self);  // with a least and a most
Tensor permute(const Tensor& self, const Dims& order);
Tensor cumsum_along(const Tensor& self, int d);
Tensor masked_fill_expanded(const Tensor& self, const Tensor& mask);  // of what was expanded: a copy of all of it
Tensor repeat_interleave(const Tensor& self, int d, std::int64_t times);
Tensor pad_along(const Tensor& self, int d, std::int64_t count);  // constant_pad_nd behind the last place; a copy
// torch.einsum of two operands: "bclhn", C, "bcshn", B, "bclsh"
Tensor einsum(std::string_view left_labels, const Tensor& left, std::string_view right_labels, const Tensor& right, std::string_view out);

// ---- mixtures of experts
struct TopK {
  Tensor values, indices;
};
TopK topk(const Tensor& self, std::int64_t k);                                        // along the last dimension
TopK sort_vector(const Tensor& self);                                                 // of one row, no gradient
Tensor grouped_mm(const Tensor& input, const Tensor& weight, const Tensor& offsets);  // [T, in] and [E, in, out]
Tensor div_in_place(const Tensor& self, const Tensor& other);                         // both may want gradients
Tensor div_both(const Tensor& self, const Tensor& other);                             // the same, new
Tensor sum_dim(const Tensor& self, int d, bool keep);
Tensor gather_columns(const Tensor& self, const Tensor& index);  // gather(-1, index)
Tensor max_last(const Tensor& self);                             // max(-1, keepdim=True).values
Tensor scatter_number(const Tensor& self, const Tensor& index);  // scatter(-1, index, a number)
// full([N, columns]).scatter_(1, index, values)
Tensor scatter_columns(const Tensor& values, const Tensor& index, std::int64_t columns);
Tensor repeat_rows(const Tensor& self, std::int64_t times);  // repeat(times, 1) of a matrix
// PhimoeMultiplier: [N, 1] from scores [N, E], a multiplier [N, 1] of an index [N, 1], gates [N, E] and a mask [N, 1]
Tensor sparse_multiplier(const Tensor& scores, const Tensor& multiplier, const Tensor& index, const Tensor& gates, const Tensor& mask);
Tensor sigmoid(const Tensor& self);

// ---- ends of the model
Tensor embedding_gradient(const Tensor& gradient, const Dims& weight);  // [B,S,h], sizes of the weight
Tensor embedding(const Tensor& weight, const Tensor& ids);              // weight [V,h], ids [B,S]
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     bool of_each = false);  // logits [N,V], target [N]; mean, a scalar, or each

Tensor mean_squared_error(const Tensor& self, const Tensor& target);    // the mean, a scalar; target without gradient
Tensor binary_cross_entropy(const Tensor& self, const Tensor& target);  // the same, of logits

Tensor log_softmax(const Tensor& self);
Tensor gather_last(const Tensor& self, const Tensor& index);   // gather(-1, index.unsqueeze(-1))
Tensor add_in_place(const Tensor& self, const Tensor& other);  // self += other
Tensor mul_in_place(const Tensor& self);                       // self *= number
Tensor masked_fill_in_place(const Tensor& self, const Tensor& mask);
Tensor log_sigmoid(const Tensor& self);

// ---- rows
std::vector<Tensor> split(const Tensor& self, std::int64_t length);  // along dimension 0
Tensor cat_vectors(const std::vector<Tensor>& parts);                // any number of them
// self[first, second]: `count` rows, all of [B, S]'s, of self [B, S, …]
Tensor index_rows(const Tensor& self, std::int64_t count, const Tensor& first, const Tensor& second);
Tensor index_first(const Tensor& self, const Tensor& indices);  // self[indices] along the first dimension
// self[mask], a mask [B, S] of ones: [B * S, …]
Tensor index_masked(const Tensor& self, const Tensor& mask);
// zeros(sizes).masked_scatter(a mask of ones, source)
Tensor scatter_into_zeros(const Tensor& source, const Dims& sizes);
// zeros(mask's sizes).masked_scatter(mask, source)
Tensor scatter_masked(const Tensor& source, const Tensor& mask);

// ---- Liger's kernels (n tokens, [n, h] and [V, h])
Tensor liger_rms_norm(const Tensor& self, const Tensor& weight);
std::pair<Tensor, Tensor> liger_rope(const Tensor& query, const Tensor& key, const Tensor& cos, const Tensor& sin);
Tensor liger_swiglu(const Tensor& gate, const Tensor& up);
Tensor liger_cross_entropy(const Tensor& logits, const Tensor& target);
Tensor liger_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& target);

// A cast that autocast makes on the way into an op of its lower-precision list; casts of weights are cached.
Tensor autocast(const Tensor& self);
// The same for what autocast runs in fp32.
Tensor autocast_float(const Tensor& self);

}  // namespace llmem
