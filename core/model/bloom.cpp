#include "model/bodies.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// modeling_bloom.py and modeling_mpt.py: linear biases in place of positions, eager attention only.
namespace llmem {

namespace {

// ---- bloom

// bloom_gelu_forward: x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))
Tensor inner_tanh(const Tensor& x) {
  const auto argument = [&] {
    const Tensor scaled = mul_scalar(x);
    const auto square_of = [&] {
      const Tensor small = mul_scalar(x);
      return mul(small, x);
    };
    const auto one_plus = [&] {
      const Tensor squared = square_of();
      return add_scalar(squared);
    };
    return mul(scaled, one_plus());
  };
  const Tensor whole = argument();
  return tanh_of(whole);
}

Tensor gelu_forward(const Tensor& x) {
  const Tensor half = mul_scalar(x);
  const auto one_plus = [&] {
    const Tensor turned = inner_tanh(x);
    return add_scalar(turned);
  };
  return mul(half, one_plus());
}

// bloom_gelu_back: ff = 0.5 * x * ((1 - tanh_out * tanh_out) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + tanh_out); ff * g
Tensor gelu_back(const Tensor& gradient, const Tensor& x) {
  const Tensor tanh_out = inner_tanh(x);
  const auto first = [&] {
    const Tensor half = mul_scalar(x);
    const auto product = [&] {
      const auto left = [&] {
        const Tensor squared = mul(tanh_out, tanh_out);
        return add_scalar(squared);
      };
      const auto right = [&] {
        const auto squared = [&] {
          const Tensor small = mul_scalar(x);
          return mul(small, x);
        };
        const Tensor whole = squared();
        return add_scalar(whole);
      };
      const Tensor a = left();
      return mul(a, right());
    };
    return mul(half, product());
  };
  const auto second = [&] {
    const Tensor one_plus = add_scalar(tanh_out);
    return mul_scalar(one_plus);
  };
  const auto sum = [&] {
    const Tensor left = first();
    return add(left, second());
  };
  const Tensor ff = sum();
  return mul(ff, gradient);
}

// GeLUFunction
Tensor bloom_gelu(const Tensor& input) {
  Recorder grad("bloom_gelu", {&input});
  Saved input_ = grad.save_if(grad.recording(), input);
  Tensor result;
  {
    const With no_grad(input.device().grad_enabled, false);
    result = gelu_forward(input);
  }
  grad.attach(result);
  grad.backward([input_ = std::move(input_)](Tensors& gradients) {
    const Tensor saved = input_.unpack();
    return Tensors{gelu_back(gradients[0], saved)};
  });
  return result;
}

std::int64_t power_of_two_up_to(std::int64_t n) {
  std::int64_t p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}

struct BloomLayer {
  NormModule input_layernorm;
  DenseModule query_key_value, dense;
  NormModule post_attention_layernorm;
  DenseModule dense_h_to_4h, dense_4h_to_h;
};

class Bloom : public Body {
 public:
  Bloom(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule transformer = root.child("transformer");
    word_embeddings_ = transformer.tensor("word_embeddings.weight");
    word_embeddings_layernorm_ = transformer.norm("word_embeddings_layernorm");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule h = transformer.child("h", i), attention = h.child("self_attention"), mlp = h.child("mlp");
      layers_.push_back({h.norm("input_layernorm"), attention.dense("query_key_value"), attention.dense("dense"),
                         h.norm("post_attention_layernorm"), mlp.dense("dense_h_to_4h"), mlp.dense("dense_4h_to_h")});
    }
    ln_f_ = transformer.norm("ln_f");
  }

  Tensor embedding() const override { return word_embeddings_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(word_embeddings_, "word_embeddings", ids, options);
    Tensor hidden_states = word_embeddings_layernorm_(inputs_embeds);
    const Tensor slopes = alibi_slopes(ids.device());
    context.alibi = alibi(slopes, inputs_embeds.size(0), inputs_embeds.size(1), hidden_states.dtype());
    context.attention_mask = causal_mask(inputs_embeds, {}, options);
    locals = {inputs_embeds, slopes};
    return hidden_states;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor& kept) const override {
    const BloomLayer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor layernorm_output = layer.input_layernorm(input);
    Tensor residual = a_.residual_after_norm ? layernorm_output : input;
    const AttentionResult attended = attention(layer, layernorm_output, residual, context);
    kept = attended.weights;
    layernorm_output = layer.post_attention_layernorm(attended.output);
    residual = a_.residual_after_norm ? layernorm_output : attended.output;
    return mlp(layer, layernorm_output, residual);
  }

