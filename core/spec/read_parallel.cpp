#include <algorithm>

#include "base/json.h"
#include "spec/sections.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostRanks = 1 << 17;  // beyond any cluster
constexpr std::int64_t kMostElements = std::int64_t{1} << 42;
constexpr std::int64_t kMostSplits = 1 << 12;  // of the model: tensor, pipeline, context

constexpr Choice kDataKinds[] = {{"none", static_cast<int>(DataKind::none)},
                                 {"ddp", static_cast<int>(DataKind::ddp)},
                                 {"zero_redundancy", static_cast<int>(DataKind::zero_redundancy)},
                                 {"zero1", static_cast<int>(DataKind::zero1)},
                                 {"zero2", static_cast<int>(DataKind::zero2)},
                                 {"zero3", static_cast<int>(DataKind::zero3)},
                                 {"fsdp1", static_cast<int>(DataKind::fsdp1)},
                                 {"fsdp2", static_cast<int>(DataKind::fsdp2)}};
enum Strategy : int { full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 };
constexpr Choice kStrategies[] = {{"FULL_SHARD", full_shard},
                                  {"SHARD_GRAD_OP", shard_grad_op},
                                  {"NO_SHARD", no_shard},
                                  {"HYBRID_SHARD", hybrid_shard},
                                  {"_HYBRID_SHARD_ZERO2", hybrid_shard_zero2}};
constexpr Choice kWraps[] = {{"transformer", 0}, {"peft", 1}};
constexpr Choice kPrefetches[] = {{"BACKWARD_PRE", static_cast<int>(BackwardPrefetch::before)},
                                  {"BACKWARD_POST", static_cast<int>(BackwardPrefetch::after)}};
constexpr Choice kSchedules[] = {{"1f1b", static_cast<int>(PipelineSchedule::one_forward_one_backward)},
                                 {"gpipe", static_cast<int>(PipelineSchedule::gpipe)},
                                 {"interleaved_1f1b", static_cast<int>(PipelineSchedule::interleaved_1f1b)},
                                 {"looped_bfs", static_cast<int>(PipelineSchedule::looped_bfs)},
                                 {"interleaved_zero_bubble", static_cast<int>(PipelineSchedule::interleaved_zero_bubble)},
                                 {"zbv", static_cast<int>(PipelineSchedule::zbv)},
                                 {"dualpipev", static_cast<int>(PipelineSchedule::dual_pipe_v)}};
constexpr Choice kContexts[] = {{"ring", 0}, {"ulysses", 1}};
constexpr Choice kRotations[] = {{"allgather", 0}, {"alltoall", 1}};
constexpr int kHfPlan = 1;
constexpr Choice kPlans[] = {{"torch", 0}, {"hf", kHfPlan}};
constexpr Choice kPlaces[] = {{"none", 0}, {"cpu", 1}};

void read_flags(ObjectReader& from, std::initializer_list<std::string_view> keys) {
  bool flag = false;
  for (std::string_view key : keys) from.boolean(key, flag);
}

void read_ddp(ObjectReader& reader, DataParallel& data) {
  std::int64_t cap = 0;
  if (reader.integer("bucket_cap_mb", cap, 1, 1 << 20)) data.bucket_cap_mb = cap;
  reader.boolean("gradient_as_bucket_view", data.gradient_as_bucket_view);
  reader.boolean("static_graph", data.static_graph);
  reader.boolean("find_unused_parameters", data.find_unused_parameters);
}

void read_fsdp2(ObjectReader& reader, DataParallel& data, const Training& training) {
  // accelerate/utils/dataclasses.py, set_mixed_precision
  if (training.loop != Loop::plain) data.param_dtype = data.reduce_dtype = training.autocast;
  read_dtype(reader, "param_dtype", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, true, data.param_dtype);
  read_dtype(reader, "reduce_dtype", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, true, data.reduce_dtype);
  reader.boolean("reshard_after_forward", data.reshard_after_forward);
  reader.boolean("cpu_ram_efficient_loading", data.cpu_ram_efficient_loading);
  read_flags(reader, {"pin_memory"});  // of what is offloaded
  if (reader.integer("replicate", data.replicate, 1, kMostRanks) && data.degree % data.replicate != 0) {
    reader.problem(
        "replicate", "conflict",
        "degree counts all ranks: " + std::to_string(data.replicate) + " copies do not divide " + std::to_string(data.degree) + " ranks");
  }
}

