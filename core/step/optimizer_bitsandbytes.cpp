#include "step/optimizer.h"

// bitsandbytes.optim (bitsandbytes/optim/optimizer.py): states in fp32 whatever the parameter's dtype, or in 8 bits with one fp32 scale for
// every 256 values. No temporaries. A paged state of 100,000 elements or more is managed memory, outside PyTorch's allocator.
namespace llmem {

namespace {

constexpr std::int64_t smallest_in_8_bits = 4096, smallest_paged = 100'000, block = 256, map_entries = 256;

struct Rule {
  int first_copies;  // the first state's size, in parameters
  bool second;       // whether there is a second state
  bool in_8_bits, paged;
};

Rule rule_of(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw_8bit: return {1, true, true, false};
    case OptimizerName::paged_adamw: return {1, true, false, true};
    case OptimizerName::paged_adamw_8bit: return {1, true, true, true};
    case OptimizerName::lion_8bit: return {1, false, true, false};
    case OptimizerName::lion_bnb: return {1, false, false, false};
    case OptimizerName::paged_lion: return {1, false, false, true};
    case OptimizerName::paged_lion_8bit: return {1, false, true, true};
    case OptimizerName::sgd_8bit:
    case OptimizerName::rmsprop_8bit: return {1, false, true, false};
    case OptimizerName::ademamix: return {2, true, false, false};
    case OptimizerName::ademamix_8bit: return {2, true, true, false};
    default: return {1, true, false, false};  // adamw_bnb
  }
}

class BitsAndBytes : public Optimizer {
 public:
  BitsAndBytes(Device& device, std::vector<NamedTensor> parameters, Rule rule, const Tensor& in_32_bits)
      : Optimizer(device, std::move(parameters)), rule_(rule), in_32_bits_(in_32_bits) {}

  void step() override {
    if (!states_.empty()) return;
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      make_state(parameter.tensor);
    }
  }

 private:
  void make_state(const Tensor& p) {
    const bool in_8_bits = rule_.in_8_bits && p.numel() >= smallest_in_8_bits && p.get() != in_32_bits_.get();
    const Dtype dtype = in_8_bits ? Dtype::uint8 : Dtype::float32;
    const bool scales_first = rule_.first_copies > 1;  // bitsandbytes/optim/ademamix.py, init_state
    if (in_8_bits) make_maps();
    if (in_8_bits && scales_first) make_scales(p);
    if (!rule_.paged || p.numel() < smallest_paged) {
      states_.push_back(state("state1", {rule_.first_copies, p.numel()}, dtype));
      if (rule_.second) states_.push_back(state("state2", p.sizes(), dtype));
    }
    if (in_8_bits && !scales_first) make_scales(p);
  }

  // The tables of the dynamic data type, shared by all.
  void make_maps() {
    if (maps_made_) return;
    maps_made_ = true;
    states_.push_back(state("qmap1", {map_entries}, Dtype::float32));
    if (rule_.second) states_.push_back(state("qmap2", {map_entries}, Dtype::float32));
  }

  void make_scales(const Tensor& p) {
    const std::int64_t blocks = divide_up(p.numel(), block);
    states_.push_back(state("absmax1", {rule_.first_copies, blocks}, Dtype::float32));
    if (rule_.second) states_.push_back(state("absmax2", {blocks}, Dtype::float32));
  }

  Rule rule_;
  Tensor in_32_bits_;  // GlobalOptimManager.register_module_override
  bool maps_made_ = false;
  std::vector<Tensor> states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_bitsandbytes(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options,
                                             const Tensor& in_32_bits) {
  return std::make_unique<BitsAndBytes>(device, std::move(parameters), rule_of(options.name), in_32_bits);
}

}  // namespace llmem
