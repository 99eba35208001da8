#include <algorithm>

#include "base/json.h"
#include "spec/sections.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostRanks = 1 << 20;
constexpr std::int64_t kMostSplits = 1 << 12;  // of the model: tensor, pipeline, context

// Kinds that DataKind does not have yet share one number: their options are read and answered by "unsupported".
constexpr Choice kDataKinds[] = {{"none", static_cast<int>(DataKind::none)},
                                 {"ddp", static_cast<int>(DataKind::ddp)},
                                 {"zero_redundancy", static_cast<int>(DataKind::zero_redundancy)},
                                 {"zero1", static_cast<int>(DataKind::zero1)},
                                 {"zero2", static_cast<int>(DataKind::zero2)},
                                 {"zero3", kNotYet},
                                 {"fsdp1", static_cast<int>(DataKind::fsdp1)},
                                 {"fsdp2", static_cast<int>(DataKind::fsdp2)}};
constexpr Choice kStrategies[] = {
    {"FULL_SHARD", 0}, {"SHARD_GRAD_OP", 1}, {"NO_SHARD", kNotYet}, {"HYBRID_SHARD", kNotYet}, {"_HYBRID_SHARD_ZERO2", kNotYet}};
constexpr Choice kPrefetches[] = {{"BACKWARD_PRE", 0}, {"BACKWARD_POST", kNotYet}};
constexpr int kInterleaved = 2;
constexpr Choice kSchedules[] = {{"1f1b", static_cast<int>(PipelineSchedule::one_forward_one_backward)},
                                 {"gpipe", static_cast<int>(PipelineSchedule::gpipe)},
                                 {"interleaved_1f1b", kInterleaved}};
constexpr Choice kRotations[] = {{"allgather", 0}, {"alltoall", 0}};
constexpr int kHfPlan = 1;
constexpr Choice kPlans[] = {{"torch", 0}, {"hf", kHfPlan}};
constexpr Choice kPlaces[] = {{"none", 0}, {"cpu", 1}};

void read_flags(ObjectReader& from, std::initializer_list<std::string_view> keys) {
  bool flag = false;
  for (std::string_view key : keys) from.boolean(key, flag);
}

void read_ddp(ObjectReader& reader, DataParallel& data) {
  reader.integer("bucket_cap_mb", data.bucket_cap_mb, 1, 1 << 20);
  reader.boolean("gradient_as_bucket_view", data.gradient_as_bucket_view);
  reader.boolean("static_graph", data.static_graph);
  reader.boolean("find_unused_parameters", data.find_unused_parameters);
}

void read_fsdp2(ObjectReader& reader, DataParallel& data) {
  read_dtype(reader, "param_dtype", {Dtype::bfloat16}, true, data.param_dtype);
  read_dtype(reader, "reduce_dtype", {Dtype::float32, Dtype::bfloat16}, true, data.reduce_dtype);
  reader.boolean("reshard_after_forward", data.reshard_after_forward);
  read_flags(reader, {"pin_memory"});  // of what is offloaded
  if (reader.integer("replicate", data.replicate, 1, kMostRanks) && data.degree % data.replicate != 0) {
    reader.problem(
        "replicate", "conflict",
        "degree counts all ranks: " + std::to_string(data.replicate) + " copies do not divide " + std::to_string(data.degree) + " ranks");
  }
}

void read_zero_redundancy(ObjectReader& reader, DataParallel& data) {
  read_ddp(reader, data);
  reader.only("parameters_as_bucket_view", false);
}

void read_deepspeed(ObjectReader& reader, DataParallel& data, const Training& training, Problems& problems) {
  reader.boolean("auto_buckets", data.auto_buckets);
  read_flags(reader, {"pin_memory"});  // of what is offloaded
  ObjectReader sizes(reader.object("zero_optimization"), reader.at("zero_optimization"), problems);
  std::int64_t elements = 0;
  if (sizes.integer("reduce_bucket_size", elements, 1, std::int64_t{1} << 40)) data.reduce_bucket_size = elements;
  sizes.done();
  if (const Json* config = reader.object("config"); config && !config->empty())
    reader.problem("config", "unsupported", "DeepSpeed's other settings are not supported yet. Supported: {}.");
  if (training.weights != Dtype::bfloat16)
    add(problems,
        {"/training/weights", "unsupported", "DeepSpeed over other than bfloat16 weights is not supported yet. Supported: bfloat16."});
  if (training.accumulation > 1)
    add(problems, {"/training/accumulation", "unsupported", "accumulation under DeepSpeed is not supported yet. Supported: 1."});
}

