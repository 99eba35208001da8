#include "step/evaluation.h"

#include <utility>
#include <vector>

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

Dims with_rows(Dims sizes, std::int64_t rows) {
  sizes[0] = rows;
  return sizes;
}

// transformers/trainer_pt_utils.py, EvalLoopContainer: what comes is concatenated to what is there, into a new tensor.
class Kept {
 public:
  explicit Kept(const char* name) : name_(name) {}
  void add(const Tensor& tensor) {
    if (!all_) {
      all_ = tensor;
      return;
    }
    const OpScope op(tensor.device(), name_);
    all_ = tensor.device().empty(with_rows(tensor.sizes(), all_.size(0) + tensor.size(0)), tensor.dtype());
  }
  void to_host() { all_.reset(); }

 private:
  const char* name_;
  Tensor all_;
};

struct Prediction {
  Tensor loss, logits, labels;
};

class EvaluationLoop {
 public:
  EvaluationLoop(Device& device, const Spec& spec, TrainerForward& forward)
      : device_(device),
        spec_(spec),
        version_(spec.software.transformers),
        training_(spec.training),
        options_(*spec.training.evaluation),
        forward_(forward) {}

  void run() {
    Kept losses("losses"), predictions("predictions"), labels("labels");
    std::vector<Batch> inputs;
    Prediction last;  // Python's names, bound until the next step returns
    for (std::int64_t step = 0; step < options_.batches; ++step) {
      inputs = {make_batch(device_, forward_.architecture(), training_, options_.batch)};
      last = predict(inputs);
      last.loss = device_.empty({options_.batch}, last.loss.dtype());
      last.loss = gathered(last.loss);
      losses.add(last.loss);
      if (last.labels) gather_sizes(last.labels);
      if (last.logits) keep_logits(last.logits, predictions);
      if (last.labels) {
        last.labels = gathered(last.labels);
        labels.add(last.labels);
      }
      if (options_.accumulation_steps == 0 || (step + 1) % options_.accumulation_steps != 0) continue;
      for (Kept* each : {&losses, &predictions, &labels}) each->to_host();
      last = {};
      device_.empty_cache();
      // The data loader holds the batch until it is asked for the next.
      inputs.clear();
    }
  }

 private:
  bool only_loss() const { return !options_.compute_metrics; }

  // prediction_step
  Prediction predict(const std::vector<Batch>& inputs) {
    const With no_grad(device_.grad_enabled, false);
    const Batch& batch = inputs.front();
    if (training_.loop == Loop::sft_trainer && version_ == Transformers::v5) {
      const TrainerForward::Outputs outputs = forward_.compute_loss(batch, {}, !only_loss());
      return {outputs.loss, outputs.logits, only_loss() ? Tensor() : batch.labels};
    }
    const Tensor num_items = version_ == Transformers::v5 ? num_items_of(device_, inputs, spec_, true) : Tensor();
    const TrainerForward::Outputs outputs = forward_.compute_loss(batch, num_items, true);
    const Tensor loss = mean_all(outputs.loss);
    if (only_loss()) return {loss, {}, {}};
    return {loss, outputs.logits, detach(batch.labels)};
  }

  // accelerate's pad_across_processes: the sizes go to the device and back
  void gather_sizes(const Tensor& tensor) const {
    const OpScope op(device_, "sizes");
    device_.scratch(Bytes{8} * tensor.dim());
  }

  void keep_logits(Tensor& logits, Kept& predictions) const {
    gather_sizes(logits);
    if (options_.preprocess_argmax) {
      const OpScope op(device_, "argmax");
      logits = device_.empty({logits.size(0), logits.size(1)}, Dtype::int64);
    }
    logits = gathered(logits);
    predictions.add(logits);
  }

  // accelerate's gather: the rows of all processes
  Tensor gathered(const Tensor& tensor) const {
    const std::int64_t processes = spec_.data.degree;
    if (processes == 1) return tensor;
    const OpScope op(device_, "gather");
    return device_.empty(with_rows(tensor.sizes(), processes * tensor.size(0)), tensor.dtype());
  }

  Device& device_;
  const Spec& spec_;
  Transformers version_;
  const Training& training_;
  const Evaluation& options_;
  TrainerForward& forward_;
};

}  // namespace

void evaluate(Device& device, const Spec& spec, TrainerForward& forward) {
  const With evaluating(device.training, false);
  EvaluationLoop(device, spec, forward).run();
}

}  // namespace llmem
