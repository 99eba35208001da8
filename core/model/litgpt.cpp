#include "model/litgpt.h"

#include <algorithm>

#include "model/bodies.h"
#include "model/declaration.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

constexpr std::string_view kWords[] = {"query", "key", "value", "projection", "mlp", "head"};
constexpr std::int64_t kChunk = 128;  // tokens: lm_head_chunk_size of finetune/lora.py, chunk_size of chunked_cross_entropy

bool has(const Architecture& a, std::string_view suffix) {
  return std::any_of(a.tensors.begin(), a.tensors.end(), [&](const Parameter& each) {
    return each.name.size() >= suffix.size() && each.name.compare(each.name.size() - suffix.size(), suffix.size(), suffix) == 0;
  });
}

bool is_gemma(const Architecture& a) { return a.model_type == "gemma" || a.model_type == "gemma2"; }
bool is_gated(const Architecture& a) { return a.activation == Activation::silu || is_gemma(a); }
// Config.shared_attention_norm: phi and the first falcons
bool shares_norm(const Architecture& a) { return a.model_type == "phi" || (a.model_type == "falcon" && a.parallel_norms == 1); }
std::int64_t turned(const Architecture& a) { return a.rotary_dim > 0 ? a.rotary_dim : a.head_dim; }

}  // namespace

Architecture as_litgpt(Architecture a, std::int64_t sequence) {
  if (a.litgpt) return a;
  // The architecture of a family with a body of its own does not say which norm that has.
  if (a.model_type == "gpt_neox" || a.model_type == "falcon") a.norm = NormKind::layer;
  const bool attention_bias = has(a, "query_key_value.bias") || has(a, "q_proj.bias"), norm_bias = a.norm == NormKind::layer || a.norm_bias;
  const bool mlp_bias = has(a, "fc1.bias") || has(a, "dense_h_to_4h.bias") || has(a, "up_proj.bias"), head_bias = has(a, "lm_head.bias");
  const bool norms_after = !name_of(a.names.layer, '2').empty() && !name_of(a.names.layer, '4').empty();
  a.litgpt = true;
  a.tied_embeddings = false;
  a.names = {};
  a.names.model = "transformer";
  a.names.embedding = "wte";
  a.names.layers = "h";
  a.names.norm = "ln_f";
  a.names.layer = norms_after ? "2:post_attention_norm 4:post_mlp_norm" : "";
  a.tensors.clear();
  const Module root(a.tensors, "");
  root.linear("lm_head", a.hidden_size, a.vocab_size, head_bias);
  const Module model = root.child("transformer");
  model.embedding("wte", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("h", i), mlp = layer.child("mlp");
    const auto norm = [&](std::string_view name) { layer.norm(name, a.hidden_size, norm_bias); };
    norm("norm_1");
    layer.child("attn").linear("attn", a.hidden_size, (a.heads + 2 * a.kv_heads) * a.head_dim, attention_bias);
    layer.child("attn").linear("proj", a.heads * a.head_dim, a.hidden_size, attention_bias);
    if (norms_after) norm("post_attention_norm");
    if (!shares_norm(a)) norm("norm_2");
    if (is_gated(a)) {
      mlp.linear("fc_1", a.hidden_size, a.intermediate_size, mlp_bias);
      mlp.linear("fc_2", a.hidden_size, a.intermediate_size, mlp_bias);
    } else {
      mlp.linear("fc", a.hidden_size, a.intermediate_size, mlp_bias);
    }
    mlp.linear("proj", a.intermediate_size, a.hidden_size, mlp_bias);
    if (norms_after) norm("post_mlp_norm");
  }
  model.norm("ln_f", a.hidden_size, norm_bias);
  for (const std::string_view table : {"cos", "sin"}) root.buffer(table, {sequence, turned(a)});
  return a;
}

std::optional<Problem> check_litgpt(const Training& training, const Architecture& a) {
  constexpr std::string_view kPlayed[] = {"llama", "mistral", "gemma", "gemma2", "phi", "phi3", "gpt_neox", "falcon"};
  if (std::find(std::begin(kPlayed), std::end(kPlayed), a.model_type) == std::end(kPlayed))
    return Problem{
        "/software/stack", "unsupported",
        "\"" + a.model_type + "\" is not supported with litgpt yet. Supported: llama, mistral, gemma, gemma2, phi, phi3, gpt_neox, falcon"};
  if (training.method != Method::lora || training.adapter.all_linear) return std::nullopt;
  for (const std::string& target : training.adapter.targets)
    if (std::find(std::begin(kWords), std::end(kWords), target) == std::end(kWords))
      return Problem{"/training/adapter/targets", "conflict",
                     "litgpt has no \"" + target + "\". It has query, key, value, projection, mlp, head; or take \"all-linear\""};
  return std::nullopt;
}

