#include <utility>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/encoder.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// modeling_t5.py, modeling_mt5.py and modeling_umt5.py: an encoder and a decoder whose positions are biases of the scores.
namespace llmem {

namespace {

// T5LayerNorm
struct T5Norm {
  std::string name;
  Tensor weight;

  Tensor operator()(const Tensor& input) const {
    const ModuleScope scope(input.device(), name, Category::norms);
    const auto mean_of_squares = [&] {
      const Tensor wide = to(input, Dtype::float32);
      const Tensor squares = square(wide);
      return mean_last(squares);
    };
    const Tensor variance = mean_of_squares();
    const auto normed = [&] {
      const auto inverse = [&] {
        const Tensor sum = add_scalar(variance);
        return rsqrt(sum);
      };
      const Tensor scale = inverse();
      return mul(input, scale);
    };
    Tensor hidden_states = normed();
    if (weight.dtype() != Dtype::float32) hidden_states = to(hidden_states, weight.dtype());
    return mul(weight, hidden_states);
  }
};

struct T5Attention {
  std::string name;
  DenseModule q, k, v, o;
  Tensor relative_attention_bias;
  T5Norm norm;
  bool decoder = false;
};

struct T5Block {
  T5Attention own, cross;
  DenseModule wi, wi_1, wo;
  T5Norm norm;
};

T5Norm made_norm(const MadeModule& of, const std::string& name = "layer_norm") { return {name, of.tensor(name + ".weight")}; }

T5Attention made_attention(const MadeModule& layer, const std::string& name, bool decoder) {
  const MadeModule attention = layer.child(name);
  return {name,
          attention.dense("q"),
          attention.dense("k"),
          attention.dense("v"),
          attention.dense("o"),
          attention.tensor("relative_attention_bias.weight"),
          made_norm(layer),
          decoder};
}

T5Block made_block(const MadeModule& block, bool decoder) {
  T5Block made;
  made.own = made_attention(block.child("layer", 0), "SelfAttention", decoder);
  if (decoder) made.cross = made_attention(block.child("layer", 1), "EncDecAttention", decoder);
  const MadeModule last = block.child("layer", decoder ? 2 : 1), dense = last.child("DenseReluDense");
  made.wi = dense.dense("wi");
  if (!made.wi.present()) {
    made.wi = dense.dense("wi_0");
    made.wi_1 = dense.dense("wi_1");
  }
  made.wo = dense.dense("wo");
  made.norm = made_norm(last);
  return made;
}

// T5Attention._relative_position_bucket. umt5 keeps the logarithm's name.
Tensor buckets_of(const Tensor& given_position, bool bidirectional, bool names_logarithm) {
  Device& device = given_position.device();
  const auto like = [&](Dtype dtype) { return device.empty(given_position.sizes(), dtype); };
  Tensor relative_position, relative_buckets;
  if (bidirectional) {
    const auto offsets = [&] {
      const auto ahead = [&] {
        const Tensor positive = like(Dtype::boolean);
        return like(Dtype::int64);
      };
      const Tensor integers = ahead();
      return like(Dtype::int64);
    };
    {
      const Tensor scaled = offsets();
      relative_buckets = like(Dtype::int64);
    }
    relative_position = like(Dtype::int64);
  } else {
    const auto least = [&] {
      const Tensor zeros = like(Dtype::int64);
      return like(Dtype::int64);
    };
    const Tensor behind = least();
    relative_position = like(Dtype::int64);
  }
  const Tensor is_small = like(Dtype::boolean);
  Tensor log_ratio;
  const auto logarithm = [&] {
    Tensor ratio = like(Dtype::float32);
    for (int i = 0; i < 4; ++i) ratio = like(Dtype::float32);
    return ratio;
  };
  const auto large = [&] {
    Tensor ratio = logarithm();
    Tensor integers = like(Dtype::int64);
    if (names_logarithm) log_ratio = ratio;
    ratio.reset();
    return like(Dtype::int64);
  };
  Tensor if_large = large();
  {
    const Tensor most = like(Dtype::int64);
    if_large = like(Dtype::int64);
  }
  {
    const Tensor chosen = like(Dtype::int64);
    if (!bidirectional) relative_buckets = like(Dtype::int64);
  }
  return relative_buckets;
}

class T5 : public Body {
 public:
  T5(const Architecture& a, const MadeModule& root) : a_(a), bias_in_every_layer_(a.model_type == "umt5") {
    shared_ = root.tensor("shared.weight");
    const std::int64_t encoders = a.encoder_layers();
    for (std::int64_t i = 0; i < a.layers; ++i) {
      const bool decoder = i >= encoders;
      blocks_.push_back(made_block(decoder ? root.child("decoder.block", i - encoders) : root.child("encoder.block", i), decoder));
    }
    encoder_norm_ = made_norm(root.child("encoder"), "final_layer_norm");
    decoder_norm_ = made_norm(root.child("decoder"), "final_layer_norm");
    head_ = head_module(root, "lm_head", a.tied_embeddings ? shared_ : Tensor());
  }

