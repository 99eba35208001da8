#include "model/megatron_model.h"

#include <algorithm>

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

// arguments.py, validate_args and tokenizer.py, _vocab_size_with_padding
std::int64_t padded_vocabulary(const MegatronShape& shape, const MegatronOptions& options, std::int64_t tensor_ranks) {
  const std::int64_t multiple = options.vocabulary_multiple * tensor_ranks;
  return divide_up(shape.vocabulary, multiple) * multiple;
}

MegatronModel::MegatronModel(Device& device, const MegatronShape& shape, const Training& training, const MegatronRank& rank,
                             MegatronKernels& kernels, const Chunk& chunk)
    : device_(device),
      shape_(shape),
      training_(training),
      rank_(rank),
      kernels_(kernels),
      chunk_(chunk),
      vocabulary_(padded_vocabulary(shape, training.megatron, rank.tensor)) {
  const std::int64_t words = vocabulary_ / rank_.tensor;
  if (chunk_.embeds) {
    word_embeddings_ = make("embedding.word_embeddings.weight", {words, shape_.hidden});
    if (shape_.learned_positions) position_embeddings_ = make("embedding.position_embeddings.weight", {shape_.positions, shape_.hidden});
  }
  if (chunk_.embeds && shape_.bert) token_types_ = make("embedding.tokentype_embeddings.weight", {2, shape_.hidden});
  for (std::int64_t i = chunk_.first; i < chunk_.end; ++i) layers_.push_back(make_layer(i));
  if (shape_.decoder_layers > 0) make_decoder();
  if (!chunk_.heads) return;
  final_norm_ = make_norm("decoder.final_layernorm", shape_.hidden);
  // Tied, the last stage has a copy of the embedding, whose gradients are summed with the first's.
  output_layer_ = shape_.tied && chunk_.embeds ? word_embeddings_ : make("output_layer.weight", {words, shape_.hidden});
  if (shape_.decoder_layers > 0 && shape_.tied) output_bias_ = make("lm_head.output_layer.bias", {words});
  if (!shape_.bert) return;
  head_dense_ = make_linear("lm_head.dense", shape_.hidden, shape_.hidden, Split::none, true);
  head_norm_ = make_norm("lm_head.layer_norm", shape_.hidden);
  output_bias_ = make("output_layer.bias", {words});
  pooler_ = make_linear("pooler.dense", shape_.hidden, shape_.hidden, Split::none, true);
  binary_ = make_linear("binary_head", shape_.hidden, 2, Split::none, true);
}

Tensor MegatronModel::make(const std::string& name, const Dims& sizes, bool expert) {
  const ModuleScope scope(device_, name.substr(0, name.rfind('.')));
  const OpScope op(device_, "parameter");
  const Tensor made = device_.empty(sizes, training_.weights);
  device_.set_category(made->storage->allocation, Category::weights);
  require_grad(made);
  parameters_.push_back({name, made, expert});
  return made;
}

MegatronModel::Norm MegatronModel::make_norm(const std::string& name, std::int64_t features) {
  Norm norm;
  norm.weight = make(name + ".weight", {features});
  if (!shape_.rms) norm.bias = make(name + ".bias", {features});
  return norm;
}

// in and out: of the whole matrix. TransformerEngine registers the norm's tensors as the linear's own, before its.
MegatronModel::Linear MegatronModel::make_linear(const std::string& name, std::int64_t in, std::int64_t out, Split split, bool bias,
                                                 bool norm, bool expert) {
  const std::int64_t ranks = expert ? rank_.expert_tensor : rank_.tensor;
  Linear linear;
  if (norm) {
    linear.norm.weight = make(name + ".layer_norm_weight", {in});
    if (!shape_.rms) linear.norm.bias = make(name + ".layer_norm_bias", {in});
  }
  if (split == Split::columns) out /= ranks;
  if (split == Split::rows) in /= ranks;
  linear.weight = make(name + ".weight", {out, in}, expert);
  if (bias) linear.bias = make(name + ".bias", {out}, expert);
  return linear;
}

