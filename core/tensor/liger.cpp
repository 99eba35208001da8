#include <algorithm>
#include <utility>

#include "tensor/autograd.h"
#include "tensor/device.h"
#include "tensor/ops.h"

// Liger's Triton kernels (liger_kernel/ops): they compute into buffers that PyTorch would have made anew.
namespace llmem {

namespace {

Dims matrix_of(const Tensor& tensor) { return {tensor.numel() / tensor.size(-1), tensor.size(-1)}; }

// `target != ignore_index`, and its sum: cast to int64 on the way
Tensor counted_mask(const Tensor& target) {
  Device& device = target.device();
  const Tensor mask = device.empty(target.sizes(), Dtype::boolean);
  const Tensor count = device.empty({}, Dtype::int64);
  device.scratch(Bytes{8} * target.numel());
  return mask;
}

// torch.equal(grad_output, torch.tensor(1.0))
void compare_with_one(Device& device) {
  const Tensor one = device.empty({}, Dtype::float32);
  const Tensor equal = device.empty({}, Dtype::boolean);
  device.scratch(Bytes{1});
}

// A sum of one fp32 value a token.
Tensor summed(const Tensor& losses) {
  Device& device = losses.device();
  const Tensor sum = device.empty({}, Dtype::float32);
  reduction_scratch(device, row_sum_scratch(device.gpu(), 1, losses.numel()));
  return sum;
}

std::int64_t next_power_of_two(std::int64_t n) {
  std::int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

}  // namespace

// rms_norm.py: the input's gradient is written over the output's; the weight's is summed over one row a multiprocessor.
Tensor liger_rms_norm(const Tensor& self, const Tensor& weight) {
  Recorder grad("LigerRMSNorm", {&self, &weight});
  Device& device = self.device();
  Saved self_ = grad.save_if(grad.recording(), self);
  Saved weight_ = grad.save_if(grad.recording(), weight);
  const Tensor result = device.empty(self.sizes(), self.dtype());
  const Tensor reciprocal_deviation = device.empty({self.numel() / self.size(-1)}, Dtype::float32);
  Saved deviation_ = grad.save_if(grad.recording(), reciprocal_deviation);
  grad.attach(result);
  grad.backward([self_ = std::move(self_), weight_ = std::move(weight_), deviation_ = std::move(deviation_),
                 wants_weight = grad.needs(1)](Tensors& gradients) {
    const Tensors saved{self_.unpack(), weight_.unpack(), deviation_.unpack()};
    const Tensor& w = saved[1];
    const Tensor gradient = contiguous(gradients[0]);
    Tensors out{view(view(gradient, matrix_of(gradient)), gradient.sizes()), Tensor()};
    if (!wants_weight) return out;
    Device& owner = w.device();
    const Tensor rows = owner.empty({owner.gpu().sms, w.size(0)}, Dtype::float32);
    const Tensor sum = owner.empty(w.sizes(), Dtype::float32);
    reduction_scratch(owner, column_sum_scratch(owner.gpu(), rows.size(0), rows.size(1)));
    out[1] = to(sum, w.dtype());
    return out;
  });
  return result;
}

// rope.py: turns query and key where they lie, and their gradients, too.
std::pair<Tensor, Tensor> liger_rope(const Tensor& query, const Tensor& key, const Tensor& cos, const Tensor& sin) {
  Recorder grad("LigerRope", {&query, &key});
  Saved cos_ = grad.save_if(grad.recording(), cos);
  Saved sin_ = grad.save_if(grad.recording(), sin);
  const auto in_place = [](const Tensor& states) { return transpose(contiguous(transpose(states, 1, 2)), 1, 2); };
  std::pair<Tensor, Tensor> turned;
  {
    const With no_grad(query.device().grad_enabled, false);
    turned = {in_place(query), in_place(key)};
  }
  grad.attach(turned.first);
  grad.attach(turned.second);
  grad.backward([in_place, cos_ = std::move(cos_), sin_ = std::move(sin_)](Tensors& gradients) {
    const Tensors saved{cos_.unpack(), sin_.unpack()};
    const Tensor query_gradient = in_place(gradients[0]);
    return Tensors{query_gradient, in_place(gradients[1])};
  });
  return turned;
}

// swiglu.py: both inputs' gradients are written over the inputs.
Tensor liger_swiglu(const Tensor& gate, const Tensor& up) {
  Recorder grad("LigerSiLUMul", {&gate, &up});
  Saved gate_ = grad.save_if(grad.recording(), gate);
  Saved up_ = grad.save_if(grad.recording(), up);
  const Tensor result = gate.device().empty(gate.sizes(), gate.dtype());
  grad.attach(result);
  grad.backward([gate_ = std::move(gate_), up_ = std::move(up_)](Tensors&) {
    const Tensor saved_gate = gate_.unpack(), saved_up = up_.unpack();
    const auto over = [](const Tensor& saved) { return view(view(saved, matrix_of(saved)), saved.sizes()); };
    return Tensors{over(saved_gate), over(saved_up)};
  });
  return result;
}

// cross_entropy.py: the logits' gradient is written over the logits.
Tensor liger_cross_entropy(const Tensor& logits, const Tensor& target) {
  Recorder grad("LigerCrossEntropy", {&logits});
  Tensor result;
  {
    const Tensor losses = logits.device().empty(target.sizes(), Dtype::float32);
    const Tensor mask = counted_mask(target);
    result = summed(losses);
  }
  Saved logits_ = grad.save_if(grad.recording(), logits);
  grad.attach(result);
  grad.backward([logits_ = std::move(logits_)](Tensors& gradients) {
    const Tensor saved = logits_.unpack();
    compare_with_one(gradients[0].device());
    return Tensors{detach(saved)};
  });
  return result;
}

namespace {

// The head over a part of the tokens, and both its gradients. Logits have a buffer that all parts use (`in_place`) where no operand is cast.
struct LigerHead {
  const Tensor &hidden, &weight;
  bool in_place, wants_weight;

