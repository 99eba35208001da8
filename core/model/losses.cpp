#include "model/losses.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "tensor/autograd.h"
#include "tensor/checkpoint.h"
#include "tensor/collectives.h"
#include "tensor/ops.h"
#include "tensor/tiled.h"

namespace llmem {

namespace {

// nn.functional.pad(labels, (0, 1))[:, 1:]: each position's next word. Returns the padded labels, which the caller's name holds, and the shifted.
struct Shifted {
  Tensor padded, labels;
};
Shifted shifted(const Tensor& labels) {
  const std::int64_t rows = labels.size(0), sequence = labels.size(1);
  const Tensor padded = labels.device().empty({rows, sequence + 1}, Dtype::int64);
  return {padded, view(contiguous(narrow(padded, 1, 1, sequence)), {rows * sequence})};
}

Tensor as_rows(const Tensor& states) { return view(states, {states.size(0) * states.size(1), states.size(2)}); }

}  // namespace

Tensor causal_lm_loss(Tensor logits, Tensor labels, const Tensor& num_items, bool split) {
  logits = to(logits, Dtype::float32);
  const Shifted target = shifted(labels);
  const Tensor flat = as_rows(logits);
  Tensor loss = split ? split_cross_entropy(flat, target.labels) : cross_entropy(flat, target.labels);
  if (num_items) loss = div(loss, num_items);
  return loss;
}

Tensor shifted_causal_lm_loss(Tensor logits, const Tensor& labels, bool counts_items, bool of_liger) {
  logits = to(logits, Dtype::float32);
  const std::int64_t length = logits.size(1) - 1;
  const Tensor rows = as_rows(contiguous(narrow(logits, 1, 0, length)));
  const Tensor targets = view(contiguous(narrow(labels, 1, 1, length)), {labels.size(0) * length});
  const Tensor loss = of_liger ? liger_cross_entropy(rows, targets) : cross_entropy(rows, targets);
  return counts_items ? mul_scalar(loss) : loss;
}

Tensor shifted_liger_linear_loss(const Tensor& hidden, const Tensor& head, const Tensor& labels, bool counts_items) {
  const std::int64_t length = hidden.size(1) - 1;
  const Tensor rows = as_rows(contiguous(narrow(hidden, 1, 0, length)));
  const Tensor targets = view(contiguous(narrow(labels, 1, 1, length)), {labels.size(0) * length});
  const Tensor loss = liger_linear_cross_entropy(rows, head, targets);
  return counts_items ? mul_scalar(loss) : loss;
}

Tensor next_word_loss(Tensor logits, const Tensor& labels, bool split) {
  logits = to(logits, Dtype::float32);
  const Tensor flat = as_rows(logits);
  const Tensor target = view(contiguous(labels), {labels.size(0) * labels.size(1)});
  return split ? split_cross_entropy(flat, target) : cross_entropy(flat, target);
}

Tensor label_smoothed_loss(const Tensor& all_logits, const Tensor& all_labels, const Tensor& num_items) {
  Device& device = all_logits.device();
  const std::int64_t length = all_logits.size(1) - 1;
  const Tensor logits = contiguous(narrow(all_logits, 1, 0, length));
  Tensor labels = contiguous(narrow(all_labels, 1, 1, length));
  const auto negated = [&] {
    const Tensor probabilities = log_softmax(logits);
    return neg(probabilities);
  };
  const Tensor log_probabilities = negated();
  const Tensor padding = unary_no_grad(labels, "padding_mask", Dtype::boolean);
  labels = unary_no_grad(labels, "clamp", Dtype::int64);
  Tensor nll = gather_last(log_probabilities, labels);
  Tensor smoothed = sum_last_float(log_probabilities);
  nll = masked_fill_in_place(nll, padding);
  smoothed = masked_fill_in_place(smoothed, padding);
  // padding_mask.numel() - padding_mask.long().sum()
  const auto kept = [&] {
    const auto sum = [&] {
      const Tensor integers = unary_no_grad(padding, "padding_mask", Dtype::int64);
      return device.empty({}, Dtype::int64);
    };
    const Tensor masked = sum();
    return device.empty({}, Dtype::int64);
  };
  const Tensor denominator = num_items ? num_items : kept();
  const auto over = [](const Tensor& each, const Tensor& count) {
    const Tensor sum = sum_all(each);
    return div(sum, count);
  };
  nll = over(nll, denominator);
  {
    const Tensor sum = sum_all(smoothed);
    const Tensor words = unary_no_grad(denominator, "denominator", denominator.dtype());
    smoothed = div(sum, words);
  }
  const Tensor first = mul_scalar(nll);
  const Tensor second = mul_scalar(smoothed);
  return add(first, second);
}

bool liger_replaces_cross_entropy(std::string_view model_type) {
  constexpr std::string_view kUntouched[] = {"gemma3", "llama4", "llama4_text", "ministral", "mistral", "nemotron", "qwen2_5_vl"};
  return std::find(std::begin(kUntouched), std::end(kUntouched), model_type) == std::end(kUntouched);
}

Tensor liger_causal_lm_loss(Tensor logits, Tensor labels, const Tensor& num_items) {
  logits = to(logits, Dtype::float32);
  const Shifted target = shifted(labels);
  const Tensor loss = liger_cross_entropy(as_rows(logits), target.labels);
  return num_items ? div(loss, num_items) : loss;
}

Tensor liger_linear_loss(const Tensor& hidden, const Tensor& head, Tensor labels, const Tensor& num_items) {
  const Shifted target = shifted(labels);
  const Tensor loss = liger_linear_cross_entropy(as_rows(hidden), head, target.labels);
  return num_items ? div(loss, num_items) : loss;
}

Tensor chunked_loss(Tensor hidden, const Tensor& head, Tensor labels, std::int64_t chunk) {
  Device& device = hidden.device();
  labels = shifted(labels).labels;
  hidden = as_rows(hidden);
  const auto one = [head](const Tensor& x, const Tensor& y) {
    Tensor logits;
    {
      const auto product = [&] {
        const Tensor columns = autocast(t(head));
        return mm(autocast(x), columns);
      };
      const Tensor half = product();
      logits = to(half, Dtype::float32);
    }
    return cross_entropy(logits, y);
  };
  Tensor total;
  const std::vector<Tensor> rows = split(hidden, chunk), targets = split(labels, chunk);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Tensor loss = checkpoint(device, [one, x = rows[i], y = targets[i]] { return one(x, y); });
    total = total ? add(total, loss) : add_scalar(loss);
  }
  return mul_scalar(total);
}