MegatronModel::Attention MegatronModel::make_attention(const std::string& name) {
  const bool engine = training_.megatron.transformer_engine;
  Attention made;
  made.proj = make_linear(name + ".linear_proj", shape_.heads * shape_.head_dim, shape_.hidden, Split::rows, shape_.linear_bias);
  made.qkv = make_linear(name + ".linear_qkv", shape_.hidden, (shape_.heads + 2 * shape_.groups) * shape_.head_dim, Split::columns,
                         shape_.linear_bias || shape_.qkv_bias, engine);
  if (shape_.qk_norm) {
    made.q_norm = make_norm(name + ".q_layernorm", shape_.head_dim);
    made.k_norm = make_norm(name + ".k_layernorm", shape_.head_dim);
  }
  return made;
}

MegatronModel::Layer MegatronModel::make_layer(std::int64_t index) {
  const bool encodes = shape_.decoder_layers > 0 && index<shape_.layers, crosses = shape_.decoder_layers> 0 && !encodes;
  const std::string name = (encodes ? "encoder.layers." : "decoder.layers.") + std::to_string(crosses ? index - shape_.layers : index);
  const bool engine = training_.megatron.transformer_engine, latent = shape_.latent.key_value_rank > 0;
  Layer layer;
  if (!engine || latent) layer.input_norm = make_norm(name + ".input_layernorm", shape_.hidden);
  layer.attention = latent ? make_latent_attention(name + ".self_attention") : make_attention(name + ".self_attention");
  if (crosses) layer.cross = make_cross_attention(name);
  if (shape_.experts.at(index)) {
    layer.mlp_norm = make_norm(name + ".pre_mlp_layernorm", shape_.hidden);
    layer.experts = make_experts(name + ".mlp");
    return layer;
  }
  if (!engine) layer.mlp_norm = make_norm(name + ".pre_mlp_layernorm", shape_.hidden);
  const std::int64_t up = shape_.gated ? 2 * shape_.ffn : shape_.ffn;
  layer.fc1 = make_linear(name + ".mlp.linear_fc1", shape_.hidden, up, Split::columns, shape_.linear_bias, engine);
  layer.fc2 = make_linear(name + ".mlp.linear_fc2", shape_.ffn, shape_.hidden, Split::rows, shape_.linear_bias);
  return layer;
}

Tensor MegatronModel::normed(const Norm& norm, const Tensor& input) const { return fused_norm(input, norm.weight, norm.bias); }

Tensor MegatronModel::column(const Linear& linear, const Tensor& input, bool adds_bias) const {
  const Tensor bias = adds_bias ? linear.bias : Tensor();
  if (!training_.megatron.transformer_engine) return megatron_linear(kernels_, input, linear.weight, bias, Split::columns);
  if (linear.norm.weight)
    return te_layer_norm_linear(kernels_, input, linear.norm.weight, linear.norm.bias, linear.weight, bias, Split::columns);
  return te_linear(kernels_, input, linear.weight, bias, Split::columns);
}

Tensor MegatronModel::row(const Linear& linear, const Tensor& input) const {
  if (training_.megatron.transformer_engine) return te_linear(kernels_, input, linear.weight, {}, Split::rows);
  const Tensor partial = megatron_linear(kernels_, input, linear.weight, {}, Split::rows);
  return reduce_from_tensor_ranks(kernels_, partial);
}

Tensor MegatronModel::plain(const Linear& linear, const Tensor& input) const {
  if (training_.megatron.transformer_engine) return te_linear(kernels_, input, linear.weight, linear.bias, Split::none);
  return megatron_linear(kernels_, input, linear.weight, linear.bias, Split::none);
}

// language_model_embedding.py
Tensor MegatronModel::embedded(const Tensor& ids, const Tensor& position_ids) const {
  const ModuleScope scope(device_, "embedding");
  const auto words_in_place = [&] {
    const Tensor words = vocabulary_parallel_embedding(kernels_, word_embeddings_, ids);
    if (!position_embeddings_) return words;
    const Tensor positions = embedding(position_embeddings_, position_ids);
    return add(words, positions);
  };
  Tensor embeddings = words_in_place();
  embeddings = contiguous(transpose(embeddings, 0, 1));
  if (token_types_) {
    const Tensor types = embedding(token_types_, ids);
    embeddings = add(embeddings, transpose(types, 0, 1));
  }
  if (rank_.sequence && rank_.tensor > 1) embeddings = scatter_to_sequence(kernels_, embeddings);
  return dropout(embeddings, shape_.hidden_dropout);
}

