#include "base/json.h"
#include "spec/sections.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostRows = 1 << 20;
constexpr std::int64_t kLongestSequence = 1 << 24;  // 16.8 M tokens; the longest context on offer is 10 M

template <class E>
constexpr Choice choice(std::string_view name, E value) {
  return {name, static_cast<int>(value)};
}

constexpr Choice kMethods[] = {choice("full", Method::full), choice("lora", Method::lora)};
constexpr Choice kObjectives[] = {choice("sft", Objective::sft), choice("dpo", Objective::dpo)};
constexpr Choice kMasks[] = {choice("none", Mask::none), choice("padded", Mask::padded)};
constexpr Choice kLosses[] = {choice("standard", Loss::standard), choice("chunked", Loss::chunked),
                              choice("liger_fused_linear", Loss::liger_fused_linear),
                              choice("liger_cross_entropy", Loss::liger_cross_entropy), choice("trl_tiled", Loss::trl_tiled)};
constexpr Choice kLoops[] = {choice("plain", Loop::plain), choice("trainer", Loop::trainer), choice("sft_trainer", Loop::sft_trainer)};
constexpr Choice kAttentions[] = {choice("sdpa", Attention::sdpa),
                                  choice("eager", Attention::eager),
                                  choice("flash_attention_2", Attention::flash_attention_2),
                                  choice("fused", Attention::fused),
                                  {"flex", kNotYet}};
constexpr Choice kCheckpointings[] = {choice("none", Checkpointing::none), choice("full", Checkpointing::full),
                                      choice("full_reentrant", Checkpointing::full_reentrant),
                                      choice("selective", Checkpointing::selective)};
constexpr Choice kImplementations[] = {choice("foreach", OptimizerImplementation::foreach), choice("fused", OptimizerImplementation::fused),
                                       choice("loop", OptimizerImplementation::loop)};
constexpr Choice kOptimizers[] = {choice("adamw", OptimizerName::adamw),
                                  choice("adam", OptimizerName::adam),
                                  choice("sgd", OptimizerName::sgd),
                                  choice("adafactor", OptimizerName::adafactor),
                                  choice("rmsprop", OptimizerName::rmsprop),
                                  choice("adagrad", OptimizerName::adagrad),
                                  choice("nadam", OptimizerName::nadam),
                                  choice("adamax", OptimizerName::adamax),
                                  choice("radam", OptimizerName::radam),
                                  choice("muon", OptimizerName::muon),
                                  choice("adafactor_hf", OptimizerName::adafactor_hf),
                                  choice("lion", OptimizerName::lion),
                                  choice("schedule_free_adamw", OptimizerName::schedule_free_adamw),
                                  choice("adamw_8bit", OptimizerName::adamw_8bit),
                                  choice("paged_adamw", OptimizerName::paged_adamw),
                                  choice("paged_adamw_8bit", OptimizerName::paged_adamw_8bit),
                                  choice("adamw_bnb", OptimizerName::adamw_bnb),
                                  choice("lion_8bit", OptimizerName::lion_8bit),
                                  choice("lion_bnb", OptimizerName::lion_bnb),
                                  choice("paged_lion", OptimizerName::paged_lion),
                                  choice("paged_lion_8bit", OptimizerName::paged_lion_8bit),
                                  choice("ademamix", OptimizerName::ademamix),
                                  choice("ademamix_8bit", OptimizerName::ademamix_8bit),
                                  choice("rmsprop_8bit", OptimizerName::rmsprop_8bit),
                                  choice("sgd_8bit", OptimizerName::sgd_8bit),
                                  choice("adamw_8bit_torchao", OptimizerName::adamw_8bit_torchao),
                                  choice("adamw_4bit_torchao", OptimizerName::adamw_4bit_torchao),
                                  choice("adamw_fp8_torchao", OptimizerName::adamw_fp8_torchao),
                                  choice("adamw_torchao", OptimizerName::adamw_torchao)};

// Reads one of the choices into `out`, unless it is one that this build cannot answer.
template <class E>
bool read_choice(ObjectReader& from, std::string_view key, std::span<const Choice> choices, E& out) {
  int value = static_cast<int>(out);
  if (!from.choice(key, choices, value) || value == kNotYet) return false;
  out = static_cast<E>(value);
  return true;
}

