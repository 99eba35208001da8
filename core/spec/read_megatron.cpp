#include <algorithm>

#include "base/json.h"
#include "spec/sections.h"

// What Megatron-LM reads from its command line (megatron/training/arguments.py), in its own names where it alone has them.
namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostSplits = 1 << 12;

constexpr Choice kImplementations[] = {{"transformer_engine", 1}, {"local", 0}, {"inference_optimized", kNotYet}};
constexpr Choice kLosses[] = {{"native", static_cast<int>(MegatronLoss::native)},
                              {"te", static_cast<int>(MegatronLoss::transformer_engine)}};
constexpr Choice kDispatchers[] = {{"allgather", 0}, {"alltoall", 1}, {"flex", kNotYet}};
constexpr Choice kMethods[] = {{"uniform", 0}, {"block", 1}};
constexpr Choice kRouterDtypes[] = {{"fp32", 1}, {"fp64", kNotYet}};
constexpr Choice kDataKinds[] = {{"none", static_cast<int>(DataKind::none)},
                                 {"ddp", static_cast<int>(DataKind::ddp)},
                                 {"distributed_optimizer", static_cast<int>(DataKind::distributed_optimizer)},
                                 {"megatron_fsdp", kNotYet},
                                 {"fsdp2", kNotYet}};
constexpr Choice kRotations[] = {{"p2p", 0}, {"a2a", 1}, {"allgather", kNotYet}};
constexpr int kInterleaved = 1;
constexpr Choice kSchedules[] = {{"1f1b", 0}, {"interleaved_1f1b", kInterleaved}};

// transformer_config.py: of recompute_modules, those that are played
constexpr std::string_view kModules[] = {"core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj", "shared_experts"};

void read_modules(ObjectReader& reader, std::vector<std::string>& modules) {
  const Json* list = reader.find("recompute_modules");
  if (!list) return;
  if (!list->is_array()) return reader.problem("recompute_modules", "type", "must be a list of modules, not " + quoted(*list));
  modules.clear();
  for (const Json& each : *list) {
    if (!each.is_string()) return reader.problem("recompute_modules", "type", "must be a list of modules, not " + quoted(*list));
    modules.push_back(each.get<std::string>());
    if (std::find(std::begin(kModules), std::end(kModules), modules.back()) == std::end(kModules))
      reader.problem(
          "recompute_modules", "unsupported",
          quoted(each) + " is not supported yet. Supported: core_attn, mlp, moe, moe_act, layernorm, mla_up_proj, shared_experts.");
  }
}

}  // namespace

void read_megatron_training(const Json* object, Stack stack, MegatronOptions& options, Problems& problems) {
  if (stack != Stack::megatron)
    add(problems, {"/training/megatron", "conflict", "these options are Megatron's: give software {\"stack\": \"megatron\"}"});
  ObjectReader reader(object, "/training/megatron", problems);
  int engine = 1, all_to_all = 0, router = 0;
  reader.choice("transformer_impl", kImplementations, engine);
  options.transformer_engine = engine != 0;
  reader.boolean("gradient_accumulation_fusion", options.gradient_accumulation_fusion);
  bool fused = false;
  int kind = 1;
  reader.boolean("cross_entropy_loss_fusion", fused);
  reader.choice("cross_entropy_fusion_impl", kLosses, kind);
  if (fused) options.loss = static_cast<MegatronLoss>(kind);
  std::optional<Dtype> moments = options.moments;
  read_dtype(reader, "exp_avg_dtype", {Dtype::float32, Dtype::bfloat16}, false, moments);
  options.moments = *moments;
  bool in_fp32 = true;
  reader.boolean("accumulate_allreduce_grads_in_fp32", in_fp32);
  options.bf16_gradients = !in_fp32;
  reader.boolean("deterministic_mode", options.deterministic);
  reader.integer("make_vocab_size_divisible_by", options.vocabulary_multiple, 1, 1 << 20);
  int method = 0;
  reader.choice("recompute_method", kMethods, method);
  options.recompute_block = method != 0;
  reader.integer("recompute_num_layers", options.recompute_layers, options.recompute_block ? 0 : 1, kMostSplits);
  reader.integer("decoder_seq_length", options.decoder_sequence, 1, 1 << 24);
  read_modules(reader, options.recompute_modules);
  reader.choice("moe_token_dispatcher_type", kDispatchers, all_to_all);
  options.all_to_all = all_to_all != 0;
  reader.boolean("moe_grouped_gemm", options.grouped_gemm);
  options.float_router = reader.choice("moe_router_dtype", kRouterDtypes, router);
  reader.done();
  if (options.deterministic && fused)  // validate_args
    reader.problem("deterministic_mode", "conflict", "Megatron-LM has no deterministic fused cross-entropy");
}

