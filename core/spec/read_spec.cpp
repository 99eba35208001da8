#include "spec/read_spec.h"

#include <algorithm>
#include <span>

#include "base/json.h"
#include "base/text.h"
#include "spec/gpus.h"
#include "spec/sections.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kVersion = 1;

void read_version(ObjectReader& spec) {
  std::int64_t version = kVersion;
  if (!spec.integer("version", version, 1, INT64_MAX) || version == kVersion) return;
  spec.problem("version", "unsupported",
               "this spec is of version " + std::to_string(version) + "; this build reads version " + std::to_string(kVersion) +
                   ". A newer release may read it.");
}

// How unlike the id a preset is: least where the id is a part of it (often only the organisation is missing), else the edits.
int unlikeness(std::string_view id, std::string_view preset) {
  const bool contained = id.size() >= 3 && lower(preset).find(lower(id)) != std::string::npos;
  return contained ? static_cast<int>(preset.size()) - 1000 : edit_distance(id, preset);
}

// The three presets most like the id.
std::string similar(std::string_view id, const ModelPresets& presets) {
  struct Near {
    int unlike = 1000;
    std::string_view id;
  } best[3];
  for (const ModelPreset& preset : presets) {
    Near next{unlikeness(id, preset.id), preset.id};
    for (Near& place : best) {
      if (next.unlike < place.unlike) std::swap(next, place);
    }
  }
  std::vector<std::string_view> ids;
  for (const Near& near : best) {
    const bool beside_contained = best[0].unlike < 0 && near.unlike >= 0;
    if (!near.id.empty() && !beside_contained) ids.push_back(near.id);
  }
  return listed(ids);
}

void read_preset(const std::string& id, const ModelPresets& presets, ModelSource& model, Problems& problems) {
  const auto found =
      std::lower_bound(presets.begin(), presets.end(), id, [](const ModelPreset& row, std::string_view wanted) { return row.id < wanted; });
  if (found != presets.end() && found->id == id) {
    model.name = id;
    Reading<Json> file = parse_json(found->text, "/model");
    if (file.value.is_object()) model.config = std::make_shared<Json>(std::move(file.value["config"]));
    problems.insert(problems.end(), file.problems.begin(), file.problems.end());
    return;
  }
  std::string message = "no model \"" + shortened(id) + "\" is known here. ";
  message += presets.empty() ? "This build carries none: " : "Nearest: " + similar(id, presets) + ". Any other model: ";
  add(problems, {"/model", "unknown_model", message + "give {\"name\": …, \"config\": its config.json}."});
}

}  // namespace

void read_model(Json& spec, const ModelPresets& presets, ModelSource& model, Problems& problems) {
  const auto value = spec.is_object() ? spec.find("model") : spec.end();
  if (value == spec.end() || value->is_null()) {
    add(problems,
        {"/model", "missing", "give a model: a preset's id such as \"Qwen/Qwen2.5-7B\", or {\"name\": …, \"config\": its config.json}"});
  } else if (value->is_string()) {
    read_preset(value->get_ref<const std::string&>(), presets, model, problems);
  } else if (!value->is_object()) {
    add(problems, {"/model", "type", "must be a preset's id or {\"name\": …, \"config\": …}, not " + quoted(*value)});
  } else {
    ObjectReader reader(&*value, "/model", problems);
    reader.text("name", model.name);
    const bool checkpoint = reader.object("tensors") != nullptr;
    if (reader.object("config")) {
      model.config = std::make_shared<Json>(std::move((*value)["config"]));
      if (checkpoint) model.tensors = std::make_shared<Json>(std::move((*value)["tensors"]));
    } else if (checkpoint && !reader.given("config")) {
      model.config = std::make_shared<Json>(std::move((*value)["tensors"]));  // read_architecture says what it is
    } else if (!reader.given("config")) {
      reader.problem("config", "missing", "give the model's config.json as an object");
    }
    reader.done();
  }
}

