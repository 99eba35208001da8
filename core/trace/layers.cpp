#include "trace/layers.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace llmem {
namespace {

constexpr std::size_t none = ~std::size_t{0};

// A stretch of the history that is of one layer, or of none.
struct Run {
  std::int64_t layer = -1;
  std::size_t event = 0, events = 0;  // where it begins, and how many
  std::size_t allocation = 0, work = 0, works = 0;
  std::size_t sweep = none;  // runs of layers that follow each other, up or down, are one
  std::size_t like = none;   // the run of the shorter history
};

struct LayerNumber {
  std::int64_t layer = -1;
  std::string_view rest;  // ".self_attn.q_proj"
};

LayerNumber number_in(std::string_view module, std::string_view prefix) {
  if (module.substr(0, prefix.size()) != prefix) return {};
  LayerNumber number;
  const char* end = module.data() + module.size();
  const auto [after, error] = std::from_chars(module.data() + prefix.size(), end, number.layer);
  if (error != std::errc{}) return {};
  number.rest = {after, static_cast<std::size_t>(end - after)};
  return number;
}

// A trace cut into runs.
class History {
 public:
  History(const Trace& whole, std::string_view prefix) : trace(whole), run_of(whole.allocations.size()) {
    modules.reserve(trace.modules.size());
    for (const std::string& module : trace.modules) modules.push_back(number_in(module, prefix));
    cut();
    share_out_work();
    find_sweeps();
  }

  const Run& run_of_allocation(std::size_t allocation) const { return runs[run_of[allocation]]; }
  std::size_t number_in_run(std::size_t allocation) const { return allocation - run_of_allocation(allocation).allocation; }

  const Trace& trace;
  std::vector<LayerNumber> modules;
  std::vector<Run> runs;
  std::vector<std::uint32_t> run_of;  // by allocation

 private:
  std::int64_t made_by(std::size_t allocation) const { return modules[trace.allocations[allocation].module].layer; }

  // Where counters are read, peaks start anew or the cache is emptied, runs end.
  void cut() {
    for (std::size_t event = 0, point = 0, reset = 0, flush = 0; event < trace.events.size();) {
      while (point < trace.points.size() && trace.points[point].event <= event) ++point;
      while (reset < trace.peak_resets.size() && trace.peak_resets[reset] <= event) ++reset;
      while (flush < trace.cache_flushes.size() && trace.cache_flushes[flush] <= event) ++flush;
      std::size_t stop = trace.events.size();
      if (reset < trace.peak_resets.size()) stop = std::min(stop, trace.peak_resets[reset]);
      if (flush < trace.cache_flushes.size()) stop = std::min(stop, trace.cache_flushes[flush]);
      bool layers_run = false;
      if (point < trace.points.size()) {
        const auto& [at, end] = trace.points[point];
        stop = std::min(stop, end);
        // While layers run, what is freed is freed by the one that runs. Else each tensor of a list goes with its own.
        layers_run = at.find(".forward") != std::string::npos || at.find(".backward") != std::string::npos;
      }
      cut_section(event, stop, layers_run);
      event = stop;
    }
  }

  void cut_section(std::size_t event, std::size_t end, bool layers_run) {
    std::int64_t layer = -2;
    bool running = false;  // the layer makes something, and what is let go meanwhile it lets go
    for (bool after_free = false; event < end; ++event) {
      const std::int32_t what = trace.events[event];
      const std::int64_t own = made_by(allocation_of(what));
      if (is_free(what) && !after_free && !layers_run && frees_a_list(event, end, layer)) running = false;
      const std::int64_t here = is_free(what) && running ? layer : own;
      if (here != layer) {
        runs.push_back({here, event, 0, allocations_, 0, 0});
        layer = here;
      }
      if (!is_free(what)) running = layer >= 0;
      after_free = is_free(what);
      ++runs.back().events;
      if (!is_free(what)) run_of[allocations_++] = static_cast<std::uint32_t>(runs.size() - 1);
    }
  }

  // Whether from this event on, until something is made, tensors go that are neither the layer's nor its neighbours': a list of all layers' is
  // let go, from its first (libstdc++) or its last (libc++). Else names are bound anew, one after the other.
  bool frees_a_list(std::size_t event, std::size_t end, std::int64_t layer) const {
    for (; event < end && is_free(trace.events[event]); ++event)
      if (std::abs(made_by(allocation_of(trace.events[event])) - layer) > 1) return true;
    return false;
  }

  void share_out_work() {
    std::size_t work = 0;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      runs[r].work = work;
      const bool last = r + 1 == runs.size();
      while (work < trace.work.size() && (last || trace.work[work].event <= runs[r].event + runs[r].events)) ++work;
      runs[r].works = work - runs[r].work;
    }
  }

