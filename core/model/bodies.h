#pragma once

#include "model/body.h"

// Families whose forward is their own, each in the file of its first name.
namespace llmem {

using MadeBody = std::unique_ptr<const Body>;

MadeBody gpt2_body(const Architecture& a, const MadeModule& root);
MadeBody gpt_bigcode_body(const Architecture& a, const MadeModule& root);  // gpt2.cpp
MadeBody gpt_neo_body(const Architecture& a, const MadeModule& root);      // gpt2.cpp
MadeBody gptj_body(const Architecture& a, const MadeModule& root);
MadeBody codegen_body(const Architecture& a, const MadeModule& root);  // gptj.cpp
MadeBody gpt_neox_body(const Architecture& a, const MadeModule& root);
MadeBody opt_body(const Architecture& a, const MadeModule& root);
MadeBody biogpt_body(const Architecture& a, const MadeModule& root);  // opt.cpp
MadeBody bloom_body(const Architecture& a, const MadeModule& root);
MadeBody mpt_body(const Architecture& a, const MadeModule& root);  // bloom.cpp
MadeBody falcon_body(const Architecture& a, const MadeModule& root);
MadeBody granite_hybrid_body(const Architecture& a, const MadeModule& root);
MadeBody bamba_body(const Architecture& a, const MadeModule& root);       // granite_hybrid.cpp
MadeBody nemotron_h_body(const Architecture& a, const MadeModule& root);  // granite_hybrid.cpp
MadeBody falcon_h1_body(const Architecture& a, const MadeModule& root);
MadeBody qwen3_next_body(const Architecture& a, const MadeModule& root);
MadeBody mamba_body(const Architecture& a, const MadeModule& root);
MadeBody falcon_mamba_body(const Architecture& a, const MadeModule& root);  // mamba.cpp
MadeBody jamba_body(const Architecture& a, const MadeModule& root);         // mamba.cpp
MadeBody mamba2_body(const Architecture& a, const MadeModule& root);
MadeBody gemma4_body(const Architecture& a, const MadeModule& root);
MadeBody llama4_body(const Architecture& a, const MadeModule& root);
MadeBody bert_body(const Architecture& a, const MadeModule& root);
MadeBody roberta_body(const Architecture& a, const MadeModule& root);     // bert.cpp
MadeBody distilbert_body(const Architecture& a, const MadeModule& root);  // bert.cpp
MadeBody electra_body(const Architecture& a, const MadeModule& root);     // bert.cpp
MadeBody albert_body(const Architecture& a, const MadeModule& root);
MadeBody mpnet_body(const Architecture& a, const MadeModule& root);
MadeBody modernbert_body(const Architecture& a, const MadeModule& root);
MadeBody t5_body(const Architecture& a, const MadeModule& root);
MadeBody lfm2_body(const Architecture& a, const MadeModule& root);
MadeBody litgpt_body(const Architecture& a, const MadeModule& root);

}  // namespace llmem
