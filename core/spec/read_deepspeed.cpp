#include <string>

#include "base/json.h"
#include "spec/sections.h"

// A ds_config.json as DeepSpeed reads it (deepspeed/runtime/config.py, runtime/zero/config.py), with the "auto" that Transformers fills in
// (integrations/deepspeed.py): its sizes in place of what was said of zero_optimization before, and what else is known of memory.
namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostElements = std::int64_t{1} << 42;

bool is_auto(const Json* value) { return value && value->is_string() && value->get_ref<const std::string&>() == "auto"; }

// What changes no memory that is counted here.
void pass_over(ObjectReader& reader, std::initializer_list<std::string_view> keys) {
  for (std::string_view key : keys) reader.find(key);
}

void read_size(ObjectReader& zero, std::string_view key, std::int64_t least, std::optional<std::int64_t>& out) {
  if (is_auto(zero.find(key))) {
    out = ZeroOptimization::automatic;
    return;
  }
  std::int64_t elements = 0;
  if (zero.integer(key, elements, least, kMostElements)) out = elements;
}

void read_size(ObjectReader& zero, std::string_view key, std::int64_t& out) {
  if (!is_auto(zero.find(key))) zero.integer(key, out, 0, kMostElements);
}

// {"device": "cpu", …}
bool read_device(ObjectReader& zero, std::string_view key, Problems& problems) {
  static constexpr Choice kDevices[] = {{"none", 0}, {"cpu", 1}, {"nvme", kNotYet}};
  ObjectReader reader(zero.object(key), zero.at(key), problems);
  int device = 0;
  reader.choice("device", kDevices, device);
  pass_over(reader, {"pin_memory", "buffer_count", "buffer_size", "fast_init", "ratio", "nvme_path", "pipeline_read", "pipeline_write",
                     "max_in_cpu"});
  reader.done();
  return device > 0;
}

void read_zero(const Json* object, const std::string& at, DataParallel& data, Problems& problems) {
  ObjectReader zero(object, at, problems);
  data.auto_buckets = false;
  const int kind = data.kind == DataKind::zero1 ? 1 : data.kind == DataKind::zero2 ? 2 : 3;
  std::int64_t stage = kind;
  if (zero.integer("stage", stage, 0, 3) && stage != kind)
    zero.problem("stage", "conflict", "this is stage " + std::to_string(stage) + ": give kind \"zero" + std::to_string(stage) + "\"");
  data.zero = {};
  data.zero.overlap_comm = kind == 3;  // DeepSpeedZeroConfig.overlap_comm_valid
  read_size(zero, "reduce_bucket_size", 1, data.zero.reduce_bucket_size);
  read_size(zero, "stage3_prefetch_bucket_size", 0, data.zero.prefetch_bucket_size);
  read_size(zero, "stage3_param_persistence_threshold", 0, data.zero.persistence_threshold);
  read_size(zero, "stage3_max_live_parameters", data.zero.max_live_parameters);
  read_size(zero, "stage3_max_reuse_distance", data.zero.max_reuse_distance);
  read_size(zero, "sub_group_size", data.zero.sub_group_size);
  if (data.zero.sub_group_size < 1) zero.problem("sub_group_size", "range", "must be at least 1");
  for (auto [key, out] :
       {std::pair{"overlap_comm", &data.zero.overlap_comm}, std::pair{"contiguous_gradients", &data.zero.contiguous_gradients},
        std::pair{"reduce_scatter", &data.zero.reduce_scatter}, std::pair{"round_robin_gradients", &data.zero.round_robin_gradients}})
    if (!is_auto(zero.find(key))) zero.boolean(key, *out);
  data.engine.offloads_optimizer = read_device(zero, "offload_optimizer", problems);
  data.engine.offloads_parameters = read_device(zero, "offload_param", problems) && kind == 3;
  zero.only("zero_hpz_partition_size", std::int64_t{1}, 1, kMostElements);
  for (const char* key : {"zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients"})
    zero.only(key, false);
  pass_over(zero, {"allgather_partitions", "allgather_bucket_size", "load_from_fp32_weights", "elastic_checkpoint",
                   "stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save", "ignore_unused_parameters",
                   "legacy_stage1", "stage3_use_all_reduce_for_fetch_params"});
  zero.done();
}