  void find_sweeps() {
    std::size_t sweep = 0;
    std::int64_t direction = 0;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      if (runs[r].layer < 0) continue;
      const std::int64_t step = r > 0 && runs[r - 1].layer >= 0 ? runs[r].layer - runs[r - 1].layer : 0;
      const bool goes_on = (step == 1 || step == -1) && (direction == 0 || step == direction);
      direction = goes_on ? step : 0;
      if (!goes_on) ++sweep;
      runs[r].sweep = sweep - 1;
    }
    sweeps = sweep;
  }

  std::size_t allocations_ = 0;

 public:
  std::size_t sweeps = 0;
};

class MoreLayers {
 public:
  MoreLayers(const Trace& fewer, Trace few, const LayersMore& layers)
      : layers_(layers), few_trace_(std::move(few)), fewer_(fewer, layers.prefix), few_(few_trace_, layers.prefix) {}

  std::optional<Trace> made() {
    if (!is_few_without_them()) return std::nullopt;
    name_modules();
    reserve();
    for (std::size_t r = 0; r < few_.runs.size() && !failed_;) r = emit_from(r);
    if (failed_) return std::nullopt;
    finish();
    return std::move(out_);
  }

 private:
  bool comes_again(std::int64_t layer) const { return layer >= layers_.first && layer < layers_.first + layers_.period; }
  std::int64_t in_fewer(std::int64_t layer) const { return layer >= layers_.first ? layer - layers_.period : layer; }

  // ---------------------------------------------------------------- the two histories compared
  bool is_few_without_them() {
    if (few_trace_.keep_shapes || other_streams_use_memory() || fewer_.trace.phases != few_trace_.phases ||
        fewer_.trace.ops != few_trace_.ops)
      return false;
    if (!find_modules_in_fewer()) return false;
    std::size_t other = 0;
    for (std::size_t r = 0; r < few_.runs.size(); ++r) {
      if (comes_again(few_.runs[r].layer)) continue;
      if (other == fewer_.runs.size()) return false;
      few_.runs[r].like = other;
      if (!is_alike(few_.runs[r], fewer_.runs[other++])) return false;
    }
    return other == fewer_.runs.size() && few_.sweeps == fewer_.sweeps;
  }

  // Then it matters who waits for whom, and when. Else waits say nothing and are left out.
  bool other_streams_use_memory() const {
    return std::any_of(few_trace_.allocations.begin(), few_trace_.allocations.end(), [](const Allocation& a) { return a.used_by != 0; });
  }

  // Modules are entered in the same order. (A name may be there twice: where tensors are made, and where they are used.)
  bool find_modules_in_fewer() {
    std::uint32_t other = 0;
    in_fewer_.reserve(few_.modules.size());
    for (std::size_t m = 0; m < few_.modules.size(); ++m) {
      if (comes_again(few_.modules[m].layer)) {
        in_fewer_.push_back(~std::uint32_t{0});
        continue;
      }
      if (other == fewer_.modules.size() || !is_same_module(m, other)) return false;
      in_fewer_.push_back(other++);
    }
    return other == fewer_.modules.size();
  }

  bool is_same_module(std::size_t module, std::size_t other) const {
    const LayerNumber &number = few_.modules[module], &theirs = fewer_.modules[other];
    if (theirs.layer != in_fewer(number.layer)) return false;
    return number.layer < 0 ? few_trace_.modules[module] == fewer_.trace.modules[other] : number.rest == theirs.rest;
  }

  std::string renamed(const LayerNumber& number, std::int64_t layer) const {
    return std::string(layers_.prefix) + std::to_string(layer) + std::string(number.rest);
  }

  bool is_alike(const Run& run, const Run& other) const {
    if (other.layer != in_fewer(run.layer) || other.events != run.events || other.works != run.works) return false;
    if (run.layer >= 0 && run.sweep != other.sweep) return false;
    for (std::size_t i = 0; i < run.events; ++i) {
      const std::int32_t event = few_trace_.events[run.event + i], theirs = fewer_.trace.events[other.event + i];
      if (is_free(event) != is_free(theirs)) return false;
      if (is_free(event) ? !frees_alike(run, allocation_of(event), other, allocation_of(theirs)) : !made_alike(run, event, theirs))
        return false;
    }
    return true;
  }

  bool made_alike(const Run& run, std::int32_t event, std::int32_t theirs) const {
    const Allocation &a = few_trace_.allocations[allocation_of(event)], &b = fewer_.trace.allocations[allocation_of(theirs)];
    return (a.bytes == b.bytes || run.layer < 0) && a.category == b.category && a.stream == b.stream && a.op == b.op &&
           a.phase == b.phase && in_fewer_[a.module] == b.module;
  }