std::vector<LitAdapter> litgpt_adapters(const Architecture& a, const AdapterOptions& options) {
  const std::int64_t r = options.rank;
  const auto on = [&](std::string_view word) {
    return options.all_linear || std::find(options.targets.begin(), options.targets.end(), word) != options.targets.end();
  };
  std::vector<LitAdapter> made;
  const auto plain = [&](std::string module, std::int64_t in, std::int64_t out) { made.push_back({std::move(module), r, r, in, out, {}}); };
  if (on("head")) plain("lm_head", a.hidden_size, a.vocab_size);
  const std::int64_t queries = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
  LitAdapter qkv;
  for (const auto& [word, width] : {std::pair{"query", queries}, std::pair{"key", keys}, std::pair{"value", keys}})
    if (on(word)) qkv.parts.push_back(width);
  for (const std::int64_t width : qkv.parts) qkv.out += width;
  qkv.rank = r;
  qkv.ranks = r * static_cast<std::int64_t>(qkv.parts.size());
  qkv.in = a.hidden_size;
  qkv.grouped = a.heads == a.kv_heads;
  qkv.padded = qkv.parts.size() < 3;
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const std::string layer = "transformer.h." + std::to_string(i) + ".";
    if (!qkv.parts.empty()) {
      made.push_back(qkv);
      made.back().module = layer + "attn.attn";
    }
    if (on("projection")) plain(layer + "attn.proj", queries, a.hidden_size);
    if (!on("mlp")) continue;
    for (const char* name : {"mlp.fc_1", "mlp.fc_2", "mlp.fc"})
      if ((std::string_view(name) == "mlp.fc") != is_gated(a)) plain(layer + name, a.hidden_size, a.intermediate_size);
    plain(layer + "mlp.proj", a.intermediate_size, a.hidden_size);
  }
  return made;
}

namespace {

// LoRAQKVLinear.forward behind the layer itself
Tensor qkv_delta(const LoraAdapter& adapter, const LitParts& lit, const Tensor& x) {
  const Tensor after_a = linear(dropout(x, adapter.dropout), adapter.a, {});
  const Tensor channels = transpose(after_a, 1, 2);
  const auto convolved = [&] {
    if (lit.grouped) return channel_conv1d(channels, adapter.b);
    const Tensors inputs = split_along(channels, 1, std::vector<std::int64_t>(lit.parts.size(), adapter.b.size(1)));
    const Tensors weights = split_along(adapter.b, 0, lit.parts);
    Tensors made;
    for (std::size_t i = 0; i < inputs.size(); ++i) made.push_back(channel_conv1d(inputs[i], weights[i]));
    return made.size() == 1 ? made.front() : cat(made, 1);  // one part is copied, too, in no more memory
  };
  const Tensor after_b = transpose(convolved(), 1, 2);
  return mul_scalar(lit.columns ? place_columns(after_b, lit.columns, lit.width) : after_b);
}

// lora.py: LoRALinear.forward, LoRAQKVLinear.forward
Tensor lit_linear(const Linear& layer, const Tensor& x) {
  const LinearParts& parts = *layer.parts;
  Tensor pretrained = parts.quantized ? quantized_linear(x, *parts.quantized, layer.bias) : linear(x, layer.weight, layer.bias);
  if (!parts.adapter) return pretrained;
  const LoraAdapter& adapter = *parts.adapter;
  const auto plain = [&] {
    const auto product = [&] {
      const auto down = [&] { return linear(dropout(x, adapter.dropout), adapter.a, {}); };
      return linear(down(), adapter.b, {});
    };
    return mul_scalar(product());
  };
  const Tensor lora = parts.lit ? qkv_delta(adapter, *parts.lit, x) : plain();
  return add(pretrained, lora);
}

Tensor called(const DenseModule& module, const Tensor& x) {
  const ModuleScope scope(x.device(), module.name);
  return lit_linear(module.linear, x);
}

// model.py, RMSNorm
Tensor lit_rms_norm(Tensor x, const Tensor& weight, bool one_plus) {
  const Dtype dtype = x.dtype();
  x = to(x, Dtype::float32);
  const auto mean = [&] {
    const Tensor squares = mul(x, x);
    return mean_last(squares);
  };
  const Tensor norm_x = mean();
  Tensor x_normed;
  {
    const Tensor scale = rsqrt(add_scalar(norm_x));
    x_normed = mul(x, scale);
  }
  x_normed = to(x_normed, dtype);
  return mul(x_normed, one_plus ? add_scalar(weight) : weight);
}

struct Layer {
  NormModule norm_1, post_attention_norm, norm_2, post_mlp_norm;
  DenseModule attn, proj, fc_1, fc_2, fc, mlp_proj;
};

class LitGpt : public Body {
 public:
  LitGpt(const Architecture& a, const MadeModule& root) : a_(a) {
    const MadeModule model = root.child("transformer");
    wte_ = model.tensor("wte.weight");
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const MadeModule layer = model.child("h", i), attention = layer.child("attn"), mlp = layer.child("mlp");
      layers_.push_back({layer.norm("norm_1", a.norm), layer.norm("post_attention_norm", a.norm), layer.norm("norm_2", a.norm),
                         layer.norm("post_mlp_norm", a.norm), attention.dense("attn"), attention.dense("proj"), mlp.dense("fc_1"),
                         mlp.dense("fc_2"), mlp.dense("fc"), mlp.dense("proj")});
    }
    ln_f_ = model.norm("ln_f", a.norm);
    cos_ = root.tensor("cos");
    sin_ = root.tensor("sin");
  }

