#include "base/json.h"
#include "spec/sections.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostRows = 1 << 20;
constexpr std::int64_t kLongestSequence = 1 << 24;  // 16.8 M tokens; the longest context on offer is 10 M

constexpr Choice kMethods[] = {{"full", 0}, {"lora", kNotYet}};
constexpr Choice kObjectives[] = {{"sft", 0}, {"dpo", kNotYet}};
constexpr Choice kMasks[] = {{"none", 0}, {"padded", kNotYet}};
constexpr Choice kLosses[] = {
    {"standard", 0}, {"chunked", kNotYet}, {"liger_fused_linear", kNotYet}, {"liger_cross_entropy", kNotYet}, {"trl_tiled", kNotYet}};
constexpr Choice kLoops[] = {{"plain", 0}, {"trainer", kNotYet}, {"sft_trainer", kNotYet}};
constexpr Choice kAttentions[] = {{"sdpa", static_cast<int>(Attention::sdpa)},
                                  {"eager", static_cast<int>(Attention::eager)},
                                  {"flash_attention_2", kNotYet},
                                  {"flex", kNotYet}};
constexpr Choice kCheckpointings[] = {{"none", static_cast<int>(Checkpointing::none)},
                                      {"full", static_cast<int>(Checkpointing::full)},
                                      {"full_reentrant", kNotYet},
                                      {"selective", kNotYet}};
constexpr Choice kImplementations[] = {{"foreach", static_cast<int>(OptimizerImplementation::foreach)},
                                       {"fused", static_cast<int>(OptimizerImplementation::fused)},
                                       {"loop", static_cast<int>(OptimizerImplementation::loop)}};
constexpr Choice kOptimizers[] = {{"adamw", 0},
                                  {"adam", kNotYet},
                                  {"sgd", kNotYet},
                                  {"adafactor", kNotYet},
                                  {"rmsprop", kNotYet},
                                  {"adagrad", kNotYet},
                                  {"nadam", kNotYet},
                                  {"adamax", kNotYet},
                                  {"radam", kNotYet},
                                  {"muon", kNotYet},
                                  {"adafactor_hf", kNotYet},
                                  {"lion", kNotYet},
                                  {"schedule_free_adamw", kNotYet},
                                  {"adamw_8bit", kNotYet},
                                  {"paged_adamw", kNotYet},
                                  {"paged_adamw_8bit", kNotYet},
                                  {"adamw_bnb", kNotYet},
                                  {"lion_8bit", kNotYet},
                                  {"lion_bnb", kNotYet},
                                  {"paged_lion", kNotYet},
                                  {"paged_lion_8bit", kNotYet},
                                  {"ademamix", kNotYet},
                                  {"ademamix_8bit", kNotYet},
                                  {"sgd_8bit", kNotYet},
                                  {"rmsprop_8bit", kNotYet},
                                  {"adamw_8bit_torchao", kNotYet},
                                  {"adamw_4bit_torchao", kNotYet},
                                  {"adamw_fp8_torchao", kNotYet},
                                  {"adamw_torchao", kNotYet}};

void read_strings(ObjectReader& from, std::string_view key, std::string_view expected) {
  const Json* value = from.find(key);
  if (!value) return;
  bool sound = value->is_array();
  if (sound) {
    for (const Json& element : *value) sound = sound && element.is_string();
  }
  if (!sound) from.problem(key, "type", "must be " + std::string(expected) + ", not " + quoted(*value));
}

void read_adapter(const Json* object, Problems& problems) {
  ObjectReader reader(object, "/training/adapter", problems);
  std::int64_t rank = 16;
  double dropout = 0.0;
  bool flag = false;
  reader.integer("rank", rank, 1, 1 << 16);
  if (const Json* targets = reader.find("targets"); targets && targets->is_string()) {
    static constexpr Choice kTargets[] = {{"all-linear", 0}};
    int all = 0;
    reader.choice("targets", kTargets, all);
  } else {
    read_strings(reader, "targets", "\"all-linear\" or a list of module names");
  }
  reader.number("dropout", dropout, 0.0, 1.0);
  reader.boolean("dora", flag);
  read_strings(reader, "modules_to_save", "a list of module names");
  reader.boolean("upcast", flag);
  reader.done();
}

