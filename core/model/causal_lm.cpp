#include "model/causal_lm.h"

#include <cstdlib>
#include <unordered_map>
#include <utility>

#include "model/declaration.h"
#include "model/masks.h"
#include "tensor/autograd.h"
#include "tensor/collectives.h"
#include "tensor/ops.h"

namespace llmem {

std::string_view module_of(std::string_view tensor_name) { return tensor_name.substr(0, tensor_name.rfind('.')); }

namespace {

// A model's tensors by name, once they are made.
class ModelTensors {
 public:
  void add(const std::string& name, const Tensor& tensor) { by_name_.emplace(name, tensor); }

  // None where there is none of that name.
  Tensor find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? Tensor() : found->second;
  }
  Linear linear(const std::string& name) const { return {find(name + ".weight"), find(name + ".bias")}; }
  Norm norm(const std::string& name, NormKind kind) const { return {true, kind, find(name + ".weight"), find(name + ".bias")}; }

 private:
  std::unordered_map<std::string, Tensor> by_name_;
};

// The module of a layer (or of attention, or of an MLP) that has this role: "model.layers.3" + ".self_attn".
std::string member(const std::string& of, std::string_view names, char role) { return of + "." + std::string(name_of(names, role)); }

AttentionBlock build_attention(const ModelTensors& tensors, const std::string& name, const Architecture& a, int layer) {
  const auto linear = [&](char role) { return tensors.linear(member(name, a.names.attention, role)); };
  // The norm over a head is of the family's kind of RMSNorm, LayerNorm or whatever it has.
  const auto norm = [&](char role) { return a.qk_norm ? tensors.norm(member(name, a.names.attention, role), a.norm) : Norm(); };
  return {&a, layer, linear('q'), linear('k'), linear('v'), linear('f'), linear('o'), norm('Q'), norm('K')};
}

Mlp build_mlp(const ModelTensors& tensors, const std::string& name, const Architecture& a) {
  const auto linear = [&](char role) { return tensors.linear(member(name, a.names.mlp, role)); };
  return {&a, linear('g'), linear('u'), linear('f'), linear('d')};
}

Dims dims_of(const std::vector<std::int64_t>& shape) {
  Dims dims;
  for (const std::int64_t size : shape) dims.push_back(size);
  return dims;
}

// The decoder layer in "model.layers.3.mlp.up_proj.weight"; -1: in none.
int unit_of(const std::string& name, const std::string& layers) {
  if (name.compare(0, layers.size(), layers) != 0) return -1;
  return std::atoi(name.c_str() + layers.size());
}

}  // namespace

CausalLm::CausalLm(const Architecture& architecture, Dtype weights, const Make& make)
    : architecture_(std::make_shared<const Architecture>(architecture)) {
  const Architecture& a = *architecture_;
  const std::string model = std::string(a.names.model) + ".", layers = model + std::string(a.names.layers) + ".";
  ModelTensors tensors;
  std::vector<Tensor> made(a.tensors.size());
  for (const std::size_t i : in_order_of_moving(a.tensors)) {
    const Parameter& each = a.tensors[i];
    const auto kind = each.kind == Parameter::Kind::parameter ? TensorRequest::parameter : TensorRequest::buffer;
    made[i] = make({each.name, kind, dims_of(each.shape), each.dtype.value_or(weights), unit_of(each.name, layers)});
    tensors.add(each.name, made[i]);
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Parameter& each = a.tensors[i];
    if (each.kind == Parameter::Kind::parameter) parameters_.push_back({each.name, made[i], unit_of(each.name, layers)});
  }
  const std::string embedding_name = model + std::string(a.names.embedding);
  embed_tokens_ = tensors.find(embedding_name + ".weight");
  embed_scale_ = tensors.find(embedding_name + ".embed_scale");
  for (int i = 0; i < a.layers; ++i) {
    const std::string name = layers + std::to_string(i);
    const auto norm = [&](char role) {
      return name_of(a.names.layer, role).empty() ? Norm() : tensors.norm(member(name, a.names.layer, role), a.norm);
    };
    layers_.push_back({&a, build_attention(tensors, member(name, a.names.layer, 'a'), a, i),
                       build_mlp(tensors, member(name, a.names.layer, 'm'), a), norm('1'), norm('2'), norm('3'), norm('4')});
  }
  norm_ = tensors.norm(model + std::string(a.names.norm), a.norm);
  const auto rotary = [&](const std::string& prefix) {
    return RotaryEmbedding{tensors.find(model + "rotary_emb." + prefix + "inv_freq"),
                           tensors.find(model + "rotary_emb." + prefix + "original_inv_freq")};
  };
  rotary_emb_ = rotary(a.local_rotary ? "full_attention_" : "");
  if (a.local_rotary) local_rotary_emb_ = rotary("sliding_attention_");
  const std::string head(a.names.head);
  lm_head_ = tensors.linear(head);
  if (a.tied_embeddings) lm_head_.weight = embed_tokens_;
}