void read_fsdp1(ObjectReader& reader, DataParallel& data, const Training& training, Problems& problems) {
  int strategy = 0, prefetch = 0;
  std::int64_t shard = 1;
  data.reduce_dtype = std::nullopt;
  std::optional<Dtype> buffers;
  reader.choice("strategy", kStrategies, strategy);
  data.reshard_after_forward = strategy == 0;
  read_dtype(reader, "param_dtype", {Dtype::bfloat16}, true, data.param_dtype);
  read_dtype(reader, "reduce_dtype", {Dtype::float32, Dtype::bfloat16}, false, data.reduce_dtype);
  if (!data.param_dtype && data.reduce_dtype)
    reader.problem("reduce_dtype", "conflict", "without param_dtype there is no mixed precision: gradients are reduced as they are");
  read_dtype(reader, "buffer_dtype", {Dtype::bfloat16}, false, buffers);
  reader.only("use_orig_params", true);
  reader.only("forward_prefetch", false);
  read_flags(reader, {"limit_all_gathers"});  // when to wait, not what to hold
  reader.choice("backward_prefetch", kPrefetches, prefetch);
  reader.integer("shard", shard, 1, kMostRanks);
  const auto unsupported = [&](const char* at, const char* what) {
    add(problems, {at, "unsupported", std::string(what) + " under FSDP1 is not supported yet."});
  };
  if (data.param_dtype && training.weights != Dtype::float32)
    unsupported("/training/weights", "mixed precision over a model that is not loaded in float32");
  if (training.autocast) unsupported("/training/autocast", "autocast");
  if (training.accumulation > 1) unsupported("/training/accumulation", "accumulation");
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
    read_fsdp2(reader, data);
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
  if (plan == kHfPlan) reader.problem("plan", "unsupported", "\"hf\" is not supported yet. Supported: torch.");
  const auto unsupported = [&](const char* at, const char* what) {
    add(problems, {at, "unsupported", std::string(what) + " with tensor parallelism is not supported yet."});
  };
  if (training.autocast) unsupported("/training/autocast", "autocast");
  if (training.attention == Attention::eager) unsupported("/training/attention", "eager attention");
  if (training.checkpointing != Checkpointing::none) unsupported("/training/checkpointing", "checkpointing");
  if (tensor.sequence && training.sequence % tensor.degree != 0) {
    reader.problem("sequence", "unsupported",
                   "a sequence of " + std::to_string(training.sequence) + " tokens that " + std::to_string(tensor.degree) +
                       " ranks do not divide is not supported yet.");
  }
  return tensor.degree;
}

void check_tensor(const Parallel& parallel, std::string_view kind, Problems& problems) {
  if (parallel.tensor.degree == 1) return;
  const bool alone = kind == "none", sharded = kind == "fsdp2" && parallel.data.replicate == 1 && !parallel.offload.parameters;
  if ((alone || sharded) && parallel.pipeline.degree == 1) return;
  add(problems, {"/parallel/tensor/degree", "unsupported",
                 "tensor parallelism is supported alone and with fsdp2 (without copies, offload or a pipeline) only, not yet with more."});
}

