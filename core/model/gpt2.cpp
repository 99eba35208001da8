#include "model/activation.h"
#include "model/bodies.h"
#include "tensor/ops.h"

// modeling_gpt2.py, modeling_gpt_bigcode.py and modeling_gpt_neo.py.
namespace llmem {

namespace {

struct PlainMlp {
  DenseModule c_fc, c_proj;

  Tensor forward(const Tensor& input, const Architecture& a) const {
    const ModuleScope scope(input.device(), "mlp", Category::mlp);
    Tensor hidden_states = c_fc(input);
    hidden_states = activate(a.activation, hidden_states);
    hidden_states = c_proj(hidden_states);
    return dropout(hidden_states, a.dropout);
  }
};

struct Block {
  NormModule ln_1;
  DenseModule c_attn, k_proj, v_proj, q_proj, c_proj;  // gpt_neo has three matrices
  NormModule ln_2;
  PlainMlp mlp;
  Tensor tril;  // gpt_neo's mask
};

// attn_weights in the dtype of the scores, cast to value's; output [B, S, heads, d], not contiguous
AttentionResult eager_of_gpt2(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double probability) {
  Tensor weights = mul_scalar(matmul(query, transpose(key, 2, 3)));
  weights = add(weights, mask);
  weights = softmax_last(weights);
  weights = to(weights, value.dtype());
  weights = dropout(weights, probability);
  Tensor output = matmul(weights, value);
  output = transpose(output, 1, 2);
  return {output, weights};
}

class Gpt2 : public Body {
 public:
  enum Kind : std::uint8_t { gpt2, bigcode, neo };

  Gpt2(const Architecture& a, const MadeModule& root, Kind kind) : a_(a), kind_(kind), ln_f_(root.child("transformer").norm("ln_f")) {
    const MadeModule transformer = root.child("transformer");
    wte_ = transformer.tensor("wte.weight");
    wpe_ = transformer.tensor("wpe.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) blocks_.push_back(block(transformer.child("h", i)));
  }

  Tensor embedding() const override { return wte_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(wte_, "wte", ids, options);
    const bool older = options.transformers != Transformers::v5;  // gpt_bigcode alone, with flash-attn
    const Tensor position_ids =
        older ? unsqueeze(ids.device().empty({ids.size(1)}, Dtype::int64), 0) : arange_positions(inputs_embeds, options);
    // gpt2 makes the mask last, and is the one whose layers get the positions.
    if (kind_ != gpt2 && !older) context.attention_mask = causal_mask(inputs_embeds, position_ids, options);
    const Tensor position_embeds = embedded_ids(wpe_, "wpe", position_ids, {});
    Tensor hidden_states = add(inputs_embeds, position_embeds);
    if (kind_ == gpt2) {
      context.attention_mask = causal_mask(inputs_embeds, position_ids, options);
      context.position_ids = position_ids;
    }
    locals = {inputs_embeds, position_ids, position_embeds};
    hidden_states = dropout(hidden_states, a_.embedding_dropout);
    return hidden_states;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor& kept) const override {
    const Block& block = blocks_[static_cast<std::size_t>(index)];
    Tensor residual = input;
    Tensor hidden_states = block.ln_1(input);
    const AttentionResult attended = attention(block, hidden_states, context);
    if (kind_ == neo) kept = attended.weights;
    hidden_states = add(attended.output, residual);
    residual = hidden_states;
    hidden_states = block.ln_2(hidden_states);
    const Tensor feed_forward = block.mlp.forward(hidden_states, a_);
    hidden_states = add(residual, feed_forward);
    return hidden_states;
  }

  Tensor end(Tensor hidden_states) const override { return ln_f_(hidden_states); }

 private:
  Block block(const MadeModule& h) const {
    const Linear::Kind dense = kind_ == gpt2 ? Linear::conv1d : Linear::plain;
    const MadeModule mlp = h.child("mlp");
    Block made;
    made.ln_1 = h.norm("ln_1");
    if (kind_ == neo) {
      const MadeModule attention = h.child("attn").child("attention");
      made.k_proj = attention.dense("k_proj");
      made.v_proj = attention.dense("v_proj");
      made.q_proj = attention.dense("q_proj");
      made.c_proj = attention.dense("out_proj");
      made.tril = attention.tensor("bias");
    } else {
      made.c_attn = h.child("attn").dense("c_attn", dense);
      made.c_proj = h.child("attn").dense("c_proj", dense);
    }
    made.ln_2 = h.norm("ln_2");
    made.mlp.c_fc = mlp.dense("c_fc", dense);
    made.mlp.c_proj = mlp.dense("c_proj", dense);
    return made;
  }

  Tensor by_head(const Tensor& states) const {
    return transpose(view(states, {states.size(0), states.size(1), states.numel() / (states.size(0) * states.size(1) * head()), head()}), 1,
                     2);
  }
  std::int64_t head() const { return a_.hidden_size / a_.heads; }

  AttentionResult attention(const Block& block, const Tensor& input, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "attn", Category::attention);
    return kind_ == neo ? attention_of_neo(block, input, context) : attention_of_gpt2(block, input, context);
  }

