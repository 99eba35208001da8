#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "search/candidate.h"
#include "spec/presets.h"

namespace llmem {

// Short estimates of changes of one spec, by plays of the model with few layers and, in a pipeline, few microbatches. Of both, the memory of every
// moment of the step and the work of every clock are linear functions; the highest of several lines lies above what two points say of it. So the
// whole takes as long or longer and needs as much or more: what is said not to fit does not, what is said to fit may yet not, and what turns out
// fastest or smallest when it is estimated in full is that. Where layers differ among themselves, and where that is no work saved, the whole is
// played.
class Screener {
 public:
  Screener(const nlohmann::json& spec, const ModelPresets& presets);
  ~Screener();
  Screener(const Screener&) = delete;
  Screener& operator=(const Screener&) = delete;

  Summary screen(const nlohmann::json& change);

 private:
  struct Play;
  class Screening;

  const nlohmann::json& spec_;
  const ModelPresets& presets_;
  // A stage of a pipeline plays the same whatever the number of stages and of copies beside it; and so do GPUs that differ in memory and speed alone.
  std::map<std::string, std::shared_ptr<const Play>> plays_;
};

}  // namespace llmem
