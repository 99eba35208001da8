#include "plan/rank.h"

#include <algorithm>
#include <string>

#include "base/text.h"
#include "model/heads.h"
#include "model/older.h"
#include "plan/adapt.h"
#include "plan/context_parallel.h"
#include "tensor/autograd.h"

namespace llmem {

namespace {

// Losses that take the head over read its weight, and TRL's also its bias, without a call of the module: the rest of it gets no gradients.
bool is_passed_over(const Spec& spec, const Architecture& a, std::string_view name) {
  const Training& training = spec.training;
  const bool smooths = training.loop == Loop::sft_trainer && training.label_smoothing;
  const bool of_trl = training.loss == Loss::trl_tiled || training.objective == Objective::dpo ||
                      (training.loop == Loop::sft_trainer && spec.software.trl == Trl::v1 && !smooths);
  const bool of_weight = training.loss == Loss::chunked || training.loss == Loss::liger_fused_linear;
  if (!(of_trl || of_weight) || training.stack != Stack::transformers) return false;
  const std::string head = std::string(a.names.head) + ".";
  if (name.substr(0, head.size()) != head) return false;
  return name.find(".lora_") != std::string_view::npos || (of_weight && !of_trl && name == head + "bias");
}

// peft on a model that is made: its preparation, Liger's kernels, adapters.
void adapt(Device& device, const Spec& spec, Rank& rank) {
  const Training& training = spec.training;
  // TRL's trainer does not prepare.
  // prepare_model_for_kbit_training casts nothing of a GPTQ checkpoint.
  if (training.stack == Stack::litgpt) {
    if (training.method == Method::lora) rank.optimized = add_litgpt_adapters(device, *rank.model, training);
    return;
  }
  if (training.base_quantization && !training.base_quantization->gptq && training.prepare_kbit && training.loop != Loop::sft_trainer)
    prepare_for_training(device, rank.model->parameters());
  rank.model->use_liger(training.liger);
  rank.has_adapters = training.method == Method::lora;
  if (rank.has_adapters) rank.optimized = add_adapters(device, *rank.model, training.adapter, training.weights);
  if (training.base_quantization && training.loop == Loop::sft_trainer) lower_adapters(device, rank.optimized);
  std::erase_if(rank.optimized, [&](const NamedTensor& each) {
    return !rank.model->runs(each.name, training.images.has_value()) || is_passed_over(spec, rank.model->architecture(), each.name);
  });
}

std::unique_ptr<CausalLm> frozen_copy(Device& device, const Spec& spec, const Architecture& architecture) {
  const ModuleScope reference(device, "reference");
  return std::make_unique<CausalLm>(architecture, spec.training.weights, [&](const TensorRequest& request) {
    const ModuleScope scope(device, module_of(request.name));
    const OpScope op(device, "parameter");
    const Tensor made = device.empty(request.sizes, request.dtype);
    device.set_category(made->storage->allocation, Category::weights);
    return made;
  });
}

}  // namespace

namespace {

// nn.LayerNorm under a name that does not say so: ln_1, ln_f and the like, MPT's norm_1.
bool is_layer_norm(const Architecture& a, std::string_view name) {
  const std::string_view module = module_of(name), leaf = module.substr(module.rfind('.') + 1);
  return leaf.substr(0, 3) == "ln_" || (a.decoder_type == "mpt" && leaf.substr(0, 5) == "norm_");
}

// transformers/trainer.py, get_decay_parameter_names: biases and norms get no weight decay, and a group of their own even without any.
bool decays(const Architecture& a, std::string_view name) {
  if (is_layer_norm(a, name)) return false;
  const std::string dotted = "." + lower(name) + ".";
  const auto has = [&](std::string_view part) { return dotted.find(part) != std::string::npos; };
  return !has("bias") && !has("layernorm") && !has("rmsnorm") && dotted.find(".norm.") == std::string::npos &&
         dotted.find("_norm.") == std::string::npos;
}

}  // namespace

bool in_first_group(const Spec& spec, const CausalLm& model, std::string_view name) {
  if (spec.training.loop == Loop::plain) return true;
  const Transformers version = spec.software.transformers;
  return version < Transformers::v4_56 ? decayed_before_4_56(name, version, model.registers_its_norm(version))
                                       : decays(model.architecture(), name);
}

std::vector<std::vector<NamedTensor>> parameter_groups(const Spec& spec, const Rank& rank) {
  std::vector<NamedTensor> all = rank.optimized;
  const auto others =
      std::stable_partition(all.begin(), all.end(), [&](const NamedTensor& each) { return in_first_group(spec, *rank.model, each.name); });
  return {{all.begin(), others}, {others, all.end()}};
}

Rank whole_model(Device& device, const Spec& spec, const Architecture& architecture) {
  const Training& training = spec.training;
  std::vector<NamedTensor> all;
  Rank rank;
  rank.model = std::make_unique<CausalLm>(architecture, spec.training.weights, [&](const TensorRequest& request) {
    const ModuleScope scope(device, module_of(request.name));
    const OpScope op(device, "parameter");
    const Tensor made = device.unallocated(request.sizes, request.dtype);
    // Before version 5 this was an attribute of the module, not a buffer.
    if (spec.software.transformers != Transformers::v5 && module_of(request.name).size() + 1 == request.name.rfind("original_inv_freq"))
      return made;
    if (!training.base_quantization) made->storage->allocate();
    device.set_category(made->storage->allocation, Category::weights);
    all.push_back({request.name, made});
    if (request.kind != TensorRequest::parameter)
      rank.buffers.push_back(made);
    else if (training.method == Method::full && trains(training, request.name))
      require_grad(made);
    return made;
  });
  if (const std::int64_t words = tied_head_bias(architecture); words > 0) device.scratch(size_of(training.weights) * words);
  for (const NamedTensor& each : rank.model->parameters()) {
    if (training.method == Method::lora || each.tensor.requires_grad()) rank.optimized.push_back(each);
  }
  if (training.base_quantization)
    // lightning/fabric/plugins/precision/bitsandbytes.py, _Linear4bit.quantize: weights are halved first, whatever they were.
    load_quantized(device, *rank.model, *training.base_quantization, training.stack == Stack::litgpt ? Dtype::float16 : training.weights,
                   architecture.tied_embeddings, all);
  adapt(device, spec, rank);
  if (training.objective == Objective::dpo && training.method == Method::full) rank.reference = frozen_copy(device, spec, architecture);
  return rank;
}

namespace {

Rank make_data_parallel(Device& device, const Spec& spec, const Architecture& architecture) {
  if (spec.pipeline.degree > 1) return pipeline_stage(device, spec, architecture);
  if (spec.tensor.degree > 1 && spec.data.kind == DataKind::none) return tensor_parallel(device, spec, architecture);
  switch (spec.data.kind) {
    case DataKind::distributed_optimizer:  // Megatron's, which is played elsewhere
    case DataKind::none: return whole_model(device, spec, architecture);
    case DataKind::ddp: return distributed_data_parallel(device, spec, architecture);
    case DataKind::zero_redundancy: return zero_redundancy(device, spec, architecture);
    case DataKind::zero1:
    case DataKind::zero2: return zero_stage_1_or_2(device, spec, architecture);
    case DataKind::zero3: return zero_stage_3(device, spec, architecture);
    case DataKind::fsdp1: return fully_sharded_1(device, spec, architecture);
    case DataKind::fsdp2: return fully_sharded(device, spec, architecture);
  }
  return {};
}

}  // namespace

Rank make_rank(Device& device, const Spec& spec, const Architecture& architecture) {
  Rank rank = make_data_parallel(device, spec, architecture);
  rank.ring = ring_of(spec);
  return rank;
}

}  // namespace llmem