void read_strings(ObjectReader& from, std::string_view key, std::string_view expected, std::vector<std::string>& out) {
  const Json* value = from.find(key);
  if (!value) return;
  bool sound = value->is_array();
  if (sound) {
    for (const Json& element : *value) sound = sound && element.is_string();
  }
  if (!sound) return from.problem(key, "type", "must be " + std::string(expected) + ", not " + quoted(*value));
  out.clear();
  for (const Json& element : *value) out.push_back(element.get<std::string>());
}

// A number of which only matters whether there is any.
bool positive(ObjectReader& from, std::string_view key, double most) {
  double number = 0.0;
  return from.number(key, number, 0.0, most) && number > 0.0;
}

void read_adapter(const Json* object, AdapterOptions& adapter, Problems& problems) {
  ObjectReader reader(object, "/training/adapter", problems);
  reader.integer("rank", adapter.rank, 1, 1 << 16);
  if (const Json* targets = reader.find("targets"); targets && targets->is_string()) {
    static constexpr Choice kTargets[] = {{"all-linear", 1}};
    int all = 0;
    adapter.all_linear = reader.choice("targets", kTargets, all);
  } else {
    read_strings(reader, "targets", "\"all-linear\" or a list of module names", adapter.targets);
  }
  reader.number("dropout", adapter.dropout, 0.0, 1.0);
  reader.boolean("dora", adapter.dora);
  read_strings(reader, "modules_to_save", "a list of module names", adapter.modules_to_save);
  reader.boolean("upcast", adapter.upcast);
  reader.done();
}

constexpr int kGptq = 1;

// AutoGPTQ and GPTQModel make weights in float16, and PEFT has no DoRA over them.
void check_gptq(ObjectReader& training, ObjectReader& base, const Training& recipe) {
  if (recipe.base_quantization->bits != 4) base.problem("bits", "unsupported", "gptq is supported in 4 bits only.");
  if (recipe.weights != Dtype::float16 || (recipe.autocast && *recipe.autocast != Dtype::float16))
    training.problem("weights", "conflict", "a gptq base computes in float16: weights, and autocast if any, must be float16");
  if (recipe.adapter.dora) training.problem("adapter", "conflict", "dora does not go with a gptq base");
}

void read_base_quantization(const Json* object, std::optional<BaseQuantization>& quantization, Problems& problems) {
  BaseQuantization& base = quantization.emplace();
  static constexpr Choice kTypes[] = {{"nf4", 0}, {"fp4", 0}, {"gptq", kGptq}};  // fp4 is nf4's bytes under another table
  ObjectReader reader(object, "/training/base_quantization", problems);
  std::int64_t bits = 4;
  if (!reader.given("bits")) reader.problem("bits", "missing", "must be 4 or 8");
  if (reader.integer("bits", bits, 4, 8) && bits != 4 && bits != 8) reader.problem("bits", "range", "must be 4 or 8, not " + quoted(bits));
  base.bits = static_cast<int>(bits);
  int type = 0;
  reader.choice("type", kTypes, type);
  base.gptq = type == kGptq;
  reader.integer("group_size", base.group_size, 1, kLongestSequence);
  reader.boolean("double_quant", base.double_quant);
  std::optional<Dtype> compute = base.compute_dtype;
  read_dtype(reader, "compute_dtype", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, false, compute);
  base.compute_dtype = *compute;
  static constexpr Choice kStorages[] = {{"uint8", static_cast<int>(Dtype::uint8)},
                                         {"float32", static_cast<int>(Dtype::float32)},
                                         {"bfloat16", static_cast<int>(Dtype::bfloat16)},
                                         {"float16", static_cast<int>(Dtype::float16)}};
  int storage = static_cast<int>(base.storage);
  reader.choice("quant_storage", kStorages, storage);
  base.storage = static_cast<Dtype>(storage);
  read_strings(reader, "skip", "a list of module names", base.skip);
  reader.number("threshold", base.threshold, 0.0, kUnlimited);
  reader.done();
}

// torch.optim: which optimizers have a fused kernel, and which take the options of the row.
bool has_fused(OptimizerName name) {
  return name == OptimizerName::adamw || name == OptimizerName::adam || name == OptimizerName::sgd || name == OptimizerName::adagrad;
}

