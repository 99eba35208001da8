#include "plan/adapt.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "model/heads.h"
#include "model/litgpt.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

bool ends_in(std::string_view name, std::string_view module) {
  if (name == module) return true;
  return name.size() > module.size() && name.substr(name.size() - module.size()) == module && name[name.size() - module.size() - 1] == '.';
}

bool any_ends(std::string_view name, const std::vector<std::string>& modules) {
  return std::any_of(modules.begin(), modules.end(), [&](const std::string& module) { return ends_in(name, module); });
}

Tensor weight_of(Device& device, const char* name, const Dims& sizes, Dtype dtype) {
  const OpScope op(device, name);
  const Tensor made = device.empty(sizes, dtype);
  device.set_category(made->storage->allocation, Category::weights);
  return made;
}

// AutoGPTQ and GPTQModel, nn_modules/qlinear, QuantLinear's buffers: 8 values in an int32, along the inputs; their zeros along the outputs.
void load_gptq(Device& device, const Linear& linear, const BaseQuantization& quantization, const Pack& pack) {
  constexpr std::int64_t packed = 8;
  QuantizedWeight& made = linear.parts->quantized.emplace();
  made.gptq = true;
  made.out = linear.weight.size(0);
  made.in = linear.weight.size(1);
  made.dtype = made.compute_dtype = Dtype::float16;
  const std::int64_t groups = divide_up(made.in, quantization.group_size);
  const Dims values{made.in / packed, made.out}, zeros{groups, made.out / packed};
  if (pack) {
    // fms-acceleration, plugins/accelerated-peft, framework_plugin_autogptq.py: integers are seen as halves, so that FSDP takes them.
    const auto as_halves = [](const Dims& sizes) { return Dims{sizes[0], 2 * sizes[1]}; };
    made.data = pack(linear.weight, as_halves(values), false);
    made.zeros = pack(made.data, as_halves(zeros), true);
  } else {
    made.data = weight_of(device, "qweight", values, Dtype::int32);
    made.zeros = weight_of(device, "qzeros", zeros, Dtype::int32);
  }
  made.scale = weight_of(device, "scales", {groups, made.out}, Dtype::float16);
  made.group_index = weight_of(device, "g_idx", {made.in}, Dtype::int32);
}

// bitsandbytes.functional.quantize_4bit's state: a scale for 64 values; double-quantised, 256 scales share another.
void quantize(Device& device, const Linear& linear, const BaseQuantization& quantization, Dtype dtype, const Pack& pack) {
  constexpr std::int64_t block = 64, block_of_scales = 256, table = 16, second_table = 256;
  QuantizedWeight& made = linear.parts->quantized.emplace();
  made.bits = quantization.bits;
  made.out = linear.out();
  made.in = linear.in();
  made.dtype = dtype;
  made.compute_dtype = quantization.compute_dtype;
  made.looks_for_outliers = quantization.threshold > 0.0;
  made.keeps_inputs = quantization.keeps_inputs;
  const std::int64_t values = made.out * made.in, blocks = divide_up(values, block);
  const auto of = [&](const char* name, const Dims& sizes, Dtype type) { return weight_of(device, name, sizes, type); };
  if (made.bits == 8) {
    made.data = of("weight", {made.out, made.in}, Dtype::int8);
    made.scale = of("SCB", {made.out}, Dtype::float32);
    return;
  }
  const Dims packed{divide_up(values, 2 * size_of(quantization.storage).count), 1};  // functional.py, quantize_4bit
  made.data = pack ? pack(linear.weight, packed, false) : of("weight", packed, quantization.storage);
  made.code = of("code", {table}, Dtype::float32);
  if (!quantization.double_quant) {
    made.absmax = of("absmax", {blocks}, Dtype::float32);
    return;
  }
  made.offset = of("offset", {}, Dtype::float32);
  made.absmax = of("absmax", {blocks}, Dtype::uint8);
  made.second_absmax = of("second_absmax", {divide_up(blocks, block_of_scales)}, Dtype::float32);
  made.second_code = of("second_code", {second_table}, Dtype::float32);
}

}  // namespace