namespace {

void read_described_gpu(const Json& object, Gpu& gpu, Problems& problems) {
  ObjectReader reader(&object, "/cluster/gpu", problems);
  std::int64_t capability = gpu.compute_capability, sms = gpu.sms;
  for (std::string_view key : {"compute_capability", "sms"}) {
    if (!reader.given(key)) reader.problem(key, "missing", "a GPU that is described needs compute_capability (90 is 9.0) and sms");
  }
  reader.integer("compute_capability", capability, 50, 130);
  reader.integer("sms", sms, 1, 1024);
  reader.done();
  gpu = {"", "", static_cast<int>(capability), static_cast<int>(sms), std::nullopt};
}

void read_gpu(ObjectReader& cluster, Gpu& gpu, Problems& problems) {
  const Json* value = cluster.find("gpu");
  if (!value) return;
  if (value->is_object()) {
    read_described_gpu(*value, gpu, problems);
  } else if (!value->is_string()) {
    cluster.problem("gpu", "type", "must be a GPU's id or {\"compute_capability\": 90, \"sms\": 132}, not " + quoted(*value));
  } else if (auto named = gpu_named(value->get_ref<const std::string&>())) {
    gpu = *std::move(named);
  } else {
    std::vector<std::string_view> ids;
    for (const GpuPreset& preset : gpu_presets()) ids.push_back(preset.id);
    cluster.problem(
        "gpu", "unknown_value",
        not_known("the GPU", value->get_ref<const std::string&>(), ids) + " Any other: {\"compute_capability\": 90, \"sms\": 132}.");
  }
  // PyTorch 2.14's wheels have no kernels for what is older than Turing.
  if (gpu.compute_capability < 75) {
    cluster.problem("gpu", "unsupported",
                    "compute capability " + std::to_string(gpu.compute_capability / 10) + "." +
                        std::to_string(gpu.compute_capability % 10) + " is not supported. Supported: 7.5 (Turing) and newer.");
  }
}

void read_cluster(const Json* object, std::int64_t world, Cluster& cluster, Problems& problems) {
  ObjectReader reader(object, "/cluster", problems);
  read_gpu(reader, cluster.gpu, problems);
  reader.integer("gpus_per_node", cluster.gpus_per_node, 1, 4096);
  const bool nodes_given = reader.integer("nodes", cluster.nodes, 1, 1 << 20);
  const std::int64_t gpus = cluster.gpus_per_node * cluster.nodes;
  if (nodes_given && world > gpus) {
    reader.problem("nodes", "conflict",
                   "the parallel degrees ask for " + std::to_string(world) + " ranks; " + std::to_string(cluster.nodes) + " nodes of " +
                       std::to_string(cluster.gpus_per_node) + " GPUs have " + std::to_string(gpus));
  } else if (!nodes_given) {
    cluster.nodes = divide_up(world, cluster.gpus_per_node);  // not said: as many as it takes
  }
  std::int64_t memory = 0;
  if (reader.integer("memory", memory, 1, kMostBytes)) cluster.memory = Bytes{memory};
  std::int64_t host = 0;
  if (reader.integer("host_memory", host, 1, kMostBytes)) cluster.host_memory = Bytes{host};
  std::int64_t network = 0;
  if (reader.integer("network_gbps", network, 1, 1 << 20)) cluster.network_gbps = network;
  reader.done();
}

void read_allocator(const Json* object, AllocatorOptions& allocator, Problems& problems) {
  ObjectReader reader(object, "/allocator", problems);
  reader.boolean("expandable_segments", allocator.expandable_segments);
  // c10/cuda/CUDAAllocatorConfig: "max_split_size_mb too small, must be > 20"
  std::int64_t split = 0;
  if (reader.integer("max_split_size_mb", split, 21, 1 << 24)) allocator.max_split_size_mb = split;
  std::int64_t divisions = 0;
  if (reader.integer("roundup_power2_divisions", divisions, 1, 1 << 10)) {
    // c10/core/AllocatorConfig.cpp: "roundups has to be power of 2"
    if ((divisions & (divisions - 1)) != 0)
      reader.problem("roundup_power2_divisions", "range", "must be a power of 2, not " + quoted(divisions));
    else
      allocator.roundup_power2_divisions = divisions;
  }
  double threshold = 0.0;
  reader.number("garbage_collection_threshold", threshold, 0.0, 1.0);  // acts only under set_per_process_memory_fraction
  reader.done();
}

// `series`: the versions that the core follows, "2.14" for 2.14 and each 2.14.x.
void only_version(ObjectReader& software, std::string_view key, std::string_view series, std::string_view supported) {
  std::string version;
  if (!software.text(key, version)) return;
  const std::string prefix = std::string(series) + ".";
  if (version == series || version.substr(0, prefix.size()) == prefix) return;
  software.problem(key, "unsupported", "\"" + shortened(version) + "\" is not supported yet. Supported: " + std::string(supported) + ".");
}

struct Series {
  std::string_view name;  // "4.56" for 4.56 and each 4.56.x
  int value;
};

void read_series(ObjectReader& software, std::string_view key, std::span<const Series> known, std::string_view supported, int& value) {
  std::string version;
  if (!software.text(key, version)) return;
  for (const Series& series : known) {
    const std::string prefix = std::string(series.name) + ".";
    if (version != series.name && version.substr(0, prefix.size()) != prefix) continue;
    value = series.value;
    return;
  }
  software.problem(key, "unsupported", "\"" + shortened(version) + "\" is not supported yet. Supported: " + std::string(supported) + ".");
}

// "0.43.2" as 43002; -1: no version
std::int64_t number_of(std::string_view version) {
  std::int64_t number = 0, part = 0;
  int parts = 0;
  const auto end_part = [&] {
    if (parts++ < 3) number = number * 1000 + part;
    part = 0;
  };
  for (char c : version) {
    if (c == '.') {
      end_part();
    } else if (c >= '0' && c <= '9' && part < 1000) {
      part = part * 10 + (c - '0');
    } else {
      break;  // "0.50.0.dev0"
    }
  }
  end_part();
  if (parts < 2) return -1;
  while (parts++ < 3) number *= 1000;
  return number;
}

// Before 0.43.2 a 4-bit layer kept its input until backward (bitsandbytes #1270).
void read_bitsandbytes(ObjectReader& software, std::optional<BaseQuantization>& base) {
  std::string version;
  if (!software.text("bitsandbytes", version)) return;
  const std::int64_t number = number_of(version);
  if (number < 0)
    return software.problem("bitsandbytes", "range", "must be a version such as \"0.43.3\", not \"" + shortened(version) + "\"");
  if (base && base->bits == 4 && number < 43'002) base->keeps_inputs = true;
}

constexpr Choice kStacks[] = {{"transformers", static_cast<int>(Stack::transformers)},
                              {"megatron", static_cast<int>(Stack::megatron)},
                              {"torchtitan", static_cast<int>(Stack::torchtitan)},
                              {"litgpt", static_cast<int>(Stack::litgpt)},
                              {"deepspeed", kNotYet}};

// A stack that is not known is a problem of its section.
Stack stack_of(const Json& spec) {
  const auto software = spec.is_object() ? spec.find("software") : spec.end();
  if (software == spec.end() || !software->is_object()) return Stack::transformers;
  const auto stack = software->find("stack");
  if (stack == software->end() || !stack->is_string()) return Stack::transformers;
  for (const Choice& each : kStacks)
    if (each.name == stack->get_ref<const std::string&>() && each.value != kNotYet) return static_cast<Stack>(each.value);
  return Stack::transformers;
}

// What only other programs than Transformers' have.
void check_stack(const Training& training, Problems& problems) {
  const bool litgpt = training.stack == Stack::litgpt;
  if (training.stack == Stack::torchtitan || litgpt) {
    const auto refuse = [&](std::string at, std::string what) {
      add(problems, {"/training/" + at, "unsupported", what + " is not supported with " + (litgpt ? "litgpt" : "torchtitan") + " yet."});
    };
    if (training.method != Method::full && !litgpt) refuse("method", "lora");
    if (litgpt && training.checkpointing != Checkpointing::none) refuse("checkpointing", "checkpointing");
    if (litgpt && (training.adapter.dora || !training.adapter.modules_to_save.empty())) refuse("adapter", "dora or modules_to_save");
    if (litgpt && training.base_quantization && training.base_quantization->gptq) refuse("base_quantization", "gptq");
    if (litgpt && (training.liger.rms_norm || training.liger.rope || training.liger.swiglu)) refuse("kernels", "a kernel of Liger");
    if (training.objective != Objective::sft) refuse("objective", "dpo");
    if (training.loop != Loop::plain) refuse("loop", "a loop of Transformers");
    if (training.loss != Loss::standard) refuse("loss", "another loss than the standard one");
    if (training.mask != Mask::none) refuse("mask", "a padded batch");
    if (training.checkpointing == Checkpointing::full_reentrant) refuse("checkpointing", "reentrant checkpointing");
    if (training.attention != Attention::sdpa) refuse("attention", "another attention than sdpa");
  }
  if (training.stack != Stack::transformers) return;
  if (training.checkpointing == Checkpointing::selective)
    add(problems, {"/training/checkpointing", "unsupported", "\"selective\" is not supported yet. Supported: none, full, full_reentrant."});
  if (training.attention == Attention::fused)
    add(problems, {"/training/attention", "unsupported",
                   "\"fused\" is Megatron's: not supported yet with Transformers. Supported: sdpa, eager, flash_attention_2."});
}

void read_software(const Json* object, Software& out, std::optional<BaseQuantization>& base, Problems& problems) {
  static constexpr Series kTransformers[] = {{"4.45", static_cast<int>(Transformers::v4_45)},
                                             {"4.48", static_cast<int>(Transformers::v4_48)},
                                             {"4.51", static_cast<int>(Transformers::v4_51)},
                                             {"4.56", static_cast<int>(Transformers::v4_56)},
                                             {"5", static_cast<int>(Transformers::v5)}};
  static constexpr Series kTrl[] = {{"0.24", static_cast<int>(Trl::v0_24)}, {"1", static_cast<int>(Trl::v1)}};
  ObjectReader reader(object, "/software", problems);
  int stack = 0;
  reader.choice("stack", kStacks, stack);
  only_version(reader, "torch", "2.14", "2.14 and 2.14.x");
  static constexpr Series kTorchtitan[] = {{"0.1", static_cast<int>(Torchtitan::v0_1)}, {"0.2", static_cast<int>(Torchtitan::v0_2)}};
  int transformers = static_cast<int>(out.transformers), trl = static_cast<int>(out.trl), torchtitan = static_cast<int>(out.torchtitan);
  read_series(reader, "transformers", kTransformers, "5.x, 4.56.x, 4.51.x, 4.48.x, 4.45.x", transformers);
  read_series(reader, "trl", kTrl, "1.x, 0.24.x", trl);
  read_series(reader, "torchtitan", kTorchtitan, "0.2.x, 0.1.x", torchtitan);
  out.torchtitan = static_cast<Torchtitan>(torchtitan);
  out.transformers = static_cast<Transformers>(transformers);
  out.trl = static_cast<Trl>(trl);
  reader.boolean("config_use_cache", out.config_use_cache);
  read_bitsandbytes(reader, base);
  reader.done();
}

// Which optimizers run where parameters are cut.
void check_optimizer(const Spec& spec, Problems& problems) {
  const OptimizerName name = spec.training.optimizer.name;
  const DataKind kind = spec.data.kind;
  const auto problem = [&](const char* code, const char* message) { add(problems, {"/training/optimizer/name", code, message}); };
  const bool deepspeed = kind == DataKind::zero1 || kind == DataKind::zero2 || kind == DataKind::zero3;
  const bool of_torch = name <= OptimizerName::adafactor || (name >= OptimizerName::rmsprop && name <= OptimizerName::radam);
  if (name == OptimizerName::muon) {
    if (deepspeed) problem("unsupported", "muon under DeepSpeed is not supported yet.");
    if (kind == DataKind::fsdp1 && spec.data.shards) problem("conflict", "muon takes matrices, and FSDP1's shards are vectors");
    if (spec.training.method == Method::lora) problem("conflict", "every adapter is a matrix, so that nothing is left for muon's AdamW");
  }
  const bool dtensors = kind == DataKind::fsdp2 || spec.tensor.degree > 1;
  if (dtensors && name >= OptimizerName::adamw_8bit)
    problem("conflict", "bitsandbytes' optimizers do not take DTensors, which fsdp2 and tensor parallelism make of parameters");
  if (spec.tensor.degree > 1 && name == OptimizerName::adafactor)
    problem("unsupported", "adafactor with tensor parallelism is not supported yet.");
  if (!of_torch && (kind == DataKind::zero_redundancy || spec.offload.optimizer))
    problem("unsupported", "this optimizer is supported neither with zero_redundancy nor with offload yet. Supported: torch's.");
}

// A quantised base under data parallelism.
void check_sharded_base(const Spec& spec, Problems& problems) {
  const DataKind kind = spec.data.kind;
  const Training& training = spec.training;
  if (kind == DataKind::ddp || kind == DataKind::zero_redundancy || kind == DataKind::zero1 || kind == DataKind::zero2) return;
  const BaseQuantization& base = *training.base_quantization;
  if (kind != DataKind::fsdp1 || !spec.data.adapters_apart)
    return add(problems,
               {"/training/base_quantization", "unsupported",
                "a quantised base is not supported where weights are sharded yet but under fsdp1 with auto_wrap \"peft\". Supported: that, "
                "ddp, zero_redundancy, zero1, zero2."});
  // _flat_param.py, _validate_tensors_to_flatten
  if (base.bits != 4)
    add(problems, {"/training/base_quantization/bits", "conflict", "FSDP1 flattens floating-point parameters only: give 4 bits"});
  else if (!base.gptq && base.storage != training.weights)
    add(problems, {"/training/base_quantization/quant_storage", "conflict",
                   "FSDP1 flattens a layer into one tensor of one dtype: give quant_storage \"" + std::string(name_of(training.weights)) +
                       "\", the weights' dtype"});
  // transformers/distributed/fsdp.py, update_fsdp_plugin_peft; packed bytes that are cast are garbage.
  if (!base.gptq && spec.data.param_dtype && *spec.data.param_dtype != base.storage)
    add(problems, {"/parallel/data/param_dtype", "conflict", "packed values must not be cast: give quant_storage's dtype, or null"});
}

void check_loop_over_fsdp2(const Spec& spec, Problems& problems) {
  const auto refuse = [&](const char* at, const std::string& what) {
    add(problems, {at, "unsupported", what + " in a loop of Transformers over FSDP2 is not supported yet."});
  };
  const DataParallel& data = spec.data;
  if (spec.training.method == Method::lora) refuse("/training/method", "lora");
  if (spec.training.loop == Loop::sft_trainer) refuse("/training/loop", "TRL's fused head");
  if (spec.training.loss != Loss::standard) refuse("/training/loss", "another loss than the standard one");
  if (data.replicate > 1) refuse("/parallel/data/replicate", "HSDP");
  if (spec.offload.parameters) refuse("/parallel/offload/parameters", "offload");
  if (spec.training.autocast == Dtype::float16) refuse("/training/autocast", "float16");
  if (data.param_dtype != spec.training.autocast || data.reduce_dtype != spec.training.autocast)
    add(problems, {"/parallel/data/param_dtype", "conflict",
                   "in a loop of Transformers accelerate takes FSDP2's dtypes from the bf16 flag: give training.autocast, and none here"});
}

// Trainer and SFTTrainer over data parallelism, as accelerate prepares them.
void check_sharded_loop(const Spec& spec, Problems& problems) {
  const Training& training = spec.training;
  const DataKind kind = spec.data.kind;
  const bool other = spec.tensor.degree > 1 || spec.pipeline.degree > 1 || spec.context.degree > 1;
  const auto refuse = [&](const char* at, const std::string& what) {
    add(problems, {at, "unsupported", what + " is not supported yet. Supported: on one GPU, with ddp, fsdp1, fsdp2, zero1, zero2, zero3."});
  };
  if (other || kind == DataKind::zero_redundancy) refuse("/training/loop", "a loop of Transformers over this");
  if (kind == DataKind::fsdp2) check_loop_over_fsdp2(spec, problems);
  if (kind == DataKind::zero3 && training.loop == Loop::sft_trainer) refuse("/training/loop", "TRL's fused head over ZeRO-3");
  if (kind != DataKind::ddp && training.evaluation) refuse("/training/evaluation", "an evaluation over shards");
}

// Liger's head takes the weight as it is gathered.
void check_fused_linear(const Spec& spec, Problems& problems) {
  const Training& training = spec.training;
  if (training.loss != Loss::liger_fused_linear || !training.autocast || spec.data.kind == DataKind::none) return;
  const Dtype seen = spec.data.kind == DataKind::fsdp1 ? spec.data.param_dtype.value_or(training.weights) : training.weights;
  if (*training.autocast != seen)
    add(problems, {"/training/loss", "unsupported",
                   "liger_fused_linear is supported under an autocast to another dtype than the weights' on one GPU only, yet."});
}

// What is played on one GPU only, so far, or only where each rank has the whole model.
void check_parallel(const Spec& spec, Problems& problems) {
  const DataKind kind = spec.data.kind;
  const bool tensor = spec.tensor.degree > 1, pipeline = spec.pipeline.degree > 1, data = kind != DataKind::none;
  const Training& training = spec.training;
  const std::string with = data ? "data parallelism" : tensor ? "tensor parallelism" : pipeline ? "a pipeline" : "context parallelism";
  const auto refuse = [&](std::string at, std::string what) {
    add(problems, {"/training/" + at, "unsupported", what + " is not supported with " + with + " yet. Supported: on one GPU."});
  };
  if (training.stack == Stack::litgpt)
    add(problems, {"/software/stack", "unsupported", "litgpt is not supported with " + with + " yet. Supported: on one GPU."});
  if (training.checkpoint_every > 1 && training.stack != Stack::torchtitan) refuse("checkpointing", "checkpointing of some layers only");
  if (!training.trained.empty()) refuse("trained", "training of some modules only");
  if (!training.frozen.empty()) refuse("frozen", "training of some modules only");
  if (training.optimizer.in_backward) refuse("optimizer/in_backward", "an optimizer in backward");
  if (spec.offload.activations)
    add(problems, {"/parallel/offload/activations", "unsupported",
                   "offload of activations is not supported with " + with + " yet. Supported: on one GPU."});
  if (training.method == Method::lora && (tensor || pipeline))
    add(problems, {"/training/method", "unsupported",
                   "lora is not supported with tensor parallelism or a pipeline yet. Supported: with data parallelism."});
  if (training.base_quantization && data) check_sharded_base(spec, problems);
  if (training.loop != Loop::plain) check_sharded_loop(spec, problems);
  if (training.objective == Objective::dpo) refuse("objective", "dpo");
  const bool splits = tensor || pipeline || spec.context.degree > 1;
  if (training.loss == Loss::chunked || training.loss == Loss::trl_tiled || (training.loss == Loss::liger_fused_linear && splits))
    refuse("loss", "a loss that takes the head over");
  if (training.loss == Loss::liger_cross_entropy && spec.context.degree > 1) refuse("loss", "Liger's cross-entropy");
  if (training.grad_scaler) refuse("grad_scaler", "a gradient scaler");
  check_optimizer(spec, problems);
  const bool unused = spec.data.find_unused_parameters && !spec.data.static_graph;
  if (training.checkpointing == Checkpointing::full_reentrant && (unused || (spec.data.static_graph && training.accumulation > 1)))
    add(problems, {"/training/checkpointing", "conflict",
                   "full_reentrant under DDP fails with find_unused_parameters (\"marked ready only once\"), and with static_graph under "
                   "accumulation: give full"});
  if (spec.tensor.hf_plan && training.checkpointing == Checkpointing::full_reentrant)
    add(problems, {"/training/checkpointing", "unsupported",
                   "full_reentrant with Transformers' tensor plan is not supported yet. Supported: none, full."});
  if (spec.tensor.sequence && training.attention == Attention::eager)
    add(problems, {"/training/attention", "conflict", "eager attention's mask is as long as a rank's part of the sequence: give sdpa"});
}

void check_turing(const Spec& spec, Problems& problems) {
  const int capability = spec.cluster.gpu.compute_capability;
  if (spec.training.attention == Attention::flash_attention_2 && capability >= 75 && capability < 80)
    problems.push_back({"/training/attention", "conflict", "flash-attn 2 has no kernels before Ampere: give sdpa"});
}

// flash-attn has kernels for half precision only.
void check_flash_attention(const Spec& spec, Problems& problems) {
  const Training& training = spec.training;
  if (training.attention != Attention::flash_attention_2) return;
  if (training.mask == Mask::padded && spec.software.transformers != Transformers::v5)
    problems.push_back({"/training/mask", "unsupported", "flash_attention_2 over padded batches is supported with Transformers 5 only."});
  if (training.weights != Dtype::float32 || training.autocast) return;
  const bool mixed = spec.data.kind == DataKind::fsdp1 || spec.data.kind == DataKind::fsdp2;
  if (mixed && spec.data.param_dtype && *spec.data.param_dtype != Dtype::float32) return;
  problems.push_back({"/training/attention", "conflict",
                      "flash_attention_2 takes half precision only: give weights, autocast or FSDP's param_dtype in bfloat16 or float16"});
}

// Transformers 5.24: activation_checkpointing_enable(offload=True). Without checkpointing it takes torch.autograd.graph.save_on_cpu around
// the forward, which only a loop of one's own can have.
void check_offload(const Spec& spec, Problems& problems) {
  const Training& training = spec.training;
  if (!spec.offload.activations) return;
  if (training.loop != Loop::plain && training.checkpointing == Checkpointing::none)
    add(problems, {"/parallel/offload/activations", "unsupported",
                   "a loop of Transformers offloads what checkpointed layers keep: give checkpointing full or loop plain."});
}

// What a ds_config.json says of training.
void settle_engine(const DeepSpeedEngine& engine, Training& training) {
  if (engine.clips) training.max_grad_norm = *engine.clips ? std::optional(training.max_grad_norm.value_or(1.0)) : std::nullopt;
  if (engine.has_optimizer) training.optimizer.implementation = OptimizerImplementation::fused;  // deepspeed/ops/adam/fused_adam.py
}

// What Trainer's arguments become: accelerate hands the bf16 or fp16 flag to FSDP and DeepSpeed, and DeepSpeed clips by max_grad_norm.
void settle_loop(Spec& spec) {
  Training& training = spec.training;
  if (training.loop == Loop::plain) return;
  const DataKind kind = spec.data.kind;
  if (kind == DataKind::fsdp1) {
    spec.data.param_dtype = training.autocast;
    spec.data.reduce_dtype = spec.data.buffer_dtype = std::nullopt;
    const std::optional<BaseQuantization>& base = training.base_quantization;
    if (base && !base->gptq && base->storage != Dtype::uint8) spec.data.param_dtype = base->storage;
  }
  if (kind != DataKind::zero1 && kind != DataKind::zero2 && kind != DataKind::zero3) return;
  if (training.autocast) training.weights = *training.autocast;
  training.autocast = std::nullopt;
  if (!training.max_grad_norm) training.max_grad_norm = 1.0;
}

// What is played of earlier versions.
void check_software(Spec& spec, Problems& problems) {
  const Software& software = spec.software;
  Training& training = spec.training;
  if (software.trl == Trl::v0_24 && software.transformers == Transformers::v5)
    add(problems, {"/software/trl", "conflict", "TRL 0.24 runs with Transformers 4: give transformers 4.56"});
  if (software.transformers == Transformers::v5) return;
  const auto refuse = [&](std::string at, std::string what) {
    add(problems, {at, "unsupported", what + " is not supported with Transformers 4 yet."});
  };
  if (spec.tensor.degree > 1) refuse("/parallel/tensor/degree", "tensor parallelism");
  if (spec.pipeline.degree > 1) refuse("/parallel/pipeline/degree", "a pipeline");
  if (spec.context.degree > 1) refuse("/parallel/context/degree", "context parallelism");
  if (spec.data.kind == DataKind::zero3) refuse("/parallel/data/kind", "ZeRO-3");
  if (training.loop == Loop::sft_trainer && (software.trl != Trl::v0_24 || software.transformers != Transformers::v4_56))
    refuse("/training/loop", "SFTTrainer but TRL 0.24's over Transformers 4.56");
  if (training.objective != Objective::sft) refuse("/training/objective", "dpo");
  const bool known =
      training.loss == Loss::standard || training.loss == Loss::liger_cross_entropy || training.loss == Loss::liger_fused_linear;
  if (!known) refuse("/training/loss", "a loss but the standard one and Liger's");
  if (training.label_smoothing && software.transformers == Transformers::v4_45) refuse("/training/label_smoothing", "label smoothing");
  if (training.mask != Mask::none && software.transformers == Transformers::v4_56 && training.attention != Attention::eager)
    refuse("/training/mask", "a padded batch without eager attention");
  if (training.checkpoint_every > 1) refuse("/training/checkpointing", "checkpointing of some layers only");
  // gradient_checkpointing_enable's own choice, which Trainer leaves to it
  if (training.loop != Loop::plain && training.checkpointing == Checkpointing::full) training.checkpointing = Checkpointing::full_reentrant;
}

}  // namespace

Reading<Spec> read_spec(std::string_view text, const ModelPresets& presets) {
  Reading<Json> parsed = parse_json(text);
  for (const Problem& problem : parsed.problems) {
    if (problem.code == "syntax") {
      Reading<Spec> reading{{}, std::move(parsed.problems), {}};
      reading.value.cluster.gpu = *gpu_named(kDefaultGpu);
      return reading;
    }
  }
  Reading<Spec> reading = read_parsed_spec(std::move(parsed.value), presets);
  reading.problems.insert(reading.problems.begin(), parsed.problems.begin(), parsed.problems.end());
  return reading;
}

Reading<Spec> read_parsed_spec(Json json, const ModelPresets& presets) {
  Reading<Spec> reading;
  Spec& spec = reading.value;
  Problems& problems = reading.problems;
  spec.cluster.gpu = *gpu_named(kDefaultGpu);
  ObjectReader reader(&json, "", problems);
  read_version(reader);
  reader.find("model");
  read_model(json, presets, spec.model, problems);
  const Stack stack = spec.training.stack = stack_of(json);  // decides how the rest is read
  read_training(reader.object("training"), spec.training, problems);
  Parallel parallel;
  const Json* split = reader.object("parallel");
  if (stack == Stack::megatron)
    read_megatron_parallel(split, spec.training, parallel, problems);
  else if (split)
    read_parallel(split, spec.training, parallel, problems);
  spec.data = parallel.data;
  spec.tensor = parallel.tensor;
  spec.pipeline = parallel.pipeline;
  spec.context = parallel.context;
  spec.expert = parallel.expert;
  spec.offload = parallel.offload;
  if (stack == Stack::megatron) {
    check_megatron(spec.training, problems);
  } else {
    settle_loop(spec);
    settle_engine(spec.data.engine, spec.training);
    if (spec.world() > 1 || spec.data.kind != DataKind::none) check_parallel(spec, problems);
  }
  check_fused_linear(spec, problems);
  spec.rank = parallel.rank;
  read_cluster(reader.object("cluster"), parallel.world, spec.cluster, problems);
  if (const Json* object = reader.object("allocator")) read_allocator(object, spec.allocator, problems);
  const Json* software = reader.object("software");
  if (software) read_software(software, spec.software, spec.training.base_quantization, problems);
  check_turing(spec, problems);
  check_flash_attention(spec, problems);
  check_offload(spec, problems);
  check_stack(spec.training, problems);
  if (software) check_software(spec, problems);
  reader.done();
  return reading;
}

}  // namespace llmem
