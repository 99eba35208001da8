#include "step/optimizer.h"

// torchao.optim (torchao/optim/adam.py): both moments of a parameter in 8 or 4 bits or float8 with an fp32 scale for every block of values,
// where the blocks divide it; otherwise as the parameter. A compiled function updates one parameter after the other.
namespace llmem {

namespace {

constexpr std::int64_t smallest_quantized = 4096;

struct Rule {
  std::int64_t block;    // values that share a scale; 0: nothing is quantised
  std::int64_t in_byte;  // values in a byte
  std::int64_t map;      // entries of the table that says what a code stands for; 0: none
};

Rule rule_of(OptimizerName name) {
  switch (name) {
    case OptimizerName::adamw_8bit_torchao: return {256, 1, 256};  // subclass_8bit.py, OptimState8bit.zeros
    case OptimizerName::adamw_4bit_torchao: return {128, 2, 16};   // subclass_4bit.py, OptimState4bit.zeros
    case OptimizerName::adamw_fp8_torchao: return {256, 1, 0};     // subclass_fp8.py, OptimStateFp8.zeros
    default: return {0, 1, 0};
  }
}

class TorchAo : public Optimizer {
 public:
  TorchAo(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options)
      : Optimizer(device, std::move(parameters)), options_(options), rule_(rule_of(options.name)) {}

  void step() override {
    const bool first = states_.empty();
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      const Tensor& p = parameter.tensor;
      if (first) {
        make_state("exp_avg", p);
        make_state("exp_avg_sq", p);
      }
      if (is_quantized(p)) update(p);
    }
  }

 private:
  bool is_quantized(const Tensor& p) const { return rule_.block > 0 && p.numel() >= smallest_quantized && p.numel() % rule_.block == 0; }

  void make_state(const char* name, const Tensor& p) {
    if (!is_quantized(p)) return states_.push_back(state_like(name, p));
    states_.push_back(state(name, {p.numel() / rule_.in_byte}, Dtype::uint8));
    states_.push_back(state("scale", {p.numel() / rule_.block}, Dtype::float32));
    if (rule_.map > 0) states_.push_back(state("qmap", {rule_.map}, Dtype::float32));
  }

  // What inductor makes of single_param_adam, in its order: the new scales of both moments; where codes are looked up, their values; for two
  // codes in a byte, the codes as 64-bit integers.
  void update(const Tensor& p) const {
    const auto scale = [&] { return device_.empty({p.numel() / rule_.block}, Dtype::float32); };
    Tensor first_scale = scale(), second_scale = scale();
    if (rule_.map == 0) {
      first_scale.reset();
      return;
    }
    Tensor first = like("exp_avg_f32", p, Dtype::float32), second = like("exp_avg_sq_f32", p, Dtype::float32);
    if (rule_.in_byte == 1) {
      first.reset();
      second.reset();
      first_scale.reset();
      second_scale.reset();
      return;
    }
    Tensor first_codes = like("exp_avg_codes", p, Dtype::int64), second_codes = like("exp_avg_sq_codes", p, Dtype::int64);
    for (Tensor* each : {&first_scale, &second_scale, &first, &first_codes, &second, &second_codes}) each->reset();
  }

  OptimizerOptions options_;
  Rule rule_;
  std::vector<Tensor> states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_torchao(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options) {
  return std::make_unique<TorchAo>(device, std::move(parameters), options);
}

}  // namespace llmem
