#pragma once

#include <cstdint>
#include <initializer_list>

#include "tensor/device.h"
#include "tensor/tensor.h"

namespace llmem {

// What a framework hangs on every torch.nn.Module (register_forward_pre_hook, register_forward_hook), parents and children alike.
class ModuleHooks {
 public:
  virtual ~ModuleHooks() = default;
  // `parameters`: the module's own, where it has any. `input`: its positional tensor, which the hook may replace; none: it is called by
  // keywords.
  virtual void enter(std::uint64_t module, std::initializer_list<const Tensor*> parameters, Tensor& input) = 0;
  virtual void leave(std::uint64_t module, Tensor& output) = 0;
  // A module that is running looks at a parameter of another one.
  virtual void look(std::uint64_t module, const Tensor& parameter) = 0;
  // DeepSpeed's ZeRO-3, which has a linear of its own and exchanges a parameter's memory.
  virtual bool of_zero3() const { return false; }
};

// Modules that share a place in the trace are told apart by their part.
enum ModulePart : std::uint8_t { itself, base_layer, lora_dropout, lora_a, lora_b, activation_function, attention_block, mlp_block, parts };

// Calls a module: its hooks, its forward, its hooks. A recomputation that stops in the middle comes to no more hooks, as the exception
// that ends PyTorch's does not.
template <class Forward>
Tensor call_module(Device& device, const Tensor& input, ModulePart part, std::initializer_list<const Tensor*> parameters,
                   const Forward& forward) {
  ModuleHooks* hooks = device.module_hooks;
  if (!hooks || device.stopped) return forward(input);
  const std::uint64_t module = std::uint64_t{device.module()} * parts + part;
  Tensor entered = input;
  hooks->enter(module, parameters, entered);
  Tensor output = forward(entered);
  if (!device.stopped) hooks->leave(module, output);
  return output;
}

}  // namespace llmem
