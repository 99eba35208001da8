#include "llmem/paper_estimate.h"

#include "llmem/chunks.h"

namespace llmem {
namespace {

constexpr std::int64_t half = 2, single = 4;  // B16, B32: bytes an element
constexpr Bytes page = 2_MiB;                 // cu_p

// ceil_P(bytes * times / parts), not rounded in between; 0 <= times.
Bytes pages(std::int64_t bytes, std::int64_t times = 1, std::int64_t parts = 1) {
  return round_up(Bytes{bytes / parts * times + divide_up(bytes % parts * times, parts)}, page);
}

Bytes share(Bytes whole, std::int64_t times, std::int64_t parts) {
  return {whole.count / parts * times + whole.count % parts * times / parts};
}

std::int64_t tensor_degree(const PaperSetup& setup, PaperMethod method) {
  if (method == PaperMethod::tp) return setup.gpus;
  return method == PaperMethod::dp_tp ? setup.tensor : 1;
}

}  // namespace

PaperEstimate::PaperEstimate(const PaperModel& model, const PaperSetup& setup, PaperMethod method)
    : model_(model),
      setup_(setup),
      method_(method),
      holders_(method == PaperMethod::cdp ? 1 : setup.gpus),
      degree_(tensor_degree(setup, method)) {
  fixed_.base = setup.base;
  if (setup.form == PaperForm::published)
    published_fixed();
  else
    coded_fixed();
}

// m_p is rounded as a whole: what the fp16 part leaves of it is the fp32 part.
void PaperEstimate::published_fixed() {
  const std::int64_t head = model_.head_tied ? 0 : model_.head;
  const std::int64_t other = model_.parameter_count() - model_.input_embedding - head;
  const std::int64_t elements = model_.input_embedding + divide_up(other, model_.chunk) * model_.chunk;
  const Bytes fp16 = pages(elements * half), fp32 = pages(elements * (half + single)) - fp16;
  Bytes states;
  for (const std::int64_t each : model_.operators) states += pages(each * 2 * single);

  fixed_.weights_16 = fp16;
  if (method_ == PaperMethod::tp) fixed_.weights_16 = share(fp16, 1, holders_);
  if (method_ == PaperMethod::dp_tp)
    fixed_.weights_16 = setup_.corrected ? share(fp16, 1, degree_) : share(fp16, holders_ - degree_, holders_);
  fixed_.weights_32 = share(fp32, 1, holders_);
  fixed_.optimizer_states = share(states, 1, holders_);
  fixed_.lm_head = Bytes{model_.head * half};
}

// What the code adds for a tensor that the chunks hold 1 / gpu_n of: it is gathered before it is used.
Bytes PaperEstimate::gathered(std::int64_t tensor) const {
  const std::int64_t whole = pages(tensor * half).count, g = holders_;
  if (g == 1 || method_ == PaperMethod::tp) return {};
  if (method_ == PaperMethod::adp) return pages(whole, g - 1, g);
  if (setup_.corrected) return pages(whole, g - degree_, g * degree_);  // 1 / tp_n in all
  return pages(whole, g - degree_ - 1, g);
}

// size_estimator.py measures the memory of the chunks; here it is reckoned from the chunk search.
void PaperEstimate::coded_fixed() {
  for (const std::int64_t chunk : pack(model_.parameters, model_.chunk, holders_ / degree_)) {
    fixed_.weights_16 += pages(chunk * half, 1, holders_);
    fixed_.weights_32 += pages(chunk * single, 1, holders_);
  }
  for (std::size_t i = 0; i + 1 < model_.listed.size(); ++i) {
    fixed_.weights_16 += gathered(model_.listed[i]);
    fixed_.optimizer_states += pages(model_.listed[i] * single, 1, holders_) * 2;
  }
  fixed_.input = pages(2 * setup_.sequence * 8);  // the ids of a probe batch of two rows
  fixed_.lm_head = pages(model_.listed.back() * half);
}

// The logits, a shifted copy and its log-softmax.
Bytes PaperEstimate::logits(std::int64_t batch) const {
  const std::int64_t row = model_.vocabulary * (setup_.fp32_logits ? single : half);
  return pages(batch * setup_.sequence * row) + pages(batch * (setup_.sequence - 1) * row) * 2;
}

PaperParts PaperEstimate::peak(std::int64_t batch) const {
  PaperParts parts = fixed_;
  const std::int64_t tokens = batch * setup_.sequence, output = tokens * model_.hidden * half;
  parts.lm_head += logits(batch);
  if (setup_.form == PaperForm::published) {
    parts.outputs = pages(output * (model_.embeddings + model_.layers));
    parts.backward = pages(output * model_.layers, degree_ - 1, degree_);
  } else {
    // The embedding's output counts twice, then each layer's input but the first's, then what lm_head gets.
    parts.outputs = pages(output) * (model_.layers + 1) + pages(tokens * model_.output_width * half);
    parts.backward = pages(output, degree_ - 1, degree_) * model_.layers;
  }
  return parts;
}

// The code counts upwards from 1 until the peak exceeds the memory. Peaks never fall with the batch, so the interval can be halved.
std::int64_t PaperEstimate::largest_batch() const {
  const auto fits = [this](std::int64_t batch) { return peak(batch).total() <= setup_.memory; };
  std::int64_t fitting = 0, failing = 1;
  while (fits(failing)) {
    fitting = failing;
    failing *= 2;
  }
  while (failing - fitting > 1) {
    const std::int64_t middle = fitting + (failing - fitting) / 2;
    (fits(middle) ? fitting : failing) = middle;
  }
  return fitting;
}

PaperChoice paper_choice(const PaperModel& model, const PaperSetup& setup) {
  PaperChoice choice;
  std::int64_t best = 0;
  const auto consider = [&](PaperMethod method, std::int64_t weight) {
    const std::int64_t batch = PaperEstimate(model, setup, method).largest_batch();
    choice.candidates.push_back({method, batch, batch * weight});
    if (batch * weight <= best) return;
    best = batch * weight;
    choice.method = method;
  };
  const std::int64_t g = setup.gpus;
  consider(PaperMethod::cdp, 3 * g);
  if (g == 1) return choice;
  consider(PaperMethod::adp, 2 * g);
  consider(PaperMethod::tp, 2);
  if (setup.tensor > 1 && setup.tensor < g) consider(PaperMethod::dp_tp, 2 * g / setup.tensor);
  return choice;
}

Bytes dnnmem_style(const PaperModel& model, const PaperSetup& setup, std::int64_t batch) {
  const auto rounded = [](std::int64_t bytes) { return round_up(Bytes{bytes}, Bytes{512}); };
  Bytes bytes = setup.base;
  for (const std::int64_t each : model.parameters) bytes += rounded(each * half) * 4;
  const std::int64_t tokens = batch * setup.sequence;
  bytes += rounded(tokens * model.hidden * half) * (model.layers + 1);
  bytes += rounded(tokens * model.vocabulary * half);
  return bytes;
}

}  // namespace llmem