  Tensor end(Tensor hidden_states) const override { return ln_f_(hidden_states); }

 private:
  // _get_alibi_slopes
  Tensor alibi_slopes(Device& device) const {
    const std::int64_t closest = power_of_two_up_to(a_.heads);
    const Tensor base = device.empty({}, Dtype::float32), powers = device.empty({closest}, Dtype::int32);
    Tensor slopes = device.empty({closest}, Dtype::float32);
    if (closest == a_.heads) return slopes;
    const std::int64_t rest = a_.heads - closest;
    const Tensor extra_base = device.empty({}, Dtype::float32), extra_powers = device.empty({rest}, Dtype::int32);
    const Tensor more = device.empty({rest}, Dtype::float32);
    slopes = device.empty({a_.heads}, Dtype::float32);
    return slopes;
  }

  // slopes[:, None, None] * torch.arange(S), repeated for every row, cast
  Tensor alibi(const Tensor& slopes, std::int64_t rows, std::int64_t sequence, Dtype dtype) const {
    Device& device = slopes.device();
    Tensor made;
    {
      const Tensor range = device.empty({sequence}, Dtype::int64);
      made = device.empty({a_.heads, 1, sequence}, Dtype::float32);
    }
    const auto repeated = [&] { return device.empty({rows * a_.heads, 1, sequence}, Dtype::float32); };
    made = to(repeated(), dtype);
    return made;
  }

  // dropout_add
  static Tensor dropout_add(const Tensor& states, const Tensor& residual, double probability) {
    const Tensor out = dropout(states, probability);
    return add(residual, out);
  }

  AttentionResult attention(const BloomLayer& layer, const Tensor& input, const Tensor& residual, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "self_attention", Category::attention);
    const std::int64_t rows = input.size(0), sequence = input.size(1), d = a_.head_dim;
    const Tensor fused = layer.query_key_value(input);
    Tensor query, key, value;
    {
      const Tensor by_head = view(fused, {rows, sequence, a_.heads, 3, d});
      query = transpose(select(by_head, 3), 1, 2);
      key = transpose(select(by_head, 3), 1, 2);
      value = transpose(select(by_head, 3), 1, 2);
    }
    const Dims flat{rows * a_.heads, sequence, d};
    query = reshape(query, flat);
    key = transpose(reshape(key, flat), 1, 2);
    value = reshape(value, flat);
    const Tensor scores = baddbmm(context.alibi, query, key);
    Tensor weights = view(scores, {rows, a_.heads, sequence, sequence});
    weights = add(weights, context.attention_mask);
    Tensor probabilities = to(softmax_float(weights), query.dtype());
    probabilities = dropout(probabilities, a_.attention_dropout);
    Tensor output = bmm_autocast(view(probabilities, {rows * a_.heads, sequence, sequence}), value);
    output = reshape(transpose(view(output, {rows, a_.heads, sequence, d}), 1, 2), {rows, sequence, a_.hidden_size});
    Tensor result = layer.dense(output);
    result = dropout_add(result, residual, a_.dropout);
    return {result, probabilities};
  }

  static Tensor bmm_autocast(const Tensor& first, const Tensor& second) {
    const Tensor right = autocast(second);
    const Tensor left = autocast(first);
    return bmm(left, right);
  }

  Tensor mlp(const BloomLayer& layer, const Tensor& input, const Tensor& residual) const {
    const ModuleScope scope(input.device(), "mlp", Category::mlp);
    const Tensor hidden_states = bloom_gelu(layer.dense_h_to_4h(input));
    const Tensor output = layer.dense_4h_to_h(hidden_states);
    return dropout_add(output, residual, a_.dropout);
  }

  const Architecture& a_;
  Tensor word_embeddings_;
  NormModule word_embeddings_layernorm_, ln_f_;
  std::vector<BloomLayer> layers_;
};

// ---- mpt

struct MptBlock {
  NormModule norm_1;
  DenseModule w_qkv, out_proj;
  NormModule norm_2;
  DenseModule up_proj, down_proj;
};

class Mpt : public Body {
 public:
  Mpt(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule transformer = root.child("transformer");
    wte_ = transformer.tensor("wte.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule block = transformer.child("blocks", i), attention = block.child("attn"), ffn = block.child("ffn");
      blocks_.push_back({block.norm("norm_1"), attention.dense("Wqkv"), attention.dense("out_proj"), block.norm("norm_2"),
                         ffn.dense("up_proj"), ffn.dense("down_proj")});
    }
    norm_f_ = transformer.norm("norm_f");
  }