// Numbers that change no tensor.
void read_numbers(ObjectReader& reader, std::initializer_list<std::string_view> keys, bool negative) {
  double number = 0.0;
  for (std::string_view key : keys) reader.number(key, number, negative ? -kUnlimited : 0.0, kUnlimited);
}

// transformers.optimization.Adafactor
void read_adafactor(ObjectReader& reader, OptimizerOptions& optimizer) {
  bool flag = false;
  double number = 0.0;
  optimizer.first_moment = reader.number("beta1", number, 0.0, 1.0);
  reader.boolean("scale_parameter", optimizer.scale_parameter);
  for (std::string_view key : {"relative_step", "warmup_init"}) reader.boolean(key, flag);
  read_numbers(reader, {"clip_threshold", "decay_rate"}, true);
}

void read_optimizer(const Json* object, OptimizerOptions& optimizer, Problems& problems) {
  ObjectReader reader(object, "/training/optimizer", problems);
  int kind = static_cast<int>(optimizer.name);
  reader.choice("name", kOptimizers, kind);
  if (kind != kNotYet) optimizer.name = static_cast<OptimizerName>(kind);
  const OptimizerName name = optimizer.name;
  if (name == OptimizerName::adafactor) optimizer.implementation = OptimizerImplementation::loop;  // torch's own choice
  const bool chosen = read_choice(reader, "implementation", kImplementations, optimizer.implementation);
  if (kind == kNotYet) return;  // the other keys are that optimizer's
  if (chosen && optimizer.implementation == OptimizerImplementation::fused && name <= OptimizerName::radam && !has_fused(name)) {
    reader.problem("implementation", "conflict", "torch.optim has a fused kernel for adamw, adam, sgd and adagrad only");
  }
  double number = 0.0;
  reader.number("lr", number, 0.0, kUnlimited);
  for (std::string_view key : {"betas", "eps"}) {
    const Json* value = reader.find(key);
    if (!value || (value->is_number() && key == "eps")) continue;
    bool sound = value->is_array() && (value->size() == 2 || value->size() == 3);  // three: Muon's and CAME's
    if (sound) {
      for (const Json& element : *value) sound = sound && element.is_number();
    }
    if (!sound) reader.problem(key, "type", "must be a list of two numbers, not " + quoted(*value));
  }
  optimizer.weight_decay = positive(reader, "weight_decay", kUnlimited);
  if (name == OptimizerName::sgd || name == OptimizerName::rmsprop || name == OptimizerName::sgd_8bit ||
      name == OptimizerName::rmsprop_8bit)
    optimizer.momentum = positive(reader, "momentum", kUnlimited);
  if (name == OptimizerName::sgd) reader.boolean("nesterov", optimizer.nesterov);
  if (name == OptimizerName::rmsprop) reader.boolean("centered", optimizer.centered);
  const bool adam = name == OptimizerName::adamw || name == OptimizerName::adam;
  if (adam) reader.boolean("amsgrad", optimizer.amsgrad);
  if (name == OptimizerName::adafactor) read_numbers(reader, {"beta2_decay", "d"}, true);
  if (name == OptimizerName::adafactor_hf) read_adafactor(reader, optimizer);
  if (name == OptimizerName::adagrad) read_numbers(reader, {"lr_decay", "initial_accumulator_value"}, false);
  if (name == OptimizerName::nadam) read_numbers(reader, {"momentum_decay"}, false);
  if (name == OptimizerName::sgd) read_numbers(reader, {"dampening"}, false);
  if (name == OptimizerName::rmsprop) read_numbers(reader, {"alpha"}, false);
  if (name <= OptimizerName::radam) reader.boolean("maximize", optimizer.maximize);
  // Each makes tensors of its own.
  if (adam && optimizer.implementation != OptimizerImplementation::loop)
    reader.boolean("capturable", optimizer.capturable);
  else
    reader.only("capturable", false);
  reader.only("differentiable", false);
  reader.boolean("in_backward", optimizer.in_backward);
  reader.done();
}

