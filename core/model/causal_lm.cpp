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
  RmsNorm norm(const std::string& name) const { return {find(name + ".weight")}; }

 private:
  std::unordered_map<std::string, Tensor> by_name_;
};

AttentionBlock build_attention(const ModelTensors& tensors, const std::string& name, const Architecture& a) {
  AttentionBlock block;
  block.head_dim = a.head_dim;
  block.q_proj = tensors.linear(name + ".q_proj");
  block.k_proj = tensors.linear(name + ".k_proj");
  block.v_proj = tensors.linear(name + ".v_proj");
  block.o_proj = tensors.linear(name + ".o_proj");
  if (a.qk_norm) {
    block.q_norm = tensors.norm(name + ".q_norm");
    block.k_norm = tensors.norm(name + ".k_norm");
  }
  return block;
}

Mlp build_mlp(const ModelTensors& tensors, const std::string& name) {
  return {tensors.linear(name + ".gate_proj"), tensors.linear(name + ".up_proj"), tensors.linear(name + ".down_proj")};
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

CausalLm::CausalLm(const Architecture& a, Dtype weights, const Make& make) {
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
  embed_tokens_ = tensors.find(model + "embed_tokens.weight");
  for (int i = 0; i < a.layers; ++i) {
    const std::string name = layers + std::to_string(i);
    layers_.push_back({build_attention(tensors, name + ".self_attn", a), build_mlp(tensors, name + ".mlp"),
                       tensors.norm(name + ".input_layernorm"), tensors.norm(name + ".post_attention_layernorm")});
  }
  norm_ = tensors.norm(model + "norm");
  rotary_emb_.inverse_frequencies = tensors.find(model + "rotary_emb.inv_freq");
  rotary_emb_.original_inverse_frequencies = tensors.find(model + "rotary_emb.original_inv_freq");
  vocabulary_ = a.vocab_size;
  lm_head_ = a.tied_embeddings ? Linear{embed_tokens_, {}} : tensors.linear("lm_head");
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
    set(in, {&layer.self_attn.q_proj, &layer.self_attn.k_proj, &layer.self_attn.v_proj, &layer.mlp.gate_proj, &layer.mlp.up_proj});
    set(out, {&layer.self_attn.o_proj, &layer.mlp.down_proj});
    layer.input_layernorm.on_dtensors = layer.post_attention_layernorm.on_dtensors = split.sequence;
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

Tensor CausalLm::hidden_states(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const {
  Device& device = ids.device();
  const ModuleScope scope(device, "model");
  const auto embed = [&] {
    const ModuleScope inner(device, "embed_tokens");
    if (split_.ranks > 1) return split_embedding(embed_tokens_, ids, vocabulary_, split_.ranks, split_.sequence);
    return embedding(embed_tokens_, ids);
  };
  const Tensor inputs_embeds = embed();
  const auto positions = [&] { return unsqueeze(add_scalar(device.empty({ids.size(1)}, Dtype::int64)), 0); };
  const Tensor position_ids = options.position_ids ? options.position_ids : positions();
  LayerContext context;
  context.position_ids = position_ids;
  context.attention = options.attention;
  context.attention_mask = options.attention == Attention::sdpa ? sdpa_causal_mask(position_ids, ids.size(0))
                                                                : eager_causal_mask(position_ids, ids.size(0), inputs_embeds.dtype());
  context.position_embeddings = rotary_emb_.forward(position_ids, inputs_embeds.dtype());

  Tensor hidden = inputs_embeds;
  {
    const ModuleScope layers(device, "layers");
    for (int i = 0; i < layer_count(); ++i) {
      const auto run = [this, i, hidden, context, &hooks] { return run_layer(i, hidden, context, hooks); };
      hidden = options.checkpointing ? checkpoint(device, run) : run();
    }
  }
  const ModuleScope last(device, "norm", Category::norms);
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
  if (stage.embeds) {
    const ModuleScope scope(device, "embed_tokens");
    hidden = embedding(embed_tokens_, input);
  }
  LayerContext context;
  context.position_ids = unsqueeze(device.empty({input.size(1)}, Dtype::int64), 0);
  context.attention = options.attention;
  context.position_embeddings = rotary_emb_.forward(context.position_ids, hidden.dtype());
  for (int i = stage.first_layer; i < stage.end_layer; ++i) {
    const ModuleScope layers(device, "layers");
    const auto run = [this, i, hidden, context] { return run_layer(i, hidden, context, {}); };
    hidden = options.checkpointing ? checkpoint(device, run) : run();
  }
  if (!stage.heads) return hidden;
  const auto normed = [&] {
    const ModuleScope scope(device, "norm", Category::norms);
    return norm_.forward(hidden);
  };
  const Tensor last = normed();
  const ModuleScope scope(device, "lm_head", Category::logits_and_loss);
  return lm_head_.forward(last);
}

Tensor CausalLm::loss(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const {
  Device& device = ids.device();
  if (hooks.before) hooks.before(-1, ids);
  const Tensor hidden = hidden_states(ids, options, hooks);
  const ModuleScope scope(device, "lm_head", Category::logits_and_loss);
  const auto project = [&] {
    const Tensor local = lm_head_.forward(lm_head_.gathered(hidden));
    return split_.ranks > 1 && !split_.loss ? gather_columns(local, split_.ranks) : local;
  };
  const Tensor logits = project();
  Tensor loss = causal_lm_loss(logits, labels, split_.loss);
  return hooks.after ? hooks.after(-1, loss) : loss;
}

}  // namespace llmem
