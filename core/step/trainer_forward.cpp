#include "step/trainer_forward.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/heads.h"
#include "model/losses.h"
#include "step/play.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

Batch make_batch(Device& device, const Architecture& architecture, const Training& training, std::int64_t rows) {
  const ModuleScope scope(device, "batch");
  Batch made;
  made.ids = device.empty({rows, training.sequence}, Dtype::int64);
  made.labels = make_labels(device, architecture, training, rows);
  made.attention_mask = device.empty(made.ids.sizes(), Dtype::int64);
  return made;
}

namespace {

// labels[..., 1:].ne(-100).sum(); all labels before version 5
Tensor counted(const Tensor& labels, bool shifts) {
  const OpScope op(labels.device(), "num_items_in_batch");
  const Tensor kept = labels.device().empty({labels.numel() - (shifts ? labels.size(0) : 0)}, Dtype::boolean);
  return sum_of_booleans(kept);
}

}  // namespace

namespace {

// accelerate's gather of a scalar, and the sum of what all processes have
Tensor sum_of_all(const Tensor& own, std::int64_t processes) {
  Device& device = own.device();
  const auto gathered = [&] {
    const Tensor copy = device.empty({1}, own.dtype());
    return device.empty({processes}, own.dtype());
  };
  const Tensor all = processes > 1 ? gathered() : own;
  return device.empty({}, own.dtype());
}

}  // namespace

Tensor num_items_of(Device& device, const std::vector<Batch>& batches, const Spec& spec, bool shifts) {
  const Transformers version = spec.software.transformers;
  if (version == Transformers::v4_45) return {};  // the loss of each batch is its mean
  const OpScope op(device, "num_items_in_batch");
  Tensor count;
  for (const Batch& each : batches) {
    const Tensor tokens = counted(each.labels, shifts && version == Transformers::v5);
    count = device.empty({}, Dtype::int64);
  }
  if (version == Transformers::v4_48) return {};  // .item()
  if (version != Transformers::v5) return count;
  if (spec.data.degree > 1) count = sum_of_all(count, spec.data.degree);
  return device.empty({}, Dtype::float32);
}

TrainerForward::TrainerForward(Device& device, const Spec& spec, Rank& rank)
    : device_(device), spec_(spec), training_(spec.training), rank_(rank), options_(forward_options(spec)) {}

TrainerForward::Outputs TrainerForward::compute_loss(const Batch& batch, const Tensor& num_items, bool returns_logits) {
  if (!device_.training) options_.checkpointing = Checkpointing::none;
  options_.num_items = num_items;
  // MixedPrecision.cast_root_forward_inputs
  if (num_items && training_.loop == Loop::trainer && spec_.data.kind == DataKind::fsdp1 && spec_.data.param_dtype)
    options_.num_items = unary_no_grad(num_items, "cast_forward_inputs", *spec_.data.param_dtype);
  options_.padding = {batch.attention_mask, training_.mask == Mask::padded};
  options_.counts_items = device_.training && spec_.software.transformers != Transformers::v4_45;
  const bool caches = spec_.software.config_use_cache && spec_.software.transformers != Transformers::v5;
  if (caches && training_.loop == Loop::trainer && training_.checkpointing == Checkpointing::none)
    options_.cache = std::make_shared<KeyValueCache>(spec_.software.transformers);
  Outputs outputs = training_.loop == Loop::sft_trainer ? compute_sft_loss(batch, num_items, returns_logits) : of_trainer(batch);
  if (!returns_logits) outputs.logits.reset();
  options_.num_items.reset();
  options_.padding = {};
  options_.cache.reset();
  return outputs;
}

TrainerForward::Outputs TrainerForward::of_trainer(const Batch& batch) {
  Outputs outputs;
  if (training_.label_smoothing) {
    outputs.loss = smoothed(batch, &outputs.logits);
  } else {
    outputs = of_model(batch);
  }
  // loss *= num_processes, which earlier versions do with several only
  if (spec_.software.transformers == Transformers::v5) outputs.loss = mul_in_place(outputs.loss);
  return outputs;
}

// What leaves DistributedDataParallel.forward.
void TrainerForward::wrap(const std::vector<Tensor*>& outputs) const {
  if (rank_.wrap_outputs && device_.training) rank_.wrap_outputs(outputs);
}

TrainerForward::Outputs TrainerForward::of_model(const Batch& batch) {
  Outputs outputs;
  {
    const AutocastRegion autocast(device_, autocast_of(spec_));
    outputs.loss = rank_.model->loss(batch.ids, batch.labels, options_, rank_.hooks, &outputs.logits);
  }
  const bool has_logits = static_cast<bool>(outputs.logits);  // Liger's head keeps none
  if (has_logits && autocast_of(spec_)) outputs.logits = to(outputs.logits, Dtype::float32);
  std::vector<Tensor*> all{&outputs.loss};
  if (has_logits) all.push_back(&outputs.logits);
  wrap(all);
  return outputs;
}

Tensor TrainerForward::logits_of(const Batch& batch) {
  Tensor logits;
  {
    const AutocastRegion autocast(device_, autocast_of(spec_));
    logits = rank_.model->logits(batch.ids, options_, rank_.hooks);
  }
  const ModuleScope scope(device_, "lm_head", Category::logits_and_loss);
  if (autocast_of(spec_)) logits = to(logits, Dtype::float32);
  wrap({&logits});
  return logits;
}

Tensor TrainerForward::smoothed(const Batch& batch, Tensor* kept) {
  const Tensor logits = logits_of(batch);
  if (kept) *kept = logits;
  const ModuleScope scope(device_, "lm_head", Category::logits_and_loss);
  // LabelSmoother before version 5 counts the tokens itself.
  const bool counts = spec_.software.transformers != Transformers::v5;
  return label_smoothed_loss(logits, batch.labels, counts ? Tensor() : options_.num_items);
}