namespace {

// transformers' get_modules_to_not_convert: the head stays as it is, be it tied or not. Lightning's plugin spares nothing.
std::vector<const NamedLinear*> converted_linears(const CausalLm& model, const BaseQuantization& quantization) {
  std::vector<const NamedLinear*> converted;
  // integrations/bitsandbytes.py, replace_with_bnb_linear: `type(module) is nn.Linear`, which FalconLinear is not
  const bool litgpt = model.architecture().litgpt;
  if (model.architecture().model_type == "falcon" && !quantization.gptq && !litgpt) return converted;
  for (const NamedLinear& each : model.linears())
    if ((each.name != "lm_head" || litgpt) && !any_ends(each.name, quantization.skip)) converted.push_back(&each);
  return converted;
}

}  // namespace

void quantize_linears(Device& device, const CausalLm& model, const BaseQuantization& quantization, Dtype dtype, const Pack& pack) {
  for (const NamedLinear* each : converted_linears(model, quantization)) {
    const ModuleScope scope(device, each->name);
    if (quantization.gptq)
      load_gptq(device, each->linear, quantization, pack);
    else
      quantize(device, each->linear, quantization, dtype, pack);
  }
}

void load_quantized(Device& device, const CausalLm& model, const BaseQuantization& quantization, Dtype dtype, bool tied_head,
                    const std::vector<NamedTensor>& others) {
  std::vector<TensorImpl*> converted;
  quantize_linears(device, model, quantization, dtype, {});
  for (const NamedLinear* each : converted_linears(model, quantization)) converted.push_back(each->linear.weight.get());
  for (const NamedTensor& each : others) {
    if (std::find(converted.begin(), converted.end(), each.tensor.get()) != converted.end()) continue;
    const ModuleScope scope(device, module_of(each.name));
    each.tensor->storage->allocate();
    device.set_category(each.tensor->storage->allocation, Category::weights);
  }
  // A tied head is made, too, until the weights are tied again.
  if (tied_head) device.scratch(others.front().tensor->storage->bytes);
}

void prepare_for_training(Device& device, const std::vector<NamedTensor>& parameters) {
  for (const NamedTensor& each : parameters) {
    if (!each.tensor->storage->allocated() || each.tensor.dtype() == Dtype::float32) continue;
    const ModuleScope scope(device, module_of(each.name));
    set_data(each.tensor, weight_of(device, "parameter", each.tensor.sizes(), Dtype::float32));
  }
  device.empty_cache();
}