namespace {

void read_data(const Json* object, DataParallel& data, Problems& problems) {
  ObjectReader reader(object, "/parallel/data", problems);
  int kind = static_cast<int>(data.kind);
  reader.choice("kind", kDataKinds, kind);
  if (kind != kNotYet) data.kind = static_cast<DataKind>(kind);
  reader.integer("degree", data.degree, 1, kMostRanks);
  reader.boolean("overlap_grad_reduce", data.overlap_grad_reduce);
  if (reader.integer("instances", data.replicate, 1, kMostRanks)) {  // num_distributed_optimizer_instances
    if (data.degree % data.replicate != 0)
      reader.problem("instances", "conflict",
                     std::to_string(data.replicate) + " instances do not divide " + std::to_string(data.degree) + " ranks");
  }
  bool overlaps = false;
  reader.boolean("overlap_param_gather", overlaps);  // when to gather, not what to hold
  if (data.kind == DataKind::none && data.degree > 1)
    reader.problem("degree", "conflict", std::to_string(data.degree) + " ranks need a kind: ddp or distributed_optimizer");
  reader.done();
}

void read_pipeline(const Json* object, const Training& training, PipelineParallel& pipeline, Problems& problems) {
  ObjectReader reader(object, "/parallel/pipeline", problems);
  reader.integer("degree", pipeline.degree, 1, kMostSplits);
  int schedule = 0;
  const bool named = reader.choice("schedule", kSchedules, schedule);
  reader.integer("virtual", pipeline.virtual_stages, 1, 1 << 10);
  reader.integer("microbatches", pipeline.microbatches, 1, 1 << 16);
  std::int64_t layers = 0;
  if (reader.integer("first_layers", layers, 0, 1 << 20)) pipeline.first_layers = layers;
  if (reader.integer("last_layers", layers, 0, 1 << 20)) pipeline.last_layers = layers;
  reader.boolean("account_for_embedding", pipeline.counts_embedding);
  reader.boolean("account_for_loss", pipeline.counts_loss);
  reader.done();
  if (pipeline.degree == 1) {
    pipeline = {};
    return;
  }
  if (named && (schedule == kInterleaved) != (pipeline.virtual_stages > 1))
    reader.problem("virtual", "conflict", "virtual > 1 goes with the schedule interleaved_1f1b, and only with it");
  if (pipeline.virtual_stages > 1 && pipeline.microbatches < pipeline.degree)
    reader.problem("microbatches", "conflict", "interleaved_1f1b needs as many microbatches as stages, at least");
  if (training.accumulation > 1)
    add(problems, {"/training/accumulation", "conflict", "a pipeline accumulates over its microbatches: accumulation must be 1"});
}

}  // namespace