void read_zero_redundancy(ObjectReader& reader, DataParallel& data) {
  read_ddp(reader, data);
  reader.boolean("parameters_as_bucket_view", data.parameters_as_bucket_view);
}

void read_deepspeed(ObjectReader& reader, DataParallel& data, const Training& training, Problems& problems) {
  const auto unsupported = [&](const char* at, const char* what) {
    add(problems, {at, "unsupported", std::string(what) + " is not supported yet."});
  };
  reader.boolean("auto_buckets", data.auto_buckets);
  read_flags(reader, {"pin_memory"});  // of what is offloaded
  ObjectReader sizes(reader.object("zero_optimization"), reader.at("zero_optimization"), problems);
  const auto optional = [&](std::string_view key, std::int64_t least, std::optional<std::int64_t>& out) {
    std::int64_t elements = 0;
    if (sizes.integer(key, elements, least, kMostElements)) out = elements;
  };
  ZeroOptimization& zero = data.zero;
  optional("reduce_bucket_size", 1, zero.reduce_bucket_size);
  if (data.kind == DataKind::zero3) {
    optional("stage3_prefetch_bucket_size", 0, zero.prefetch_bucket_size);
    optional("stage3_param_persistence_threshold", 0, zero.persistence_threshold);
    sizes.integer("stage3_max_live_parameters", zero.max_live_parameters, 0, kMostElements);
    sizes.integer("stage3_max_reuse_distance", zero.max_reuse_distance, 0, kMostElements);
    sizes.integer("sub_group_size", zero.sub_group_size, 1, kMostElements);
    if (training.adapter.dora && training.method == Method::lora) unsupported("/training/adapter/dora", "DoRA under ZeRO-3");
  }
  if (data.kind == DataKind::zero3) {
    zero.overlap_comm = true;  // DeepSpeedZeroConfig.overlap_comm_valid
  }
  sizes.boolean("overlap_comm", zero.overlap_comm);
  sizes.boolean("contiguous_gradients", zero.contiguous_gradients);
  sizes.boolean("reduce_scatter", zero.reduce_scatter);
  sizes.boolean("round_robin_gradients", zero.round_robin_gradients);  // of stages 1 and 2
  sizes.find("allgather_bucket_size");                                 // in what parts weights are gathered in place
  sizes.done();
  read_deepspeed_config(reader.object("config"), reader.at("config"), training, data, problems);
  if (training.weights == Dtype::float16) unsupported("/training/weights", "DeepSpeed over float16 weights");
}

// _init_utils.py, _init_core_state: one rank has nothing to share.
void read_strategy(ObjectReader& reader, DataParallel& data) {
  int strategy = 0;
  std::int64_t shard = data.degree / 2;
  reader.choice("strategy", kStrategies, strategy);
  data.shards = strategy != no_shard && data.degree > 1;
  data.reshard_after_forward = strategy == full_shard || strategy == hybrid_shard;
  reader.integer("shard", shard, 1, kMostRanks);
  if (strategy != hybrid_shard && strategy != hybrid_shard_zero2) return;
  if (shard < 1 || data.degree % shard != 0)
    reader.problem("shard", "conflict",
                   std::to_string(shard) + " ranks that share a copy do not divide " + std::to_string(data.degree) + " ranks");
  else
    data.replicate = data.degree / shard;
  data.shards = data.shards && shard > 1;
}