  Tensor embedding() const override { return shared_; }

  Tensor begin(const Tensor& ids, const ForwardOptions& options, LayerContext&, std::vector<Tensor>&) const override {
    return embedded_ids(shared_, "embed_tokens", ids, options);
  }
  Tensor end(Tensor hidden_states) const override { return hidden_states; }

  Tensor whole(const Tensor& ids, const ForwardOptions& options, LayerContext& context, int layers, const RunLayers& run) const override {
    Device& device = ids.device();
    const int encoders = static_cast<int>(a_.encoder_layers());
    std::vector<Tensor> none;
    Tensor encoder_states;
    {
      const Tensor inputs_embeds = begin(ids, options, context, none);
      context.attention_mask = encoder_mask(inputs_embeds, options);
      encoder_states = stack(inputs_embeds, context, 0, encoders, encoder_norm_, run);
    }
    const Tensor decoder_ids = shifted_right(options.target);
    const ModuleScope scope(device, "decoder");
    const Tensor inputs_embeds = begin(decoder_ids, options, context, none);
    ForwardOptions of_target = options;
    of_target.padding = {};  // the batch has no decoder_attention_mask
    context.attention_mask = causal_mask(inputs_embeds, {}, of_target);
    context.encoder_attention_mask = bidirectional_mask(device, ids.size(0), decoder_ids.size(1), ids.size(1), options.attention,
                                                        encoder_states.dtype(), options.padding);
    context.encoder_states = encoder_states;
    of_forward_ = {encoder_states, decoder_ids};
    return stack(inputs_embeds, context, encoders, layers, decoder_norm_, run);
  }

  Tensor layer(int index, const Tensor& input, const LayerContext& context, Tensor&) const override {
    const T5Block& block = blocks_[static_cast<std::size_t>(index)];
    const bool first = index == 0 || index == a_.encoder_layers();
    Tensor own = context.biases.own, cross = context.biases.cross, weights;
    Tensor hidden_states = attention_layer(block.own, input, context.attention_mask, {}, own, weights, context);
    if (block.cross.q.present())
      hidden_states =
          attention_layer(block.cross, hidden_states, context.encoder_attention_mask, context.encoder_states, cross, weights, context);
    hidden_states = feed_forward(block, hidden_states);
    if (first && context.made_biases && input.device().thread == Thread::main) *context.made_biases = {own, cross};
    return hidden_states;
  }

  bool has_logits() const override { return true; }
  Tensor logits(const Tensor& hidden_states, std::vector<Tensor>& locals) const override {
    locals = std::move(of_forward_);
    if (!a_.scaled_logits) return head_(hidden_states);
    const Tensor sequence_output = mul_scalar(hidden_states);
    locals.push_back(sequence_output);
    return head_(sequence_output);
  }

 private:
  static Tensor shifted_right(const Tensor& labels) {
    Device& device = labels.device();
    const OpScope op(device, "shift_right");
    const Tensor shifted = device.empty(labels.sizes(), Dtype::int64);
    device.scratch(Bytes{8 * labels.size(0) * (labels.size(1) - 1)});
    device.scratch(Bytes{labels.numel()});
    return shifted;
  }

  Tensor stack(const Tensor& inputs_embeds, const LayerContext& context, int first, int end, const T5Norm& norm,
               const RunLayers& run) const {
    Tensor hidden_states = dropout(inputs_embeds, a_.dropout);
    LayerContext of_first = context, of_rest = context;
    of_first.made_biases = std::make_shared<LayerContext::Biases>();
    hidden_states = run(std::move(hidden_states), of_first, first, first + 1);
    if (!bias_in_every_layer_) of_rest.biases = *of_first.made_biases;
    *of_first.made_biases = {};
    hidden_states = run(std::move(hidden_states), of_rest, first + 1, end);
    hidden_states = norm(hidden_states);
    return dropout(hidden_states, a_.dropout);
  }

  Tensor compute_bias(const T5Attention& attention, std::int64_t queries, std::int64_t keys) const {
    Device& device = attention.relative_attention_bias.device();
    const Tensor context_position = add_scalar(device.empty({queries, 1}, Dtype::int64));
    const Tensor memory_position = device.empty({1, keys}, Dtype::int64);
    const Tensor relative_position = device.empty({queries, keys}, Dtype::int64);
    const Tensor bucket = buckets_of(relative_position, !attention.decoder, bias_in_every_layer_);
    const Tensor values = llmem::embedding(attention.relative_attention_bias, bucket);
    return unsqueeze(permute(values, {2, 0, 1}), 0);
  }