  Tensor embedding() const override { return wte_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext&, std::vector<Tensor>&) const override {
    const Tensor x = embedded_ids(wte_, "wte", ids, options);
    return is_gemma(a_) ? mul_scalar(x) : x;
  }

  Tensor layer(int index, const Tensor& input, const LayerContext&, Tensor&) const override {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    Tensor x_normed = normed(layer.norm_1, input);
    Tensor attention_output = normed(layer.post_attention_norm, attention(layer, x_normed));
    if (a_.parallel_residual) {
      if (!shares_norm(a_)) x_normed = normed(layer.norm_2, input);
      const auto both = [&] {
        const Tensor made = mlp(layer, x_normed);
        return add(made, attention_output);
      };
      const Tensor sum = both();
      return add(sum, input);
    }
    const Tensor x = add(attention_output, input);
    const auto fed = [&] { return normed(layer.post_mlp_norm, mlp(layer, normed(layer.norm_2, x))); };
    const Tensor made = fed();
    return add(made, x);
  }

  Tensor end(Tensor x) const override { return normed(ln_f_, x); }

 private:
  Tensor normed(const NormModule& norm, const Tensor& x) const {
    if (!norm.norm.weight) return x;  // torch.nn.Identity
    if (a_.norm == NormKind::layer) return norm(x);
    const ModuleScope scope(x.device(), norm.name, Category::norms);
    return lit_rms_norm(x, norm.norm.weight, is_gemma(a_));
  }

  Tensor rope(const Tensor& x) const {
    const std::int64_t half = x.size(-1) / 2;
    const Tensor x1 = narrow(x, 3, 0, half), x2 = narrow(x, 3, half, half);
    const auto turned_half = [&] {
      const Tensor negative = neg(x2);
      return cat({negative, x1}, 3);
    };
    const Tensor rotated = turned_half();
    const auto sum = [&] {
      const Tensor straight = mul(x, cos_);
      const Tensor across = mul(rotated, sin_);
      return add(straight, across);
    };
    const Tensor roped = sum();
    return to(roped, x.dtype());
  }

  Tensor attention(const Layer& layer, const Tensor& x) const {
    const ModuleScope scope(x.device(), "attn", Category::attention);
    const std::int64_t rows = x.size(0), tokens = x.size(1), d = a_.head_dim, groups = a_.kv_heads, queries = a_.heads / groups;
    Tensor qkv = called(layer.attn, x);
    qkv = view(qkv, {rows, tokens, groups, queries + 2, d});
    qkv = permute(qkv, {0, 2, 3, 1, 4});
    Tensors parts = split_along(qkv, 2, {queries, 1, 1});
    for (std::size_t i = 1; i < 3; ++i)
      if (groups != a_.heads) parts[i] = expand(parts[i], {rows, groups, queries, tokens, d});
    for (Tensor& each : parts) each = reshape(each, {rows, a_.heads, tokens, d});
    const std::int64_t n = turned(a_), rest = d - n;
    // A slice that is the whole is the tensor itself.
    const auto first = [&](const Tensor& states) { return rest == 0 ? states : narrow(states, 3, 0, n); };
    const Tensor q_roped = rope(first(parts[0])), k_roped = rope(first(parts[1]));
    parts[0] = cat({q_roped, narrow(parts[0], 3, n, rest)}, 3);
    parts[1] = cat({k_roped, narrow(parts[1], 3, n, rest)}, 3);
    Tensor y = transpose(attended(parts[0], parts[1], parts[2]), 1, 2);
    y = reshape(y, {rows, tokens, a_.heads * d});
    return called(layer.proj, y);
  }

