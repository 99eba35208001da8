#pragma once

#include "spec/presets.h"
#include "spec/reader.h"
#include "spec/spec.h"

// The sections of a spec. Each reads its object into plain structs and collects problems. One that is absent need not be read: the
// defaults stand, and the code that reads it stays in the second file (wasm/README.md).
namespace llmem {

// Limits are far beyond anything that is run, and small enough that products of sizes stay below 2^62.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 28;  // of a micro-batch: micro_batch * sequence
constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;

// The member "model" of `object`; the config is moved out of it, for it may be large.
void read_model(nlohmann::json& object, const ModelPresets& presets, ModelSource& model, Problems& problems);

void read_training(const nlohmann::json* object, Training& training, Problems& problems);
// Its member "megatron", for that stack alone.
void read_megatron_training(const nlohmann::json* object, Stack stack, MegatronOptions& options, Problems& problems);

struct Parallel {
  DataParallel data;
  TensorParallel tensor;
  PipelineParallel pipeline;
  ContextParallel context;
  ExpertParallel expert;
  Offload offload;
  std::int64_t rank = 0;
  std::int64_t world = 1;  // ranks in all
};
void read_parallel(const nlohmann::json* object, const Training& training, Parallel& parallel, Problems& problems);
// … as Megatron-LM has it.
void read_megatron_parallel(const nlohmann::json* object, const Training& training, Parallel& parallel, Problems& problems);
// What Megatron-LM does not have, or what is not played of it.
void check_megatron(const Training& training, Problems& problems);

// A dtype by its name or, where `nullable`, null. Names beyond `supported` are problems.
// parallel.data.config
void read_deepspeed_config(const nlohmann::json* object, const std::string& at, const Training& training, DataParallel& data,
                           Problems& problems);

void read_dtype(ObjectReader& from, std::string_view key, std::initializer_list<Dtype> supported, bool nullable, std::optional<Dtype>& out);

}  // namespace llmem