namespace {

struct Adapted {
  std::string name;
  Linear linear;
};

// BaseTunerLayer._get_base_layer_device_and_dtype: adapters begin in the base's dtype, or in which a 4-bit one computes; integers say nothing.
Dtype first_dtype(const Linear& linear, Dtype weights) {
  if (!linear.parts->quantized) return linear.weight ? linear.weight.dtype() : weights;
  return linear.parts->quantized->bits == 4 && !linear.parts->quantized->gptq ? linear.parts->quantized->compute_dtype : Dtype::float32;
}

// deepcopy(base_layer): every tensor of a 4-bit layer once more; the state is there twice, of the layer and of its weight. Each copy passes
// through a tensor of one element.
std::vector<Tensor> deep_copy(Device& device, const QuantizedWeight& w) {
  const OpScope op(device, "deepcopy");
  std::vector<Tensor> copies;
  const auto copy = [&](const Tensor& tensor) {
    if (!tensor) return;
    copies.push_back(device.empty(tensor.sizes(), tensor.dtype()));
    device.scratch(size_of(tensor.dtype()));
  };
  const auto state = [&] {
    for (const Tensor* each : {&w.absmax, &w.code, &w.offset, &w.second_absmax, &w.second_code}) copy(*each);
  };
  state();
  copy(w.data);
  state();
  return copies;
}

// DoraLinearLayer.update_layer: the norm of each row of W + scaling * B @ A
Tensor dora_magnitude(Device& device, const Linear& linear, const LoraAdapter& adapter) {
  std::vector<Tensor> copies;
  if (linear.parts->quantized && linear.parts->quantized->bits == 4) copies = deep_copy(device, *linear.parts->quantized);
  const bool columns = linear.kind == Linear::conv1d;  // then what is summed up for a row lies in a column
  const Tensor weight = linear.parts->quantized ? dequantized(*linear.parts->quantized) : columns ? t(linear.weight) : linear.weight;
  const Dims sizes{adapter.b.size(0), adapter.a.size(1)};
  // float16 is multiplied in fp32, "as fp16 can cause trouble on CPU"
  const bool widened = adapter.a.dtype() == Dtype::float16;
  const Tensor wide_a = widened ? unary_no_grad(adapter.a, "float", Dtype::float32) : Tensor();
  const Tensor wide_b = widened ? unary_no_grad(adapter.b, "float", Dtype::float32) : Tensor();
  Tensor delta = device.empty(sizes, widened ? Dtype::float32 : adapter.a.dtype());
  device.use_cublas();
  if (widened) delta = unary_no_grad(delta, "half", Dtype::float16);
  Tensor sum;
  {
    const Tensor scaled = device.empty(sizes, delta.dtype());
    sum = add(weight, scaled);
  }
  const Tensor magnitude = weight_of(device, "lora_magnitude_vector", {sizes[0]}, sum.dtype());
  if (columns) reduction_scratch(device, column_sum_scratch(device.gpu(), sizes[1], sizes[0]));
  return magnitude;
}

void add_adapter(Device& device, const Linear& linear, const AdapterOptions& options, Dtype weights, Birth birth) {
  LoraAdapter& adapter = linear.parts->adapter.emplace();
  const Dtype dtype = first_dtype(linear, weights);
  adapter.dropout = options.dropout;
  const Dims a{options.rank, linear.in()}, b{linear.out(), options.rank};
  if (birth == Birth::on_gpu) {
    adapter.a = weight_of(device, "lora_A", a, Dtype::float32);
    adapter.b = weight_of(device, "lora_B", b, Dtype::float32);
  }
  // _move_adapter_to_device_of_base_layer
  if (birth == Birth::on_cpu || dtype != Dtype::float32) {
    adapter.a = weight_of(device, "lora_A", a, dtype);
    adapter.b = weight_of(device, "lora_B", b, dtype);
  }
  if (options.dora) adapter.magnitude = dora_magnitude(device, linear, adapter);
}

struct NamedAdapter {
  std::string module;
  LoraAdapter* adapter = nullptr;
};

// peft's ParamWrapper.update_layer: `rank` for each expert; two targets fused into one matrix give it twice the rank.
void adapt_experts(Device& device, const NamedMixture& named, const AdapterOptions& options, std::vector<NamedAdapter>& made) {
  const Mixture& mixture = *named.mixture;
  const Architecture& a = *mixture.architecture;
  const std::int64_t experts = a.experts.count, hidden = a.hidden_size;
  const auto adapt = [&](std::optional<LoraAdapter>& adapter, const std::string& module, const Tensor& weight, std::int64_t ranks,
                         std::int64_t in, std::int64_t out) {
    const ModuleScope scope(device, module);
    adapter.emplace();
    adapter->a = weight_of(device, "lora_A", {ranks, in}, weight.dtype());
    adapter->b = weight_of(device, "lora_B", {out, ranks}, weight.dtype());
    made.push_back({module, &*adapter});
  };
  ExpertAdapters& adapters = *mixture.adapters;
  const auto member = [&](char role) { return named.name + "." + std::string(name_of(a.names.mixture, role)); };
  const std::string of_experts = member('E');
  const ExpertTargets targets = expert_targets(a, options);
  if (targets.router && mixture.router && !mixture.router_linear.weight)
    adapt(adapters.router, member('R'), mixture.router, options.rank, hidden, experts);
  const std::int64_t width = mixture.gate_up.size(1);
  if (targets.gate_up) adapt(adapters.gate_up, of_experts + ".gate_up_proj", mixture.gate_up, 2 * options.rank * experts, hidden, width);
  if (targets.down) adapt(adapters.down, of_experts + ".down_proj", mixture.down, options.rank * experts, mixture.down.size(2), hidden);
}

// The order of model.named_parameters(), in which adapters are cast and given to the optimizer.
void in_order_of_modules(const CausalLm& model, std::vector<NamedAdapter>& made) {
  std::map<std::string_view, std::size_t> place;
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const std::string& name = model.parameters()[i].name;
    place[name] = i;
    place.emplace(module_of(name), i);
  }
  const auto before = [&](const NamedAdapter& one, const NamedAdapter& other) { return place[one.module] < place[other.module]; };
  std::stable_sort(made.begin(), made.end(), before);
}

}  // namespace

