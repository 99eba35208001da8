#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "base/result.h"

namespace llmem {

// What the paper's estimator sees of a model. Counts are elements; every list is in the order of model.modules().
struct PaperModel {
  std::int64_t hidden = 0, layers = 0, vocabulary = 0;
  std::int64_t output_width = 0;         // of the last layer's output as lm_head gets it (OPT-350m projects it)
  int embeddings = 0;                    // e_n
  std::vector<std::int64_t> parameters;  // model.parameters(): tied weights once
  std::vector<std::int64_t> listed;      // the code's list: each parameter of each Embedding and Linear, tied weights again
  std::vector<std::int64_t> operators;   // the paper's: Embedding and Linear operators, weight and bias together, without lm_head
  std::int64_t input_embedding = 0;      // embed_p
  std::int64_t head = 0;                 // lm_p
  bool head_tied = false;
  bool fp32_logits = false;  // the logits that the loss works on are fp32 (CodeGen, GPT-Neo)
  std::int64_t chunk = 0;    // cs, of one data-parallel rank

  std::int64_t parameter_count() const;
};

// From a Hugging Face config.json: OPT, BLOOM, CodeGen, BioGPT, GPTBigCode and GPT-Neo as Transformers 4.29 builds them (the paper's models);
// any other decoder that read_architecture (model/config.h) knows by its parameter list. Problems point below /model/config.
Reading<PaperModel> read_paper_model(const nlohmann::json& config);

}  // namespace llmem
