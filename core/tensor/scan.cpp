#include <algorithm>
#include <string>
#include <string_view>

#include "tensor/autograd.h"
#include "tensor/elementwise.h"
#include "tensor/ops.h"

// What state-space models are made of: sums along a sequence, padding it to whole chunks, products over named dimensions.
namespace llmem {

// grad * result
Tensor exp_of(const Tensor& input) {
  const Tensor self = autocast_float(input);
  Recorder grad("exp", {&self});
  const Tensor result = empty_like(self, self.dtype());
  Saved result_ = grad.save_if(grad.recording(), result);
  grad.attach(result);
  grad.backward([result_ = std::move(result_)](Tensors& gradients) {
    const Tensor saved = result_.unpack();
    return Tensors{elementwise(gradients[0], saved)};
  });
  return result;
}

// softplus_backward(grad, self)
Tensor softplus(const Tensor& input) {
  const Tensor self = autocast_float(input);
  Recorder grad("softplus", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = empty_like(self, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    return Tensors{elementwise(gradients[0], saved)};
  });
  return result;
}

// FunctionsManual.cpp, clamp_backward with both limits: where(self >= min && self <= max, grad, 0)
Tensor clamp_both(const Tensor& self) {
  Recorder grad("clamp", {&self});
  Saved self_ = grad.save_if(grad.recording(), self);
  const Tensor result = empty_like(self, self.dtype());
  grad.attach(result);
  grad.backward([self_ = std::move(self_)](Tensors& gradients) {
    const Tensor saved = self_.unpack();
    const Tensor zero = saved.device().empty({}, gradients[0].dtype());
    const Tensor above = empty_like(saved, Dtype::boolean), below = empty_like(saved, Dtype::boolean);
    return Tensors{empty_like(gradients[0], gradients[0].dtype())};
  });
  return result;
}

Tensor permute(const Tensor& self, const Dims& order) {
  Recorder grad("permute", {&self});
  Layout layout = self.layout();
  Dims back(order.size(), 0);
  for (int i = 0; i < order.size(); ++i) {
    layout.sizes[i] = self.sizes()[static_cast<int>(order[i])];
    layout.strides[i] = self.strides()[static_cast<int>(order[i])];
    back[static_cast<int>(order[i])] = i;
  }
  const Tensor result = alias(self, layout);
  grad.attach(result);
  grad.backward([back](Tensors& gradients) { return Tensors{permute(gradients[0], back)}; });
  return result;
}

// aten/src/ATen/native/cuda/ScanUtils.cuh, scan_dim: over a contiguous copy. Backward: grad.flip(d).cumsum(d).flip(d).
Tensor cumsum_along(const Tensor& self, int d) {
  Recorder grad("cumsum", {&self});
  Device& device = self.device();
  const auto computed = [&] {
    const Tensor sums = device.empty(self.sizes(), self.dtype());
    const Tensor whole = self.contiguous() ? self : device.empty(self.sizes(), self.dtype());
    return sums;
  };
  const Tensor result = computed();
  grad.attach(result);
  grad.backward([d](Tensors& gradients) {
    const Tensor& gradient = gradients[0];
    if (gradient.numel() <= 1 || gradient.size(d) == 1) return Tensors{gradient};
    const Tensor flipped = empty_like(gradient, gradient.dtype());
    const With no_grad(gradient.device().grad_enabled, false);
    const Tensor sums = cumsum_along(flipped, d);
    return Tensors{empty_like(sums, sums.dtype())};
  });
  return result;
}

// A contiguous copy, in which what was expanded is written out. Backward: grad.masked_fill(mask, 0), a copy as well.
Tensor masked_fill_expanded(const Tensor& self, const Tensor& mask) {
  Recorder grad("masked_fill", {&self});
  Saved mask_ = grad.save_if(grad.recording(), mask);
  const Tensor result = self.device().empty(self.sizes(), self.dtype());
  grad.attach(result);
  grad.backward([mask_ = std::move(mask_)](Tensors& gradients) {
    const Tensor saved = mask_.unpack();
    return Tensors{gradients[0].device().empty(gradients[0].sizes(), gradients[0].dtype())};
  });
  return result;
}

// aten/src/ATen/native/Repeat.cpp: self.unsqueeze(d + 1).expand(…).clone(contiguous).flatten(d, d + 1)
Tensor repeat_interleave(const Tensor& self, int d, std::int64_t times) {
  const Tensor apart = unsqueeze(self, d + 1);
  Dims sizes = apart.sizes();
  sizes[d + 1] = times;
  const Tensor expanded = expand(apart, sizes);
  const auto copied = [&] {
    Recorder grad("clone", {&expanded});
    const Tensor result = expanded.device().empty(sizes, expanded.dtype());
    grad.attach(result);
    grad.backward([](Tensors& gradients) { return Tensors{gradients[0]}; });
    return result;
  };
  Dims flat = self.sizes();
  flat[d] *= times;
  return view(copied(), flat);
}

// aten/src/ATen/native/PadNd.cpp, constant_pad_nd: without anything to add a clone. Backward: the same with as much less: a clone of a part.
Tensor pad_along(const Tensor& self, int d, std::int64_t count) {
  Recorder grad("pad", {&self});
  Dims sizes = self.sizes();
  sizes[d] += count;
  Dims strides = count == 0 ? strides_like(self.layout()) : contiguous_strides(sizes);
  if (count > 0 && is_channels_last(self.layout())) strides = channels_last_strides(sizes);
  const Tensor result = self.device().empty_strided({sizes, strides}, self.dtype());
  grad.attach(result);
  grad.backward([d, length = self.size(d)](Tensors& gradients) {
    Layout part = gradients[0].layout();
    part.sizes[d] = length;
    return Tensors{gradients[0].device().empty_strided({part.sizes, strides_like(part)}, gradients[0].dtype())};
  });
  return result;
}

namespace {

// An operand with its dimensions in the order of `labels`, those that it lacks of size 1.
Tensor aligned(const Tensor& operand, std::string_view own, std::string_view labels) {
  Tensor made = operand;
  Dims order;
  int next = operand.dim();
  for (const char label : labels) {
    const std::size_t at = own.find(label);
    if (at != std::string_view::npos) {
      order.push_back(static_cast<std::int64_t>(at));
      continue;
    }
    made = unsqueeze(made, next);
    order.push_back(next++);
  }
  return permute(made, order);
}

}  // namespace

// aten/src/ATen/native/Linear.cpp, einsum and sumproduct_pair: both permuted, flattened to three dimensions (a copy where they do not lie so),
// one bmm, and its result permuted back. Autocast casts both first.
Tensor einsum(std::string_view left_labels, const Tensor& left, std::string_view right_labels, const Tensor& right, std::string_view out) {
  std::string labels(out);
  for (char label = 'a'; label <= 'z'; ++label)
    if (left_labels.find(label) != std::string_view::npos && out.find(label) == std::string_view::npos) labels += label;
  const int kept = static_cast<int>(out.size()), all = static_cast<int>(labels.size());
  const Tensor cast_left = autocast(left), cast_right = autocast(right);
  const Tensor a = aligned(cast_left, left_labels, labels), b = aligned(cast_right, right_labels, labels);
  Dims both, first, second, summed;
  for (int d = 0; d < kept; ++d) {
    const bool in_a = a.size(d) != 1, in_b = b.size(d) != 1;
    (in_a && in_b ? both : in_a ? first : second).push_back(d);
  }
  Dims whole = a.sizes();
  for (int d = 0; d < kept; ++d) whole[d] = std::max(a.size(d), b.size(d));
  bool sums = false;
  for (int d = kept; d < all; ++d) {
    summed.push_back(d);
    sums = sums || a.size(d) != 1;
  }
  Dims result_sizes;
  for (int d = 0; d < kept; ++d) result_sizes.push_back(whole[d]);
  if (!sums) return view(mul(a, b), result_sizes);
  const auto size_of_all = [&](const Dims& dims, const Tensor& of) {
    std::int64_t n = 1;
    for (int i = 0; i < dims.size(); ++i) n *= of.size(static_cast<int>(dims[i]));
    return n;
  };
  const auto joined = [](std::initializer_list<const Dims*> groups) {
    Dims order;
    for (const Dims* group : groups)
      for (int i = 0; i < group->size(); ++i) order.push_back((*group)[i]);
    return order;
  };
  // What the output has further out comes first.
  std::int64_t of_second = all;  // the outermost of more than one place
  for (int i = second.size() - 1; i >= 0; --i)
    if (b.size(static_cast<int>(second[i])) != 1) of_second = second[i];
  const bool swapped = first.size() > 0 && first[0] > of_second;
  const std::int64_t batch = size_of_all(both, a), sum = size_of_all(summed, a);
  if (swapped) std::swap(first, second);
  const Tensor& of_rows = swapped ? b : a;
  const Tensor& of_columns = swapped ? a : b;
  const Tensor rows = reshape(permute(of_rows, joined({&both, &first, &summed, &second})), {batch, size_of_all(first, of_rows), sum});
  const Tensor columns =
      reshape(permute(of_columns, joined({&both, &summed, &second, &first})), {batch, sum, size_of_all(second, of_columns)});
  const Dims order = joined({&both, &first, &summed, &second});
  Dims made_sizes, back(all, 0);
  for (int i = 0; i < all; ++i) {
    const int d = static_cast<int>(order[i]);
    made_sizes.push_back(d < kept ? whole[d] : 1);
    back[d] = i;
  }
  return view(permute(view(bmm(rows, columns), made_sizes), back), result_sizes);
}

}  // namespace llmem