// Whether a quantised base is asked for.
bool read_base_quantization(ObjectReader& training, Problems& problems) {
  const Json* object = training.object("base_quantization");
  if (!object) return false;
  training.problem("base_quantization", "unsupported", "a quantised base is not supported yet. Supported: null.");
  static constexpr Choice kTypes[] = {{"nf4", 0}, {"fp4", 0}};
  ObjectReader reader(object, training.at("base_quantization"), problems);
  std::int64_t bits = 4;
  if (!reader.given("bits")) reader.problem("bits", "missing", "must be 4 or 8");
  if (reader.integer("bits", bits, 4, 8) && bits != 4 && bits != 8) reader.problem("bits", "range", "must be 4 or 8, not " + quoted(bits));
  int type = 0;
  bool flag = false;
  double threshold = 6.0;
  std::optional<Dtype> compute;
  reader.choice("type", kTypes, type);
  reader.boolean("double_quant", flag);
  read_dtype(reader, "compute_dtype", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, false, compute);
  read_strings(reader, "skip", "a list of module names");
  reader.number("threshold", threshold, 0.0, kUnlimited);
  reader.done();
  return true;
}

void read_optimizer(const Json* object, OptimizerImplementation& implementation, Problems& problems) {
  ObjectReader reader(object, "/training/optimizer", problems);
  int name = 0, kind = static_cast<int>(implementation);
  reader.choice("name", kOptimizers, name);
  if (reader.choice("implementation", kImplementations, kind)) implementation = static_cast<OptimizerImplementation>(kind);
  if (name == kNotYet) return;  // the other keys are that optimizer's
  double number = 0.0;
  for (std::string_view key : {"lr", "weight_decay", "eps"}) reader.number(key, number, 0.0, kUnlimited);
  if (const Json* betas = reader.find("betas")) {
    if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() || !(*betas)[1].is_number()) {
      reader.problem("betas", "type", "must be a list of two numbers, not " + quoted(*betas));
    }
  }
  for (std::string_view key : {"amsgrad", "maximize", "capturable", "differentiable"})
    reader.only(key, false);  // each makes tensors of its own
  reader.done();
}

void read_checkpointing(ObjectReader& training, Checkpointing& checkpointing, Problems& problems) {
  const Json* value = training.find("checkpointing");
  if (value && value->is_object()) {
    ObjectReader reader(value, training.at("checkpointing"), problems);
    std::int64_t every = 1;
    if (!reader.given("every")) reader.problem("every", "missing", "{\"every\": n} checkpoints each n-th layer");
    reader.integer("every", every, 1, 1 << 16);
    reader.done();
    training.problem("checkpointing", "unsupported", "{\"every\": n} is not supported yet. Supported: none, full.");
    return;
  }
  int kind = static_cast<int>(checkpointing);
  if (training.choice("checkpointing", kCheckpointings, kind) && kind != kNotYet) checkpointing = static_cast<Checkpointing>(kind);
}

void read_kernels(const Json* object, Problems& problems) {
  ObjectReader kernels(object, "/training/kernels", problems);
  if (const Json* liger = kernels.object("liger")) {
    ObjectReader reader(liger, kernels.at("liger"), problems);
    for (const auto& [flag, value] : liger->items()) reader.only(flag, false);  // the flags are Liger's own, by model family
  }
  kernels.done();
}

void read_evaluation(ObjectReader& training, Problems& problems) {
  const Json* object = training.object("evaluation");
  if (!object) return;
  training.problem("evaluation", "unsupported", "evaluation is not supported yet. Supported: null.");
  static constexpr Choice kPreprocess[] = {{"argmax", 0}};
  ObjectReader reader(object, training.at("evaluation"), problems);
  std::int64_t count = 0;
  bool metrics = false;
  int preprocess = 0;
  for (std::string_view key : {"batches", "batch", "accumulation_steps"}) reader.integer(key, count, 1, kMostRows);
  reader.boolean("compute_metrics", metrics);
  reader.choice("preprocess", kPreprocess, preprocess);
  reader.done();
}

