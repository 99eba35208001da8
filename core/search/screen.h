#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "search/candidate.h"
#include "spec/presets.h"

namespace llmem {

// Short estimates of changes of one spec, by plays of the model with few layers and, in a pipeline, few microbatches. Of both, time and the
// memory of every moment of the step are linear functions, so time comes out as the whole's, and `needed` as what the tensors alone take at their
// peak: the whole needs that or more, for the highest of several lines lies above what two points say of it. So what is said not to fit does not,
// and what is said to fit may yet not. Where layers differ among themselves, and where that is no work saved, the whole is played.
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
  // A stage of a pipeline plays the same whatever the number of stages and of copies beside it.
  std::map<std::string, std::shared_ptr<const Play>> plays_;
};

}  // namespace llmem