std::int64_t read_pipeline(const Json* object, const Training& training, PipelineParallel& pipeline, Problems& problems) {
  ObjectReader reader(object, "/parallel/pipeline", problems);
  reader.integer("degree", pipeline.degree, 1, kMostSplits);
  int schedule = 0;
  reader.choice("schedule", kSchedules, schedule);
  const bool interleaved = schedule == kInterleaved;
  if (!interleaved) pipeline.schedule = static_cast<PipelineSchedule>(schedule);
  reader.integer("virtual", pipeline.virtual_stages, 1, 1 << 10);
  reader.integer("microbatches", pipeline.microbatches, 1, 1 << 16);
  reader.done();
  if (pipeline.degree == 1) return 1;
  if (interleaved != (pipeline.virtual_stages > 1)) {
    reader.problem("virtual", "conflict", "virtual > 1 goes with the schedule interleaved_1f1b, and only with it");
  }
  if (training.accumulation > 1) {
    add(problems, {"/training/accumulation", "conflict", "a pipeline accumulates over its microbatches: accumulation must be 1"});
  }
  // ScheduleInterleaved1F1B
  const std::int64_t rounds = std::max<std::int64_t>(1, pipeline.microbatches / pipeline.degree);
  if (interleaved && pipeline.microbatches % rounds != 0) {
    reader.problem("microbatches", "conflict", "interleaved_1f1b needs a multiple of " + std::to_string(rounds) + " microbatches here");
  }
  const auto unsupported = [&](const char* at, const char* what) {
    add(problems, {at, "unsupported", std::string(what) + " with a pipeline is not supported yet."});
  };
  if (training.autocast) unsupported("/training/autocast", "autocast");
  if (training.attention == Attention::eager) unsupported("/training/attention", "eager attention");
  return pipeline.degree;
}

std::int64_t read_context(const Json* object, Problems& problems) {
  ObjectReader reader(object, "/parallel/context", problems);
  const std::int64_t degree = read_degree(reader);
  int rotate = 0;
  reader.choice("rotate", kRotations, rotate);
  read_flags(reader, {"load_balance"});
  reader.done();
  return degree;
}

void read_expert(const Json* object, Problems& problems) {
  ObjectReader reader(object, "/parallel/expert", problems);
  read_degree(reader);
  reader.done();
}

void read_offload(const Json* object, std::string_view kind, Offload& offload, Problems& problems) {
  ObjectReader reader(object, "/parallel/offload", problems);
  int optimizer = 0, parameters = 0, activations = 0;
  reader.choice("optimizer", kPlaces, optimizer);
  reader.choice("parameters", kPlaces, parameters);
  reader.choice("activations", kPlaces, activations);
  if (activations != 0) reader.problem("activations", "unsupported", "\"cpu\" is not supported yet. Supported: none.");
  reader.done();
  offload = {optimizer != 0, parameters != 0};
  if (kind == "fsdp1" && parameters != 0)
    add(problems, {"/parallel/offload/parameters", "unsupported", "offload under FSDP1 is not supported yet."});
  if (optimizer == 0 && parameters == 0) return;
  const auto conflict = [&](const char* why) { add(problems, {"/parallel/offload", "conflict", why}); };
  if (kind == "none" || kind == "ddp" || kind == "zero_redundancy") conflict("offload goes with zero1, zero2, zero3, fsdp1 or fsdp2");
  if (kind.substr(0, 4) == "fsdp" && optimizer != parameters) conflict("FSDP offloads parameters and optimizer together: both \"cpu\"");
  if ((kind == "zero1" || kind == "zero2") && parameters != 0) conflict("zero1 and zero2 do not offload parameters; zero3 does");
}

}  // namespace

void read_parallel(const Json* object, const Training& training, Parallel& parallel, Problems& problems) {
  ObjectReader reader(object, "/parallel", problems);
  std::string kind;
  read_data(reader.object("data"), parallel.data, training, kind, problems);
  parallel.world = parallel.data.degree * read_tensor(reader.object("tensor"), training, parallel.tensor, problems);
  parallel.world *= read_pipeline(reader.object("pipeline"), training, parallel.pipeline, problems);
  if (parallel.pipeline.degree > 1 && kind != "none") {
    add(problems,
        {"/parallel/pipeline/degree", "unsupported", "a pipeline with data parallelism is not supported yet. Supported: with kind none."});
  }
  parallel.world *= read_context(reader.object("context"), problems);
  read_expert(reader.object("expert"), problems);
  read_offload(reader.object("offload"), kind, parallel.offload, problems);
  check_tensor(parallel, kind, problems);
  if (reader.integer("rank", parallel.rank, 0, INT64_MAX) && parallel.rank >= parallel.world) {
    reader.problem("rank", "range",
                   "must be below " + std::to_string(parallel.world) + ", the number of ranks, not " + std::to_string(parallel.rank));
  }
  reader.done();
}

}  // namespace llmem