Tensor tiled_label_probabilities(const Tensor& hidden, const Linear& head, const Tensor& labels) {
  Device& device = hidden.device();
  const std::int64_t rows = hidden.size(0), length = hidden.size(1) - 1;
  const Tensor states = narrow(hidden, 1, 0, length), targets = narrow(labels, 1, 1, length);
  const std::int64_t count = rows * length;
  const Tensor first = device.empty({count}, Dtype::int64), second = device.empty({count}, Dtype::int64);
  Tensor probabilities;
  {
    const Tensor selected = index_rows(states, count, first, second);
    probabilities = tiled_log_probabilities(selected, head.weight, head.bias, index_rows(targets, count, first, second));
  }
  return scatter_into_zeros(probabilities, {rows, length});
}

FusedHead fused_head(const Tensor& hidden, const Linear& head, const Tensor& labels, const Tensor& num_items) {
  const std::int64_t length = hidden.size(1) - 1;
  const Tensor states = narrow(hidden, 1, 0, length), targets = narrow(labels, 1, 1, length);
  FusedHead out;
  out.label_mask = unary_no_grad(targets, "label_mask", Dtype::boolean);
  {
    const auto statistics = [&] {
      const Tensor selected = index_masked(states, out.label_mask);
      return tiled_statistics(selected, head.weight, head.bias, index_masked(targets, out.label_mask));
    };
    const TiledStatistics rows = statistics();
    out.log_probabilities = scatter_masked(rows.log_probability, out.label_mask);
    out.entropy = scatter_masked(rows.entropy, out.label_mask);
    out.is_top1 = scatter_masked(rows.is_top1, out.label_mask);
  }
  const auto negative = [&] {
    const Tensor sum = sum_all(out.log_probabilities);
    return neg(sum);
  };
  const auto rows = [&] {
    const Tensor count = sum_of_booleans(out.label_mask);
    return unary_no_grad(count, "clamp", count.dtype());
  };
  const Tensor total = negative();
  out.loss = div(total, num_items ? num_items : rows());
  return out;
}

}  // namespace llmem