void read_checkpointing(ObjectReader& training, Checkpointing& checkpointing, std::int64_t& every, Problems& problems) {
  const Json* value = training.find("checkpointing");
  if (value && value->is_object()) {
    ObjectReader reader(value, training.at("checkpointing"), problems);
    if (!reader.given("every")) reader.problem("every", "missing", "{\"every\": n} checkpoints each n-th layer");
    reader.integer("every", every, 1, 1 << 16);
    reader.done();
    checkpointing = Checkpointing::full;
    return;
  }
  read_choice(training, "checkpointing", kCheckpointings, checkpointing);
}

void read_kernels(const Json* object, LigerKernels& kernels, Problems& problems) {
  ObjectReader reader(object, "/training/kernels", problems);
  if (const Json* flags = reader.object("liger")) {
    ObjectReader liger(flags, reader.at("liger"), problems);
    liger.boolean("rms_norm", kernels.rms_norm);
    liger.boolean("rope", kernels.rope);
    liger.boolean("swiglu", kernels.swiglu);
    for (const auto& [flag, value] : flags->items()) {
      if (flag != "rms_norm" && flag != "rope" && flag != "swiglu") liger.only(flag, false);  // the flags are Liger's own, by model family
    }
  }
  reader.done();
}

void read_evaluation(const Json* object, std::optional<Evaluation>& evaluation, Problems& problems) {
  Evaluation& out = evaluation.emplace();
  static constexpr Choice kPreprocess[] = {{"argmax", 1}};
  ObjectReader reader(object, "/training/evaluation", problems);
  reader.integer("batches", out.batches, 1, kMostRows);
  reader.integer("batch", out.batch, 1, kMostRows);
  reader.integer("accumulation_steps", out.accumulation_steps, 1, kMostRows);
  reader.boolean("compute_metrics", out.compute_metrics);
  int preprocess = 0;
  out.preprocess_argmax = reader.choice("preprocess", kPreprocess, preprocess);
  reader.done();
}

void read_images(const Json* object, const std::string& at, std::optional<ImageOptions>& images, Problems& problems) {
  constexpr std::int64_t kMostImages = 1 << 10;
  ImageOptions& out = images.emplace();
  ObjectReader reader(object, at, problems);
  reader.integer("per_sample", out.per_sample, 1, kMostImages);
  reader.done();
}

// What a Trainer trains with: the model's own loss, also where Liger has patched it.
void check_loss_of_loop(ObjectReader& reader, const Training& training) {
  if (training.loop == Loop::plain || training.loss == Loss::standard) return;
  const bool of_liger = training.loss == Loss::liger_cross_entropy || training.loss == Loss::liger_fused_linear;
  if (training.loop == Loop::trainer && of_liger && !training.evaluation) return;
  reader.problem("loss", "unsupported",
                 "a loop of Transformers is supported with the standard loss; the trainer also with Liger's, without an evaluation.");
}

// TRL's head is given the words that follow others.
void check_next_words(ObjectReader& reader, const Training& training) {
  const bool of_trl = training.objective == Objective::dpo || training.loss == Loss::trl_tiled || training.loop == Loop::sft_trainer;
  if (of_trl && training.sequence == 1) reader.problem("sequence", "conflict", "in one token nothing follows: TRL's losses want two");
}

// bitsandbytes/backends/cuda/ops.py: these two have no kernel for bfloat16 gradients of the tensors that stay in 32 bits.
void check_8bit(ObjectReader& reader, const Training& training) {
  const OptimizerName name = training.optimizer.name;
  if (name != OptimizerName::sgd_8bit && name != OptimizerName::rmsprop_8bit) return;
  if (training.method == Method::full && training.weights == Dtype::bfloat16)
    reader.problem("optimizer", "conflict",
                   "bitsandbytes refuses bfloat16 gradients of small tensors with this optimizer: give weights float32");
  if (name == OptimizerName::sgd_8bit && !training.optimizer.momentum)
    reader.problem("optimizer", "conflict", "bitsandbytes has SGD8bit with momentum only");
}

