#include "model/activation.h"
#include "model/bodies.h"
#include "tensor/ops.h"

// modeling_gptj.py and modeling_codegen.py.
namespace llmem {

namespace {

struct Block {
  NormModule ln_1;
  DenseModule qkv_proj, k_proj, v_proj, q_proj, out_proj, fc_in, fc_out;  // codegen has qkv_proj
};

// Scores in fp32, softmax in that dtype, cast to value's.
AttentionResult eager_in_float(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double probability) {
  const auto product = [&] {
    const Tensor query_float = to(query, Dtype::float32);
    const Tensor key_float = transpose(to(key, Dtype::float32), 2, 3);
    return matmul(query_float, key_float);
  };
  Tensor weights = mul_scalar(product());
  weights = add(weights, mask);
  weights = to(softmax_last(weights), value.dtype());
  weights = dropout(weights, probability);
  Tensor output = matmul(weights, value);
  output = contiguous(transpose(output, 1, 2));
  return {output, weights};
}

Tensor rotate_every_two(const Tensor& x) {
  const Tensor x1 = every_second(x), x2 = every_second(x);
  Tensor stacked;
  {
    const Tensor negated = neg(x2);
    stacked = stack_last(negated, x1);
  }
  return view(stacked, x.sizes());
}

// sin and cos [1, S, d / 2], tensor [B, S, H, d]
Tensor rotated(const Tensor& states, const RotaryEmbedding::Angles& angles) {
  const Tensor sin = repeat_interleave_no_grad(unsqueeze(angles.sin, 2));
  const Tensor cos = repeat_interleave_no_grad(unsqueeze(angles.cos, 2));
  const Tensor straight = mul(states, cos);
  Tensor turned = rotate_every_two(states);
  turned = mul(turned, sin);
  return add(straight, turned);
}

class GptJ : public Body {
 public:
  GptJ(const Architecture& a, const MadeModule& root, bool codegen) : a_(a), codegen_(codegen) {
    const MadeModule transformer = root.child("transformer");
    wte_ = transformer.tensor("wte.weight");
    embed_positions_ = transformer.tensor("rotary_emb.embed_positions");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule h = transformer.child("h", i), attn = h.child("attn"), mlp = h.child("mlp");
      Block made;
      made.ln_1 = h.norm("ln_1");
      if (codegen) {
        made.out_proj = attn.dense("out_proj");
        made.qkv_proj = attn.dense("qkv_proj");
      } else {
        made.k_proj = attn.dense("k_proj");
        made.v_proj = attn.dense("v_proj");
        made.q_proj = attn.dense("q_proj");
        made.out_proj = attn.dense("out_proj");
      }
      made.fc_in = mlp.dense("fc_in");
      made.fc_out = mlp.dense("fc_out");
      blocks_.push_back(made);
    }
    ln_f_ = transformer.norm("ln_f");
  }

  Tensor embedding() const override { return wte_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(wte_, "wte", ids, options);
    context.position_ids = arange_positions(inputs_embeds, options);
    context.attention_mask = causal_mask(inputs_embeds, context.position_ids, options);
    Tensor hidden_states = dropout(inputs_embeds, a_.embedding_dropout);
    context.position_embeddings = angles(context.position_ids, hidden_states.dtype());
    locals = {inputs_embeds};
    return hidden_states;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const Block& block = blocks_[static_cast<std::size_t>(index)];
    const Tensor& residual = input;
    const Tensor hidden_states = block.ln_1(input);
    const AttentionResult attended = attention(block, hidden_states, context);
    const Tensor feed_forward = mlp(block, hidden_states);
    const Tensor sum = add(attended.output, feed_forward);
    return add(sum, residual);
  }

  Tensor end(Tensor hidden_states) const override { return ln_f_(hidden_states); }

