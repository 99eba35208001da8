#include "plan/pipeline_schedule.h"

#include <algorithm>
#include <deque>
#include <map>

namespace llmem {

namespace {

using Kind = PipelineAction::Kind;
using Actions = std::vector<PipelineAction>;

bool is_v(PipelineSchedule schedule) { return schedule == PipelineSchedule::zbv || schedule == PipelineSchedule::dual_pipe_v; }

// Numbers microbatches by stage and kind as they come.
class Numbered {
 public:
  void add(Kind kind, std::int64_t stage) { actions.push_back({kind, stage, next_[{kind, stage}]++}); }
  // A whole backward counts as both of its parts.
  void add_backward(std::int64_t stage) {
    const std::int64_t microbatch = next_[{Kind::backward_input, stage}]++;
    ++next_[{Kind::backward_weight, stage}];
    actions.push_back({Kind::backward, stage, microbatch});
  }
  Actions actions;

 private:
  std::map<std::pair<Kind, std::int64_t>, std::int64_t> next_;
};

// ScheduleInterleaved1F1B and ScheduleInterleavedZeroBubble: _calculate_single_rank_operations, _get_warmup_ops and _get_1f1b_rank_ops
Actions interleaved(const PipelineParallel& pipeline, std::int64_t rank) {
  const bool zero_bubble = pipeline.schedule == PipelineSchedule::interleaved_zero_bubble;
  const std::int64_t local = pipeline.virtual_stages, ranks = pipeline.degree, all = local * pipeline.microbatches;
  const std::int64_t rounds = std::max<std::int64_t>(1, pipeline.microbatches / ranks), a_round = pipeline.microbatches / rounds;
  const std::int64_t warmup = std::min(all, (local - 1) * a_round + (zero_bubble ? 1 : 2) * (ranks - 1 - rank));
  const auto forward_stage = [&](std::int64_t op) { return op / a_round % local * ranks + rank; };
  const auto backward_stage = [&](std::int64_t op) { return (local - 1 - op / a_round % local) * ranks + rank; };
  Numbered made;
  std::int64_t weights = 0;
  for (std::int64_t op = 0; op < all + warmup; ++op) {
    if (op < all) made.add(Kind::forward, forward_stage(op));
    if (op < warmup) continue;
    made.add(zero_bubble ? Kind::backward_input : Kind::backward, backward_stage(op - warmup));
    if (zero_bubble && op - warmup >= rank) made.add(Kind::backward_weight, backward_stage(weights++));
  }
  while (zero_bubble && weights < all) made.add(Kind::backward_weight, backward_stage(weights++));
  return made.actions;
}

// ScheduleLoopedBFS
Actions breadth_first(const PipelineParallel& pipeline, std::int64_t rank) {
  const std::vector<std::int64_t> stages = stages_of_rank(pipeline, rank);
  Actions actions;
  for (const std::int64_t stage : stages)
    for (std::int64_t i = 0; i < pipeline.microbatches; ++i) actions.push_back({Kind::forward, stage, i});
  for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
    for (std::int64_t i = pipeline.microbatches - 1; i >= 0; --i) actions.push_back({Kind::backward, *stage, i});
  return actions;
}

// ScheduleZBVZeroBubble: made for enough microbatches to fill the pipeline, those that are too many left out
Actions zero_bubble_v(const PipelineParallel& pipeline, std::int64_t rank) {
  const std::int64_t ranks = pipeline.degree, all = std::max(2 * ranks - 1, pipeline.microbatches);
  const std::int64_t down = rank, up = 2 * ranks - 1 - rank;
  Numbered made;
  std::int64_t forwards_down = 0, forwards_up = 0, inputs[2] = {}, weights[2] = {};
  const auto forward = [&](bool of_up) {
    made.add(Kind::forward, of_up ? up : down);
    ++(of_up ? forwards_up : forwards_down);
  };
  const auto input = [&](bool of_up) {
    made.add(Kind::backward_input, of_up ? up : down);
    ++inputs[of_up];
  };
  const auto weight = [&](bool of_up) {
    made.add(Kind::backward_weight, of_up ? up : down);
    ++weights[of_up];
  };
  const auto whole = [&](bool of_up) {
    input(of_up);
    weight(of_up);
  };
  for (std::int64_t i = 0; i < 2 * (ranks - rank) - 1; ++i) forward(false);
  for (std::int64_t i = 0; i < rank; ++i) {
    forward(true);
    forward(false);
  }
  for (std::int64_t i = 0; i < ranks - rank; ++i) {
    forward(true);
    whole(true);
  }
  while (forwards_up < forwards_down || forwards_down < all) {
    if (forwards_down < all) forward(false);
    whole(false);
    forward(true);
    whole(true);
  }
  for (std::int64_t i = 0; i < rank; ++i) {
    input(false);
    input(true);
  }
  for (std::int64_t i = 0; i < ranks - rank; ++i) {
    input(false);
    weight(false);
  }
  while (weights[1] < inputs[1]) weight(true);
  while (weights[0] < inputs[0]) weight(false);
  std::erase_if(made.actions, [&](const PipelineAction& each) { return each.microbatch >= pipeline.microbatches; });
  return made.actions;
}

// ScheduleDualPipeV
Actions dual_pipe_v(const PipelineParallel& pipeline, std::int64_t rank) {
  const std::int64_t ranks = pipeline.degree, down = rank, up = 2 * ranks - 1 - rank;
  Numbered made;
  std::deque<std::int64_t> pending;  // stages whose weights wait
  const auto input = [&](std::int64_t stage) {
    made.add(Kind::backward_input, stage);
    pending.push_back(stage);
  };
  const auto weight = [&] {
    if (pending.empty()) return;
    made.add(Kind::backward_weight, pending.front());
    pending.pop_front();
  };
  const auto forward_and_backward = [&](std::int64_t forward, std::int64_t backward) {
    made.add(Kind::forward, forward);
    made.add_backward(backward);
  };
  for (std::int64_t i = 0; i < 2 * (ranks - rank - 1); ++i) made.add(Kind::forward, down);
  for (std::int64_t i = 0; i < rank + 1; ++i) {
    made.add(Kind::forward, down);
    made.add(Kind::forward, up);
  }
  for (std::int64_t i = 0; i < ranks - rank - 1; ++i) {
    input(up);
    weight();
    made.add(Kind::forward, up);
  }
  for (std::int64_t i = 0; i < pipeline.microbatches - 2 * ranks + rank + 1; ++i) {
    forward_and_backward(down, up);
    forward_and_backward(up, down);
  }
  for (std::int64_t i = 0; i < ranks - rank - 1; ++i) {
    made.add_backward(up);
    forward_and_backward(up, down);
  }
  bool splits = false;
  const auto backward = [&](std::int64_t stage) { splits ? input(stage) : made.add_backward(stage); };
  for (std::int64_t i = 0; i < rank + 1; ++i) {
    const bool half = i == (rank + 1) / 2;
    splits = splits || (half && rank % 2 == 1);
    backward(up);
    splits = splits || (half && rank % 2 == 0);
    backward(down);
  }
  for (std::int64_t i = 0; i < ranks - rank - 1; ++i) {
    weight();
    backward(down);
  }
  for (std::int64_t i = 0; i < rank + 1; ++i) weight();
  return made.actions;
}

Actions computed(const PipelineParallel& pipeline, std::int64_t rank) {
  switch (pipeline.schedule) {
    case PipelineSchedule::looped_bfs: return breadth_first(pipeline, rank);
    case PipelineSchedule::zbv: return zero_bubble_v(pipeline, rank);
    case PipelineSchedule::dual_pipe_v: return dual_pipe_v(pipeline, rank);
    default: return interleaved(pipeline, rank);
  }
}

// _add_unshard_reshard: the next three stages are gathered, others let go.
Actions with_gathers(const Actions& actions) {
  constexpr std::size_t most = 3;
  const auto has = [](const std::vector<std::int64_t>& stages, std::int64_t stage) {
    return std::find(stages.begin(), stages.end(), stage) != stages.end();
  };
  Actions made;
  std::vector<std::int64_t> active;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    std::vector<std::int64_t> next;
    for (std::size_t k = i; k < actions.size() && next.size() < most; ++k)
      if (!has(next, actions[k].stage)) next.push_back(actions[k].stage);
    for (const std::int64_t stage : active)
      if (!has(next, stage)) made.push_back({Kind::reshard, stage});
    std::erase_if(active, [&](std::int64_t stage) { return !has(next, stage); });
    for (const std::int64_t stage : next) {
      if (has(active, stage)) continue;
      made.push_back({Kind::unshard, stage});
      active.push_back(stage);
    }
    made.push_back(actions[i]);
  }
  for (const std::int64_t stage : active) made.push_back({Kind::reshard, stage});
  return made;
}

}  // namespace

// _utils.py, generate_stage_to_rank_mapping
std::vector<std::int64_t> stages_of_rank(const PipelineParallel& pipeline, std::int64_t rank) {
  std::vector<std::int64_t> stages;
  for (std::int64_t i = 0; i < pipeline.virtual_stages; ++i)
    stages.push_back(is_v(pipeline.schedule) && i % 2 == 1 ? (i + 1) * pipeline.degree - 1 - rank : i * pipeline.degree + rank);
  return stages;
}

std::vector<PipelineAction> actions_of_rank(const PipelineParallel& pipeline, std::int64_t rank) {
  Actions made;
  std::map<std::int64_t, std::int64_t> backwards;
  for (const PipelineAction& each : with_gathers(computed(pipeline, rank))) {  // _add_reduce_grad
    made.push_back(each);
    const bool last_part = each.kind == Kind::backward || each.kind == Kind::backward_weight;
    if (last_part && ++backwards[each.stage] == pipeline.microbatches) made.push_back({Kind::reduce, each.stage});
  }
  return made;
}

}  // namespace llmem