namespace {

// peft/utils/other.py, _set_trainable: key.endswith(target_key), be it in the middle of a word.
bool asks_for(const std::vector<std::string>& modules, std::string_view name) {
  return std::any_of(modules.begin(), modules.end(), [&](const std::string& each) {
    return !each.empty() && name.size() >= each.size() && name.substr(name.size() - each.size()) == each;
  });
}

// A module that holds the parameter, at whatever depth, is asked for.
bool is_copied(const std::vector<std::string>& modules, std::string_view parameter) {
  for (std::string_view module = parameter; module.find('.') != std::string_view::npos;) {
    module = module_of(module);
    if (asks_for(modules, module)) return true;
  }
  return false;
}

std::string embedding_of(const Architecture& a) { return std::string(a.names.model) + "." + std::string(a.names.embedding); }

// peft/utils/other.py, ModulesToSaveWrapper: deepcopy(original_module), in the order of model.named_modules(). What trains of the model now.
struct Copies {
  NamedTensor embedding, head;
  std::vector<NamedTensor> others;
};
Copies train_copies(Device& device, CausalLm& model, const std::vector<std::string>& modules) {
  Copies copies;
  if (modules.empty()) return copies;
  const auto copy_of = [&](const std::string& name, const Tensor& original) {
    const ModuleScope scope(device, module_of(name));
    return weight_of(device, "modules_to_save", original.sizes(), original.dtype());
  };
  const auto trained = [&](const std::string& name, const Tensor& original) {
    if (!original || !is_copied(modules, name)) return NamedTensor{};
    const Tensor made = copy_of(name, original);
    require_grad(made);
    return NamedTensor{name, made, -1};
  };
  const Architecture& a = model.architecture();
  const std::string weight = ".weight";
  const Tensor embedding = model.embedding_weight();
  copies.embedding = trained(embedding_of(a) + weight, embedding);
  model.train_copies(copies.embedding.tensor, {});
  for (const NamedTensor& each : model.parameters()) {
    const bool other = each.tensor.get() != embedding.get() && each.tensor.get() != model.head_weight().get();
    if (!other || !is_copied(modules, each.name)) continue;
    model.train_copy(each.tensor, copy_of(each.name, each.tensor));
    copies.others.push_back(each);
  }
  copies.head = trained(std::string(a.names.head) + weight, model.head_weight());
  model.train_copies({}, copies.head.tensor);
  return copies;
}

// "model.layers.0.mlp.up_proj.lora_A.weight" -> "model.layers.0.mlp.up_proj"
std::string_view adapted_module(std::string_view adapter) { return module_of(module_of(adapter)); }

// Copies among what trains, in the order of the modules.
void insert_copies(const CausalLm& model, const std::vector<NamedTensor>& copies, std::vector<NamedTensor>& trained) {
  if (copies.empty()) return;
  std::map<std::string_view, std::size_t> last;  // a module's last parameter; an adapter comes after it
  std::map<std::string_view, std::size_t> place;
  for (std::size_t i = 0; i < model.parameters().size(); ++i) {
    const std::string& name = model.parameters()[i].name;
    last[module_of(name)] = place[name] = i;
  }
  const auto place_of = [&](std::string_view name) {
    if (const auto found = place.find(name); found != place.end()) return found->second;
    const auto found = last.find(adapted_module(name));
    return found != last.end() ? found->second : model.parameters().size();
  };
  for (const NamedTensor& copy : copies) {
    const std::size_t own = place_of(copy.name);
    const auto after = std::find_if(trained.begin(), trained.end(), [&](const NamedTensor& each) { return place_of(each.name) > own; });
    trained.insert(after, copy);
  }
}

std::vector<const NamedLinear*> adapted_linears(const CausalLm& model, const AdapterOptions& options) {
  const bool on_experts = expert_targets(model.architecture(), options).any();
  std::vector<const NamedLinear*> adapted;
  for (const NamedLinear& each : model.linears()) {
    if (options.all_linear ? each.name == "lm_head" : !any_ends(each.name, options.targets)) continue;
    if (on_experts && names_a_part_of_experts(model.architecture(), each.name)) continue;
    adapted.push_back(&each);
  }
  return adapted;
}

}  // namespace