// Adapters that FSDP1 wraps one by one.
void check_adapters_apart(const DataParallel& data, const Training& training, Problems& problems) {
  if (training.adapter.dora)
    add(problems, {"/training/adapter/dora", "unsupported", "DoRA whose adapters are FSDP1 units of their own is not supported yet."});
  if (!training.adapter.modules_to_save.empty())
    add(problems, {"/training/adapter/modules_to_save", "unsupported",
                   "modules_to_save whose copies are FSDP1 units of their own are not supported yet."});
  // PEFT casts an adapter's input to what its weight is held in; FSDP gathers the weight in another dtype, and casts no inputs.
  const Dtype held = training.adapter.upcast ? Dtype::float32 : training.weights;
  if (training.loop == Loop::plain && !training.autocast && data.param_dtype.value_or(held) != held)
    add(problems, {"/parallel/data/param_dtype", "conflict",
                   "adapters that are units of their own are given inputs in the dtype that they are held in (" +
                       std::string(name_of(held)) + "): give param_dtype null, or an autocast"});
}

void read_fsdp1(ObjectReader& reader, DataParallel& data, const Training& training, Problems& problems) {
  int prefetch = 0;
  data.reduce_dtype = std::nullopt;
  read_strategy(reader, data);
  read_dtype(reader, "param_dtype", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, true, data.param_dtype);
  read_dtype(reader, "reduce_dtype", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, false, data.reduce_dtype);
  if (!data.param_dtype && data.reduce_dtype)
    reader.problem("reduce_dtype", "conflict", "without param_dtype there is no mixed precision: gradients are reduced as they are");
  read_dtype(reader, "buffer_dtype", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, false, data.buffer_dtype);
  reader.boolean("use_orig_params", data.use_orig_params);
  reader.boolean("forward_prefetch", data.forward_prefetch);
  reader.boolean("cpu_ram_efficient_loading", data.cpu_ram_efficient_loading);
  reader.boolean("limit_all_gathers", data.limit_all_gathers);
  if (reader.present("backward_prefetch") && !reader.given("backward_prefetch"))
    data.backward_prefetch = BackwardPrefetch::none;
  else if (reader.choice("backward_prefetch", kPrefetches, prefetch))
    data.backward_prefetch = static_cast<BackwardPrefetch>(prefetch);
  // transformers/distributed/fsdp.py, update_fsdp_plugin_peft
  int wrap = training.loop != Loop::plain;
  reader.choice("auto_wrap", kWraps, wrap);
  if (training.method != Method::lora) return;
  data.adapters_apart = wrap != 0;
  if (data.adapters_apart) return check_adapters_apart(data, training, problems);
  // _flat_param.py, _validate_tensors_to_flatten: "Must flatten tensors with uniform dtype"; adapters are made in fp32.
  if (training.weights != Dtype::float32 && training.adapter.upcast)
    add(problems,
        {"/training/weights", "conflict",
         "FSDP1 flattens a layer and its adapters into one tensor of one dtype, and PEFT's adapters are float32: give float32, or "
         "an adapter with upcast false"});
  if (!data.use_orig_params)
    reader.problem(
        "use_orig_params", "conflict",
        "FSDP1 flattens a layer's frozen weights and its adapters into one tensor, which without original parameters must all train "
        "or all be frozen: give true");
}

void read_data(const Json* object, DataParallel& data, const Training& training, std::string& kind, Problems& problems) {
  ObjectReader reader(object, "/parallel/data", problems);
  int value = static_cast<int>(data.kind);
  const bool known = reader.choice("kind", kDataKinds, value);
  const Json* said = reader.find("kind");
  kind = known ? said->get_ref<const std::string&>() : "none";
  if (value != kNotYet) data.kind = static_cast<DataKind>(value);
  reader.integer("degree", data.degree, 1, kMostRanks);
  if (said && !known) return;  // whose options the others are cannot be said
  if (kind == "none" && data.degree > 1) {
    reader.problem("degree", "conflict",
                   std::to_string(data.degree) + " ranks need a kind: ddp, zero_redundancy, zero1, zero2, zero3, fsdp1 or fsdp2");
  }
  if (kind == "ddp")
    read_ddp(reader, data);
  else if (kind == "fsdp2")
    read_fsdp2(reader, data, training);
  else if (kind == "fsdp1")
    read_fsdp1(reader, data, training, problems);
  else if (kind == "zero_redundancy")
    read_zero_redundancy(reader, data);
  else if (kind != "none")
    read_deepspeed(reader, data, training, problems);
  reader.done();
}

