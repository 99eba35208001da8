#pragma once

#include <vector>

#include "model/causal_lm.h"
#include "spec/spec.h"

// A frozen base with adapters: bitsandbytes' quantisation, PEFT's preparation and LoRA.
namespace llmem {

// Gives a model that was made without memory the one that a quantised model has after loading: the quantised weights first, then what
// stays as it is, in the order of the modules. `others`: every parameter and buffer, in that order.
void load_quantized(Device& device, const CausalLm& model, const BaseQuantization& quantization, Dtype dtype, bool tied_head,
                    const std::vector<Tensor>& others);

// peft.prepare_model_for_kbit_training: what is left in half precision becomes fp32.
void prepare_for_training(Device& device, const std::vector<NamedTensor>& parameters);

// peft.get_peft_model: adapters, and copies of the modules to save. Returns what trains, in the order of model.parameters().
std::vector<NamedTensor> add_adapters(Device& device, CausalLm& model, const AdapterOptions& options, Dtype weights);

// How many parameters train.
std::int64_t trained_count(const Training& training, const Architecture& architecture);

// Which modules PEFT's modules_to_save may name.
Problems check_copies(const AdapterOptions& options, const Architecture& architecture);

// What SFTTrainer does to the adapters of a quantised base: all but DoRA's magnitude become bfloat16.
void lower_adapters(Device& device, const std::vector<NamedTensor>& adapters);

}  // namespace llmem
