#include <limits>

#include "step/optimizer.h"
#include "tensor/ops.h"

// Adafactor keeps the second moment of a matrix as one value a row and one a column.
namespace llmem {

namespace {

Dims row_of(const Dims& sizes) { return {sizes[0], 1}; }
Dims column_of(const Dims& sizes) { return {1, sizes[1]}; }

// A mean or a norm along the last dimension, and along the one before.
Tensor over_columns(const Tensor& matrix, const char* name, const Dims& sizes) {
  Device& device = matrix.device();
  const OpScope op(device, name);
  const Tensor result = device.empty(sizes, matrix.dtype());
  reduction_scratch(device, row_sum_scratch(device.gpu(), matrix.size(0), matrix.size(1)));
  return result;
}

// aten/src/ATen/native/cuda/Reduce.cuh: what 32-bit offsets do not reach is halved along its longest dimension (TensorIterator.cpp,
// get_dim_to_split), and each part reduced in turn.
void reduce_rows(Device& device, std::int64_t rows, std::int64_t columns, std::int64_t itemsize) {
  if (rows * columns * itemsize > std::numeric_limits<std::int32_t>::max()) {
    reduce_rows(device, rows - rows / 2, columns, itemsize);
    return reduce_rows(device, rows / 2, columns, itemsize);
  }
  reduction_scratch(device, column_sum_scratch(device.gpu(), rows, columns));
}

Tensor over_rows(const Tensor& matrix, const char* name, const Dims& sizes) {
  Device& device = matrix.device();
  const OpScope op(device, name);
  const Tensor result = device.empty(sizes, matrix.dtype());
  reduce_rows(device, matrix.size(0), matrix.size(1), matrix.itemsize());
  return result;
}

// torch/optim/_adafactor.py, _single_tensor_adafactor and _multi_tensor_adafactor
class TorchAdafactor : public Optimizer {
 public:
  TorchAdafactor(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options)
      : Optimizer(device, std::move(parameters)), options_(options) {}

  void step() override {
    if (parameters_.empty()) return;  // all of them are on the host
    if (states_.empty()) make_states();
    if (options_.implementation == OptimizerImplementation::foreach) return update_groups();
    Names names;
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      update(parameter.tensor, names);
    }
  }

 private:
  // Python's names, which live until they are bound again.
  struct Names {
    Tensor gradient, row_mean, column_mean, var_estimate, update, grad_squared;
  };
  using List = std::vector<Tensor>;
  struct Lists {
    List gradients, var_estimates, updates;
  };

  void make_states() {
    for (const NamedTensor& parameter : parameters_) {
      const ModuleScope scope = scope_of(parameter);
      const Tensor& p = parameter.tensor;
      if (p.dim() > 1) {
        states_.push_back(state("row_var", row_of(p.sizes()), p.dtype()));
        states_.push_back(state("col_var", column_of(p.sizes()), p.dtype()));
      } else {
        states_.push_back(state_like("variance", p));
      }
    }
  }

  // Matrices and vectors apart, in the order in which the first of each comes.
  void update_groups() const {
    Lists lists;
    const bool matrices_first = parameters_.front().tensor.dim() > 1;
    for (const bool matrices : {matrices_first, !matrices_first}) {
      List group;
      for (const NamedTensor& each : parameters_) {
        if ((each.tensor.dim() > 1) == matrices) group.push_back(each.tensor);
      }
      if (!group.empty()) update_group(group, matrices, lists);
    }
  }

  void update_group(const List& group, bool matrices, Lists& lists) const {
    const auto list = [&](const std::function<Tensor(const Tensor&)>& of) {
      List made;
      for (const Tensor& p : group) made.push_back(of(p));
      return made;
    };
    lists.gradients.clear();
    if (options_.maximize) lists.gradients = list([](const Tensor& p) { return like("negated_grad", p); });
    for (const Tensor& p : group) norm(p);
    if (matrices) {
      list([](const Tensor& p) { return over_columns(p, "row_mean", row_of(p.sizes())); });
      list([](const Tensor& p) { return over_rows(p, "col_mean", column_of(p.sizes())); });
      lists.var_estimates = list([](const Tensor& p) { return like("var_estimate", p); });
      list([this](const Tensor& p) { return mean_of_rows(p); });
    } else {
      list([](const Tensor& p) { return like("grad_squared", p); });
      lists.var_estimates = list([](const Tensor& p) { return like("var_estimate", p); });
    }
    lists.updates = lists.var_estimates;
    for (const Tensor& each : lists.updates) norm(each);
  }

