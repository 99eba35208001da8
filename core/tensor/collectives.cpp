#include "tensor/collectives.h"

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

Tensor with_sequence(const Tensor& like, std::int64_t sequence) {
  return like.device().empty({like.size(0), sequence, like.size(2)}, like.dtype());
}

// all_gather_single: in the order of the ranks, then side by side; of one row that is the same (_maybe_view_chunk_cat).
Tensor gathered(const Tensor& part, std::int64_t ranks) {
  if (!part.device().stopped)
    part.device().meter.communicate_and_wait(Collective::all_gather, Among::tensor, ranks, ranks * part.bytes_read());
  const Tensor by_rank = with_sequence(part, part.size(1) * ranks);
  return part.size(0) == 1 ? by_rank : with_sequence(part, part.size(1) * ranks);
}

// reduce_scatter_single: chunks one after the other, then this rank's sum.
Tensor scattered(const Tensor& whole, std::int64_t ranks) {
  if (!whole.device().stopped)
    whole.device().meter.communicate_and_wait(Collective::reduce_scatter, Among::tensor, ranks, whole.bytes_read());
  const Tensor by_rank = with_sequence(whole, whole.size(1));
  return with_sequence(whole, whole.size(1) / ranks);
}

Tensor same(const Tensor& input) {
  const Tensor result = detach(input);
  result->base = input.impl();
  return result;
}

}  // namespace

Tensor all_reduce_gradient(const Tensor& input) {
  Recorder grad("all_reduce", {&input});
  if (!grad.recording()) return input;
  const Tensor result = same(input);
  grad.attach(result);
  grad.backward([](Tensors& gradients) {
    Meter& meter = gradients[0].device().meter;
    meter.communicate_and_wait(Collective::all_reduce, Among::tensor, 0, gradients[0].bytes_read());
    const Meter::Muted no_kernel(meter);
    return Tensors{unary_no_grad(gradients[0], "all_reduce", gradients[0].dtype())};
  });
  return result;
}

Tensor all_reduce(const Tensor& partial) {
  Recorder grad("all_reduce", {&partial});
  Meter& meter = partial.device().meter;
  if (!partial.device().stopped) meter.communicate_and_wait(Collective::all_reduce, Among::tensor, 0, partial.bytes_read());
  const Meter::Muted no_kernel(meter);
  const Tensor result = partial.device().empty(partial.sizes(), partial.dtype());
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{gradients[0]}; });
  return result;
}

Tensor gather_sequence(const Tensor& input, std::int64_t ranks) {
  const With wrapped(input.device().wrapped_tensors, true);
  Recorder grad("all_gather", {&input});
  const Tensor result = gathered(input, ranks);
  grad.attach(result);
  grad.backward([ranks](Tensors& gradients) { return Tensors{scattered(gradients[0], ranks)}; });
  return result;
}

Tensor reduce_scatter_sequence(const Tensor& partial, std::int64_t ranks) {
  Recorder grad("reduce_scatter", {&partial});
  const Tensor result = scattered(partial, ranks);
  grad.attach(result);
  grad.backward([ranks](Tensors& gradients) { return Tensors{gathered(gradients[0], ranks)}; });
  return result;
}

namespace {

// Each passes on all but its own block, as in an all-gather.
Tensor exchanged(const Tensor& blocks) {
  Device& device = blocks.device();
  if (!device.stopped) device.meter.communicate_and_wait(Collective::all_gather, Among::context, blocks.size(0), blocks.bytes_read());
  const Meter::Muted no_kernel(device.meter);
  return device.empty(blocks.sizes(), blocks.dtype());
}

}  // namespace

Tensor all_to_all(const Tensor& blocks) {
  Recorder grad("all_to_all", {&blocks});
  const Tensor result = exchanged(blocks);
  grad.attach(result);
  grad.backward([](Tensors& gradients) { return Tensors{exchanged(contiguous(gradients[0]))}; });
  return result;
}

Tensor gather_columns(const Tensor& input, std::int64_t ranks) {
  Recorder grad("all_gather", {&input});
  Dims sizes = input.sizes();
  sizes[input.dim() - 1] *= ranks;
  input.device().meter.communicate_and_wait(Collective::all_gather, Among::tensor, ranks, ranks * input.bytes_read());
  const Tensor by_rank = input.device().empty(sizes, input.dtype());
  const Tensor result = input.device().empty(sizes, input.dtype());
  grad.attach(result);
  grad.backward([own = input.sizes()](Tensors& gradients) { return Tensors{gradients[0].device().empty(own, gradients[0].dtype())}; });
  return result;
}

namespace {

// placement_types.py, _MaskPartial._mask_tensor: which ids are not this rank's (a boolean each), and all ids as its rows.
struct Masked {
  Tensor mask, ids;
};
Masked mask_ids(const Tensor& ids) {
  Device& device = ids.device();
  const auto booleans = [&] { return device.empty(ids.sizes(), Dtype::boolean); };
  Masked masked;
  {
    const Tensor below = booleans(), above = booleans();
    masked.mask = booleans();
  }
  const Tensor shifted = device.empty(ids.sizes(), Dtype::int64);
  masked.ids = device.empty(ids.sizes(), Dtype::int64);
  return masked;
}

}  // namespace

