#include "llmem/question.h"

#include "base/json.h"
#include "spec/gpus.h"
#include "spec/sections.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostGpus = 1 << 10, kMostMegabytes = 1 << 25;
constexpr int kAllMethods = -2;
constexpr Choice kMethods[] = {{"cdp", static_cast<int>(PaperMethod::cdp)},
                               {"adp", static_cast<int>(PaperMethod::adp)},
                               {"tp", static_cast<int>(PaperMethod::tp)},
                               {"dp_tp", static_cast<int>(PaperMethod::dp_tp)}};
constexpr Choice kForms[] = {{"coded", static_cast<int>(PaperForm::coded)}, {"published", static_cast<int>(PaperForm::published)}};
constexpr Choice kLogits[] = {{"float16", 0}, {"float32", 1}};

void read_gpus(ObjectReader& reader, PaperQuestion& question) {
  PaperSetup& setup = question.setup;
  reader.integer("gpus", setup.gpus, 1, kMostGpus);
  if (setup.gpus % 2 == 0) setup.tensor = 2;  // the paper's 2DP + 2TP, on any even number of GPUs
  if (reader.integer("tensor", setup.tensor, 1, kMostGpus) && setup.gpus % setup.tensor != 0) {
    reader.problem("tensor", "conflict",
                   "groups of " + std::to_string(setup.tensor) + " do not divide " + std::to_string(setup.gpus) + " GPUs");
  }
  int method = kAllMethods;
  reader.choice("method", kMethods, method);
  if (method == kAllMethods) return;
  question.method = static_cast<PaperMethod>(method);
  if (*question.method == PaperMethod::dp_tp && (setup.tensor == 1 || setup.tensor == setup.gpus)) {
    reader.problem("method", "conflict", "dp_tp needs tensor groups of more than one GPU, and more than one of them");
  }
}

// `memory_mb` is what nvidia-smi shows, which is more than CUDA does: the paper's V100 has 16384.
void read_memory(ObjectReader& reader, PaperQuestion& question) {
  std::string id = "v100-sxm2-16gb";
  reader.text("gpu", id);
  std::int64_t base = 0, memory = 16384;
  if (const std::optional<Gpu> gpu = gpu_named(id)) {
    question.compute_capability = gpu->compute_capability;
    if (reader.given("gpu") && gpu->memory) memory = gpu->memory->count >> 20;
  } else {
    std::vector<std::string_view> ids;
    for (const GpuPreset& preset : gpu_presets()) ids.push_back(preset.id);
    reader.problem("gpu", "unknown_value", not_known("the GPU", id, ids));
  }
  question.base_given = reader.integer("base_mb", base, 0, kMostMegabytes);
  reader.integer("memory_mb", memory, 1, kMostMegabytes);
  question.setup.base = 1_MiB * base;
  question.setup.memory = 1_MiB * memory;
}

void read_batch(ObjectReader& reader, PaperQuestion& question) {
  std::int64_t batch = 1;
  reader.integer("sequence", question.setup.sequence, 2, 1 << 20);
  if (!reader.integer("batch", batch, 1, kMostTokens)) return;
  question.batch = batch;
  if (batch > kMostTokens / question.setup.sequence)
    reader.problem("batch", "range", "batch * sequence must be at most " + std::to_string(kMostTokens) + " tokens");
}

}  // namespace

Reading<PaperQuestion> read_paper_question(std::string_view text, const ModelPresets& presets) {
  Reading<Json> parsed = parse_json(text);
  Reading<PaperQuestion> reading{{}, std::move(parsed.problems), {}};
  if (!reading.problems.empty()) return reading;
  PaperQuestion& question = reading.value;
  ModelSource source;
  ObjectReader reader(&parsed.value, "", reading.problems);
  reader.find("model");
  read_model(parsed.value, presets, source, reading.problems);
  read_gpus(reader, question);
  read_memory(reader, question);
  read_batch(reader, question);
  int form = static_cast<int>(question.setup.form), logits = -2;
  reader.choice("form", kForms, form);
  reader.choice("logits", kLogits, logits);
  reader.boolean("corrected", question.setup.corrected);
  reader.done();
  question.name = source.name;
  question.setup.form = static_cast<PaperForm>(form);
  if (!source.config) return reading;
  Reading<PaperModel> model = read_paper_model(*source.config);
  reading.problems.insert(reading.problems.end(), model.problems.begin(), model.problems.end());
  question.model = std::move(model.value);
  question.setup.fp32_logits = logits >= 0 ? logits == 1 : question.model.fp32_logits;
  return reading;
}

}  // namespace llmem