  // row_var.mean(dim=-2, keepdim=True)
  Tensor mean_of_rows(const Tensor& p) const {
    const Tensor mean = device_.empty({1, 1}, p.dtype());
    reduction_scratch(device_, row_sum_scratch(device_.gpu(), 1, p.size(0)));
    return mean;
  }

  void update(const Tensor& p, Names& names) const {
    names.gradient.reset();
    if (options_.maximize) names.gradient = like("negated_grad", p);
    norm(p);
    if (p.dim() > 1) {
      names.row_mean = over_columns(p, "row_mean", row_of(p.sizes()));
      names.column_mean = over_rows(p, "col_mean", column_of(p.sizes()));
      names.var_estimate = device_.empty(p.sizes(), p.dtype());
      mean_of_rows(p);
    } else {
      names.grad_squared = like("grad_squared", p);
      names.var_estimate = like("var_estimate", p);
    }
    names.update = names.var_estimate;
    norm(names.update);
  }

  OptimizerOptions options_;
  std::vector<Tensor> states_;
};

// transformers/optimization.py, Adafactor: in fp32, with copies of a half-precision parameter and its gradient.
class TransformersAdafactor : public Optimizer {
 public:
  TransformersAdafactor(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options)
      : Optimizer(device, std::move(parameters)), options_(options) {}

  void step() override {
    Names names;
    states_.resize(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const ModuleScope scope = scope_of(parameters_[i]);
      update(parameters_[i].tensor, states_[i], names);
    }
  }

 private:
  struct State {
    Tensor average, row, column, whole, rms;
  };
  struct Names {
    Tensor gradient, parameter, update;
  };

  void make_state(const Tensor& p, State& made) const {
    if (options_.first_moment) made.average = state("exp_avg", p.sizes(), Dtype::float32);
    if (p.dim() > 1) {
      made.row = state("exp_avg_sq_row", {p.size(0)}, Dtype::float32);
      made.column = state("exp_avg_sq_col", {p.size(1)}, Dtype::float32);
    } else {
      made.whole = state("exp_avg_sq", p.sizes(), Dtype::float32);
    }
  }

  // _rms: the norm over the root of the count
  static Tensor rms(const Tensor& tensor) {
    const Tensor whole = norm(tensor);
    return like("rms", whole);
  }

  // _approx_sq_grad
  Tensor approximated(const State& held, const Dims& sizes) const {
    Tensor row_factor;
    {
      const Tensor mean = device_.empty({1}, Dtype::float32);
      reduction_scratch(device_, row_sum_scratch(device_.gpu(), 1, sizes[0]));
      row_factor = like("r_factor", held.row);
    }
    const Tensor column_factor = like("c_factor", held.column);
    return device_.empty(sizes, Dtype::float32);
  }

  void update(const Tensor& p, State& held, Names& names) const {
    const OpScope op(device_, "adafactor");
    const bool half = p.dtype() != Dtype::float32;
    names.gradient.reset();
    if (half) names.gradient = like("grad", p, Dtype::float32);
    if (!held.row && !held.whole) make_state(p, held);
    names.parameter.reset();
    if (half) names.parameter = like("p_data_fp32", p, Dtype::float32);
    const Tensor& parameter = half ? names.parameter : p;
    held.rms = rms(parameter);
    if (options_.scale_parameter) device_.scratch(Bytes{1});  // _get_lr: max(eps, RMS) compares
    {
      const Tensor squared = like("grad_squared", p, Dtype::float32);
      names.update = like("update", squared);
    }
    if (p.dim() > 1) {
      over_columns(names.update, "mean", {p.size(0)});
      over_rows(names.update, "mean", {p.size(1)});
      names.update = approximated(held, p.sizes());
    } else {
      names.update = like("update", names.update);
    }
    {
      Tensor ratio = rms(names.update);
      ratio = like("ratio", ratio);
    }
    if (options_.first_moment) names.update = held.average;
    like("negated", names.update);
  }

  OptimizerOptions options_;
  std::vector<State> states_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(Device& device, std::vector<NamedTensor> parameters, const OptimizerOptions& options) {
  if (options.name == OptimizerName::adafactor) return std::make_unique<TorchAdafactor>(device, std::move(parameters), options);
  return std::make_unique<TransformersAdafactor>(device, std::move(parameters), options);
}

}  // namespace llmem