  // T5LayerSelfAttention and T5LayerCrossAttention
  Tensor attention_layer(const T5Attention& layer, const Tensor& hidden_states, const Tensor& mask, const Tensor& key_value_states,
                         Tensor& bias, Tensor& weights, const LayerContext& context) const {
    const ModuleScope scope(hidden_states.device(), layer.name, Category::attention);
    const Tensor normed_hidden_states = layer.norm(hidden_states);
    const AttentionResult attended = attention(layer, normed_hidden_states, mask, key_value_states, bias, context);
    const Tensor dropped = dropout(attended.output, a_.dropout);
    const Tensor sum = add(hidden_states, dropped);
    weights = attended.weights;
    return sum;
  }

  AttentionResult attention(const T5Attention& layer, const Tensor& hidden_states, const Tensor& mask, const Tensor& key_value_states,
                            Tensor& bias, const LayerContext& context) const {
    Device& device = hidden_states.device();
    const Tensor query = by_heads(layer.q(hidden_states), a_.head_dim);
    const Tensor& current_states = key_value_states ? key_value_states : hidden_states;
    const Tensor key = by_heads(layer.k(current_states), a_.head_dim);
    const Tensor value = by_heads(layer.v(current_states), a_.head_dim);
    if (!bias && layer.relative_attention_bias) bias = compute_bias(layer, query.size(2), key.size(2));
    if (!bias) {
      bias = device.empty({1, a_.heads, query.size(2), key.size(2)}, query.dtype());
      if (context.checkpointed) require_grad_of_activation(bias);
    }
    AttentionResult result;
    if (context.attention == Attention::eager) {
      result = eager_in_own_dtype(query, key, value, bias, mask, a_.dropout);
    } else {
      const Tensor scores_bias = position_bias_mask(bias, mask, layer.decoder && !key_value_states);
      result.output = contiguous(transpose(scaled_dot_product_attention(query, key, value, scores_bias, a_.dropout), 1, 2));
    }
    result.output = merged_heads(result.output, query.size(0), query.size(2));
    result.output = layer.o(result.output);
    return result;
  }

  // integrations/sdpa_attention.py, create_position_bias_mask
  static Tensor position_bias_mask(const Tensor& bias, const Tensor& mask, bool causal) {
    Device& device = bias.device();
    if (mask) return contiguous(masked_by_number(mask, bias));
    if (!causal || bias.size(2) == 1) return contiguous(bias);
    const auto causal_mask = [&] {
      const Tensor queries = device.empty({bias.size(2)}, Dtype::int64), keys = device.empty({bias.size(3)}, Dtype::int64);
      return device.empty({1, 1, bias.size(2), bias.size(3)}, Dtype::boolean);
    };
    const Tensor allowed = causal_mask();
    return contiguous(masked_by_number(allowed, bias));
  }

  // T5LayerFF
  Tensor feed_forward(const T5Block& block, const Tensor& hidden_states) const {
    const ModuleScope scope(hidden_states.device(), "DenseReluDense", Category::mlp);
    Tensor forwarded = block.norm(hidden_states);
    forwarded = dense(block, forwarded);
    const Tensor dropped = dropout(forwarded, a_.dropout);
    return add(hidden_states, dropped);
  }

  Tensor dense(const T5Block& block, const Tensor& input) const {
    Tensor hidden_states, opened, linear;
    if (block.wi_1.present()) {
      const auto activated = [&] {
        const Tensor gate = block.wi(input);
        return activate(a_.activation, gate);
      };
      opened = activated();
      linear = block.wi_1(input);
      hidden_states = mul(opened, linear);
    } else {
      hidden_states = block.wi(input);
      hidden_states = activate(a_.activation, hidden_states);
    }
    hidden_states = dropout(hidden_states, a_.dropout);
    hidden_states = to(hidden_states, block.wo.linear.weight.dtype());
    hidden_states = block.wo(hidden_states);
    return hidden_states;
  }

  const Architecture& a_;
  bool bias_in_every_layer_;
  Tensor shared_;
  std::vector<T5Block> blocks_;
  T5Norm encoder_norm_, decoder_norm_;
  DenseModule head_;
  mutable std::vector<Tensor> of_forward_;  // variables of a forward in progress
};

}  // namespace

MadeBody t5_body(const Architecture& a, const MadeModule& root) { return std::make_unique<T5>(a, root); }

}  // namespace llmem