void check_tokens(ObjectReader& reader, const Training& training) {
  const std::int64_t tokens = training.micro_batch * training.sequence;
  if (tokens > kMostTokens) {
    reader.problem("micro_batch", "range",
                   "micro_batch * sequence must be at most " + std::to_string(kMostTokens) + " tokens, not " +
                       std::to_string(training.micro_batch) + " * " + std::to_string(training.sequence) + " = " + std::to_string(tokens));
  }
}

}  // namespace

void read_dtype(ObjectReader& from, std::string_view key, std::initializer_list<Dtype> supported, bool nullable,
                std::optional<Dtype>& out) {
  if (nullable && from.present(key) && !from.given(key)) {
    out = std::nullopt;
    return;
  }
  static constexpr Dtype kDtypes[] = {Dtype::float32, Dtype::bfloat16, Dtype::float16};
  std::vector<Choice> choices;
  for (Dtype dtype : kDtypes) {
    int value = kNotYet;
    for (Dtype each : supported) {
      if (each == dtype) value = static_cast<int>(dtype);
    }
    choices.push_back({name_of(dtype), value});
  }
  int value = kNotYet;
  if (from.choice(key, choices, value) && value != kNotYet) out = static_cast<Dtype>(value);
}

void read_training(const Json* object, Training& training, Problems& problems) {
  ObjectReader reader(object, "/training", problems);
  int method = 0, objective = 0, ignored = 0;
  bool flag = false;
  double number = 0.0;

  reader.choice("method", kMethods, method);
  reader.choice("objective", kObjectives, objective);
  read_adapter(reader.object("adapter"), problems);
  if (read_base_quantization(reader, problems) && method != kNotYet) {
    reader.problem("base_quantization", "conflict", "a quantised base cannot be trained: method must be lora");
  }
  reader.boolean("prepare_kbit", flag);

  std::optional<Dtype> weights = training.weights;
  read_dtype(reader, "weights", {Dtype::float32, Dtype::bfloat16}, false, weights);
  training.weights = *weights;
  read_dtype(reader, "autocast", {Dtype::bfloat16}, true, training.autocast);
  if (training.autocast && training.weights != Dtype::float32) {
    reader.problem(
        "autocast", "unsupported",
        "autocast over " + std::string(name_of(training.weights)) + " weights is not supported yet. Supported: over float32 weights.");
  }
  reader.only("grad_scaler", false);
  read_optimizer(reader.object("optimizer"), training.optimizer, problems);

  reader.integer("micro_batch", training.micro_batch, 1, kMostRows);
  reader.integer("sequence", training.sequence, 1, kLongestSequence);
  check_tokens(reader, training);
  if (objective == kNotYet && training.micro_batch % 2 != 0 && reader.given("micro_batch")) {
    reader.problem("micro_batch", "conflict", "dpo's micro_batch counts rows [chosen; rejected]: it must be even");
  }
  reader.integer("accumulation", training.accumulation, 1, 1 << 16);
  reader.choice("mask", kMasks, ignored);
  read_checkpointing(reader, training.checkpointing, problems);
  int attention = static_cast<int>(training.attention);
  if (reader.choice("attention", kAttentions, attention) && attention != kNotYet) training.attention = static_cast<Attention>(attention);

  std::int64_t count = 0;
  reader.choice("loss", kLosses, ignored);
  reader.integer("loss_chunk", count, 1, kLongestSequence);
  read_kernels(reader.object("kernels"), problems);
  reader.only("keep_loss", false);
  if (reader.number("max_grad_norm", number, 0.0, kUnlimited) && number > 0.0) training.max_grad_norm = number;  // 0: not clipped

  reader.choice("loop", kLoops, ignored);
  read_evaluation(reader, problems);
  reader.only("label_smoothing", 0.0, 0.0, 1.0);
  reader.number("weight_decay", number, 0.0, kUnlimited);
  reader.integer("logging_steps", count, 1, INT64_MAX);
  reader.done();
}

}  // namespace llmem
