#include "model/causal_lm.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "model/bodies.h"
#include "model/build.h"
#include "model/declaration.h"
#include "model/families.h"
#include "model/litgpt.h"
#include "model/losses.h"
#include "model/vision.h"
#include "tensor/autograd.h"
#include "tensor/collectives.h"
#include "tensor/module_hooks.h"
#include "tensor/ops.h"

namespace llmem {

std::string_view module_of(std::string_view tensor_name) { return tensor_name.substr(0, tensor_name.rfind('.')); }

namespace {

// The module of a layer (or of attention, or of an MLP) that has this role: "model.layers.3" + ".self_attn".
std::string member(const std::string& of, std::string_view names, char role) { return of + "." + std::string(name_of(names, role)); }

LatentAttentionBlock build_latent_attention(const ModelTensors& tensors, const std::string& name, const Architecture& a) {
  const auto linear = [&](const char* own) { return tensors.linear(name + "." + own); };
  const auto norm = [&](const char* own) { return tensors.norm(name + "." + own, a.norm); };
  return {&a,
          linear("q_proj"),
          linear("q_a_proj"),
          linear("q_b_proj"),
          linear("kv_a_proj_with_mqa"),
          linear("kv_b_proj"),
          linear("o_proj"),
          norm("q_a_layernorm"),
          norm("kv_a_layernorm")};
}

Dims dims_of(const std::vector<std::int64_t>& shape) {
  Dims dims;
  for (const std::int64_t size : shape) dims.push_back(size);
  return dims;
}

// The layer in "model.layers.3.mlp.up_proj.weight"; -1: in none. A decoder's come after its encoder's.
int unit_of(const std::string& name, const std::string& layers, const Architecture& a) {
  if (name.compare(0, layers.size(), layers) == 0) return std::atoi(name.c_str() + layers.size());
  const std::string others = std::string(a.names.decoder_layers) + ".";
  if (a.decoder_layers == 0 || name.compare(0, others.size(), others) != 0) return -1;
  return static_cast<int>(a.encoder_layers()) + std::atoi(name.c_str() + others.size());
}

// Every Linear but the head, in the order of the modules: adapters may be put on those, too, that nothing runs.
std::vector<NamedLinear> all_linears(const Architecture& a, const ModelTensors& tensors) {
  constexpr std::string_view weight = ".weight";
  std::map<std::string_view, const Linear*> asked;
  for (const NamedLinear& each : tensors.linears) asked.emplace(each.name, &each.linear);
  std::vector<NamedLinear> found;
  for (const Parameter& each : a.tensors) {
    if (!each.of_linear) continue;
    const std::string name = each.name.substr(0, each.name.size() - weight.size());
    const auto own = asked.find(name);
    if (own != asked.end())
      found.push_back({name, *own->second});
    else if (name != a.names.head)
      found.push_back({name, Linear{tensors.find(each.name), tensors.find(name + ".bias")}});
  }
  return found;
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
    made[i] = make({each.name, kind, dims_of(each.shape), each.dtype.value_or(weights), unit_of(each.name, layers, a)});
    tensors.add(each.name, made[i]);
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    const Parameter& each = a.tensors[i];
    if (each.kind == Parameter::Kind::parameter) parameters_.push_back({each.name, made[i], unit_of(each.name, layers, a)});
  }
  const std::string head(a.names.head);
  const Family* family = find_family(a.decoder_type);
  has_towers_ = a.model_type != a.decoder_type;
  if (a.vision) tower_ = make_tower(a, MadeModule(tensors, ""));
  const auto body = a.litgpt ? litgpt_body : family != nullptr ? family->body : nullptr;
  if (body != nullptr) {
    body_ = body(a, MadeModule(tensors, ""));
    embed_tokens_ = body_->embedding();
    linears_ = has_towers_ ? all_linears(a, tensors) : tensors.linears;
    if (a.own_classifier) return;
    lm_head_ = tensors.linear(head);
    if (a.tied_embeddings) lm_head_.weight = embed_tokens_;
    linears_.push_back({"lm_head", lm_head_});
    return;
  }
  const std::string embedding_name = model + std::string(a.names.embedding);
  embed_tokens_ = tensors.find(embedding_name + ".weight");
  embed_scale_ = tensors.find(embedding_name + ".embed_scale");
  for (int i = 0; i < a.layers; ++i) {
    const std::string name = layers + std::to_string(i);
    const auto norm = [&](char role) {
      return name_of(a.names.layer, role).empty() ? Norm() : tensors.norm(member(name, a.names.layer, role), a.norm);
    };
    DecoderLayer layer;
    layer.architecture = &a;
    if (crosses(i)) {  // without images not run
      layers_.push_back(std::move(layer));
      continue;
    }
    const std::string attention = member(name, a.names.layer, 'a'), mlp = member(name, a.names.layer, 'm');
    if (a.latent.key_value_rank > 0)
      layer.latent = build_latent_attention(tensors, attention, a);
    else
      layer.attention = build_attention(tensors, attention, a, i);
    if (a.experts.at(i))
      layer.mixture = build_mixture(tensors, mlp, a);
    else
      layer.mlp = build_mlp(tensors, mlp, a);
    if (const std::string_view beside = name_of(a.names.layer, 's'); !beside.empty()) {
      layer.mixture.shared = build_mlp(tensors, name + "." + std::string(beside), a);
      layer.mixture.shared.name = beside;
    }
    layer.before_attention = norm('1');
    layer.after_attention = norm('2');
    layer.before_mlp = norm('3');
    layer.after_mlp = norm('4');
    layers_.push_back(std::move(layer));
  }
  norm_ = tensors.norm(model + std::string(a.names.norm), a.norm);
  const auto rotary = [&](const std::string& prefix) {
    return RotaryEmbedding{tensors.find(model + "rotary_emb." + prefix + "inv_freq"),
                           tensors.find(model + "rotary_emb." + prefix + "original_inv_freq")};
  };
  rotary_emb_ = rotary(a.local_rotary ? "full_attention_" : "");
  if (a.local_rotary) local_rotary_emb_ = rotary("sliding_attention_");
  linears_ = has_towers_ || !a.crosses.empty() ? all_linears(a, tensors) : tensors.linears;
  lm_head_ = tensors.linear(head);
  if (a.tied_embeddings) lm_head_.weight = embed_tokens_;
  linears_.push_back({"lm_head", lm_head_});
}

bool CausalLm::runs(std::string_view name, bool with_images) const {
  if (architecture_->head == Head::masked_word && !architecture_->tied_embeddings) {  // the bias that a tied decoder would share
    const std::string_view decoder = architecture_->names.head, last = ".decoder";
    if (decoder.size() > last.size() && decoder.substr(decoder.size() - last.size()) == last &&
        name == std::string(decoder.substr(0, decoder.size() - last.size())) + ".bias")
      return false;
  }
  if (with_images) return !architecture_->vision || makes_tokens(*architecture_->vision, name);
  const auto begins_with = [&](std::string_view part) { return name.substr(0, part.size()) == part; };
  const std::string layers = std::string(architecture_->names.model) + "." + std::string(architecture_->names.layers) + ".";
  for (int i = 0; i < static_cast<int>(architecture_->crosses.size()); ++i)
    if (crosses(i) && begins_with(layers + std::to_string(i) + ".")) return false;
  if (!has_towers_) return true;
  return begins_with(architecture_->names.model) || begins_with(architecture_->names.head);
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

Tensor CausalLm::run_layer(int index, const Tensor& input, const LayerContext& context, const UnitHooks& hooks, Tensor* kept,
                           Checkpointing inside) const {
  const ModuleScope scope(input.device(), std::to_string(index));
  Tensor dropped;
  const auto forward = [&](const Tensor& states) {
    return body_ ? body_->layer(index, states, context, kept ? *kept : dropped)
                 : layers_[static_cast<std::size_t>(index)].forward(states, context);
  };
  const auto checkpointed = [&](const Tensor& states) {
    const auto again = [this, index, context, states] {
      Tensor unused;
      return body_ ? body_->layer(index, states, context, unused) : layers_[static_cast<std::size_t>(index)].forward(states, context);
    };
    return checkpoint(states.device(), again, inside == Checkpointing::selective);
  };
  if (!hooks.before && inside == Checkpointing::none) return call_module(input.device(), input, itself, {}, forward);
  const Tensor entered = hooks.before ? hooks.before(index, input) : input;
  Tensor output = inside == Checkpointing::none ? forward(entered) : checkpointed(entered);
  return hooks.after ? hooks.after(index, std::move(output)) : output;
}

Tensor CausalLm::embedded(const Tensor& ids, bool require_grad) const {
  // The hook that enable_input_require_grads hangs on the module comes before those of a framework that wraps the model later.
  const auto forward = [&](const Tensor& words) {
    Tensor made = embedding(embed_tokens_, words);
    if (embed_scale_) made = mul(made, to(embed_scale_, embed_tokens_.dtype()));  // Gemma2TextScaledWordEmbedding
    if (require_grad && !made.requires_grad()) require_grad_of_activation(made);
    return made;
  };
  const auto of_module = [&] {
    const ModuleScope scope(ids.device(), architecture_->names.embedding);
    if (split_.ranks > 1) return split_embedding(embed_tokens_, ids, architecture_->vocab_size, split_.ranks, split_.sequence);
    return call_module(ids.device(), ids, itself, {&embed_tokens_}, forward);
  };
  const Tensor embeds = of_module();
  if (architecture_->scaled_embedding != ScaledEmbedding::by_number) return embeds;
  return mul_scalar(embeds);  // GraniteModel: outside the module, whose result the hook of require_grad has seen
}

Tensor CausalLm::embedded_unit(const Tensor& ids, bool require_grad, const UnitHooks& hooks) const {
  if (!hooks.ends_apart) return embedded(ids, require_grad);
  hooks.before(embedding_unit, ids);
  return hooks.after(embedding_unit, embedded(ids, require_grad));
}

// What a model's forward makes before its layers: positions, masks, angles.
LayerContext CausalLm::context_of(const Tensor& inputs_embeds, const ForwardOptions& options, const Tensor& full_mask,
                                  const Tensor& sliding_mask) const {
  const Architecture& a = *architecture_;
  Device& device = inputs_embeds.device();
  const std::int64_t rows = inputs_embeds.size(0), sequence = inputs_embeds.size(1);
  const Dtype dtype = inputs_embeds.dtype();
  LayerContext context;
  const bool older = options.transformers != Transformers::v5;
  const auto positions = [&] {
    const Tensor range = device.empty({inputs_embeds.size(1)}, Dtype::int64);
    return unsqueeze(older ? range : add_scalar(range), 0);
  };
  context.position_ids = options.position_ids ? options.position_ids : positions();
  if (is_grid(a.rotary)) {
    const GridPositions made = grid_positions(context.position_ids, rows, a.rotary);
    context.grid_positions = made.grid;
    context.position_ids = made.text;
  }
  context.attention = options.attention;
  context.ring = options.ring;
  context.half = options.half;
  context.repeats_keys = options.transformers < Transformers::v4_56;
  context.cache = options.cache;
  if (older) {
    context.attention_mask =
        older_causal_mask(inputs_embeds, context.position_ids, options.attention, options.transformers, options.padding);
    return context;
  }
  if (full_mask) {
    context.attention_mask = full_mask;
    context.sliding_attention_mask = sliding_mask;
    return context;
  }
  const auto mask = [&](bool window) {
    const bool has_window = a.sliding_window > 0 || !a.sliding.empty();  // Qwen2MoeConfig: without use_sliding_window it is 0, which binds
    const bool binds = window && has_window && sequence >= a.sliding_window;
    if (options.attention == Attention::sdpa && binds)
      return sdpa_causal_mask_always(device, context.position_ids, rows, sequence, true, options.padding);
    if (options.attention == Attention::flash_attention_2) return flash_mask(context.position_ids, rows, options.padding);
    if (options.attention != Attention::eager) return sdpa_causal_mask(device, context.position_ids, rows, sequence, options.padding);
    return eager_causal_mask(device, context.position_ids, rows, sequence, dtype, window, options.padding);
  };
  const auto has = [&](bool slides) { return std::find(a.sliding.begin(), a.sliding.end(), slides) != a.sliding.end(); };
  if (!a.masks_as_needed || has(false)) context.attention_mask = mask(a.sliding.empty() && a.sliding_window > 0);
  if (a.masks_as_needed ? has(true) : !a.sliding.empty()) context.sliding_attention_mask = mask(true);
  return context;
}

namespace {

// FSDP2's cast_forward_inputs: some families' angles stay in fp32.
LayerContext cast_context(LayerContext context, Dtype dtype) {
  for (RotaryEmbedding::Angles* angles : {&context.position_embeddings, &context.sliding_position_embeddings}) {
    // torchtitan's are one complex tensor, which is no floating point to torch.is_floating_point.
    if (!angles->sin || angles->cos.dtype() == dtype) continue;
    angles->cos = to(angles->cos, dtype);
    angles->sin = to(angles->sin, dtype);
  }
  return context;
}

}  // namespace

namespace {

// A hook of a layer is of its module.
template <class Hook>
Tensor in_layer(const Tensor& hidden, int layer, const Hook& hook) {
  const ModuleScope scope(hidden.device(), std::to_string(layer));
  return hook(layer, hidden);
}

}  // namespace

Tensor CausalLm::run_layers(Tensor hidden, const LayerContext& given, const ForwardOptions& options, const UnitHooks& hooks, int first,
                            int end) const {
  Device& device = hidden.device();
  const ModuleScope layers(device, architecture_->names.layers);
  static const UnitHooks none{};
  const bool around = hooks.before && hooks.around_checkpoint;
  const UnitHooks& inner = around ? none : hooks;
  Tensor kept;
  for (int i = first; i < end; ++i) {
    if (crosses(i)) continue;
    Tensor next;
    if (around) hidden = in_layer(hidden, i, hooks.before);
    LayerContext context = hooks.cast ? cast_context(given, *hooks.cast) : given;
    if (!architecture_->sliding.empty()) {  // a layer is given the mask and the angles of its kind
      const bool slides = architecture_->sliding[static_cast<std::size_t>(i)];
      (slides ? context.attention_mask : context.sliding_attention_mask).reset();
      if (context.sliding_position_embeddings.cos) (slides ? context.position_embeddings : context.sliding_position_embeddings) = {};
    }
    const auto run = [this, i, context, &inner](const Tensor& input) { return run_layer(i, input, context, inner, nullptr); };
    const auto first_run = [this, i, context, &inner, &next](const Tensor& input) {
      // Computed again, by autograd's thread, a layer hands on nothing but its hidden states.
      Tensor* out = input.device().thread == Thread::main ? &next : nullptr;
      return run_layer(i, input, context, inner, out);
    };
    const Checkpointing checkpointing = i % options.checkpoint_every == 0 ? options.checkpointing : Checkpointing::none;
    if (options.checkpoints_inside_hooks) {
      hidden = run_layer(i, hidden, context, inner, nullptr, checkpointing);
      if (around) hidden = in_layer(hidden, i, hooks.after);
      continue;
    }
    switch (checkpointing) {
      case Checkpointing::none: hidden = first_run(hidden); break;
      case Checkpointing::selective:
      case Checkpointing::full:
        hidden = options.offload_checkpoints ? checkpoint_offloaded(first_run, hidden)
                                             : checkpoint(device, [first_run, hidden] { return first_run(hidden); });
        break;
      case Checkpointing::full_reentrant: {
        const With offload(device.offloads_saved, options.offload_checkpoints);
        if (options.transformers == Transformers::v5 || options.transformers == Transformers::v4_56) {
          hidden = checkpoint_reentrant(run, hidden);
          break;
        }
        // Up to 4.55 the mask and the positions are arguments of CheckpointFunction, saved until its backward; later its closure holds them.
        const auto held = std::make_shared<LayerContext>(context);
        const auto run_with = [this, i, held, &inner](const Tensor& input) { return run_layer(i, input, *held, inner, nullptr); };
        hidden = checkpoint_reentrant(run_with, hidden, [held] {
          held->attention_mask.reset();
          held->position_ids.reset();
        });
        break;
      }
    }
    if (around) hidden = in_layer(hidden, i, hooks.after);
    kept = std::move(next);
  }
  return hidden;
}

Tensor CausalLm::hidden_states(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const {
  const Architecture& a = *architecture_;
  Device& device = ids.device();
  const ModuleScope scope(device, a.names.model);
  return call_module(device, {}, itself, {}, [&](const Tensor&) { return decoded(ids, options, hooks); });
}

Tensor CausalLm::decoded(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const {
  const Architecture& a = *architecture_;
  Device& device = ids.device();
  if (body_) {
    LayerContext context;
    context.attention = options.attention;
    context.half = options.half;
    context.checkpointed = options.checkpointing != Checkpointing::none;
    return body_->whole(ids, options, context, layer_count(), [&](Tensor hidden, const LayerContext& of_layers, int first, int end) {
      return run_layers(std::move(hidden), of_layers, options, hooks, first, end);
    });
  }
  Tensor inputs_embeds = embedded_unit(ids, options.inputs_require_grad, hooks);
  Seen seen;
  if (options.images) {
    seen = tower_->see(ids, std::move(inputs_embeds), options);
    inputs_embeds = seen.inputs_embeds;
  }
  LayerContext context = context_of(inputs_embeds, options, std::exchange(seen.masks.full, {}), std::exchange(seen.masks.sliding, {}));
  if (a.scaled_embedding == ScaledEmbedding::by_number_after_mask) inputs_embeds = mul_scalar(inputs_embeds);
  Tensor hidden = dropout(inputs_embeds, a.embedding_dropout);
  const Tensor turned_by = is_grid(a.rotary) ? std::exchange(context.grid_positions, {}) : context.position_ids;
  if (rotary_emb_.inverse_frequencies) context.position_embeddings = rotary_emb_.forward(turned_by, inputs_embeds.dtype(), a.rotary);
  if (a.normed_embeddings) hidden = norm_.forward(hidden);
  if (local_rotary_emb_.inverse_frequencies)
    context.sliding_position_embeddings = local_rotary_emb_.forward(context.position_ids, inputs_embeds.dtype(), a.rotary);
  hidden = run_layers(std::move(hidden), context, options, hooks, 0, layer_count());
  if (hooks.ends_apart) hidden = hooks.before(output_unit, hidden);
  const ModuleScope last(device, a.names.norm, Category::norms);
  hidden = norm_.forward(hidden);
  return hidden;
}

Tensor CausalLm::run_stage(const Stage& stage, const Tensor& input, const ForwardOptions& options, const UnitHooks& hooks) const {
  Device& device = input.device();
  Tensor hidden = hooks.before ? hooks.before(-1, input) : input;
  if (stage.embeds) { hidden = embedded_unit(input, false, hooks); }
  LayerContext context;
  const bool cut = split_.sequence && !stage.embeds;  // hidden states of a part of the sequence
  context.position_ids = unsqueeze(device.empty({input.size(1) * (cut ? split_.ranks : 1)}, Dtype::int64), 0);
  context.attention = options.attention;
  context.ring = options.ring;
  context.position_embeddings = rotary_emb_.forward(context.position_ids, hidden.dtype(), architecture_->rotary);
  hidden = run_layers(std::move(hidden), context, options, hooks, stage.first_layer, stage.end_layer);
  const auto left = [&](Tensor output) { return hooks.after ? hooks.after(-1, std::move(output)) : output; };
  if (!stage.heads) return left(std::move(hidden));
  if (hooks.ends_apart) hidden = hooks.before(output_unit, hidden);
  const auto normed = [&] {
    const ModuleScope scope(device, architecture_->names.norm, Category::norms);
    return norm_.forward(hidden);
  };
  const Tensor last = normed();
  const ModuleScope scope(device, architecture_->names.head, Category::logits_and_loss);
  const auto logits = [&] {
    const Tensor local = lm_head_.forward(lm_head_.gathered(last));
    return split_.ranks > 1 && !split_.loss ? gather_columns(local, split_.ranks) : local;
  };
  return left(hooks.ends_apart ? hooks.after(output_unit, logits()) : logits());
}

Tensor CausalLm::loss(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks,
                      Tensor* kept_logits) const {
  return call_module(ids.device(), {}, itself, {}, [&](const Tensor&) { return loss_of(ids, labels, options, hooks, kept_logits); });
}

namespace {

// modeling_gpt_bigcode.py up to 4.48: CrossEntropyLoss over a copy of the logits, in the model's own dtype
Tensor own_shifted_loss(const Tensor& logits, const Tensor& labels) {
  const std::int64_t length = logits.size(1) - 1;
  const Tensor copied = contiguous(narrow(logits, 1, 0, length));
  const Tensor rows = view(copied, {copied.size(0) * length, copied.size(2)});
  return cross_entropy(rows, view(contiguous(narrow(labels, 1, 1, length)), {labels.size(0) * length}));
}

}  // namespace

Tensor CausalLm::loss_of(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks,
                         Tensor* kept_logits) const {
  Device& device = ids.device();
  if (architecture_->head != Head::next_word) return loss_of_labels(ids, labels, options, hooks, kept_logits);
  if (hooks.before) hooks.before(-1, ids);
  Tensor hidden = hidden_states(ids, options, hooks), outputs = hidden;
  // A loss that takes the head over reads its weight outside of the head's own forward.
  if (device.module_hooks && options.loss == Loss::liger_fused_linear)
    device.module_hooks->look(std::uint64_t{device.module()} * parts + itself, lm_head_.weight);
  const ModuleScope scope(device, architecture_->names.head, Category::logits_and_loss);
  if (architecture_->scaled_head_input) hidden = mul_scalar(hidden);
  const auto project = [&] {
    const Tensor local = lm_head_.forward(head_input(hidden));
    return split_.ranks > 1 && !split_.loss ? gather_columns(local, split_.ranks) : local;
  };
  // Up to 4.48 the logits are shifted, in a copy; up to 4.45 they leave the model in fp32.
  const bool copies_shifted = options.transformers <= Transformers::v4_48;
  const auto output_logits = [&] {
    Tensor made = scaled(project());
    if (hooks.ends_apart) made = hooks.after(output_unit, std::move(made));
    return options.transformers <= Transformers::v4_45 && !body_ ? to(made, Dtype::float32) : made;
  };
  if (architecture_->litgpt) {
    outputs.reset();
    return litgpt_loss(*architecture_, lm_head_, std::move(hidden), labels, options.has_adapters, *options.outputs);
  }
  Tensor logits, loss;  // the logits are part of the output, to which hooks come
  const bool never_called = options.loss == Loss::liger_cross_entropy && options.transformers >= Transformers::v4_48 &&
                            !liger_replaces_cross_entropy(architecture_->model_type);
  switch (never_called ? Loss::standard : options.loss) {
    case Loss::standard: {
      logits = output_logits();
      if (kept_logits) *kept_logits = logits;
      if (options.shifted_labels) {
        loss = next_word_loss(logits, labels, split_.loss);
      } else {
        loss = copies_shifted && body_ ? own_shifted_loss(logits, labels)
               : copies_shifted        ? shifted_causal_lm_loss(logits, labels, options.counts_items, false)
                                       : causal_lm_loss(logits, labels, options.num_items, split_.loss);
      }
      break;
    }
    case Loss::liger_cross_entropy: {
      logits = output_logits();
      if (kept_logits) *kept_logits = logits;
      loss = copies_shifted ? shifted_causal_lm_loss(logits, labels, options.counts_items, true)
                            : liger_causal_lm_loss(logits, labels, options.num_items);
      break;
    }
    case Loss::liger_fused_linear:
      loss = copies_shifted ? shifted_liger_linear_loss(hidden, lm_head_.weight, labels, options.counts_items)
                            : liger_linear_loss(hidden, lm_head_.weight, labels, options.num_items);
      break;
    case Loss::chunked: loss = chunked_loss(hidden, lm_head_.weight, labels, options.loss_chunk); break;
    case Loss::trl_tiled: break;  // label_probabilities, and what the objective makes of them
  }
  hidden.reset();  // locals of the forward, which hooks come after
  outputs.reset();
  if (tower_) tower_->forget();
  return hooks.after ? hooks.after(-1, loss) : loss;
}

Tensor CausalLm::head_input(const Tensor& hidden) const {
  return architecture_->float_logits ? to(hidden, lm_head_.weight.dtype()) : lm_head_.gathered(hidden);
}

Tensor CausalLm::scaled(Tensor logits) const {
  if (architecture_->float_logits) return to(logits, Dtype::float32);
  if (architecture_->scaled_logits) logits = mul_scalar(logits);
  if (architecture_->softcapped_logits) {
    logits = mul_scalar(logits);
    logits = tanh_of(logits);
    logits = mul_scalar(logits);
  }
  return logits;
}

Tensor CausalLm::logits(const Tensor& ids, const ForwardOptions& options, const UnitHooks& hooks) const {
  if (hooks.before) hooks.before(-1, ids);
  const Tensor outputs = hidden_states(ids, options, hooks);
  const ModuleScope scope(ids.device(), "lm_head", Category::logits_and_loss);
  const Tensor hidden = architecture_->scaled_head_input ? mul_scalar(outputs) : outputs;
  const Tensor logits = scaled(lm_head_.forward(head_input(hidden)));
  return hooks.after ? hooks.after(-1, logits) : logits;
}

Tensor CausalLm::label_probabilities(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const {
  const Tensor hidden = hidden_states(ids, options, hooks);
  const ModuleScope scope(ids.device(), "lm_head", Category::logits_and_loss);
  return tiled_label_probabilities(hidden, lm_head_, labels);
}

FusedHead CausalLm::fused_head(const Tensor& ids, const Tensor& labels, const ForwardOptions& options, const UnitHooks& hooks) const {
  if (hooks.before) hooks.before(-1, ids);
  const Tensor hidden = hidden_states(ids, options, hooks);
  const ModuleScope scope(ids.device(), architecture_->names.head, Category::logits_and_loss);
  FusedHead outputs = llmem::fused_head(hidden, lm_head_, labels, options.num_items);
  if (hooks.after) outputs.log_probabilities = hooks.after(-1, outputs.log_probabilities);
  return outputs;
}

void CausalLm::train_copies(const Tensor& embedding, const Tensor& head) {
  if (embedding) other_embedding_ = std::exchange(embed_tokens_, embedding);
  if (embedding && embed_scale_) {  // a buffer of the embedding (Gemma 3), copied with it: torch/_tensor.py, __deepcopy__
    Device& device = embed_scale_.device();
    copied_.push_back({detach(embed_scale_), device.empty(embed_scale_.sizes(), embed_scale_.dtype())});
    device.scratch(size_of(embed_scale_.dtype()));
  }
  if (head) other_head_ = std::exchange(lm_head_.weight, head);
}

std::vector<NamedMixture> CausalLm::mixtures() const {
  if (body_) return body_->mixtures();
  std::vector<NamedMixture> found;
  const Architecture& a = *architecture_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!layers_[i].mixture.present()) continue;
    const std::string layer = std::string(a.names.model) + "." + std::string(a.names.layers) + "." + std::to_string(i);
    found.push_back({member(layer, a.names.layer, 'm'), &layers_[i].mixture});
  }
  return found;
}

void CausalLm::train_copy(const Tensor& parameter, const Tensor& copy) {
  copied_.push_back({parameter, detach(parameter)});
  set_data(parameter, copy);
  llmem::require_grad(parameter);
}

void CausalLm::enable_adapters(bool enabled) {
  if (enabled != adapters_enabled_) {
    for (const Copied& each : copied_) {
      const Tensor other = detach(each.parameter);
      set_data(each.parameter, each.other);
      set_data(each.other, other);
    }
    if (other_embedding_) std::swap(embed_tokens_, other_embedding_);
    if (other_head_) std::swap(lm_head_.weight, other_head_);
    adapters_enabled_ = enabled;
  }
  for (const NamedLinear& each : linears_) {
    if (each.linear.parts->adapter) each.linear.parts->adapter->enabled = enabled;
  }
  for (const NamedMixture& each : mixtures()) {
    for (std::optional<LoraAdapter>* adapter :
         {&each.mixture->adapters->router, &each.mixture->adapters->gate_up, &each.mixture->adapters->down})
      if (*adapter) (*adapter)->enabled = enabled;
  }
}

void CausalLm::use_liger(const LigerKernels& kernels) {
  for (DecoderLayer& layer : layers_) {
    AttentionBlock& attention = layer.attention;
    for (Norm* norm :
         {&layer.before_attention, &layer.after_attention, &layer.before_mlp, &layer.after_mlp, &attention.q_norm, &attention.k_norm})
      norm->liger = kernels.rms_norm;
    attention.liger_rope = kernels.rope;
    layer.mlp.liger = kernels.swiglu;
  }
  norm_.liger = kernels.rms_norm;
}

// torchtitan/models/llama3/model.py and models/qwen3/model.py: torch.nn.RMSNorm; queries and keys are turned as complex numbers, or with cosines
// in fp32.
Architecture as_torchtitan(Architecture architecture) {
  architecture.norm = NormKind::rms_fused;
  architecture.rotary = architecture.qk_norm ? Rotary::halves_float : Rotary::complex;
  return architecture;
}

}  // namespace llmem