  // With a soft cap SDPA is not asked.
  Tensor attended(const Tensor& q, const Tensor& k, const Tensor& v) const {
    if (!a_.softcapped_attention) return scaled_dot_product_attention(q, k, v);
    Device& device = q.device();
    const std::int64_t tokens = q.size(2);
    const auto scaled = [&] {
      const Tensor product = matmul(q, transpose(k, 2, 3));
      return mul_scalar(product);
    };
    Tensor scores = scaled();
    const auto capped = [&] {
      const Tensor ratio = mul_scalar(scores);
      const Tensor bent = tanh_of(ratio);
      return mul_scalar(bent);
    };
    scores = capped();
    const auto causal = [&] {
      const Tensor ones = device.empty({tokens, tokens}, q.dtype());
      return device.empty({tokens, tokens}, q.dtype());  // triu
    };
    const Tensor mask = causal();
    device.scratch(Bytes{tokens * tokens});  // mask.bool()
    scores = add(scores, mask);
    scores = to(softmax_float(scores), q.dtype());
    return matmul(scores, v);
  }

  Tensor mlp(const Layer& layer, const Tensor& x) const {
    const ModuleScope scope(x.device(), "mlp", Category::mlp);
    if (layer.fc.present()) {
      Tensor states = called(layer.fc, x);
      states = gelu(states);
      return called(layer.mlp_proj, states);
    }
    const Tensor x_fc_1 = called(layer.fc_1, x), x_fc_2 = called(layer.fc_2, x);
    const auto product = [&] {
      const Tensor active = a_.activation == Activation::silu ? silu(x_fc_1) : gelu(x_fc_1);
      return mul(active, x_fc_2);
    };
    const Tensor states = product();
    return called(layer.mlp_proj, states);
  }

  const Architecture& a_;
  Tensor wte_, cos_, sin_;
  std::vector<Layer> layers_;
  NormModule ln_f_;
};

std::vector<std::int64_t> chunks_of(std::int64_t length) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t left = length; left > 0; left -= kChunk) lengths.push_back(std::min(left, kChunk));
  return lengths;
}

Tensor as_rows(const Tensor& logits) { return reshape(logits, {logits.numel() / logits.size(-1), logits.size(-1)}); }

// chunked_cross_entropy from its chunks on: torch.cat(loss_chunks).sum() / non_masked_elems.maximum(1)
Tensor mean_of(const std::vector<Tensor>& rows, const std::vector<Tensor>& chunks, const Tensor& targets) {
  Device& device = targets.device();
  std::vector<Tensor> losses;
  for (std::size_t i = 0; i < rows.size(); ++i) losses.push_back(cross_entropy(rows[i], chunks[i], true));
  const auto counted = [&] {
    const Tensor mask = unary_no_grad(targets, "non_masked_elems", Dtype::boolean);
    return sum_of_booleans(mask);
  };
  const Tensor count = counted();
  const auto sum = [&] {
    const Tensor all = cat_vectors(losses);
    return sum_all(all);
  };
  const Tensor total = sum();
  const auto at_least_one = [&] {
    const Tensor ones = device.empty({}, Dtype::int64);
    return unary_no_grad(count, "maximum", Dtype::int64);
  };
  const Tensor divisor = at_least_one();
  return div(total, divisor);
}

}  // namespace

std::unique_ptr<const Body> litgpt_body(const Architecture& a, const MadeModule& root) { return std::make_unique<LitGpt>(a, root); }

Tensor litgpt_loss(const Architecture& a, const Linear& head, Tensor hidden, const Tensor& labels, bool chunks_head,
                   std::vector<Tensor>& outputs) {
  const std::int64_t rows = hidden.size(0), length = hidden.size(1) - 1;
  const Tensor next = narrow(labels, 1, 1, length);
  if (chunks_head) {
    std::vector<Tensor> logits;
    for (const Tensor& x : split_along(hidden, 1, chunks_of(length + 1))) logits.push_back(lit_linear(head, x));
    hidden.reset();
    std::vector<Tensor> wide;
    for (const Tensor& each : logits) wide.push_back(to(each, Dtype::float32));
    logits.clear();
    wide.back() = narrow(wide.back(), 1, 0, wide.back().size(1) - 1);
    outputs = std::move(wide);
    std::vector<Tensor> flat, targets;
    for (const Tensor& each : outputs) {
      if (each.size(1) == 0) continue;
      flat.push_back(as_rows(each));
      targets.push_back(reshape(narrow(next, 1, 0, each.size(1)), {rows * each.size(1)}));
    }
    return mean_of(flat, targets, next);
  }
  const auto returned = [&] {
    Tensor logits = lit_linear(head, hidden);
    hidden.reset();
    if (a.softcapped_logits) {
      const auto capped = [&] {
        const Tensor ratio = mul_scalar(logits);
        const Tensor bent = tanh_of(ratio);
        return mul_scalar(bent);
      };
      logits = capped();
    }
    return to(logits, Dtype::float32);
  };
  outputs = {returned()};
  const Tensor logits = as_rows(narrow(outputs[0], 1, 0, length)), targets = reshape(next, {rows * length});
  return mean_of(split(logits, kChunk), split(targets, kChunk), targets);
}

}  // namespace llmem