std::vector<NamedTensor> add_adapters(Device& device, CausalLm& model, const AdapterOptions& options, Dtype weights, Birth birth) {
  const bool on_experts = expert_targets(model.architecture(), options).any();
  const std::vector<const NamedLinear*> adapted = adapted_linears(model, options);
  for (const NamedLinear* linear : adapted) {
    const NamedLinear& each = *linear;
    const ModuleScope scope(device, each.name);
    add_adapter(device, each.linear, options, weights, birth);
  }
  std::vector<NamedAdapter> made;
  made.reserve(adapted.size());
  for (const NamedLinear* each : adapted) made.push_back({each->name, &*each->linear.parts->adapter});
  if (on_experts) {
    for (const NamedMixture& each : model.mixtures()) adapt_experts(device, each, options, made);
    in_order_of_modules(model, made);
  }
  const Copies copies = train_copies(device, model, trained_whole(model.architecture(), options));
  // cast_adapter_dtype: half-precision adapters become fp32 once all are made.
  std::vector<NamedTensor> trained;
  if (copies.embedding.tensor) trained.push_back(copies.embedding);
  for (const auto& [module, adapter] : made) {
    const ModuleScope scope(device, module);
    for (const auto& [name, tensor] :
         {std::pair{"lora_A", &adapter->a}, std::pair{"lora_B", &adapter->b}, std::pair{"lora_magnitude_vector", &adapter->magnitude}}) {
      if (!*tensor) continue;
      if (options.upcast && tensor->dtype() != Dtype::float32) *tensor = weight_of(device, name, tensor->sizes(), Dtype::float32);
      require_grad(*tensor);
      trained.push_back({module + "." + name + ".weight", *tensor, -1});
    }
  }
  if (copies.head.tensor) trained.push_back(copies.head);
  insert_copies(model, copies.others, trained);
  return trained;
}

std::vector<NamedTensor> add_litgpt_adapters(Device& device, const CausalLm& model, const Training& training) {
  std::vector<NamedTensor> trained;
  const Architecture& a = model.architecture();
  for (const LitAdapter& each : litgpt_adapters(a, training.adapter)) {
    const auto found =
        std::find_if(model.linears().begin(), model.linears().end(), [&](const NamedLinear& linear) { return linear.name == each.module; });
    const ModuleScope scope(device, each.module);
    LinearParts& parts = *found->linear.parts;
    LoraAdapter& adapter = parts.adapter.emplace();
    adapter.dropout = training.adapter.dropout;
    adapter.a = weight_of(device, "lora_A", {each.ranks, each.in}, training.weights);
    adapter.b = weight_of(device, "lora_B", {each.out, each.rank}, training.weights);
    if (!each.parts.empty()) parts.lit = LitParts{each.parts, each.grouped, (a.heads + 2 * a.kv_heads) * a.head_dim, {}};
    if (each.padded && parts.lit) parts.lit->columns = weight_of(device, "_lora_ind", {each.out}, Dtype::int64);
    for (const auto& [name, tensor] : {std::pair{".lora_A", adapter.a}, std::pair{".lora_B", adapter.b}}) {
      require_grad(tensor);
      trained.push_back({each.module + name, tensor, -1});
    }
  }
  return trained;
}