  bool frees_alike(const Run& run, std::size_t freed, const Run& other, std::size_t theirs) const {
    const Run &made = few_.run_of_allocation(freed), &made_theirs = fewer_.run_of_allocation(theirs);
    if (few_.number_in_run(freed) != fewer_.number_in_run(theirs)) return false;
    if (made.layer < 0) return made_theirs.layer < 0 && &fewer_.runs[made.like] == &made_theirs;
    return made_theirs.layer >= 0 && made.sweep == made_theirs.sweep && run.layer - made.layer == other.layer - made_theirs.layer;
  }

  // ---------------------------------------------------------------- the whole history
  // In the order of the longer history, those that come again one after the other where the first is.
  void name_modules() {
    const std::size_t all = few_.modules.size();
    module_of_.assign(static_cast<std::size_t>(layers_.more + 1), std::vector<std::uint32_t>(all));
    for (std::size_t m = 0; m < all;) {
      std::size_t end = m;
      while (end < all && comes_again(few_.modules[end].layer)) ++end;
      if (end == m) {
        const LayerNumber& number = few_.modules[m];
        module_of_[0][m] = static_cast<std::uint32_t>(out_.modules.size());
        out_.modules.push_back(number.layer < layers_.first ? std::move(few_trace_.modules[m])
                                                            : renamed(number, number.layer + layers_.more * layers_.period));
        ++m;
        continue;
      }
      for (std::int64_t again = 0; again <= layers_.more; ++again)
        for (std::size_t i = m; i < end; ++i) {
          module_of_[static_cast<std::size_t>(again)][i] = static_cast<std::uint32_t>(out_.modules.size());
          out_.modules.push_back(renamed(few_.modules[i], few_.modules[i].layer + again * layers_.period));
        }
      m = end;
    }
  }

  void reserve() {
    std::size_t events = few_trace_.events.size();
    for (const Run& run : few_.runs)
      if (comes_again(run.layer)) events += static_cast<std::size_t>(layers_.more) * run.events;
    out_.events.reserve(events);
    out_.allocations.reserve(events / 2 + few_trace_.allocations.size());
    freed_.reserve(events / 2 + few_trace_.allocations.size());
    begins_.resize(few_.runs.size());
    of_no_layer_.resize(few_.runs.size(), none);
    std::int64_t last = -1;
    for (const Run& run : few_.runs) last = std::max(last, run.layer);
    all_layers_ = static_cast<std::size_t>(last + 1 + layers_.more * layers_.period);
    of_layer_.assign(few_.sweeps * all_layers_, none);
  }

  std::size_t& of_layer(std::size_t sweep, std::int64_t layer) { return of_layer_[sweep * all_layers_ + static_cast<std::size_t>(layer)]; }

  // One run, or all the runs of the layers that come again; returns the run after them.
  std::size_t emit_from(std::size_t r) {
    begins_[r] = out_.events.size();
    const std::int64_t layer = few_.runs[r].layer;
    if (!comes_again(layer)) {
      emit(r, layer >= layers_.first ? layers_.more : 0);
      return r + 1;
    }
    const std::size_t end = r + static_cast<std::size_t>(layers_.period);
    const std::int64_t step = direction(r, end);
    if (step == 0) {
      failed_ = true;
      return end;
    }
    for (std::int64_t n = 0; n <= layers_.more; ++n)
      for (std::size_t i = r; i < end; ++i) emit(i, step > 0 ? n : layers_.more - n);
    return end;
  }

  // 1: the layers that come again are run upwards, -1: downwards, 0: not all of them one after the other.
  std::int64_t direction(std::size_t r, std::size_t end) const {
    const auto& runs = few_.runs;
    const std::int64_t before = r > 0 ? runs[r - 1].layer : -1, after = end < runs.size() ? runs[end].layer : -1;
    const std::int64_t low = layers_.first, high = layers_.first + layers_.period - 1;
    if (end > runs.size()) return 0;
    const bool up = runs[r].layer == low && runs[end - 1].layer == high, down = runs[r].layer == high && runs[end - 1].layer == low;
    for (std::size_t i = r; i < end; ++i)
      if (runs[i].sweep != runs[r].sweep) return 0;
    if (up && (before == low - 1 || after == high + 1)) return 1;
    if (down && (before == high + 1 || after == low - 1)) return -1;
    return 0;
  }