// A degree of which only 1 is supported.
std::int64_t read_degree(ObjectReader& reader) {
  std::int64_t degree = 1;
  if (reader.integer("degree", degree, 1, kMostSplits) && degree > 1) {
    reader.problem("degree", "unsupported", quoted(degree) + " is not supported yet. Supported: 1.");
  }
  return degree;
}

std::int64_t read_tensor(const Json* object, const Training& training, TensorParallel& tensor, Problems& problems) {
  ObjectReader reader(object, "/parallel/tensor", problems);
  int plan = 0;
  reader.integer("degree", tensor.degree, 1, kMostSplits);
  reader.boolean("sequence", tensor.sequence);
  reader.boolean("loss", tensor.loss);
  reader.choice("plan", kPlans, plan);
  reader.done();
  if (tensor.degree == 1) {
    tensor = {};
    return 1;
  }
  tensor.hf_plan = plan == kHfPlan;
  if (tensor.hf_plan && (tensor.sequence || tensor.loss))
    reader.problem("plan", "unsupported", "\"hf\" is supported without sequence and loss parallelism. Supported with them: torch.");
  if (tensor.sequence && training.sequence % tensor.degree != 0) {
    reader.problem("sequence", "unsupported",
                   "a sequence of " + std::to_string(training.sequence) + " tokens that " + std::to_string(tensor.degree) +
                       " ranks do not divide is not supported yet.");
  }
  return tensor.degree;
}

void check_tensor(const Parallel& parallel, std::string_view kind, Problems& problems) {
  if (parallel.tensor.degree == 1) return;
  const bool alone = kind == "none", sharded = kind == "fsdp2" && !parallel.offload.parameters;
  if (alone || sharded || (kind == "ddp" && parallel.pipeline.degree > 1)) return;
  add(problems,
      {"/parallel/tensor/degree", "unsupported",
       "tensor parallelism is supported alone and with fsdp2 (without offload), in a pipeline also with ddp, not yet with more."});
}

// What the schedules of torch/distributed/pipelining ask of stages and microbatches.
void check_schedule(ObjectReader& reader, const Training& training, const PipelineParallel& pipeline, Problems& problems) {
  const PipelineSchedule schedule = pipeline.schedule;
  const bool single = schedule == PipelineSchedule::one_forward_one_backward || schedule == PipelineSchedule::gpipe;
  const bool v = schedule == PipelineSchedule::zbv || schedule == PipelineSchedule::dual_pipe_v;
  const bool rounds_count = schedule == PipelineSchedule::interleaved_1f1b || schedule == PipelineSchedule::interleaved_zero_bubble;
  if (v && pipeline.virtual_stages != 2) reader.problem("virtual", "conflict", "zbv and dualpipev have exactly 2 stages a rank");
  if (!v && single != (pipeline.virtual_stages == 1))
    reader.problem("virtual", "conflict",
                   "virtual > 1 goes with the schedules interleaved_1f1b, looped_bfs and interleaved_zero_bubble, and they with it");
  const std::int64_t rounds = std::max<std::int64_t>(1, pipeline.microbatches / pipeline.degree);
  if (rounds_count && pipeline.microbatches % rounds != 0)
    reader.problem("microbatches", "conflict",
                   "an interleaved schedule needs a multiple of " + std::to_string(rounds) + " microbatches here");
  if (schedule == PipelineSchedule::dual_pipe_v && pipeline.microbatches < 2 * pipeline.degree)
    reader.problem("microbatches", "conflict", "dualpipev needs as many microbatches as stages, at least");
  const bool splits = v || schedule == PipelineSchedule::interleaved_zero_bubble;
  if (splits && training.checkpointing != Checkpointing::none)
    add(problems, {"/training/checkpointing", "unsupported",
                   "checkpointing under a schedule that splits backward is not supported yet: each of its parts would compute all again."});
}

