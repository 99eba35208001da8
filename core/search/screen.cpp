#include "search/screen.h"

#include <algorithm>
#include <utility>

#include "model/config.h"
#include "report/outside.h"
#include "time/step_time.h"

namespace llmem {

using Json = nlohmann::json;

namespace {

// The fewest layers that are played; the others are as many more again, of which each adds what the last added. In a stage of a pipeline the first
// layer is as all others. Methods that gather ahead ask other things of the first, of the last and of those between; ZeRO-3 keeps as many gathered
// as its limits allow, so that the next one adds less.
std::int64_t few_layers(const Spec& spec, const Architecture& architecture) {
  const DataKind kind = spec.data.kind;
  if (spec.pipeline.degree > 1 && (kind == DataKind::none || kind == DataKind::ddp)) return 1;
  if (kind != DataKind::zero3) return 3;
  std::int64_t all = 0;
  for (const Parameter& parameter : parameters_of(architecture)) all += parameter.count();
  const ZeroOptimization& zero = spec.data.zero;
  const std::int64_t kept = std::max({zero.max_live_parameters, zero.max_reuse_distance, zero.prefetch_bucket_size.value_or(0)});
  return 3 + std::min(architecture.layers, kept / std::max<std::int64_t>(1, all / architecture.layers));
}

// Of an accumulation: those after the second are as the second, whose time is added.
constexpr std::int64_t kPlayedMicroBatches = 2;

constexpr std::int64_t kMostRows = 64;  // of a micro-batch, as searches try them by themselves

struct Line {
  double few, more;  // where the two plays were made
  double at(double value_at_few, double value_at_more, double there) const {
    return value_at_few + (value_at_more - value_at_few) * (there - few) / (more - few);
  }
};

// The names under which families keep the number of layers.
constexpr const char* kLayerKeys[] = {"num_hidden_layers", "n_layer", "n_layers", "num_layers"};

Json* layers_of(Json& config) {
  for (const char* key : kLayerKeys)
    if (const auto found = config.find(key); found != config.end() && found->is_number_integer()) return &*found;
  return nullptr;
}

// Every moment's memory and every kernel is of one of the layers, or of none.
bool is_linear(const Question& question) {
  const Architecture& a = *question.architecture;
  const Training& t = question.spec.training;
  const bool layers_alike = a.sliding.empty() && a.unturned.empty() && a.experts.layers.empty() && a.experts.count == 0;
  // The buckets of ZeRO-1 and 2 are full after the first layers, and later ones add less.
  const DataKind kind = question.spec.data.kind;
  const bool buckets_fill = kind == DataKind::zero1 || kind == DataKind::zero2;
  return layers_alike && !buckets_fill && (t.checkpointing == Checkpointing::none || t.checkpoint_every == 1);
}

// What of a GPU decides which kernels run, not how large their scratch is.
bool chooses_kernels(const Spec& spec) {
  return spec.training.base_quantization || spec.training.stack == Stack::megatron || spec.cluster.gpu.compute_capability < 80;
}

// One that plays what all others play, with the least scratch: it grows with the multiprocessors (Reduce.cuh, flash_api.cpp, TensorShape.cu), and
// the workspaces of cuBLAS are smallest on compute capability 8.
Gpu played_gpu(const Spec& spec) {
  Gpu gpu = spec.cluster.gpu;
  if (chooses_kernels(spec)) return gpu;
  gpu.compute_capability = 80;
  gpu.sms = 1;
  return gpu;
}

// Asked but for the micro-batch, at a fixed number of rows a step, and the GPU.
std::string without_micro_batch(Json change) {
  change["cluster"].erase("gpu");
  if (const auto training = change.find("training"); training != change.end()) {
    training->erase("micro_batch");
    training->erase("accumulation");
  }
  if (const auto parallel = change.find("parallel"); parallel != change.end() && parallel->contains("pipeline"))
    (*parallel)["pipeline"].erase("microbatches");
  return change.dump();
}

}  // namespace

// What a micro-batch of so many rows holds, and with it each larger one, whose tensors are as large or larger: of an accumulation all of it, of a
// single one what its forward does; of a pipeline's first stage what it was played for.
struct Screener::Least {
  std::int64_t rows = 0;
  bool accumulates = false;
  Probe probe;
  std::map<std::int64_t, std::shared_ptr<const ShortPlay>> stages;  // by layers
};

// One question, and models like its own with other numbers of layers.
class Screener::Screening {
 public:
  Screening(Screener& screener, const Json& change, const Question& question)
      : screener_(screener),
        change_(change),
        question_(question),
        spec_(question.spec),
        machine_(machine_of(spec_.cluster)),
        few_(few_layers(spec_, *question.architecture)),
        first_(backwards_are_alike(spec_) ? kFirstStageAlike : kFirstStage),
        last_(backwards_are_alike(spec_) ? kLastStageAlike : kLastStage) {}