  // A run, as that of the layer so many periods later.
  void emit(std::size_t r, std::int64_t later) {
    const Run& run = few_.runs[r];
    const std::int64_t layer = run.layer + later * layers_.period;
    (run.layer < 0 ? of_no_layer_[r] : of_layer(run.sweep, layer)) = out_.allocations.size();
    const auto& module_of = module_of_[comes_again(run.layer) ? static_cast<std::size_t>(later) : 0];
    const std::size_t begin = out_.events.size();
    for (std::size_t e = run.event; e < run.event + run.events; ++e) {
      const std::int32_t event = few_trace_.events[e];
      if (is_free(event))
        emit_free(run, layer, allocation_of(event));
      else
        emit_allocation(run, module_of, allocation_of(event));
    }
    for (std::size_t w = run.work; w < run.work + run.works; ++w) emit_work(run, w, begin);
  }

  void emit_allocation(const Run& run, const std::vector<std::uint32_t>& module_of, std::size_t number) {
    out_.events.push_back(static_cast<std::int32_t>(out_.allocations.size()));
    Allocation& made = out_.allocations.emplace_back(few_trace_.allocations[number]);
    made.module = module_of[made.module];
    if (run.layer < 0) {
      const Run& other = fewer_.runs[run.like];
      const Bytes fewer = fewer_.trace.allocations[other.allocation + number - run.allocation].bytes;
      made.bytes = Bytes{along(fewer.count, made.bytes.count)};
    }
    freed_.push_back(false);
  }

  std::int64_t along(std::int64_t fewer, std::int64_t few) const { return few + layers_.more * (few - fewer); }

  void emit_free(const Run& run, std::int64_t layer, std::size_t freed) {
    const Run& maker = few_.run_of_allocation(freed);
    const std::int64_t made_by = layer - (run.layer - maker.layer);
    std::size_t first = none;
    if (maker.layer < 0)
      first = of_no_layer_[few_.run_of[freed]];
    else if (run.layer >= 0 && made_by >= 0 && made_by < static_cast<std::int64_t>(all_layers_))
      first = of_layer(maker.sweep, made_by);
    const std::size_t made = first + few_.number_in_run(freed);
    if (first == none || made >= freed_.size() || freed_[made] || !is_like(out_.allocations[made], few_trace_.allocations[freed], maker)) {
      failed_ = true;
      return;
    }
    freed_[made] = true;
    out_.events.push_back(~static_cast<std::int32_t>(made));
  }

  static bool is_like(const Allocation& made, const Allocation& played, const Run& maker) {
    return (made.bytes == played.bytes || maker.layer < 0) && made.category == played.category && made.stream == played.stream &&
           made.op == played.op;
  }

  void emit_work(const Run& run, std::size_t number, std::size_t begin) {
    Work& work = out_.work.emplace_back(few_trace_.work[number]);
    work.event += begin - run.event;
    if (run.like == none) return;
    const Run& other = fewer_.runs[run.like];
    const Work& fewer = fewer_.trace.work[other.work + number - run.work];
    work.kernels = static_cast<std::int32_t>(along(fewer.kernels, work.kernels));
    work.flops = along(fewer.flops, work.flops);
    work.bytes = along(fewer.bytes, work.bytes);
    work.outer = along(fewer.outer, work.outer);
  }

  void finish() {
    const auto moved = [&](std::size_t event) {
      const auto run =
          std::lower_bound(few_.runs.begin(), few_.runs.end(), event, [](const Run& each, std::size_t at) { return each.event < at; });
      return run == few_.runs.end() ? out_.events.size() : begins_[static_cast<std::size_t>(run - few_.runs.begin())];
    };
    for (Point& point : few_trace_.points) point.event = moved(point.event);
    for (std::size_t& reset : few_trace_.peak_resets) reset = moved(reset);
    for (std::size_t& flush : few_trace_.cache_flushes) flush = moved(flush);
    out_.points = std::move(few_trace_.points);
    out_.peak_resets = std::move(few_trace_.peak_resets);
    out_.cache_flushes = std::move(few_trace_.cache_flushes);
    out_.micro_batches_left_out = few_trace_.micro_batches_left_out;
    out_.ops = std::move(few_trace_.ops);
    out_.phases = std::move(few_trace_.phases);
    out_.shapes = std::move(few_trace_.shapes);
  }

  LayersMore layers_;
  Trace few_trace_, out_;
  History fewer_, few_;
  std::vector<std::uint32_t> in_fewer_;                // by module of the longer history
  std::vector<std::vector<std::uint32_t>> module_of_;  // by how often a layer has come again, and module of the longer history
  std::vector<std::size_t> begins_;                    // by run: the event of the whole at which it begins
  std::vector<std::size_t> of_no_layer_, of_layer_;    // by run, or by sweep and layer of the whole: its first allocation
  std::size_t all_layers_ = 0;
  std::vector<bool> freed_;
  bool failed_ = false;
};

}  // namespace

std::optional<Trace> with_more_layers(const Trace& fewer, Trace few, const LayersMore& layers) {
  return MoreLayers(fewer, std::move(few), layers).made();
}

}  // namespace llmem
