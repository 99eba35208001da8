#include "report/estimate.h"

#include "model/config.h"
#include "model/litgpt.h"
#include "model/older.h"
#include "plan/adapt.h"
#include "report/repeated.h"
#include "spec/read_spec.h"

namespace llmem {
namespace {

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

[[gnu::cold]] Note about_repetition(const RepeatedPlay& play) {
  const std::string left_out = std::to_string(play.trace.micro_batches_left_out);
  return {"/training/accumulation",
          play.settled
              ? "Of each step " + left_out + " micro-batches are left out: they repeat the one before them, allocation by allocation."
              : "Of each step " + left_out +
                    " micro-batches are left out, though the allocator still moved its blocks about in those before "
                    "them: with them it may reserve more."};
}

}  // namespace

Result<Played> play_spec(std::string_view spec_text, const ModelPresets& presets, bool keep_shapes) {
  Reading<Spec> spec = read_spec(spec_text, presets);
  Problems problems = std::move(spec.problems);
  std::vector<Note> notes = std::move(spec.notes);
  Architecture architecture;
  if (spec.value.model.config) {  // else that is a problem already
    Reading<Architecture> reading = read_trained_architecture(*spec.value.model.config, spec.value.training);
    architecture = std::move(reading.value);
    append(problems, reading.problems);
    append(notes, reading.notes);
  }
  if (settle_attention(spec.value.training, architecture))
    notes.push_back(
        {"/training/attention", "No attention is named, and Transformers has no SDPA for this model: it takes eager attention."});
  if (problems.empty()) problems = check_sizes(spec.value, architecture);
  if (problems.empty() && spec.value.training.stack == Stack::litgpt)
    architecture = as_litgpt(std::move(architecture), spec.value.training.sequence);
  if (problems.empty()) problems = check_trained(spec.value.training, architecture);
  if (problems.empty()) problems = check_older(spec.value, architecture);
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  RepeatedPlay play = play_repeated(spec.value, architecture, keep_shapes);
  if (play.trace.micro_batches_left_out > 0) notes.push_back(about_repetition(play));
  return Played{std::move(spec.value), std::move(architecture), std::move(play.trace), std::move(notes)};
}

std::string estimate(std::string_view spec_text, const ModelPresets& presets) {
  const Result<Played> played = play_spec(spec_text, presets);
  if (!played) return problems_to_json(played.error());
  const Result<Report> report = report_on(*played);
  if (!report) return problems_to_json(report.error());
  return "{\"ok\":true,\"value\":" + to_json(*report) + "}";
}

}  // namespace llmem