  std::optional<Summary> screen() {
    const bool piped = spec_.pipeline.degree > 1;
    if (const Probe least{weights_and_gradients(), 0}; does_not_fit(least)) return summary(least);
    if (!is_linear(question_) || spec_.pipeline.virtual_stages > 1) return std::nullopt;
    if (piped && spec_.pipeline.schedule != PipelineSchedule::one_forward_one_backward) return std::nullopt;
    const std::optional<Probe> first = piped ? first_stage() : all_layers();
    if (!first) return std::nullopt;
    Probe worst = *first;
    if (piped && !does_not_fit(worst)) {
      const std::optional<Probe> last = last_stage();
      if (!last) return std::nullopt;
      worst = {std::max(worst.held, last->held), std::max(worst.seconds, last->seconds)};
    }
    return summary(worst);
  }

 private:
  // Bytes that a rank holds at the end of backward, whatever else: of methods that do not cut the weights, these, and of most the gradients.
  // Nothing need be played to know them.
  double weights_and_gradients() const {
    const DataKind kind = spec_.data.kind;
    const Training& training = spec_.training;
    const bool whole = kind != DataKind::zero3 && kind != DataKind::fsdp1 && kind != DataKind::fsdp2;
    if (!whole || spec_.pipeline.degree > 1 || training.method != Method::full) return 0;
    const bool cut = kind == DataKind::zero1 || kind == DataKind::zero2;
    const bool all_gradients = !cut && !training.optimizer.in_backward && training.trained.empty() && training.frozen.empty();
    std::int64_t all = 0;
    for (const Parameter& parameter : parameters_of(*question_.architecture)) all += parameter.count();
    return (all_gradients ? 2 : 1) * static_cast<double>(all * size_of(training.weights).count / spec_.tensor.degree);
  }

  std::optional<Probe> all_layers() {
    const std::int64_t layers = question_.architecture->layers;
    if (layers <= 2 * few_ + 1) return std::nullopt;
    Spec spec = spec_;
    spec.training.accumulation = std::min(spec.training.accumulation, kPlayedMicroBatches);
    const std::int64_t rows = spec.training.micro_batch;
    const bool accumulates = spec.training.accumulation > 1;
    for (const Least* least : least_of_as_many_rows(rows)) {
      const Probe known{least->accumulates && !accumulates ? least->probe.forward : least->probe.held, 0};
      if (does_not_fit(known)) return known;
    }
    Json key = change_;
    forget_copies(spec, key);
    const std::optional<Probe> probe = along_layers(layers, [&](std::int64_t n) { return probe_of(known_play(key, spec, n), spec); });
    if (probe) screener_.least_[without_micro_batch(change_)] = {rows, accumulates, *probe, {}};
    return probe;
  }

  // Of P stages, the first holds P microbatches from the moment when the first comes back; with fewer microbatches than that all of them.
  std::optional<Probe> first_stage() {
    const std::int64_t m = spec_.pipeline.microbatches, in_flight = std::min(m, spec_.pipeline.degree);
    const std::int64_t rows = spec_.training.micro_batch;
    const std::int64_t layers = divide_up(question_.architecture->layers, spec_.pipeline.degree);
    for (const Least* least : least_of_as_many_rows(rows)) {
      const std::optional<Probe> known =
          along_layers(layers, [&](std::int64_t n) { return Probe{held_of_stage(*least->stages.at(n), in_flight, m)}; });
      if (does_not_fit(*known)) return known;
    }
    Least played{rows, false, {}, {}};
    const std::optional<Probe> probe = along_layers(layers, [&](std::int64_t n) -> std::optional<Probe> {
      const auto& play = played.stages[n] =
          stage(n, m < first_.microbatches ? StagePlay{std::max<std::int64_t>(2, in_flight), m, 0} : first_);
      return play ? std::optional(probe_of_stage(*play, in_flight)) : std::nullopt;
    });
    if (probe) screener_.least_[without_micro_batch(change_)] = std::move(played);
    return probe;
  }

