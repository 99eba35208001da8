#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "search/candidate.h"
#include "search/probe.h"
#include "spec/presets.h"

namespace llmem {

// Short estimates of changes of one spec, by plays of one step of the model with few layers and, in a pipeline, few microbatches. Of both, the
// memory of every moment of the step and the work of every clock are linear functions; the highest of several lines lies above what two points say
// of it. So the whole takes as long or longer and needs as much or more: what is said not to fit does not, what is said to fit may yet not, and what
// turns out fastest or smallest when it is estimated in full is that. Where layers differ among themselves, and where that is no work saved, the
// whole is played.
class Screener {
 public:
  Screener(const nlohmann::json& spec, const ModelPresets& presets);
  ~Screener();
  Screener(const Screener&) = delete;
  Screener& operator=(const Screener&) = delete;

  Summary screen(const nlohmann::json& change);
  // In full: as the estimate of the changed spec says. What differs in the memory and the speed of its GPUs alone, asked one after the other, is
  // played once.
  Summary whole(const nlohmann::json& change);

 private:
  struct Least;
  class Screening;
  struct Whole {
    std::string key;
    std::optional<Bytes> memory;
    std::shared_ptr<const Trace> trace;
  };

  Summary whole(const nlohmann::json& change, Question question);
  std::shared_ptr<const Trace> played_whole(std::string key, const Spec& spec, const Architecture& architecture);

  Variants variants_;
  std::map<std::int64_t, Architecture> shallower_;  // by their number of layers
  // A stage of a pipeline plays the same whatever the number of stages and of copies beside it, and so do all GPUs (played_gpu).
  std::map<std::string, PlaysOfRows> plays_;
  std::map<std::string, Least> least_;  // by all that is asked but the GPU and the micro-batch
  std::vector<Whole> wholes_;           // the last two: of the first stage and of the last
};

}  // namespace llmem