void CausalLm::split(const Split& split) {
  split_ = split;
  const auto set = [&](LinearSplit kind, std::initializer_list<Linear*> linears) {
    for (Linear* linear : linears) {
      linear->split = kind;
      linear->ranks = split.ranks;
    }
  };
  const LinearSplit in = split.sequence ? LinearSplit::columns_of_gathered : LinearSplit::columns;
  const LinearSplit out = split.sequence ? LinearSplit::rows_to_sequence : LinearSplit::rows;
  for (DecoderLayer& layer : layers_) {
    set(in, {&layer.attention.q_proj, &layer.attention.k_proj, &layer.attention.v_proj, &layer.mlp.gate, &layer.mlp.up});
    set(out, {&layer.attention.o_proj, &layer.mlp.down});
    layer.before_attention.on_dtensors = layer.before_mlp.on_dtensors = split.sequence;
  }
  set(in, {&lm_head_});
  norm_.on_dtensors = split.sequence;
}

Tensor CausalLm::run_layer(int index, const Tensor& input, const LayerContext& context, const UnitHooks& hooks) const {
  const ModuleScope scope(input.device(), std::to_string(index));
  const DecoderLayer& layer = layers_[static_cast<std::size_t>(index)];
  if (!hooks.before) return layer.forward(input, context);
  const Tensor entered = hooks.before(index, input);
  return hooks.after(index, layer.forward(entered, context));
}

Tensor CausalLm::embedded(const Tensor& ids) const {
  const ModuleScope scope(ids.device(), architecture_->names.embedding);
  if (split_.ranks > 1) return split_embedding(embed_tokens_, ids, architecture_->vocab_size, split_.ranks, split_.sequence);
  Tensor embeds = embedding(embed_tokens_, ids);
  if (embed_scale_) embeds = mul(embeds, to(embed_scale_, embed_tokens_.dtype()));  // Gemma2TextScaledWordEmbedding
  if (architecture_->scaled_embedding == ScaledEmbedding::by_number) embeds = mul_scalar(embeds);
  return embeds;
}

// What a model's forward makes before its layers: positions, masks, angles.
LayerContext CausalLm::context_of(const Tensor& inputs_embeds, const ForwardOptions& options) const {
  const Architecture& a = *architecture_;
  Device& device = inputs_embeds.device();
  const std::int64_t rows = inputs_embeds.size(0);
  const Dtype dtype = inputs_embeds.dtype();
  LayerContext context;
  const auto positions = [&] { return unsqueeze(add_scalar(device.empty({inputs_embeds.size(1)}, Dtype::int64)), 0); };
  context.position_ids = options.position_ids ? options.position_ids : positions();
  context.attention = options.attention;
  const auto mask = [&](bool window) {
    if (options.attention == Attention::sdpa) return sdpa_causal_mask(context.position_ids, rows);
    return window ? eager_sliding_window_mask(context.position_ids, rows, dtype) : eager_causal_mask(context.position_ids, rows, dtype);
  };
  context.attention_mask = mask(a.sliding.empty() && a.sliding_window > 0);
  if (!a.sliding.empty()) context.sliding_attention_mask = mask(true);
  return context;
}