namespace {

// What adapt_experts makes for one parameter of a mixture: its router [experts, in], or all experts' matrices [experts, out, in].
std::int64_t count_on_experts(const Architecture& a, const Parameter& each, std::int64_t rank, const ExpertTargets& targets) {
  const std::vector<std::int64_t>& shape = each.shape;
  if (shape.size() == 2 && ends_in(module_of(each.name), name_of(a.names.mixture, 'R')))
    return targets.router ? rank * (shape[0] + shape[1]) : 0;
  if (shape.size() != 3 || !ends_in(module_of(each.name), name_of(a.names.mixture, 'E'))) return 0;
  const bool fused = ends_in(each.name, "gate_up_proj");
  if (fused ? !targets.gate_up : !targets.down) return 0;
  return rank * shape[0] * (fused ? 2 : 1) * (shape[1] + shape[2]);
}

}  // namespace

Architecture untied(Architecture architecture) {
  if (!architecture.tied_embeddings) return architecture;
  architecture.tied_embeddings = false;
  Parameter head;
  head.name = std::string(architecture.names.head) + ".weight";
  head.shape = {architecture.vocab_size, architecture.hidden_size};
  architecture.tensors.push_back(std::move(head));
  return architecture;
}

// A part of the dotted name: "layers.1" is none of "model.layers.10.mlp.up_proj.weight".
bool trains(const Training& training, std::string_view name) {
  const std::string dotted = "." + std::string(name) + ".";
  const auto names_it = [&](const std::string& module) { return dotted.find("." + module + ".") != std::string::npos; };
  const auto any = [&](const std::vector<std::string>& modules) { return std::any_of(modules.begin(), modules.end(), names_it); };
  return (training.trained.empty() || any(training.trained)) && !any(training.frozen);
}

std::int64_t trained_count(const Training& training, const Architecture& a) {
  const AdapterOptions& options = training.adapter;
  const ExpertTargets experts = expert_targets(a, options);
  const bool on_experts = experts.any();
  const std::string embedding = embedding_of(a);
  const std::vector<std::string> whole = trained_whole(a, options);
  std::int64_t count = 0;
  if (a.litgpt && training.method == Method::lora) {
    for (const LitAdapter& each : litgpt_adapters(a, options)) count += each.ranks * each.in + each.out * each.rank;
    return count;
  }
  for (const Parameter& each : a.tensors) {
    if (each.kind != Parameter::Kind::parameter) continue;
    const std::string_view module = module_of(each.name);
    const bool copied = is_copied(whole, each.name);
    const bool adaptable = each.of_linear && !(on_experts && names_a_part_of_experts(a, module));
    if (training.method == Method::full) {
      if (trains(training, each.name)) count += each.count();
    } else if (copied) {
      count += each.count();
    } else if (adaptable && (options.all_linear ? module != a.names.head : any_ends(module, options.targets))) {
      const std::size_t out = a.model_type == "gpt2" ? 1 : 0;  // Conv1D, whose weight is [in, out]
      count += options.rank * (each.shape[0] + each.shape[1]) + (options.dora ? each.shape[out] : 0);
    } else if (on_experts) {
      count += count_on_experts(a, each, options.rank, experts);
    }
    const bool head_too = module == embedding && a.tied_embeddings && training.method == Method::lora;
    if (head_too && asks_for(options.modules_to_save, a.names.head)) count += each.count();
  }
  return count;
}

Problems check_trained(const Training& training, const Architecture& a) {
  const auto problem = [](const char* at, std::string message) { return Problems{{at, "conflict", std::move(message)}}; };
  if (training.method == Method::full) {
    if ((training.trained.empty() && training.frozen.empty()) || trained_count(training, a) > 0) return {};
    return problem(training.trained.empty() ? "/training/frozen" : "/training/trained", "no parameter of this model is left to train");
  }
  const AdapterOptions& options = training.adapter;
  for (const std::string& each : options.modules_to_save) {
    const std::vector<std::string> alone{each};
    bool found = asks_for(alone, a.names.head);
    for (const Parameter& parameter : a.tensors) {
      if (parameter.kind != Parameter::Kind::parameter || !is_copied(alone, parameter.name)) continue;
      found = true;
      const std::string_view module = module_of(parameter.name);
      const bool linear = parameter.of_linear && module != a.names.head;
      // AuxiliaryTrainingWrapper.check_module, and a quantised weight that could not train
      if (linear && (options.all_linear || any_ends(module, options.targets)))
        return problem("/training/adapter/modules_to_save",
                       "\"" + each + "\" has adapters: it can be a target or be saved whole, not both");
      if (linear && training.base_quantization && !any_ends(module, training.base_quantization->skip))
        return problem("/training/adapter/modules_to_save",
                       "\"" + each + "\" is quantised and cannot be trained: name it in base_quantization.skip");
    }
    if (!found) return problem("/training/adapter/modules_to_save", "no module of this model has a name that ends in \"" + each + "\"");
  }
  return {};
}

