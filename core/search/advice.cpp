#include "search/advice.h"

#include <algorithm>

namespace llmem {

using Json = nlohmann::json;

namespace {

constexpr std::size_t kMostAdvice = 8, kCombined = 4;
constexpr double kWorthwhile = 0.98;  // of the time a token: less is not worth saying

struct Change {
  std::string label;
  Json change;
  bool changes_result = false;
};

const Json* member(const Json& spec, const char* section) {
  const auto found = spec.find(section);
  return found != spec.end() && found->is_object() ? &*found : nullptr;
}

Json parallel_of(const Json& spec) {
  const Json* section = member(spec, "parallel");
  return section ? *section : Json::object();
}

// The parallel section with another way over the same data-parallel ranks; what is said of the same way stays as it is.
Json with_data(const Json& spec, std::int64_t degree, const char* kind, Json options, bool offload) {
  Json parallel = parallel_of(spec);
  if (const auto now = parallel.find("data"); now != parallel.end() && now->is_object() && now->value("kind", "") == kind) {
    Json kept = *now;
    for (const auto& [key, value] : options.items()) kept[key] = value;
    options = std::move(kept);
  }
  options["kind"] = kind;
  options["degree"] = degree;
  parallel["data"] = std::move(options);
  parallel.erase("offload");
  if (offload) parallel["offload"] = {{"optimizer", "cpu"}, {"parameters", "cpu"}};
  return {{"parallel", std::move(parallel)}};
}

std::string arrow(const char* what, std::int64_t from, std::int64_t to) {
  return std::string(what) + " " + std::to_string(from) + " → " + std::to_string(to);
}

// As many rows an optimizer step, in more and smaller micro-batches or in fewer and larger ones.
Change micro_batch(const Spec& spec, std::int64_t rows, std::int64_t accumulation) {
  return {arrow("micro-batch", spec.training.micro_batch, rows),
          {{"training", {{"micro_batch", rows}, {"accumulation", accumulation}}}},
          false};
}

// What 4-bit weights are unpacked to is float32 unless it is said (transformers, BitsAndBytesConfig.bnb_4bit_compute_dtype), twice as large and slower.
void add_compute_dtype(const Spec& spec, const Json& json, std::vector<Change>& changes) {
  const std::optional<BaseQuantization>& base = spec.training.base_quantization;
  if (!base || base->bits != 4 || base->compute_dtype != Dtype::float32) return;
  Json section = json["training"]["base_quantization"];
  section["compute_dtype"] = "bfloat16";
  changes.push_back({"computing in bfloat16", {{"training", {{"base_quantization", std::move(section)}}}}, false});
}

std::vector<Change> savings(const Spec& spec, const Json& json) {
  const Training& t = spec.training;
  const std::int64_t data = spec.data.degree;
  std::vector<Change> changes;
  const auto add = [&](const char* label, Json change, bool changes_result = false) {
    changes.push_back({label, std::move(change), changes_result});
  };
  if (t.checkpointing == Checkpointing::none) add("full checkpointing", {{"training", {{"checkpointing", "full"}}}});
  for (std::int64_t rows = t.micro_batch / 2; rows >= 1; rows /= 2)
    if (t.micro_batch % rows == 0 && spec.pipeline.degree == 1)
      changes.push_back(micro_batch(spec, rows, t.accumulation * (t.micro_batch / rows)));
  add_compute_dtype(spec, json, changes);
  if (t.attention == Attention::eager) add("SDPA in place of eager attention", {{"training", {{"attention", "sdpa"}}}});
  if (t.loss == Loss::standard) add("Liger's fused head and loss", {{"training", {{"loss", "liger_fused_linear"}}}});
  if (!spec.allocator.expandable_segments) add("expandable segments", {{"allocator", {{"expandable_segments", true}}}});
  const DataKind kind = spec.data.kind;
  if (data > 1) {
    if (kind == DataKind::ddp || kind == DataKind::zero_redundancy)
      add("ZeRO-1 in place of DDP", with_data(json, data, "zero1", {}, false));
    if (kind == DataKind::ddp || kind == DataKind::zero_redundancy || kind == DataKind::zero1)
      add("ZeRO-2", with_data(json, data, "zero2", {}, false));
    if (kind != DataKind::fsdp2) add("FSDP2", with_data(json, data, "fsdp2", {}, false));
    if (kind == DataKind::fsdp2 && !spec.data.reshard_after_forward)
      add("resharding after forward", with_data(json, data, "fsdp2", {}, false));
    if (kind == DataKind::fsdp2 && spec.data.replicate > 1)
      add("one copy sharded over all ranks", with_data(json, data, "fsdp2", {}, false));
    if (!spec.offload.parameters) add("FSDP2 with offload to the host", with_data(json, data, "fsdp2", {}, true));
  }
  if (t.method == Method::full && t.optimizer.name == OptimizerName::adamw)
    add("8-bit AdamW", {{"training", {{"optimizer", {{"name", "adamw_8bit"}}}}}}, true);
  if (t.sequence >= 2)
    changes.push_back({arrow("sequence", t.sequence, t.sequence / 2), {{"training", {{"sequence", t.sequence / 2}}}}, true});
  if (t.method == Method::full) add("LoRA in place of full training", {{"training", {{"method", "lora"}}}}, true);
  return changes;
}

std::vector<Change> gifts(const Spec& spec, const Json& json) {
  const Training& t = spec.training;
  std::vector<Change> changes;
  add_compute_dtype(spec, json, changes);
  if (t.checkpointing != Checkpointing::none) changes.push_back({"no checkpointing", {{"training", {{"checkpointing", "none"}}}}, false});
  for (const std::int64_t times : {2, 4, 8}) {
    if (spec.pipeline.degree > 1) break;
    const bool same_batch = t.accumulation % times == 0;
    changes.push_back(micro_batch(spec, t.micro_batch * times, same_batch ? t.accumulation / times : t.accumulation));
    changes.back().changes_result = !same_batch;  // more rows an optimizer step
  }
  const DataKind kind = spec.data.kind;
  const std::int64_t data = spec.data.degree;
  if (spec.offload.parameters && kind == DataKind::fsdp2)
    changes.push_back({"no offload", with_data(json, data, "fsdp2", {}, false), false});
  if (kind == DataKind::fsdp2 && spec.data.reshard_after_forward && !spec.offload.parameters)
    changes.push_back({"weights kept after forward", with_data(json, data, "fsdp2", {{"reshard_after_forward", false}}, false), false});
  if (data > 1 && kind != DataKind::ddp) changes.push_back({"DDP", with_data(json, data, "ddp", {}, false), false});
  return changes;
}

Json both(const Json& first, const Json& second) {
  Json merged = first;
  for (const auto& [section, value] : second.items()) {
    if (section == "parallel" || !merged.contains(section))
      merged[section] = value;
    else
      for (const auto& [key, one] : value.items()) merged[section][key] = one;
  }
  return merged;
}

bool touch_the_same(const Json& a, const Json& b) {
  for (const auto& [section, value] : a.items()) {
    if (!b.contains(section)) continue;
    if (section == "parallel") return true;
    for (const auto& [key, one] : value.items())
      if (b[section].contains(key)) return true;
  }
  return false;
}

double time_a_token(const Summary& summary) {
  return summary.tokens_per_second > 0 ? 1 / (summary.tokens_per_second * static_cast<double>(summary.gpus)) : 0;
}

class Adviser {
 public:
  Adviser(const Json& spec, const ModelPresets& presets) : json_(spec), variants_(spec, presets) {}

