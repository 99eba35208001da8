#include "model/mixture.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

Tensor booleans(const Tensor& self, const char* op) { return unary_no_grad(self, op, Dtype::boolean); }

// Which scores are too far below the largest of those that are left.
Tensor far_below(const Tensor& left, const Tensor& scores) {
  const With no_grad(scores.device().grad_enabled, false);
  const auto same = [&](const Tensor& self, const char* op) { return unary_no_grad(self, op, scores.dtype()); };
  const TopK largest = topk(left, 1);
  const auto factor_of = [&] {
    const Tensor absolute = same(scores, "abs");
    return same(absolute, "clamp");
  };
  const Tensor factor = factor_of();
  const auto distance = [&] {
    const Tensor difference = same(scores, "sub");
    return same(difference, "div");
  };
  return booleans(distance(), "gt");
}

// One expert of each row, and what it counts: [N, 1] each.
struct Picked {
  Tensor multiplier, index;
};
Picked picked(const Tensor& scores, const Tensor& left) {
  Picked made;
  const Tensor mask = far_below(left, scores);
  Tensor gates = masked_fill(left, mask);
  const auto noisy = [&] {
    const auto noise = [&] {
      const Tensor exponential = unary_no_grad(gates, "exponential_", gates.dtype());
      return unary_no_grad(exponential, "log", gates.dtype());
    };
    const Tensor subtracted = noise();
    return sub(gates, subtracted);
  };
  made.index = topk(noisy(), 1).indices;
  gates = softmax_last(gates);
  const Tensor multiplier = gather_columns(gates, made.index);
  const TopK largest = topk(gates, 1);
  const auto mask_for_one = [&] {
    const auto either = [&] {
      const Tensor same = booleans(made.index, "eq");
      const auto lucky = [&] { return booleans(unary_no_grad(largest.values, "rand", gates.dtype()), "gt"); };
      const Tensor drawn = lucky();
      return booleans(same, "logical_or");
    };
    const auto number = [&] { return unary_no_grad(either(), "add", Dtype::float32); };
    const Tensor as_float = number();
    return to(as_float, gates.dtype());
  };
  const Tensor for_one = mask_for_one();
  made.multiplier = sparse_multiplier(scores, multiplier, made.index, gates, for_one);
  return made;
}

}  // namespace

// sparsemixer, in training
Mixture::Chosen choose_by_sparse_mixer(const Tensor& rows, const Linear& router) {
  Mixture::Chosen chosen;
  chosen.logits = router.forward(rows);
  const Picked first = picked(chosen.logits, chosen.logits);
  const Tensor masked_scores = scatter_number(chosen.logits, first.index);
  const Picked second = picked(chosen.logits, masked_scores);
  chosen.weights = cat({first.multiplier, second.multiplier}, 1);
  chosen.indices = cat({first.index, second.index}, 1);
  return chosen;
}

}  // namespace llmem