Tensor split_embedding(const Tensor& weight, const Tensor& ids, std::int64_t vocabulary, std::int64_t ranks, bool sequence) {
  Recorder grad("embedding", {&weight});
  Saved ids_ = grad.save_if(grad.recording(), ids);
  Tensor local;
  {
    const Masked masked = mask_ids(ids);
    local = weight.device().empty({ids.size(0), ids.size(1), weight.size(1)}, weight.dtype());
  }
  if (!sequence) weight.device().meter.communicate_and_wait(Collective::all_reduce, Among::tensor, ranks, local.bytes_read());
  const Tensor result = sequence ? scattered(local, ranks) : weight.device().empty(local.sizes(), local.dtype());
  grad.attach(result);
  grad.backward([ids_ = std::move(ids_), whole = Dims{vocabulary, weight.size(1)}, ranks, sequence](Tensors& gradients) {
    const Tensor saved = ids_.unpack();
    const Tensor gradient = sequence ? gathered(gradients[0], ranks) : gradients[0];
    gradients[0].reset();
    return Tensors{embedding_gradient(gradient, whole)};
  });
  return result;
}

namespace {

// Tensors of one value a row, made and dropped in the order of parallel/loss.py.
class Rows {
 public:
  explicit Rows(const Tensor& logits) : device_(logits.device()), rows_(logits.size(0)) {}

  Tensor floats() const { return device_.empty({rows_}, Dtype::float32); }
  Tensor integers() const { return device_.empty({rows_}, Dtype::int64); }
  Tensor booleans() const { return device_.empty({rows_}, Dtype::boolean); }
  Tensor integer() const { return device_.empty({}, Dtype::int64); }
  Tensor scalar() const { return device_.empty({}, Dtype::float32); }

  // torch.where(target != ignore_index, target, 0)
  Tensor safe_target() const {
    const Tensor kept = booleans(), zero = integer();
    return integers();
  }
  // torch.where(target != ignore_index, values, 0)
  Tensor kept_values() const {
    const Tensor kept = booleans(), zero = scalar();
    return floats();
  }

 private:
  Device& device_;
  std::int64_t rows_;
};

Tensor like(const Tensor& self) { return self.device().empty(self.sizes(), self.dtype()); }

// _log_softmax: maxima and sums are all-reduced.
Tensor split_log_softmax(const Tensor& logits) {
  const Rows rows(logits);
  Tensor maximum = rows.floats();
  const Tensor reduced_maximum = rows.floats();
  maximum.reset();
  const Tensor shifted = like(logits);
  Tensor sum;
  {
    const Tensor powers = like(logits);
    sum = rows.floats();
  }
  const Tensor reduced_sum = rows.floats();
  sum.reset();
  const Tensor logarithm = rows.floats();
  return like(logits);
}

// _nll_loss_forward: the loss and the number of targets that count.
std::pair<Tensor, Tensor> split_nll_loss(const Rows& rows, const Tensor& target) {
  const Tensor safe = rows.safe_target();
  Masked masked = mask_ids(target);
  const Tensor picked = rows.floats();
  masked.mask.reset();
  const Tensor reduced = rows.floats();
  Tensor negative = rows.floats();
  const Tensor values = rows.kept_values();
  negative.reset();
  Tensor count;
  {
    Tensor integer_count;
    {
      const Tensor kept = rows.booleans();
      integer_count = rows.integer();
      const Tensor widened = rows.integers();
    }
    count = rows.scalar();
  }
  const Tensor sum = rows.scalar();
  return {rows.scalar(), count};
}

// _nll_loss_and_log_softmax_backward
Tensor split_loss_backward(const Tensor& log_probabilities, const Tensor& target) {
  const Rows rows(log_probabilities);
  Tensor scaled = rows.scalar();
  const Tensor safe = rows.safe_target();
  const Tensor gradient = like(log_probabilities);
  const Masked masked = mask_ids(target);
  Tensor picked;
  {
    const Tensor inverted = rows.floats();
    picked = rows.floats();
  }
  const Tensor range = rows.integers();
  const Tensor values = rows.kept_values();
  scaled.reset();
  Tensor product;
  {
    const Tensor powers = like(log_probabilities);
    product = like(log_probabilities);
  }
  return like(log_probabilities);
}

}  // namespace

Tensor split_cross_entropy(const Tensor& logits, const Tensor& target) {
  Recorder grad("split_cross_entropy", {&logits});
  const Tensor log_probabilities = split_log_softmax(logits);
  Saved log_probabilities_ = grad.save_if(grad.recording(), log_probabilities);
  Saved target_ = grad.save_if(grad.recording(), target);
  const auto [loss, count] = split_nll_loss(Rows(logits), target);
  Saved count_ = grad.save_if(grad.recording(), count);
  grad.attach(loss);
  grad.backward([log_probabilities_ = std::move(log_probabilities_), target_ = std::move(target_), count_ = std::move(count_)](Tensors&) {
    const Tensors saved = {log_probabilities_.unpack(), target_.unpack(), count_.unpack()};
    return Tensors{split_loss_backward(saved[0], saved[1])};
  });
  return loss;
}

}  // namespace llmem