std::int64_t read_pipeline(const Json* object, const Training& training, PipelineParallel& pipeline, Problems& problems) {
  ObjectReader reader(object, "/parallel/pipeline", problems);
  reader.integer("degree", pipeline.degree, 1, kMostSplits);
  int schedule = 0;
  reader.choice("schedule", kSchedules, schedule);
  pipeline.schedule = static_cast<PipelineSchedule>(schedule);
  const bool v = pipeline.schedule == PipelineSchedule::zbv || pipeline.schedule == PipelineSchedule::dual_pipe_v;
  if (v) pipeline.virtual_stages = 2;
  reader.integer("virtual", pipeline.virtual_stages, 1, 1 << 10);
  reader.integer("microbatches", pipeline.microbatches, 1, 1 << 12);
  reader.done();
  if (pipeline.degree == 1) {
    pipeline = {};
    return 1;
  }
  check_schedule(reader, training, pipeline, problems);
  if (training.accumulation > 1) {
    add(problems, {"/training/accumulation", "conflict", "a pipeline accumulates over its microbatches: accumulation must be 1"});
  }
  const auto unsupported = [&](const char* at, const char* what) {
    add(problems, {at, "unsupported", std::string(what) + " with a pipeline is not supported yet."});
  };
  if (training.autocast) unsupported("/training/autocast", "autocast");
  return pipeline.degree;
}

// deepspeed/runtime/sequence_parallel/ulysses_sp.py: masks are thrown away, so that nothing but causal attention is right.
void check_ulysses(const Training& training, const ContextParallel& context, std::string_view kind, Problems& problems) {
  const auto unsupported = [&](const char* at, const char* what) {
    add(problems, {at, "unsupported", std::string(what) + " with Ulysses is not supported yet."});
  };
  if (kind != "none" && kind != "fsdp2" && kind.substr(0, 4) != "zero")
    unsupported("/parallel/data/kind", "another kind than none, fsdp2 and ZeRO");
  if (kind == "zero_redundancy") unsupported("/parallel/data/kind", "zero_redundancy");
  if (training.attention == Attention::eager)
    add(problems, {"/training/attention", "conflict", "Ulysses takes no eager attention: use \"sdpa\" or \"flash_attention_2\""});
  if (training.mask != Mask::none) unsupported("/training/mask", "padding");
  if (training.objective != Objective::sft) unsupported("/training/objective", "dpo");
  if (training.loss == Loss::chunked || training.loss == Loss::trl_tiled) unsupported("/training/loss", "a loss that takes the head over");
  if (training.sequence % context.degree != 0)
    add(problems, {"/training/sequence", "conflict",
                   std::to_string(context.degree) + " ranks do not divide a row of " + std::to_string(training.sequence) + " tokens"});
}

std::int64_t read_context(const Json* object, const Training& training, ContextParallel& context, std::string_view kind,
                          Problems& problems) {
  ObjectReader reader(object, "/parallel/context", problems);
  int rotate = 0, ulysses = 0;
  reader.integer("degree", context.degree, 1, kMostSplits);
  reader.choice("kind", kContexts, ulysses);
  reader.choice("rotate", kRotations, rotate);
  reader.boolean("load_balance", context.load_balance);
  reader.done();
  context.all_to_all = rotate != 0;
  if (context.degree == 1) return 1;
  context.ulysses = ulysses != 0;
  if (context.ulysses) {
    check_ulysses(training, context, kind, problems);
    return context.degree;
  }
  const auto unsupported = [&](const char* at, const char* what) {
    add(problems, {at, "unsupported", std::string(what) + " with context parallelism is not supported yet."});
  };
  if (kind != "none" && kind != "fsdp2") unsupported("/parallel/data/kind", "another kind than none and fsdp2");
  if (training.attention != Attention::sdpa) unsupported("/training/attention", "another attention than sdpa");
  if (training.mask != Mask::none) unsupported("/training/mask", "padding");
  if (training.weights == Dtype::float32 && kind == "none") unsupported("/training/weights", "float32, which has no flash attention,");
  // Each rank has a chunk of the beginning and one of the end.
  const std::int64_t chunks = context.degree * (context.load_balance ? 2 : 1);
  if (training.sequence % chunks != 0) {
    add(problems, {"/training/sequence", "conflict",
                   "context parallelism cuts a row in " + std::to_string(chunks) + " chunks, which do not divide " +
                       std::to_string(training.sequence) + " tokens"});
  }
  return context.degree;
}