  Tensor embedding() const override { return wte_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext& context, std::vector<Tensor>& locals) const override {
    const Tensor inputs_embeds = embedded_ids(wte_, "wte", ids, options);
    context.alibi = alibi(ids.device());
    const auto mask = [&] { return causal_mask(inputs_embeds, {}, options); };
    context.attention_mask = unary_no_grad(mask(), "to", Dtype::boolean);
    locals = {inputs_embeds};
    return inputs_embeds;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor& kept) const override {
    const MptBlock& block = blocks_[static_cast<std::size_t>(index)];
    Tensor layernorm_output = block.norm_1(input);
    const AttentionResult attended = attention(block, layernorm_output, context);
    kept = attended.weights;
    const auto added = [&] {
      const Tensor dropped = dropout(attended.output, a_.dropout);
      return add(dropped, input);
    };
    const Tensor hidden_states = added();
    layernorm_output = block.norm_2(hidden_states);
    return ffn(block, layernorm_output, hidden_states);
  }

  Tensor end(Tensor hidden_states) const override { return norm_f_(hidden_states); }

 private:
  // build_mpt_alibi_tensor, over the longest sequence that the config knows
  Tensor alibi(Device& device) const {
    const Tensor positions = device.empty({1, 1, 1, a_.longest_sequence}, Dtype::int32);
    std::int64_t power = 1;
    while (power < a_.heads) power *= 2;
    const auto floats = [&](std::int64_t n) { return device.empty({n}, Dtype::float32); };
    Tensor base;
    {
      const Tensor range = device.empty({power}, Dtype::int64);
      base = floats(power);
    }
    base = mul_scalar(base);
    Tensor slopes;
    {  // 1.0 / torch.pow(2, base): the 2 goes to the device
      const Tensor raised = floats(power);
      device.scratch(Bytes{8});
      const Tensor reciprocal = floats(power);
      slopes = floats(power);
    }
    if (power != a_.heads) slopes = floats(power);
    return device.empty({a_.heads, 1, a_.longest_sequence}, Dtype::float32);
  }

  AttentionResult attention(const MptBlock& block, const Tensor& input, const LayerContext& context) const {
    const ModuleScope scope(input.device(), "attn", Category::attention);
    const std::int64_t rows = input.size(0), sequence = input.size(1);
    Tensor mixed = block.w_qkv(input);
    if (a_.clipped_qkv) mixed = clamp(mixed);
    const Tensors parts = split_last(mixed, {a_.hidden_size, a_.hidden_size, a_.hidden_size});
    const auto by_head = [&](const Tensor& states) { return transpose(reshape(states, {rows, sequence, a_.heads, a_.head_dim}), 1, 2); };
    const Tensor query = by_head(parts[0]), key = by_head(parts[1]), value = by_head(parts[2]);
    Tensor scores = mul_scalar(matmul(query, transpose(key, 2, 3)));
    const std::int64_t shown = std::min(sequence, a_.longest_sequence);
    scores = add(scores, narrow(context.alibi, 2, 0, shown));
    scores = masked_fill(scores, context.attention_mask);
    Tensor weights = to(softmax_last(to(scores, Dtype::float32)), value.dtype());
    weights = dropout(weights, a_.attention_dropout);
    Tensor states = matmul(weights, value);
    states = view(contiguous(transpose(states, 1, 2)), {rows, sequence, a_.hidden_size});
    return {block.out_proj(states), weights};
  }

  Tensor ffn(const MptBlock& block, const Tensor& input, const Tensor& residual) const {
    const ModuleScope scope(input.device(), "ffn", Category::mlp);
    const Tensor hidden_states = gelu(block.up_proj(input));
    const Tensor intermediate = block.down_proj(hidden_states);
    Tensor output = dropout(intermediate, a_.dropout);
    output = add(output, residual);
    return output;
  }

  const Architecture& a_;
  Tensor wte_;
  std::vector<MptBlock> blocks_;
  NormModule norm_f_;
};

}  // namespace

std::unique_ptr<const Body> bloom_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Bloom>(a, root); }
std::unique_ptr<const Body> mpt_body(const Architecture& a, const MadeModule& root) { return std::make_unique<Mpt>(a, root); }

}  // namespace llmem