  // What is known of this question's like with as many rows or fewer, and of what holds no more than that.
  std::vector<const Least*> least_of_as_many_rows(std::int64_t rows) const {
    std::vector<const Least*> known;
    const auto add = [&](Json change) {
      const auto found = screener_.least_.find(without_micro_batch(std::move(change)));
      if (found != screener_.least_.end() && found->second.rows <= rows) known.push_back(&found->second);
    };
    add(change_);
    // Copies do the same with larger shards, and keep them for longer.
    if (spec_.data.kind == DataKind::fsdp2 && spec_.data.replicate > 1) {
      Json all_cut = change_;
      all_cut["parallel"]["data"].erase("replicate");
      add(std::move(all_cut));
    }
    return known;
  }

  // The last holds one microbatch at a time.
  std::optional<Probe> last_stage() {
    const std::int64_t m = spec_.pipeline.microbatches;
    return along_layers(question_.architecture->layers / spec_.pipeline.degree, [&](std::int64_t n) -> std::optional<Probe> {
      const auto play = stage(n, {last_.stages, std::min(m, last_.microbatches), last_.position});
      return play ? std::optional(probe_of_stage(*play, 1)) : std::nullopt;
    });
  }

  template <class At>
  std::optional<Probe> along_layers(std::int64_t layers, const At& at) {
    if (layers <= few_ + 1) return at(layers);
    const std::optional<Probe> few = at(few_), more = at(few_ + 1);
    if (!few || !more) return std::nullopt;
    const Line line{static_cast<double>(few_), static_cast<double>(few_ + 1)};
    const auto there = static_cast<double>(layers);
    return Probe{line.at(few->held, more->held, there), line.at(few->seconds, more->seconds, there),
                 line.at(few->forward, more->forward, there)};
  }

  // The first or the last stage, of so many layers.
  std::shared_ptr<const ShortPlay> stage(std::int64_t layers, const StagePlay& played) {
    Spec spec = spec_;
    spec.pipeline.degree = played.stages;
    spec.pipeline.microbatches = played.microbatches;
    Json key = change_;
    forget_copies(spec, key);
    spec.rank = played.position == 0 ? 0 : spec.world() - 1;  // as the whole is played: in a ring not all do the same
    key["parallel"]["pipeline"] = {played.stages, played.microbatches, played.position};
    return known_play(std::move(key), spec, layers * played.stages);
  }

  Probe probe_of_stage(const ShortPlay& play, std::int64_t in_flight) const {
    const std::int64_t m = spec_.pipeline.microbatches;
    const bool all = play.parts.size() == static_cast<std::size_t>(2 * m + 2) && m < first_.microbatches;  // are played
    Probe probe = all ? peaks_of(play) : Probe{held_of_stage(play, in_flight, m)};
    if (!machine_) return probe;
    std::vector<std::size_t> begins;
    for (const ShortPlay::Part& part : play.parts) begins.push_back(part.begin.work);
    begins.erase(begins.begin());
    const std::vector<double> moments = moments_of(spec_, play.work, *machine_, kernels(), begins);
    probe.seconds = all ? moments.back() : seconds_of_stage(play, moments, in_flight, m);
    return probe;
  }

  // How many copies there are, of all or of what is sharded, only the time of reducing over them tells.
  static void forget_copies(Spec& spec, Json& key) {
    DataParallel& data = spec.data;
    if (data.kind == DataKind::ddp) data.degree = 2;
    if (data.kind == DataKind::fsdp2 && data.replicate > 1) {
      data.degree = 2 * data.degree / data.replicate;
      data.replicate = 2;
    }
    if (data.kind == DataKind::ddp || data.replicate > 1) {
      key["parallel"]["data"]["degree"] = data.degree;
      key["parallel"]["data"]["replicate"] = data.replicate;
    }
  }

  // Of the GPUs a play knows their kind of multiprocessors, not their number, memory or speed.
  std::shared_ptr<const ShortPlay> known_play(Json key, Spec spec, std::int64_t layers) {
    spec.cluster.gpu = played_gpu(spec);
    key["cluster"] = {spec.cluster.gpu.compute_capability, spec.cluster.gpu.sms, layers};
    if (const auto section = key.find("training"); section != key.end()) {
      section->erase("micro_batch");
      section->erase("accumulation");
    }
    key["accumulation"] = spec.training.accumulation;
    const Training& training = spec_.training;
    const bool piped = spec.pipeline.degree > 1;
    const std::int64_t all = training.micro_batch * (piped ? spec_.pipeline.microbatches : training.accumulation);
    const std::int64_t most = std::min(kMostRows, spec.training.accumulation > 1 ? all / 2 : all);
    const auto play = [&](std::int64_t rows) -> std::shared_ptr<const ShortPlay> {
      const Architecture* architecture = with_layers(layers);
      spec.training.micro_batch = rows;
      return architecture ? short_play(spec, *architecture) : nullptr;
    };
    return screener_.plays_[key.dump()].of(training.micro_batch, most, play);
  }