bool MegatronModel::recomputes(std::string_view module) const {
  const std::vector<std::string>& modules = training_.megatron.recompute_modules;
  return training_.checkpointing == Checkpointing::selective && std::find(modules.begin(), modules.end(), module) != modules.end();
}

Tensor MegatronModel::recomputed(std::string_view module, const std::function<Tensor()>& function) const {
  return recomputes(module) ? checkpoint(device_, function) : function();
}

void MegatronModel::discard(std::string_view module, const Tensor& output, const Tensor& end) const {
  if (!recomputes(module) || !end->grad_fn || device_.stopped || device_.saving_frame) return;
  const Ref<Storage> storage = output->storage;
  storage->release();
  end->grad_fn->pre_hook = [storage, before = std::move(end->grad_fn->pre_hook)]() mutable {
    if (before) before();
    storage->allocate();
    storage->device.mark_saved(storage->allocation);
  };
}

// transformer_block.py: TransformerBlock.forward and, with full uniform recomputation, _checkpointed_forward
Tensor MegatronModel::run_layers(Tensor hidden_states, std::int64_t first, std::int64_t end) const {
  const MegatronOptions& options = training_.megatron;
  const bool full = training_.checkpointing == Checkpointing::full, block = options.recompute_block;
  const std::int64_t together = full && !block ? options.recompute_layers : 1, begin = first;
  for (; first < end; first += together) {
    const std::int64_t last = std::min(first + together, end);
    const auto run = [this, first, last](const Tensor& input) {
      Tensor states = input;
      for (std::int64_t i = first; i < last; ++i) states = run_layer(i, states);
      return states;
    };
    const bool again = full && (!block || first - begin < options.recompute_layers);
    hidden_states = again ? checkpoint_reentrant(run, hidden_states) : run(hidden_states);
  }
  return hidden_states;
}

Tensor MegatronModel::run_layers(Tensor hidden_states) const {
  const ModuleScope scope(device_, "decoder");
  hidden_states = run_layers(std::move(hidden_states), 0, static_cast<std::int64_t>(layers_.size()));
  if (chunk_.heads) {
    const ModuleScope norm(device_, "final_layernorm", Category::norms);
    hidden_states = normed(final_norm_, hidden_states);
  }
  return hidden_states;
}

// transformer_layer.py, _forward_attention and _forward_mlp
Tensor MegatronModel::run_layer(std::int64_t index, const Tensor& input) const {
  const ModuleScope scope(device_, "layers." + std::to_string(chunk_.first + index));
  const Layer& layer = layers_[static_cast<std::size_t>(index)];
  Tensor hidden_states = input;
  {
    const ModuleScope attention(device_, "self_attention", Category::attention);
    const Tensor attended = run_attention(layer, hidden_states);
    hidden_states = bias_dropout_add(attended, layer.attention.proj.bias, hidden_states, shape_.hidden_dropout);
  }
  if (layer.cross.q.weight) {
    const ModuleScope attention(device_, "cross_attention", Category::attention);
    const Tensor attended = run_cross_attention(layer.cross, hidden_states);
    hidden_states = bias_dropout_add(attended, layer.cross.proj.bias, hidden_states, shape_.hidden_dropout);
  }
  const ModuleScope mlp(device_, "mlp", Category::mlp);
  const Tensor result = run_mlp(layer, hidden_states);
  return bias_dropout_add(result, layer.fc2.bias, hidden_states, shape_.hidden_dropout);
}

