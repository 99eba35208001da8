#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"

// A frozen base with adapters: bitsandbytes' quantisation, PEFT's preparation and LoRA.
namespace llmem {

// Gives a model that was made without memory the one that a quantised model has after loading: the quantised weights first, then what
// stays as it is, in the order of the modules. `others`: every parameter and buffer, in that order.
void load_quantized(Device& device, const CausalLm& model, const BaseQuantization& quantization, Dtype dtype, bool tied_head,
                    const std::vector<NamedTensor>& others);

// The same of a model whose parameters are given memory later: `pack` gives a weight's packed values their tensor, of these sizes. The
// scales get memory at once.
// `beside`: it is one more than the weight.
using Pack = std::function<Tensor(const Tensor& weight, const Dims& sizes, bool beside)>;
void quantize_linears(Device& device, const CausalLm& model, const BaseQuantization& quantization, Dtype dtype, const Pack& pack);

// peft.prepare_model_for_kbit_training: what is left in half precision becomes fp32.
void prepare_for_training(Device& device, const std::vector<NamedTensor>& parameters);

// Adapters are born in fp32: on the CPU, or on the GPU where that is the default device.
enum class Birth : std::uint8_t { on_cpu, on_gpu };
// peft.get_peft_model: adapters, and copies of the modules to save. Returns what trains, in the order of model.parameters().
std::vector<NamedTensor> add_adapters(Device& device, CausalLm& model, const AdapterOptions& options, Dtype weights,
                                      Birth birth = Birth::on_cpu);

// The model whose head is a parameter of its own, as where modules are given memory one by one from the meta device, or are cut one by one.
Architecture untied(Architecture architecture);

// Method full: whether the parameter of this name trains.
bool trains(const Training& training, std::string_view name);

// litgpt's adapters, as lora.py registers them: in the weights' dtype, B after A.
std::vector<NamedTensor> add_litgpt_adapters(Device& device, const CausalLm& model, const Training& training);

// How many parameters train.
std::int64_t trained_count(const Training& training, const Architecture& architecture);

// That something trains, and which modules PEFT's modules_to_save may name.
Problems check_trained(const Training& training, const Architecture& architecture);

// What SFTTrainer does to the adapters of a quantised base: all but DoRA's magnitude become bfloat16.
void lower_adapters(Device& device, const std::vector<NamedTensor>& adapters);

// The same of a model on the meta device, which is given memory later: `make` gives each adapter its tensor, in the dtype that PEFT
// leaves it in.
using MakeAdapter = std::function<Tensor(const TensorRequest& request)>;
std::vector<NamedTensor> declare_adapters(const CausalLm& model, const AdapterOptions& options, const MakeAdapter& make);

// A model's tensors in some order of its modules, and each layer's adapters after the layer's own, as PEFT's module has them.
std::vector<NamedTensor> with_adapters(const std::vector<NamedTensor>& tensors, const std::vector<NamedTensor>& adapters);

// Every parameter as it is held, frozen or not: a quantised weight by its packed values, copies that train behind all others.
std::vector<Tensor> held_parameters(const CausalLm& model, const std::vector<NamedTensor>& adapters);

}  // namespace llmem