  AttentionResult attention_of_gpt2(const Block& block, const Tensor& input, const LayerContext& context) const {
    const std::int64_t rows = input.size(0), sequence = input.size(1);
    Tensor query, key, value;
    if (kind_ == gpt2) {
      const Tensors parts = split_last(block.c_attn(input), {a_.hidden_size, a_.hidden_size, a_.hidden_size});
      query = parts[0], key = by_head(parts[1]), value = by_head(parts[2]);
      query = by_head(query);
    } else if (a_.kv_heads == 1) {
      const Tensors parts = split_last(unsqueeze(block.c_attn(input), 1), {a_.hidden_size, head(), head()});
      query = transpose(view(parts[0], {rows, sequence, a_.heads, head()}), 1, 2);
      key = parts[1], value = parts[2];
    } else {
      const Tensor fused = transpose(view(block.c_attn(input), {rows, sequence, a_.heads, 3 * head()}), 1, 2);
      const Tensors parts = split_last(fused, {head(), head(), head()});
      query = parts[0], key = parts[1], value = parts[2];
    }
    const auto attended = [&] {
      if (context.attention == Attention::sdpa) return sdpa_attention(query, key, value, context.attention_mask, a_.attention_dropout);
      if (context.attention == Attention::flash_attention_2) return flash_attention(query, key, value, context.attention_mask, context);
      if (kind_ == gpt2) return eager_of_gpt2(query, key, value, context.attention_mask, a_.attention_dropout);
      return eager_attention(query, key, value, context.attention_mask, a_.attention_dropout, false);
    };
    AttentionResult result = attended();
    result.output = merged_heads(result.output, rows, sequence);
    result.output = block.c_proj(result.output);
    result.output = dropout(result.output, a_.dropout);
    return result;
  }

  // GPTNeoSelfAttention: scores in fp32, masked by a table of its own first
  AttentionResult attention_of_neo(const Block& block, const Tensor& input, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "attention");
    const std::int64_t rows = input.size(0), sequence = input.size(1);
    Tensor query = block.q_proj(input), key = block.k_proj(input), value = block.v_proj(input);
    query = by_head(query);
    key = by_head(key);
    value = by_head(value);
    AttentionResult result = scores_of_neo(block, query, key, value, context);
    result.output = contiguous(transpose(result.output, 1, 2));
    result.output = view(result.output, {rows, sequence, a_.hidden_size});
    result.output = block.c_proj(result.output);
    result.output = dropout(result.output, a_.dropout);
    return result;
  }

  AttentionResult scores_of_neo(const Block& block, const Tensor& query_states, const Tensor& key_states, const Tensor& value,
                                const LayerContext& context) const {
    const Tensor query = to(query_states, Dtype::float32);
    const Tensor key = to(key_states, Dtype::float32);
    Tensor weights = matmul(query, transpose(key, 2, 3));
    const std::int64_t sequence = query.size(2);
    const Tensor causal = narrow(narrow(block.tril, 2, 0, sequence), 3, 0, sequence);
    const Tensor mask_value = query.device().empty({}, weights.dtype());
    weights = where(causal, weights, mask_value);
    weights = add(weights, context.attention_mask);
    weights = softmax_last(weights);
    weights = to(weights, value.dtype());
    weights = dropout(weights, a_.attention_dropout);
    return {matmul(weights, value), weights};
  }

  const Architecture& a_;
  Kind kind_;
  Tensor wte_, wpe_;
  std::vector<Block> blocks_;
  NormModule ln_f_;
};

}  // namespace

std::unique_ptr<const Body> gpt2_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Gpt2>(a, root, Gpt2::gpt2); }
std::unique_ptr<const Body> gpt_bigcode_body(const Architecture& a, const MadeModule& root) {
  return std::make_unique<Gpt2>(a, root, Gpt2::bigcode);
}
std::unique_ptr<const Body> gpt_neo_body(const Architecture& a, const MadeModule& root) {
  return std::make_unique<Gpt2>(a, root, Gpt2::neo);
}

}  // namespace llmem