void check_step_in_backward(ObjectReader& reader, const Training& training) {
  if (!training.optimizer.in_backward) return;
  const char* why = training.loop != Loop::plain ? "the loops of Transformers have none: give loop plain"
                    : training.accumulation > 1  ? "gradients cannot be accumulated: give accumulation 1"
                    : training.max_grad_norm     ? "there is no norm of all gradients to clip: give max_grad_norm null"
                    : training.grad_scaler       ? "a gradient scaler looks at all gradients first: give grad_scaler false"
                                                 : nullptr;
  if (why) reader.problem("optimizer", "conflict", std::string("with in_backward ") + why);
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

  read_choice(reader, "method", kMethods, training.method);
  read_choice(reader, "objective", kObjectives, training.objective);
  if (const Json* adapter = reader.object("adapter")) read_adapter(adapter, training.adapter, problems);
  if (const Json* base = reader.object("base_quantization")) read_base_quantization(base, training.base_quantization, problems);
  if (training.base_quantization && training.method != Method::lora) {
    reader.problem("base_quantization", "conflict", "a quantised base cannot be trained: method must be lora");
  }
  reader.boolean("prepare_kbit", training.prepare_kbit);

  std::optional<Dtype> weights = training.weights;
  read_dtype(reader, "weights", {Dtype::float32, Dtype::bfloat16, Dtype::float16}, false, weights);
  training.weights = *weights;
  read_dtype(reader, "autocast", {Dtype::bfloat16, Dtype::float16}, true, training.autocast);
  if (training.base_quantization && training.base_quantization->gptq) {
    ObjectReader base(reader.object("base_quantization"), reader.at("base_quantization"), problems);
    check_gptq(reader, base, training);
  }
  reader.boolean("grad_scaler", training.grad_scaler);
  if (const Json* optimizer = reader.object("optimizer")) read_optimizer(optimizer, training.optimizer, problems);

  reader.integer("micro_batch", training.micro_batch, 1, kMostRows);
  reader.integer("sequence", training.sequence, 1, kLongestSequence);
  if (std::int64_t target = 0; reader.integer("target_sequence", target, 1, kLongestSequence)) training.target_sequence = target;
  if (const Json* images = reader.object("images")) read_images(images, reader.at("images"), training.images, problems);
  check_tokens(reader, training);
  if (training.objective == Objective::dpo && training.micro_batch % 2 != 0) {
    reader.problem("micro_batch", "conflict", "dpo's micro_batch counts rows [chosen; rejected]: it must be even");
  }
  reader.integer("accumulation", training.accumulation, 1, 1 << 16);
  read_choice(reader, "mask", kMasks, training.mask);
  read_checkpointing(reader, training.checkpointing, training.checkpoint_every, problems);
  training.attention_given = reader.given("attention");
  read_choice(reader, "attention", kAttentions, training.attention);

  read_choice(reader, "loss", kLosses, training.loss);
  reader.integer("loss_chunk", training.loss_chunk, 1, kLongestSequence);
  if (const Json* kernels = reader.object("kernels")) read_kernels(kernels, training.liger, problems);
  reader.boolean("keep_loss", training.keep_loss);
  double number = 0.0;
  if (reader.number("max_grad_norm", number, 0.0, kUnlimited) && number > 0.0) training.max_grad_norm = number;  // 0: not clipped

  read_choice(reader, "loop", kLoops, training.loop);
  read_strings(reader, "trained", "a list of module names", training.trained);
  read_strings(reader, "frozen", "a list of module names", training.frozen);
  if (training.method == Method::lora && !(training.trained.empty() && training.frozen.empty()))
    reader.problem(training.trained.empty() ? "frozen" : "trained", "conflict",
                   "of lora only the adapters train: give adapter.modules_to_save, or method full");
  check_step_in_backward(reader, training);
  if (const Json* evaluation = reader.object("evaluation")) read_evaluation(evaluation, training.evaluation, problems);
  if (training.loop == Loop::plain && training.evaluation)
    reader.problem("evaluation", "conflict", "the plain loop evaluates nothing: give loop trainer or sft_trainer");
  training.label_smoothing = positive(reader, "label_smoothing", 1.0);
  if (training.loop == Loop::plain && training.label_smoothing)
    reader.problem("label_smoothing", "conflict", "the plain loop has none: give loop trainer");
  check_loss_of_loop(reader, training);
  check_8bit(reader, training);
  check_next_words(reader, training);
  training.weight_decay = positive(reader, "weight_decay", kUnlimited);
  reader.only("compile", false);
  if (const Json* megatron = reader.object("megatron")) read_megatron_training(megatron, training.stack, training.megatron, problems);
  std::int64_t count = 0;
  reader.integer("logging_steps", count, 1, INT64_MAX);
  reader.done();
}

}  // namespace llmem