void read_expert(const Json* object, Problems& problems) {
  ObjectReader reader(object, "/parallel/expert", problems);
  read_degree(reader);
  reader.done();
}

void read_offload(const Json* object, std::string_view kind, const DeepSpeedEngine& engine, Offload& offload, Problems& problems) {
  ObjectReader reader(object, "/parallel/offload", problems);
  int optimizer = engine.offloads_optimizer, parameters = engine.offloads_parameters, activations = 0;
  reader.choice("optimizer", kPlaces, optimizer);
  reader.choice("parameters", kPlaces, parameters);
  reader.choice("activations", kPlaces, activations);
  reader.done();
  offload = {optimizer != 0, parameters != 0, activations != 0};
  if (optimizer == 0 && parameters == 0) return;
  const auto conflict = [&](const char* why) { add(problems, {"/parallel/offload", "conflict", why}); };
  if (kind == "none" || kind == "ddp" || kind == "zero_redundancy") conflict("offload goes with zero1, zero2, zero3, fsdp1 or fsdp2");
  if (kind.substr(0, 4) == "fsdp" && optimizer != parameters) conflict("FSDP offloads parameters and optimizer together: both \"cpu\"");
}

}  // namespace

void read_parallel(const Json* object, const Training& training, Parallel& parallel, Problems& problems) {
  ObjectReader reader(object, "/parallel", problems);
  std::string kind;
  read_data(reader.object("data"), parallel.data, training, kind, problems);
  parallel.world = parallel.data.degree * read_tensor(reader.object("tensor"), training, parallel.tensor, problems);
  parallel.world *= read_pipeline(reader.object("pipeline"), training, parallel.pipeline, problems);
  if (parallel.pipeline.degree > 1 && kind != "none" && kind != "ddp" && kind != "fsdp2") {
    add(problems, {"/parallel/pipeline/degree", "unsupported",
                   "a pipeline with this kind of data parallelism is not supported yet. Supported: none, ddp, fsdp2."});
  }
  // torch.autograd.grad, which gives the parts of a split backward, runs no hooks of parameters.
  if (parallel.pipeline.schedule > PipelineSchedule::looped_bfs && kind == "ddp")
    add(problems, {"/parallel/pipeline/schedule", "conflict", "a schedule that splits backward never tells ddp of a gradient: take fsdp2"});
  parallel.world *= read_context(reader.object("context"), training, parallel.context, kind, problems);
  read_expert(reader.object("expert"), problems);
  read_offload(reader.object("offload"), kind, parallel.data.engine, parallel.offload, problems);
  if (parallel.pipeline.degree > 1 && parallel.offload.parameters)
    add(problems, {"/parallel/offload/parameters", "unsupported", "offload with a pipeline is not supported yet."});
  check_tensor(parallel, kind, problems);
  if (parallel.tensor.sequence && training.sequence / parallel.context.degree % parallel.tensor.degree != 0)
    add(problems, {"/training/sequence", "conflict",
                   "sequence parallelism cuts the part of a row that context parallelism leaves in " +
                       std::to_string(parallel.tensor.degree) + " parts, which do not divide it"});
  if (reader.integer("rank", parallel.rank, 0, std::max<std::int64_t>(kMostRanks, parallel.world) - 1) && parallel.rank >= parallel.world) {
    reader.problem("rank", "range",
                   "must be below " + std::to_string(parallel.world) + ", the number of ranks, not " + std::to_string(parallel.rank));
  }
  reader.done();
}

}  // namespace llmem