  std::optional<Probe> probe_of(const std::shared_ptr<const ShortPlay>& played, Spec spec) const {
    if (!played) return std::nullopt;
    Probe probe = peaks_of(*played);
    if (!machine_) return probe;
    spec.data = spec_.data;  // its ranks lie as those of the whole
    const StepTime time = step_time(spec, played->work, *machine_, kernels());
    const auto left_out = static_cast<double>(spec_.training.accumulation - spec.training.accumulation);
    probe.seconds = time.seconds + left_out * time.first_micro_batch;
    return probe;
  }

  // A ring's exchanges are asked for late where the host is not ahead yet, which it is the more the longer the play: so it takes no time.
  Kernels kernels() const {
    Kernels kernels;
    kernels.at_once = spec_.context.degree > 1;
    return kernels;
  }

  const Architecture* with_layers(std::int64_t layers) {
    if (const auto known = screener_.shallower_.find(layers); known != screener_.shallower_.end()) return &known->second;
    Json config = *spec_.model.config;
    Json* count = layers_of(config);
    if (!count) return nullptr;
    *count = layers;
    Reading<Architecture> reading = read_trained_architecture(config, spec_.training);
    if (!reading.problems.empty() || reading.value.layers != layers) return nullptr;
    return &(screener_.shallower_[layers] = std::move(reading.value));
  }

  bool does_not_fit(const Probe& probe) const {
    const Outside outside = outside_of(spec_.cluster.gpu.compute_capability, communicators_of(spec_));
    const std::optional<Bytes> memory = memory_for_allocator(spec_, outside);
    return memory && probe.held > static_cast<double>(memory->count);
  }

  Summary summary(const Probe& probe) const {
    const Outside outside = outside_of(spec_.cluster.gpu.compute_capability, communicators_of(spec_));
    const std::optional<Bytes> memory = memory_for_allocator(spec_, outside);
    Summary summary;
    summary.exact = false;
    summary.needed = Bytes{static_cast<std::int64_t>(probe.held)} + outside.used;
    if (memory) {
      summary.capacity = spec_.cluster.memory ? *memory + outside.used : *spec_.cluster.gpu.memory;
      summary.status = does_not_fit(probe) ? Status::does_not_fit : Status::fits;
    }
    summary.gpus = spec_.world();
    if (!machine_ || probe.seconds <= 0) return summary;
    const PipelineParallel& pipeline = spec_.pipeline;
    const double bubble = static_cast<double>(pipeline.degree - 1) / static_cast<double>(pipeline.microbatches);
    summary.seconds = probe.seconds * (1 + (pipeline.degree > 1 ? bubble : 0));
    summary.tokens_per_second = tokens_of(spec_) / *summary.seconds / static_cast<double>(summary.gpus);
    return summary;
  }

  Screener& screener_;
  const Json& change_;
  const Question& question_;
  const Spec& spec_;
  std::optional<Machine> machine_;
  std::int64_t few_;
  StagePlay first_, last_;  // of a pipeline, as they are played
};

Screener::Screener(const Json& spec, const ModelPresets& presets) : variants_(spec, presets) {}
Screener::~Screener() = default;

Summary Screener::screen(const Json& change) {
  Question question = variants_.read(change);
  if (question.problems.empty() && question.architecture == variants_.architecture())
    if (const std::optional<Summary> quick = Screening(*this, change, question).screen()) return *quick;
  return whole(change, std::move(question));
}

Summary Screener::whole(const Json& change) { return whole(change, variants_.read(change)); }

Summary Screener::whole(const Json& change, Question question) {
  return summary_of(std::move(question), [&](const Spec& spec, const Architecture& architecture) {
    const Gpu& gpu = spec.cluster.gpu;
    Json key = change;
    key["cluster"] = {gpu.compute_capability, gpu.sms, spec.rank};
    return played_whole(key.dump(), spec, architecture);
  });
}

// What is left out of many micro-batches is what repeats itself in the memory that there is.
std::shared_ptr<const Trace> Screener::played_whole(std::string key, const Spec& spec, const Architecture& architecture) {
  const std::optional<Bytes> memory = spec.cluster.memory ? spec.cluster.memory : spec.cluster.gpu.memory;
  for (const Whole& known : wholes_)
    if (known.key == key && (known.trace->micro_batches_left_out == 0 || known.memory == memory)) return known.trace;
  if (wholes_.size() == 2) wholes_.erase(wholes_.begin());
  wholes_.push_back({std::move(key), memory, play_anew(spec, architecture)});
  return wholes_.back().trace;
}

}  // namespace llmem