  AdviceList advise() {
    AdviceList list;
    list.now = summary_of(variants_.read(Json::object()));
    if (!list.now.problems.empty() || list.now.status == Status::unknown) return list;
    const Spec& spec = variants_.spec();
    list.advice = list.now.status == Status::fits ? given_back(spec, list.now) : made_to_fit(spec, list.now);
    if (list.advice.size() > kMostAdvice) list.advice.resize(kMostAdvice);
    return list;
  }

 private:
  Advice tried(const Change& change) const {
    return {change.label, change.change, change.changes_result, summary_of(variants_.read(change.change))};
  }

  // What fits badly is to fit well, what does not fit to fit at all.
  static bool is_cure(const Advice& advice, const Summary& now) {
    return now.fits() ? advice.after.fits() && advice.after.status == Status::fits : advice.after.fits();
  }

  static void sort(std::vector<Advice>& advice) {
    std::stable_sort(advice.begin(), advice.end(), [](const Advice& a, const Advice& b) {
      if (a.changes_result != b.changes_result) return b.changes_result;
      return time_a_token(a.after) < time_a_token(b.after);
    });
  }

  // Of several that ask for ever less of the same, the first that fits is enough: halving the micro-batch once more is no further advice.
  std::vector<Advice> made_to_fit(const Spec& spec, const Summary& now) const {
    std::vector<Advice> fitting, helping;
    bool micro_batch_fits = false;
    for (const Change& change : savings(spec, json_)) {
      const bool of_micro_batch = change.change.contains("training") && change.change["training"].contains("micro_batch");
      if (of_micro_batch && micro_batch_fits) continue;
      Advice advice = tried(change);
      if (!advice.after.problems.empty()) continue;
      if (is_cure(advice, now)) {
        micro_batch_fits |= of_micro_batch;
        fitting.push_back(std::move(advice));
      } else if (advice.after.needed < now.needed) {
        helping.push_back(std::move(advice));
      }
    }
    if (fitting.empty() || std::all_of(fitting.begin(), fitting.end(), [](const Advice& a) { return a.changes_result; }))
      combine(std::move(helping), now, fitting);
    sort(fitting);
    return fitting;
  }