// attention.py, SelfAttention.get_query_key_value_tensors and Attention.forward
Tensor MegatronModel::run_attention(const Layer& layer, const Tensor& hidden_states) const {
  const Attention& attention = layer.attention;
  if (shape_.latent.key_value_rank > 0) {
    const Tensor input = recomputed("layernorm", [this, &layer, hidden_states] { return normed(layer.input_norm, hidden_states); });
    const Tensor output = run_latent_attention(attention, input);
    discard("layernorm", input, output);
    return output;
  }
  const std::int64_t d = shape_.head_dim, heads = shape_.heads / rank_.tensor,
                     groups = std::max<std::int64_t>(shape_.groups / rank_.tensor, 1);
  Tensor query, key, value;
  {
    const auto mixed_of = [&] {
      if (training_.megatron.transformer_engine) return column(attention.qkv, hidden_states, true);
      const Tensor input = normed(layer.input_norm, hidden_states);
      return column(attention.qkv, input, true);
    };
    const Tensor mixed = mixed_of();
    const std::int64_t each = heads / groups * d;
    const Tensors parts = split_heads(view(mixed, {mixed.size(0), mixed.size(1), groups, each + 2 * d}), {each, d, d});
    query = reshape(parts[0], {mixed.size(0), mixed.size(1), heads, d});
    key = parts[1], value = parts[2];
  }
  if (shape_.qk_norm) {
    query = normed(attention.q_norm, contiguous(query));
    key = normed(attention.k_norm, contiguous(key));
  }
  if (!shape_.learned_positions) {  // fused_apply_rotary_pos_emb: keeps the angles alone
    query = fused_rotary(query);
    key = fused_rotary(key);
  }
  Tensor context;
  if (recomputes("core_attn")) {
    context = checkpoint(device_, [this, query, key, value] { return core_attention(query, key, value); });
  } else {
    context = core_attention(query, key, value);
  }
  query.reset();
  key.reset();
  value.reset();
  return row(attention.proj, context);
}

// transformer_engine/pytorch/attention/dot_product_attention/utils.py, get_attention_backend: cuDNN's on Hopper and newer, flash-attn before.
// On Blackwell cuDNN has no deterministic backward with dropout (fused_attn.cpp, nvte_get_fused_attn_backend).
Tensor MegatronModel::core_attention(const Tensor& query, const Tensor& key, const Tensor& value) const {
  const ModuleScope scope(device_, "core_attention");
  if (rank_.context == 1) return local_attention(query, key, value);
  return rank_.all_to_all ? attention_of_all_to_all(query, key, value) : attention_of_ring(query, key, value);
}

Tensor MegatronModel::local_attention(const Tensor& query, const Tensor& key, const Tensor& value) const {
  using Kind = llmem::Attention;
  Kind kind = training_.attention;
  if (!training_.megatron.transformer_engine) kind = Kind::eager;
  const int capability = device_.gpu().compute_capability;
  const bool undetermined = capability >= 100 && training_.megatron.deterministic && shape_.attention_dropout > 0;
  if (kind == Kind::sdpa) kind = capability >= 90 && !undetermined ? Kind::fused : Kind::flash_attention_2;
  // get_attention_backend: flash-attn 2 takes values as wide as queries only.
  if (kind == Kind::flash_attention_2 && value.size(3) != query.size(3)) kind = Kind::fused;
  if (kind == Kind::eager) return unfused_attention(query, key, value);
  if (kind == Kind::flash_attention_2) return flash_attention(query, key, value);
  // dot_product_attention/utils.py, get_qkv_layout: views of one tensor are taken as they are, else all are made contiguous.
  const bool packed = query->storage == value->storage;
  const auto taken = [packed](const Tensor& states) { return packed ? states : contiguous(states); };
  const auto attended = [&] {
    const Tensor q = taken(query), k = taken(key), v = taken(value);
    return cudnn_attention(q, k, v);
  };
  const Tensor context = attended();
  return view(context, {context.size(0), context.size(1), context.size(2) * context.size(3)});
}

// TransformerEngine's UnfusedDotProductAttention and Megatron-Core's DotProductAttention, which differ in where the scores' buffer lives.
Tensor MegatronModel::unfused_attention(const Tensor& query, const Tensor& key, const Tensor& value) const {
  const std::int64_t s = query.size(0), b = query.size(1), heads = query.size(2), keys = key.size(0);
  const auto by_head = [&](const Tensor& states) {
    const Tensor whole = states.size(2) == heads ? states : repeat_heads(states, heads / states.size(2));
    return transpose(reshape(whole, {whole.size(0), b * heads, whole.size(3)}), 0, 1);
  };
  Tensor probabilities;
  {
    const Tensor buffer = training_.megatron.transformer_engine
                              ? device_.empty({b * heads, s, keys}, query.dtype())
                              : global_buffer(device_, kernels_, "mpu", {b * heads, s, keys}, query.dtype());
    const Tensor scores = baddbmm(buffer, by_head(query), transpose(by_head(key), 1, 2));
    probabilities = scaled_masked_softmax(view(scores, {b, heads, s, keys}));
  }
  // UnfusedDotProductAttention: rows of padding are set to 0 after the softmax.
  if (padding_ && training_.megatron.transformer_engine) probabilities = masked_fill(probabilities, padding_);
  probabilities = dropout(probabilities, shape_.attention_dropout);
  const auto weighted = [&] {
    const Tensor product = bmm(view(probabilities, {b * heads, s, keys}), by_head(value));
    return view(product, {b, heads, s, value.size(3)});
  };
  Tensor context = weighted();
  context = transpose(transpose(context, 0, 2), 1, 2);  // permute(2, 0, 1, 3)
  context = contiguous(context);
  return view(context, {s, b, heads * value.size(3)});
}