 private:
  // embed_positions[position_ids], in halves: sines and cosines
  RotaryEmbedding::Angles angles(const Tensor& position_ids, Dtype dtype) const {
    const ModuleScope scope(position_ids.device(), "rotary_emb");
    const std::int64_t width = embed_positions_.size(1);
    Tensor sincos = position_ids.device().empty({1, position_ids.size(-1), width}, embed_positions_.dtype());
    if (!codegen_) sincos = to(sincos, dtype);
    return {narrow(sincos, 2, width / 2, width / 2), narrow(sincos, 2, 0, width / 2)};
  }

  AttentionResult attention(const Block& block, const Tensor& input, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "attn", Category::attention);
    const std::int64_t rows = input.size(0), sequence = input.size(1), d = a_.hidden_size / a_.heads;
    const Dims by_head{rows, sequence, a_.heads, d};
    Tensor qkv, query, key, value;
    if (codegen_) {  // four parts, for four tensor-parallel ranks of the first implementation
      const std::int64_t local = a_.hidden_size / 4;
      qkv = view(block.qkv_proj(input), {rows, sequence, 4, 3 * local});
      const Tensors parts = split_last(qkv, {local, local, local});
      query = reshape(parts[0], by_head);
      key = reshape(parts[2], by_head);
      value = transpose(reshape(parts[1], by_head), 1, 2);
    } else {
      query = view(block.q_proj(input), by_head);
      key = view(block.k_proj(input), by_head);
      value = transpose(view(block.v_proj(input), by_head), 1, 2);
    }
    Tensor key_turned, key_rest, query_turned, query_rest;
    if (a_.rotary_dim > 0) {
      key_turned = slice(key, a_.rotary_dim);
      key_rest = narrow(key, 3, a_.rotary_dim, d - a_.rotary_dim);
      query_turned = slice(query, a_.rotary_dim);
      query_rest = narrow(query, 3, a_.rotary_dim, d - a_.rotary_dim);
      key_turned = rotated(key_turned, context.position_embeddings);
      query_turned = rotated(query_turned, context.position_embeddings);
      key = cat({key_turned, key_rest}, 3);
      query = cat({query_turned, query_rest}, 3);
    } else {
      key = rotated(key, context.position_embeddings);
      query = rotated(query, context.position_embeddings);
    }
    query = transpose(query, 1, 2);
    if (codegen_) query = to(query, value.dtype());
    key = transpose(key, 1, 2);
    if (codegen_) key = to(key, value.dtype());
    const auto attended = [&] {
      switch (context.attention) {
        case Attention::sdpa: return sdpa_attention(query, key, value, context.attention_mask, a_.attention_dropout);
        case Attention::flash_attention_2: return flash_attention(query, key, value, context.attention_mask, context);
        case Attention::fused:  // Megatron's, which has modules of its own
        case Attention::eager: break;
      }
      return eager_in_float(query, key, value, context.attention_mask, a_.attention_dropout);
    };
    AttentionResult result = attended();
    result.output = merged_heads(result.output, rows, sequence);
    result.output = block.out_proj(result.output);
    result.output = dropout(result.output, a_.dropout);
    return result;
  }

  // A slice of everything is no node of the graph.
  static Tensor slice(const Tensor& states, std::int64_t length) {
    return length == states.size(3) ? view(states, states.sizes()) : narrow(states, 3, 0, length);
  }

  Tensor mlp(const Block& block, const Tensor& input) const {
    const ModuleScope scope(input.device(), "mlp", Category::mlp);
    Tensor hidden_states = block.fc_in(input);
    hidden_states = activate(a_.activation, hidden_states);
    hidden_states = block.fc_out(hidden_states);
    return dropout(hidden_states, a_.dropout);
  }

  const Architecture& a_;
  bool codegen_;
  Tensor wte_, embed_positions_;
  std::vector<Block> blocks_;
  NormModule ln_f_;
};

}  // namespace

std::unique_ptr<const Body> gptj_body(const Architecture& a, const MadeModule& root) { return std::make_unique<GptJ>(a, root, false); }
std::unique_ptr<const Body> codegen_body(const Architecture& a, const MadeModule& root) { return std::make_unique<GptJ>(a, root, true); }

}  // namespace llmem