  // Pairs of what helps most; where no pair is enough, all of it that goes together.
  void combine(std::vector<Advice> helping, const Summary& now, std::vector<Advice>& fitting) const {
    std::stable_sort(helping.begin(), helping.end(), [](const Advice& a, const Advice& b) {
      if (a.changes_result != b.changes_result) return b.changes_result;
      return a.after.needed < b.after.needed;
    });
    const std::size_t before = fitting.size(), most = std::min(helping.size(), kCombined + 2);
    for (std::size_t i = 0; i < most; ++i)
      for (std::size_t j = i + 1; j < most; ++j) add_if_fits({&helping[i], &helping[j]}, now, fitting);
    if (fitting.size() > before) return;
    std::vector<const Advice*> together;
    for (const Advice& each : helping) {
      const bool clashes =
          std::any_of(together.begin(), together.end(), [&](const Advice* other) { return touch_the_same(other->change, each.change); });
      if (clashes) continue;
      together.push_back(&each);
      if (together.size() > 2 && add_if_fits(together, now, fitting)) return;
    }
  }

  bool add_if_fits(const std::vector<const Advice*>& parts, const Summary& now, std::vector<Advice>& fitting) const {
    Change change{"", Json::object(), false};
    for (const Advice* part : parts) {
      if (touch_the_same(change.change, part->change)) return false;
      change.label += (change.label.empty() ? "" : ", ") + part->label;
      change.change = both(change.change, part->change);
      change.changes_result |= part->changes_result;
    }
    Advice advice = tried(change);
    if (!is_cure(advice, now)) return false;
    fitting.push_back(std::move(advice));
    return true;
  }

  std::vector<Advice> given_back(const Spec& spec, const Summary& now) const {
    std::vector<Advice> worthwhile;
    for (const Change& change : gifts(spec, json_)) {
      Advice advice = tried(change);
      const bool faster = now.seconds && advice.after.seconds && time_a_token(advice.after) < kWorthwhile * time_a_token(now);
      if (advice.after.fits() && faster) worthwhile.push_back(std::move(advice));
    }
    sort(worthwhile);
    return worthwhile;
  }

  const Json& json_;
  Variants variants_;
};

}  // namespace

AdviceList advice_on(const Json& spec, const ModelPresets& presets) { return Adviser(spec, presets).advise(); }

}  // namespace llmem