FusedHead TrainerForward::fused(const Batch& batch) {
  FusedHead outputs;
  {
    const AutocastRegion autocast(device_, autocast_of(spec_));
    ForwardOptions options = options_;
    options.num_items.reset();  // model(**inputs, fused_lm_head=True)
    outputs = rank_.model->fused_head(batch.ids, batch.labels, options, rank_.hooks);
  }
  wrap({&outputs.loss, &outputs.log_probabilities, &outputs.entropy, &outputs.is_top1, &outputs.label_mask});
  return outputs;
}

// (-log_probs).sum() / num_tokens. `locals`: Python's names, which last until compute_loss returns.
Tensor TrainerForward::fused_loss(const FusedHead& outputs, const Tensor& num_items, std::vector<Tensor>& locals) const {
  const Tensor each = neg(outputs.log_probabilities);
  const Tensor tokens = num_items ? num_items : sum_of_booleans(outputs.label_mask);
  locals.push_back(each);
  locals.push_back(tokens);
  const auto mean = [&] {
    const Tensor sum = sum_all(each);
    const Tensor clamped = unary_no_grad(tokens, "clamp", tokens.dtype());
    return div(sum, clamped);
  };
  return mean();
}

// Entropy and accuracy, read by the host.
void TrainerForward::measure(const FusedHead& outputs, const Batch& batch, std::vector<Tensor>& locals) const {
  const OpScope op(device_, "metrics");
  // sum(), then a sum of what all processes have
  const auto total = [&](const auto& sum) { return sum_of_all(sum(), spec_.data.degree); };
  locals.push_back(total([&] { return sum_of_booleans(outputs.label_mask); }));
  locals.push_back(total([&] { return sum_all(detach(outputs.entropy)); }));
  locals.push_back(total([&] { return sum_of_booleans(outputs.is_top1); }));
  for (int i = 0; i < 2; ++i) {
    device_.scratch(Bytes{1});  // num_valid > 0
    device_.scratch(size_of(Dtype::float32));
  }
  if (device_.training) total([&] { return sum_all(batch.attention_mask); });
}

// TRL 0.24's entropy, in chunks of rows, and accuracy.
void TrainerForward::measure_logits(const Tensor& logits, const Batch& batch) const {
  constexpr std::int64_t chunk = 128;
  const OpScope op(device_, "metrics");
  const With no_grad(device_.grad_enabled, false);
  const std::int64_t rows = logits.size(0) * logits.size(1), words = logits.size(2);
  const auto scalar = [&](Dtype dtype) { return device_.empty({}, dtype); };
  const auto entropies = [&] {
    std::vector<Tensor> parts;
    Tensor logarithms;
    for (std::int64_t start = 0; start < rows; start += chunk) {
      const Dims sizes{std::min(chunk, rows - start), words};
      logarithms = device_.empty(sizes, logits.dtype());
      const auto sum = [&] {
        const auto product = [&] {
          const Tensor probabilities = device_.empty(sizes, logits.dtype());
          return device_.empty(sizes, logits.dtype());
        };
        const Tensor weighted = product();
        return device_.empty({sizes[0]}, logits.dtype());
      };
      const Tensor positive = sum();
      parts.push_back(neg(positive));
    }
    return device_.empty({rows}, logits.dtype());
  };
  const Tensor each = entropies();
  {
    const auto total = [&] {
      const Tensor kept = device_.empty({rows}, logits.dtype());
      return scalar(logits.dtype());
    };
    const auto mean = [&] {
      const Tensor of_all = total(), count = scalar(Dtype::int64);
      return scalar(logits.dtype());
    };
    const Tensor entropy = mean();
    device_.scratch(size_of(logits.dtype()));
  }
  if (device_.training) {
    const Tensor tokens = scalar(Dtype::int64);
    device_.scratch(size_of(Dtype::int64));
  }
  const std::int64_t length = logits.size(1) - 1;
  const Tensor shifted = contiguous(narrow(logits, 1, 0, length)), labels = contiguous(narrow(batch.labels, 1, 1, length));
  const Tensor predictions = device_.empty(labels.sizes(), Dtype::int64);
  const Tensor mask = device_.empty(labels.sizes(), Dtype::boolean);
  const auto correct = [&] {
    const Tensor equal = device_.empty(labels.sizes(), Dtype::boolean);
    return device_.empty(labels.sizes(), Dtype::boolean);
  };
  const Tensor right = correct();
  const Tensor total = sum_of_booleans(mask), of_right = sum_of_booleans(right);
  const Tensor sum = scalar(Dtype::int64);
  device_.scratch(Bytes{1});
}

TrainerForward::Outputs TrainerForward::compute_sft_loss(const Batch& batch, const Tensor& num_items, bool returns_logits) {
  if (spec_.software.trl == Trl::v0_24) {
    Outputs outputs = of_trainer(batch);
    measure_logits(outputs.logits, batch);
    return outputs;
  }
  FusedHead outputs;
  Tensor loss;
  std::vector<Tensor> locals;
  if (training_.label_smoothing) {
    loss = smoothed(batch, nullptr);
    const With no_grad(device_.grad_enabled, false);
    outputs = fused(batch);
  } else {
    outputs = fused(batch);
    loss = fused_loss(outputs, num_items, locals);
  }
  if (num_items) loss = mul_scalar(loss);
  measure(outputs, batch, locals);
  Tensor logits;
  if (returns_logits) {
    const With no_grad(device_.grad_enabled, false);
    logits = logits_of(batch);
  }
  return {loss, logits};
}

}  // namespace llmem