// trl/trainer/sft_trainer.py
void lower_adapters(Device& device, const std::vector<NamedTensor>& adapters) {
  for (const NamedTensor& each : adapters) {
    if (each.tensor.dtype() == Dtype::bfloat16 || each.name.find("lora_magnitude_vector") != std::string::npos) continue;
    const ModuleScope scope(device, module_of(each.name));
    set_data(each.tensor, weight_of(device, "adapter", each.tensor.sizes(), Dtype::bfloat16));
    require_grad(each.tensor);
  }
}

std::vector<NamedTensor> declare_adapters(const CausalLm& model, const AdapterOptions& options, const MakeAdapter& make) {
  const auto unit_of = [&](const Linear& linear) {
    for (const NamedTensor& each : model.parameters())
      if (each.tensor.get() == linear.weight.get()) return each.unit;
    return -1;
  };
  std::vector<NamedTensor> declared;
  for (const NamedLinear* each : adapted_linears(model, options)) {
    const Linear& linear = each->linear;
    LoraAdapter& adapter = linear.parts->adapter.emplace();
    const Dtype dtype = Dtype::float32;  // over a base without memory PEFT changes nothing about them
    const int unit = unit_of(linear);
    adapter.dropout = options.dropout;
    const auto add = [&](const char* name, const Dims& sizes, Tensor& to) {
      const std::string path = each->name + "." + name + ".weight";
      to = make({path, TensorRequest::parameter, sizes, dtype, unit});
      declared.push_back({path, to, unit});
    };
    add("lora_A", {options.rank, linear.in()}, adapter.a);
    add("lora_B", {linear.out(), options.rank}, adapter.b);
    if (options.dora) add("lora_magnitude_vector", {linear.out()}, adapter.magnitude);
  }
  return declared;
}

std::vector<NamedTensor> with_adapters(const std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& adapters) {
  std::vector<NamedTensor> all;
  auto next = adapters.begin();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back(tensors[i]);
    const std::string_view module = module_of(tensors[i].name);
    if (i + 1 < tensors.size() && module_of(tensors[i + 1].name) == module) continue;
    // Adapters come in the order of the modules, which is that of the tensors but where a family calls them in another.
    if (next == adapters.end() || adapted_module(next->name) != module)
      next = std::find_if(adapters.begin(), adapters.end(), [&](const NamedTensor& a) { return adapted_module(a.name) == module; });
    for (; next != adapters.end() && adapted_module(next->name) == module; ++next) all.push_back(*next);
  }
  return all;
}

std::vector<Tensor> held_parameters(const CausalLm& model, const std::vector<NamedTensor>& adapters) {
  std::vector<Tensor> held;
  const std::vector<NamedTensor> all = with_adapters(model.parameters(), adapters);
  for (const NamedTensor& each : all) {
    if (each.tensor->storage->allocated()) held.push_back(each.tensor);
    for (const NamedLinear& linear : model.linears())
      if (linear.linear.weight.get() == each.tensor.get() && linear.linear.parts->quantized)
        held.push_back(linear.linear.parts->quantized->data);
  }
  // A copy that trains (modules_to_save) has its original's name, and a module that has others inside has no place among the adapters.
  const auto times = [](const std::vector<NamedTensor>& tensors, const std::string& name) {
    return std::count_if(tensors.begin(), tensors.end(), [&](const NamedTensor& t) { return t.name == name; });
  };
  for (const NamedTensor& each : adapters)
    if (times(all, each.name) <= times(model.parameters(), each.name)) held.push_back(each.tensor);
  return held;
}

}  // namespace llmem
