#pragma once

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"
#include "trace/work.h"

// The kernels of Megatron-Core and TransformerEngine, as far as memory can tell: each is one torch.autograd.Function or one fused kernel.
// s: tokens of a row on this rank, b: rows, h: features; hidden states are [s, b, h].
namespace llmem {

// What the kernels of one process share.
struct MegatronKernels {
  std::int64_t tensor_ranks = 1;
  bool sequence = false;        // sequence parallelism: norms and residuals on s / tensor_ranks tokens each
  bool fuses_gradients = true;  // weight gradients are added to main_grad by the GEMM (gradient_accumulation_fusion)

  std::map<std::pair<std::int64_t, std::int64_t>, Tensor> stand_ins;  // for gradients that were added to main_grad, by shape
  Tensor workspace;                                                   // TransformerEngine's own, for cuBLAS
  std::vector<Tensor> grouped_workspaces;                             // the same of grouped products, one a stream
  std::map<std::string_view, Tensor> global_buffers;                  // megatron.core.utils.GlobalMemoryBuffer, by name
};

enum class Split : std::uint8_t { none, columns, rows };

// transformer_engine/pytorch/module/layernorm_linear.py, _LayerNormLinear: the norm's result is kept, gathered it is not. norm_bias: none
// with RMSNorm; bias: none where it is not added.
Tensor te_layer_norm_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& norm_weight, const Tensor& norm_bias,
                            const Tensor& weight, const Tensor& bias, Split split);
// transformer_engine/pytorch/module/linear.py, _Linear
Tensor te_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& weight, const Tensor& bias, Split split);
// LayerNorm or RMSNorm of TransformerEngine (ops/basic/layer_norm.py, rmsnorm.py) and of apex (FusedLayerNorm): they keep input, weight and
// the rows' statistics.
Tensor fused_norm(const Tensor& input, const Tensor& weight, const Tensor& bias);

// megatron/core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication
Tensor megatron_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& weight, const Tensor& bias, Split split);

// VocabParallelEmbedding.forward: weight [V / ranks, h], ids [b, s]; a sum in parts where there are ranks, reduced in place or, with
// `scatter`, over [s, b, h].
Tensor vocabulary_parallel_embedding(MegatronKernels& kernels, const Tensor& weight, const Tensor& ids);
// mappings.py, _ScatterToSequenceParallelRegion of [s, b, h], cloned
Tensor scatter_to_sequence(MegatronKernels& kernels, const Tensor& input);
// mappings.py, _GatherFromSequenceParallelRegion; backward a reduce-scatter, or a split where the gradient is whole on each rank.
Tensor gather_from_sequence(MegatronKernels& kernels, const Tensor& input, bool partial_gradient);
// mappings.py, _ReduceScatterToSequenceParallelRegion and _ReduceFromModelParallelRegion
Tensor reduce_from_tensor_ranks(MegatronKernels& kernels, const Tensor& input);

// transformer_engine/pytorch/attention/dot_product_attention/softmax.py and megatron/core/fusions/fused_softmax.py: scale, causal mask and
// softmax in one kernel over the scores [b, heads, s, s]; the gradient in place of that of the result.
Tensor scaled_masked_softmax(const Tensor& scores);
// cuDNN's attention (transformer_engine/common/fused_attn) over [s, b, heads, d]
Tensor cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value);
// The package flash-attn over [b, s, heads, d]; deterministic, its backward sums the query's gradient in as many parts as fill the GPU
// (flash_api.cpp, mha_bwd).
Tensor te_flash_attention(const Tensor& query, const Tensor& key, const Tensor& value, bool deterministic);
// SplitAlongDim: q, k and v as views of one tensor, whose gradients lie apart and are put together (transformer_engine/pytorch/utils.py).
Tensors split_heads(const Tensor& mixed, const std::vector<std::int64_t>& lengths);

// fused_apply_rotary_pos_emb of [s, b, heads, d]: keeps the angles alone
Tensor fused_rotary(const Tensor& states);
// repeat_interleave(times, dim=2) of [s, b, groups, d]
Tensor repeat_heads(const Tensor& states, std::int64_t times);
// A view of GlobalMemoryBuffer's buffer of that name, which is as large as was ever asked for and stays for good.
Tensor global_buffer(Device& device, MegatronKernels& kernels, std::string_view name, const Dims& sizes, Dtype dtype);

// megatron/core/fusions/fused_bias_gelu.py, fused_bias_swiglu.py: keep their input, and the bias if there is one. Gated: half as wide.
Tensor fused_activation(const Tensor& input, const Tensor& bias, bool gated);
// … with a factor for each token, gated: weighted_bias_swiglu_impl, one kernel that keeps the factors, too; else an activation that is
// multiplied by them
Tensor weighted_activation(const Tensor& input, const Tensor& factors, bool gated);
// megatron/core/fusions/fused_bias_dropout.py: residual + dropout(x + bias). Compiled to one kernel, which keeps the mask.
Tensor bias_dropout_add(const Tensor& input, const Tensor& bias, const Tensor& residual, double probability);

// ---- experts (megatron/core/transformer/moe)
// Rows of the matrix `tokens` by an index [count], and rows added up where the index says (moe_utils.py, permute and unpermute).
Tensor permute_tokens(const Tensor& tokens, const Tensor& index);
Tensor unpermute_tokens(const Tensor& permuted, const Tensor& index, std::int64_t tokens);
// transformer_engine/pytorch/module/grouped_linear.py over [T, in] with weights [experts, out, in]
// `grouped`: in one call, with workspaces of its own; else one expert after the other.
Tensor te_grouped_linear(MegatronKernels& kernels, const Tensor& input, const Tensor& weights, bool grouped);
// A collective over other ranks than the tensor group's, out of place: [n, h] to [count, h] and back. `global`: into a global buffer.
Tensor exchange_tokens(MegatronKernels& kernels, const Tensor& tokens, std::int64_t count, Collective forward, Collective backward,
                       std::int64_t ranks, bool global = false);
// moe_utils.py, sort_chunks_by_idxs: a copy in another order, backward, too
Tensor sort_chunks(const Tensor& tokens);
// The loss that balances experts, which needs no memory of its own, is left out.
struct Routing {
  Tensor probabilities, map;  // [tokens, experts]
};
Routing route_tokens(MegatronKernels& kernels, const Tensor& hidden_states, const Tensor& weight, bool floats);

// megatron/core/tensor_parallel/cross_entropy.py over logits [s, b, V / ranks]; the loss of each token. `fused`: fused_cross_entropy.py.
Tensor vocabulary_parallel_cross_entropy(const Tensor& logits, const Tensor& target, bool fused);
// transformer_engine/pytorch/cross_entropy.py: the gradient takes the logits' place at once.
Tensor te_cross_entropy(const Tensor& logits, const Tensor& target, std::int64_t ranks);

}  // namespace llmem
