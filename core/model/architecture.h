#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace llmem {

// A decoder of the Llama kind: what config.json says, with every omitted field resolved to what the Hugging Face class would use.
struct Architecture {
  std::string model_type;   // "llama", "qwen3", …
  std::string model_class;  // "LlamaForCausalLM", …
  std::int64_t hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab_size = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;  // of q, k, v; of o; of gate, up, down
  bool qk_norm = false;                                          // RMSNorm over each head's q and k (qwen3)
  std::int64_t sliding_window = 0;                               // 0: none. Where it binds (window <= sequence) SDPA needs a mask.
};

// One parameter tensor. A tied head is no parameter of its own.
struct Parameter {
  std::string name;  // "model.layers.3.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;
  std::int64_t count() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
};

// Every parameter, in the order of model.parameters().
std::vector<Parameter> parameters_of(const Architecture& architecture);

}  // namespace llmem