// A number that Transformers compares with its own argument, too.
void read_match(ObjectReader& config, std::string_view key, std::int64_t ours, const char* place) {
  std::int64_t value = ours;
  if (is_auto(config.find(key)) || !config.integer(key, value, 1, kMostElements) || value == ours) return;
  config.problem(key, "conflict", std::string(place) + " is " + std::to_string(ours) + ", not " + std::to_string(value));
}

// {"enabled": true | "auto", …}
bool enabled(ObjectReader& config, std::string_view key, bool ours, Problems& problems) {
  ObjectReader reader(config.object(key), config.at(key), problems);
  bool on = false;
  if (is_auto(reader.find("enabled"))) return ours;
  reader.boolean("enabled", on);
  return on;
}

void read_optimizer(ObjectReader& config, DataParallel& data, Problems& problems) {
  static constexpr Choice kOptimizers[] = {{"AdamW", 1}, {"Adam", 1}, {"adamw", 1}, {"adam", 1}};
  const Json* object = config.object("optimizer");
  if (!object) return;
  ObjectReader reader(object, config.at("optimizer"), problems);
  int type = 0;
  reader.choice("type", kOptimizers, type);
  reader.find("params");
  reader.done();
  data.engine.has_optimizer = type == 1;
}

}  // namespace

void read_deepspeed_config(const Json* object, const std::string& at, const Training& training, DataParallel& data, Problems& problems) {
  if (!object || object->empty()) return;
  ObjectReader config(object, at, problems);
  if (const Json* zero = config.object("zero_optimization")) read_zero(zero, config.at("zero_optimization"), data, problems);
  read_match(config, "train_micro_batch_size_per_gpu", training.micro_batch, "training.micro_batch");
  read_match(config, "gradient_accumulation_steps", training.accumulation, "training.accumulation");
  read_match(config, "train_batch_size", training.micro_batch * training.accumulation * data.degree, "rows × accumulation × ranks");
  double norm = 0.0;
  if (!is_auto(config.find("gradient_clipping")) && config.number("gradient_clipping", norm, 0.0, kUnlimited))
    data.engine.clips = norm > 0.0;
  const Dtype half = training.loop == Loop::plain ? training.weights : training.autocast.value_or(training.weights);
  const bool in_bfloat16 = half == Dtype::bfloat16;
  if (config.given("bf16") && enabled(config, "bf16", in_bfloat16, problems) != in_bfloat16)
    config.problem("bf16", "conflict",
                   std::string("the engine would hold parameters in ") + (in_bfloat16 ? "float32" : "bfloat16") +
                       ": give weights, or a loop's autocast, in that");
  if (enabled(config, "fp16", half == Dtype::float16, problems))
    config.problem("fp16", "unsupported", "DeepSpeed over float16 weights is not supported yet.");
  read_optimizer(config, data, problems);
  pass_over(config, {"scheduler",
                     "steps_per_print",
                     "wall_clock_breakdown",
                     "zero_allow_untested_optimizer",
                     "zero_force_ds_cpu_optimizer",
                     "prescale_gradients",
                     "gradient_predivide_factor",
                     "dump_state",
                     "memory_breakdown",
                     "flops_profiler",
                     "tensorboard",
                     "wandb",
                     "csv_monitor",
                     "comms_logger",
                     "checkpoint",
                     "monitor_config",
                     "activation_checkpointing",
                     "elasticity",
                     "aio",
                     "$schema"});
  config.done();
}

}  // namespace llmem
