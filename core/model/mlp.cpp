#include "model/mlp.h"

#include "model/activation.h"
#include "tensor/module_hooks.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// XIELUActivation._xielu_python
Tensor xielu(const Mlp::Xielu& of, const Tensor& x) {
  const ModuleScope scope(x.device(), "act_fn");
  const Tensor alpha_p = softplus(of.alpha_p);
  const auto negative_alpha = [&] {
    const Tensor positive = softplus(of.alpha_n);
    return add(of.beta, positive);
  };
  const Tensor alpha_n = negative_alpha();
  const Tensor above = unary_no_grad(x, "gt", Dtype::boolean);
  const auto upper = [&] {
    const auto product = [&] {
      const Tensor first = mul(alpha_p, x);
      return mul(first, x);
    };
    const Tensor quadratic = product();
    return add(quadratic, mul(of.beta, x));
  };
  const Tensor where_above = upper();
  const auto lower = [&] {
    const auto product = [&] {
      const auto difference = [&] {
        const auto exponential = [&] { return expm1_of(minimum(x, of.eps)); };
        const Tensor less_one = exponential();
        return sub(less_one, x);
      };
      const Tensor inner = difference();
      return mul(inner, alpha_n);
    };
    const Tensor scaled = product();
    return add(scaled, mul(of.beta, x));
  };
  const Tensor where_below = lower();
  return where_both(above, where_above, where_below);
}

}  // namespace

Tensor Mlp::forward(const Tensor& input) const {
  Device& device = input.device();
  const Architecture& a = *architecture;
  const ModuleScope scope(device, name.empty() ? name_of(a.names.layer, 'm') : name, Category::mlp);
  const Tensor x = gate.gathered(input);
  const auto named = [&](char role, const Linear& projection, const Tensor& from) {
    const ModuleScope inner(device, name_of(a.names.mlp, role));
    return projection.forward(from);
  };
  const auto activated = [&](const Tensor& from) {
    return call_module(device, from, activation_function, {},
                       [&](const Tensor& states) { return xielu.beta ? llmem::xielu(xielu, states) : activate(a.activation, states); });
  };
  Tensor product;
  if (gate_up.weight) {
    Tensor up_states = named('f', gate_up, x);
    Tensor gate_states;
    {
      auto [first, second] = halves_of(up_states);
      gate_states = first;
      up_states = second;
    }
    const auto product_of = [&] {
      const Tensor opened = activated(gate_states);
      return mul(up_states, opened);
    };
    up_states = product_of();
    return named('d', down, up_states);
  }
  if (liger) {
    const Tensor gate_states = named('g', gate, x);
    product = liger_swiglu(gate_states, named('u', up, x));
  } else if (gate.weight) {
    const Tensor opened = activated(named('g', gate, x));
    const Tensor up_states = named('u', up, x);
    product = mul(opened, up_states);
  } else {
    product = named('u', up, x);
    product = activated(product);
  }
  if (norm.present) {
    const ModuleScope inner(device, name_of(a.names.mlp, 'n'), Category::norms);
    product = norm.forward(product);
  }
  product = named('d', down, product);
  return a.dropout_in_blocks ? dropout(product, a.dropout) : product;
}

}  // namespace llmem