  Dtype computed() const { return in_place ? hidden.dtype() : hidden.device().autocast.value_or(hidden.dtype()); }

  Tensor cast_rows(std::int64_t start, std::int64_t rows) const { return autocast(narrow(hidden, 0, start, rows)); }

  void part(std::int64_t start, std::int64_t rows) const {
    Device& device = hidden.device();
    const With no_grad(device.grad_enabled, false);
    Tensor logits;
    if (!in_place) {
      const Tensor columns = autocast(t(weight));  // a view, whose cast is not kept
      const Tensor input = cast_rows(start, rows);
      logits = device.empty({rows, weight.size(0)}, computed());
    }
    if (!in_place) {
      const Tensor matrix = autocast(weight);
      const Tensor product = device.empty({rows, hidden.size(1)}, computed());
    }
    if (wants_weight) add_weight_gradient(start, rows);
  }

  // addmm into the gradient, from Ampere on, where there is one for these dtypes; else a product and a sum.
  void add_weight_gradient(std::int64_t start, std::int64_t rows) const {
    Device& device = hidden.device();
    const bool half = computed() != Dtype::float32, taken = weight.dtype() == Dtype::float32 || weight.dtype() == computed();
    if (device.gpu().compute_capability >= 80 && half && taken) {
      if (hidden.dtype() != computed()) device.scratch(Bytes{rows * hidden.size(1) * size_of(computed()).count});
      return;
    }
    const auto product = [&] {
      const Tensor input = in_place ? Tensor() : cast_rows(start, rows);
      return device.empty(weight.sizes(), computed());
    };
    const Tensor made = product();
    if (half) device.scratch(Bytes{4 * weight.numel()});
  }
};

}  // namespace

// fused_linear_cross_entropy.py: both gradients are made in the forward, over as many tokens at a time as keep their logits about the size of
// the hidden states.
Tensor liger_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& target) {
  Recorder grad("LigerFusedLinearCrossEntropy", {&hidden, &weight});
  Device& device = hidden.device();
  const std::int64_t tokens = hidden.size(0), width = hidden.size(1), words = weight.size(0);
  const Tensor hidden_gradient = device.empty(hidden.sizes(), hidden.dtype());
  const Tensor weight_gradient = grad.needs(1) ? device.empty(weight.sizes(), weight.dtype()) : Tensor();
  Tensor result;
  {
    const Tensor losses = device.empty({tokens}, Dtype::float32);
    const Tensor mask = counted_mask(target);
    {
      const bool as_it_is = hidden.dtype() == weight.dtype() && (!device.autocast || *device.autocast == hidden.dtype());
      const LigerHead head{hidden, weight, as_it_is, grad.needs(1)};
      const std::int64_t chunk = std::min(next_power_of_two(divide_up(tokens, divide_up(words, width))), tokens);
      const Tensor logits = as_it_is ? device.empty({chunk, words}, hidden.dtype()) : Tensor();
      device.use_cublas();
      for (std::int64_t start = 0; start < tokens; start += chunk) head.part(start, std::min(chunk, tokens - start));
      // logits, then both gradients of each chunk
      const Dtype dtype = head.computed();
      const std::int64_t flops = 2 * tokens * words * width, itemsize = size_of(dtype).count;
      const std::int64_t chunks = divide_up(tokens, chunk);
      for (int i = 0; i < (grad.needs(1) ? 3 : 2); ++i)
        device.meter.product(flops, itemsize * (tokens * (words + width) + chunks * words * width), 0, dtype);
      device.meter.moved(3 * itemsize * tokens * words, static_cast<std::int32_t>(3 * chunks));
    }
    result = summed(losses);
  }
  Saved hidden_gradient_ = grad.save_if(grad.recording(), hidden_gradient);
  Saved weight_gradient_ = grad.save_if(grad.needs(1), weight_gradient);
  grad.attach(result);
  grad.backward([hidden_gradient_ = std::move(hidden_gradient_), weight_gradient_ = std::move(weight_gradient_)](Tensors& gradients) {
    Tensors out{hidden_gradient_.unpack(), weight_gradient_ ? weight_gradient_.unpack() : Tensor()};
    compare_with_one(gradients[0].device());
    for (Tensor& each : out) {
      if (each) each = detach(each);
    }
    return out;
  });
  return result;
}

}  // namespace llmem