Tensor CausalLm::hidden_states(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const {
  const Architecture& a = *architecture_;
  Device& device = ids.device();
  const ModuleScope scope(device, a.names.model);
  const Tensor inputs_embeds = embedded(ids);
  LayerContext context = context_of(inputs_embeds, options);
  Tensor hidden = dropout(inputs_embeds, a.embedding_dropout);
  context.position_embeddings = rotary_emb_.forward(context.position_ids, inputs_embeds.dtype(), a.rotary);
  if (a.local_rotary) context.sliding_position_embeddings = local_rotary_emb_.forward(context.position_ids, inputs_embeds.dtype());

  {
    const ModuleScope layers(device, a.names.layers);
    for (int i = 0; i < layer_count(); ++i) {
      const auto run = [this, i, hidden, context, &hooks] { return run_layer(i, hidden, context, hooks); };
      hidden = options.checkpointing ? checkpoint(device, run) : run();
    }
  }
  const ModuleScope last(device, a.names.norm, Category::norms);
  hidden = norm_.forward(hidden);
  return hidden;
}

Tensor causal_lm_loss(Tensor logits, Tensor labels, bool split) {
  Device& device = logits.device();
  logits = to(logits, Dtype::float32);
  const std::int64_t rows = labels.size(0), sequence = labels.size(1);
  labels = device.empty({rows, sequence + 1}, Dtype::int64);
  const Tensor shifted = contiguous(narrow(labels, 1, 1, sequence));
  const Tensor flat = view(logits, {rows * sequence, logits.size(-1)}), target = view(shifted, {rows * sequence});
  return split ? split_cross_entropy(flat, target) : cross_entropy(flat, target);
}

Tensor CausalLm::run_stage(const Stage& stage, const Tensor& input, const ForwardOptions& options) const {
  Device& device = input.device();
  Tensor hidden = input;
  if (stage.embeds) { hidden = embedded(input); }
  LayerContext context;
  context.position_ids = unsqueeze(device.empty({input.size(1)}, Dtype::int64), 0);
  context.attention = options.attention;
  context.position_embeddings = rotary_emb_.forward(context.position_ids, hidden.dtype(), architecture_->rotary);
  for (int i = stage.first_layer; i < stage.end_layer; ++i) {
    const ModuleScope layers(device, architecture_->names.layers);
    const auto run = [this, i, hidden, context] { return run_layer(i, hidden, context, {}); };
    hidden = options.checkpointing ? checkpoint(device, run) : run();
  }
  if (!stage.heads) return hidden;
  const auto normed = [&] {
    const ModuleScope scope(device, architecture_->names.norm, Category::norms);
    return norm_.forward(hidden);
  };
  const Tensor last = normed();
  const ModuleScope scope(device, architecture_->names.head, Category::logits_and_loss);
  return lm_head_.forward(last);
}

Tensor CausalLm::loss(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const {
  Device& device = ids.device();
  if (hooks.before) hooks.before(-1, ids);
  const Tensor hidden = hidden_states(ids, options, hooks);
  const ModuleScope scope(device, architecture_->names.head, Category::logits_and_loss);
  const auto project = [&] {
    const Tensor local = lm_head_.forward(lm_head_.gathered(hidden));
    return split_.ranks > 1 && !split_.loss ? gather_columns(local, split_.ranks) : local;
  };
  Tensor logits = project();
  if (architecture_->scaled_logits) logits = mul_scalar(logits);
  if (architecture_->softcapped_logits) {
    logits = mul_scalar(logits);
    logits = tanh_of(logits);
    logits = mul_scalar(logits);
  }
  Tensor loss = causal_lm_loss(logits, labels, split_.loss);
  return hooks.after ? hooks.after(-1, loss) : loss;
}

}  // namespace llmem