void read_megatron_parallel(const Json* object, const Training& training, Parallel& parallel, Problems& problems) {
  ObjectReader reader(object, "/parallel", problems);
  read_data(reader.object("data"), parallel.data, problems);
  {
    ObjectReader tensor(reader.object("tensor"), "/parallel/tensor", problems);
    tensor.integer("degree", parallel.tensor.degree, 1, kMostSplits);
    tensor.boolean("sequence", parallel.tensor.sequence);
    bool loss = true;
    if (tensor.boolean("loss", loss) && !loss)
      tensor.problem("loss", "conflict", "Megatron's loss is always on a part of the vocabulary each: leave it out");
    tensor.done();
    if (parallel.tensor.degree == 1) parallel.tensor.sequence = false;
  }
  read_pipeline(reader.object("pipeline"), training, parallel.pipeline, problems);
  {
    ObjectReader context(reader.object("context"), "/parallel/context", problems);
    context.integer("degree", parallel.context.degree, 1, kMostSplits);
    int how = 0;
    context.choice("rotate", kRotations, how);  // cp_comm_type
    parallel.context.all_to_all = how != 0;
    context.done();
  }
  {
    ObjectReader expert(reader.object("expert"), "/parallel/expert", problems);
    expert.integer("degree", parallel.expert.degree, 1, kMostSplits);
    std::int64_t split = 1;
    if (expert.integer("tensor", split, 1, kMostSplits)) parallel.expert.tensor = split;
    expert.done();
  }
  if (const Json* offload = reader.object("offload"); offload && !offload->empty())
    for (const auto& [key, value] : offload->items())
      if (value != "none") reader.problem("offload", "unsupported", "offload under Megatron is not supported yet.");
  parallel.world = parallel.data.degree * parallel.tensor.degree * parallel.pipeline.degree * parallel.context.degree;
  if (reader.integer("rank", parallel.rank, 0, INT64_MAX) && parallel.rank >= parallel.world)
    reader.problem("rank", "range",
                   "must be below " + std::to_string(parallel.world) + ", the number of ranks, not " + std::to_string(parallel.rank));
  reader.done();
  const std::int64_t splits =
      parallel.context.degree * (parallel.context.degree > 1 ? 2 : 1) * (parallel.tensor.sequence ? parallel.tensor.degree : 1);
  if (training.sequence % splits != 0)
    add(problems, {"/training/sequence", "conflict",
                   "context and sequence parallelism cut a row in " + std::to_string(splits) + " parts, which do not divide " +
                       std::to_string(training.sequence) + " tokens"});
  const std::int64_t of_stage = parallel.world / parallel.pipeline.degree;
  const std::int64_t expert_ranks = parallel.expert.degree * parallel.expert.tensor.value_or(parallel.tensor.degree);
  if (of_stage % expert_ranks != 0)
    add(problems, {"/parallel/expert/degree", "conflict",
                   "expert degree " + std::to_string(parallel.expert.degree) + " times expert tensor degree " +
                       std::to_string(parallel.expert.tensor.value_or(parallel.tensor.degree)) + " does not divide the " +
                       std::to_string(of_stage) + " ranks of a stage"});
}

void check_megatron(const Training& training, Problems& problems) {
  const auto refuse = [&](std::string at, std::string what) {
    add(problems, {"/training/" + at, "unsupported", what + " is not supported with Megatron yet."});
  };
  if (training.method != Method::full) refuse("method", "lora");
  if (training.objective != Objective::sft) refuse("objective", "dpo");
  if (training.weights == Dtype::float32) refuse("weights", "float32, which Megatron-LM trains without copies,");
  if (training.autocast) refuse("autocast", "autocast");
  const OptimizerName name = training.optimizer.name;
  if (name != OptimizerName::adamw && name != OptimizerName::adam && name != OptimizerName::sgd)
    refuse("optimizer/name", "another optimizer than adamw, adam and sgd");
  if (training.mask != Mask::none) refuse("mask", "a padded batch");
  if (training.loss != Loss::standard) refuse("loss", "another loss than the standard one");
  if (training.loop != Loop::plain) refuse("loop", "a loop of Transformers");
  if (training.checkpoint_every > 1 || training.checkpointing == Checkpointing::full_reentrant)
    refuse("checkpointing", "another checkpointing than none, full and selective");
  if (training.liger.rms_norm || training.liger.rope || training.liger.swiglu) refuse("kernels", "Liger's kernels");
}

}  // namespace llmem