// FlashAttention over [b, s, heads, d]: queries, keys and values are copied there, the result is copied back.
Tensor MegatronModel::flash_attention(const Tensor& query, const Tensor& key, const Tensor& value) const {
  const auto rows_first = [](const Tensor& states) { return contiguous(transpose(states, 0, 1)); };
  const auto attended = [&] {
    const Tensor q = rows_first(query), k = rows_first(key), v = rows_first(value);
    return te_flash_attention(q, k, v, training_.megatron.deterministic);
  };
  const Tensor output = attended();
  const Tensor merged = view(output, {output.size(0), output.size(1), output.size(2) * output.size(3)});
  return contiguous(transpose(merged, 0, 1));
}

// mlp.py
Tensor MegatronModel::run_mlp(const Layer& layer, const Tensor& hidden_states) const {
  if (layer.experts.router) {
    const Tensor input = recomputed("layernorm", [this, &layer, hidden_states] { return normed(layer.mlp_norm, hidden_states); });
    const auto experts = [this, &layer](const Tensor& states) { return run_experts(layer.experts, states); };
    const Tensor output = recomputes("moe") ? checkpoint_reentrant(experts, input) : experts(input);
    discard("layernorm", input, output);
    return output;
  }
  const auto run = [this, &layer](const Tensor& states) {
    Tensor activated;
    {
      const auto up = [&] {
        if (training_.megatron.transformer_engine) return column(layer.fc1, states, false);
        const Tensor input = normed(layer.mlp_norm, states);
        return column(layer.fc1, input, false);
      };
      const Tensor intermediate = up();
      activated = fused_activation(intermediate, layer.fc1.bias, shape_.gated);
    }
    return row(layer.fc2, activated);
  };
  if (recomputes("mlp")) return checkpoint_reentrant(run, hidden_states);
  return run(hidden_states);
}

// language_module.py, compute_language_model_loss
Tensor MegatronModel::loss_of(const Tensor& hidden_states, const Tensor& labels) const {
  const ModuleScope scope(device_, "output_layer", Category::logits_and_loss);
  const auto logits_of = [&] {
    if (!shape_.bert) return megatron_linear(kernels_, hidden_states, output_layer_, output_bias_, Split::columns);
    // bert_lm_head.py
    Tensor states = linear(hidden_states, head_dense_.weight, head_dense_.bias);
    states = gelu(states);
    states = normed(head_norm_, states);
    return megatron_linear(kernels_, states, output_layer_, output_bias_, Split::columns);
  };
  const Tensor logits = logits_of();
  const Tensor targets = contiguous(transpose(labels, 0, 1));
  const MegatronLoss kind = training_.megatron.loss;
  const Tensor loss = kind == MegatronLoss::transformer_engine
                          ? te_cross_entropy(logits, targets, rank_.tensor)
                          : vocabulary_parallel_cross_entropy(logits, targets, kind == MegatronLoss::native);
  return contiguous(transpose(loss, 0, 1));
}

Tensor MegatronModel::forward(const Tensor& ids, const Tensor& position_ids, const Tensor& labels, const Tensor& input) const {
  if (shape_.bert) {  // bert_extended_attention_mask
    const OpScope op(device_, "attention_mask");
    const std::int64_t s = training_.sequence, b = training_.micro_batch;
    padding_ = device_.empty({b, 1, s, s}, Dtype::boolean);
  }
  const auto hidden_of = [&] {
    if (shape_.decoder_layers > 0) return run_t5(ids, position_ids, input);
    if (!chunk_.embeds) return run_layers(input);
    return run_layers(embedded(ids, position_ids));
  };
  const Tensor hidden_states = hidden_of();
  padding_.reset();
  return chunk_.heads ? loss_of(hidden_states, labels) : hidden_states;
}

}  // namespace llmem
