#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/architecture.h"
#include "model/linear.h"
#include "spec/spec.h"

// litgpt's GPT in place of Transformers' modules: litgpt/model.py and litgpt/lora.py of 2024 (queries, keys and values of a group interleaved).
namespace llmem {

// The same model in litgpt's modules, with rotary tables for so many tokens. Its head is never tied.
Architecture as_litgpt(Architecture architecture, std::int64_t sequence);

std::optional<Problem> check_litgpt(const Training& training, const Architecture& a);

// lora.py, LoRALinear and LoRAQKVLinear: what is put on a Linear.
struct LitAdapter {
  std::string module;
  std::int64_t ranks = 0, rank = 0, in = 0, out = 0;  // A [ranks, in], B [out, rank]
  std::vector<std::int64_t> parts;                    // of q, k and v: the widths of those that have one; empty: another Linear
  bool grouped = false;                               // one convolution for all parts, which are as wide
  bool padded = false;                                // not all of q, k and v have one
};
// `options.targets` in litgpt's words: query, key, value, projection, mlp, head.
std::vector<LitAdapter> litgpt_adapters(const Architecture& a, const AdapterOptions& options);

// finetune/lora.py and finetune/full.py: the head over 128 tokens at a time where there are adapters, the loss over as many in any case. Fabric casts
// what the model returns to fp32; `outputs` is what the loop's variable keeps of it.
Tensor litgpt_loss(const Architecture& a, const Linear& head, Tensor hidden, const Tensor& labels, bool chunks_head,
                   std::vector<Tensor>& outputs);

}  // namespace llmem
