#include "model/architecture.h"

namespace llmem {
namespace {

// nn.Linear registers its weight, [out, in], before its bias.
void linear(std::vector<Parameter>& to, const std::string& name, std::int64_t in, std::int64_t out, bool bias) {
  to.push_back({name + ".weight", {out, in}});
  if (bias) to.push_back({name + ".bias", {out}});
}

void norm(std::vector<Parameter>& to, const std::string& name, std::int64_t size) { to.push_back({name + ".weight", {size}}); }

// In the order in which LlamaDecoderLayer and the modules below it are given their members.
void layer(std::vector<Parameter>& to, const Architecture& a, const std::string& at) {
  const std::string attention = at + ".self_attn.", mlp = at + ".mlp.";
  linear(to, attention + "q_proj", a.hidden_size, a.heads * a.head_dim, a.qkv_bias);
  linear(to, attention + "k_proj", a.hidden_size, a.kv_heads * a.head_dim, a.qkv_bias);
  linear(to, attention + "v_proj", a.hidden_size, a.kv_heads * a.head_dim, a.qkv_bias);
  linear(to, attention + "o_proj", a.heads * a.head_dim, a.hidden_size, a.output_bias);
  if (a.qk_norm) {
    norm(to, attention + "q_norm", a.head_dim);
    norm(to, attention + "k_norm", a.head_dim);
  }
  linear(to, mlp + "gate_proj", a.hidden_size, a.intermediate_size, a.mlp_bias);
  linear(to, mlp + "up_proj", a.hidden_size, a.intermediate_size, a.mlp_bias);
  linear(to, mlp + "down_proj", a.intermediate_size, a.hidden_size, a.mlp_bias);
  norm(to, at + ".input_layernorm", a.hidden_size);
  norm(to, at + ".post_attention_layernorm", a.hidden_size);
}

}  // namespace

std::vector<Parameter> parameters_of(const Architecture& a) {
  std::vector<Parameter> all;
  all.push_back({"model.embed_tokens.weight", {a.vocab_size, a.hidden_size}});
  for (std::int64_t i = 0; i < a.layers; ++i) layer(all, a, "model.layers." + std::to_string(i));
  norm(all, "model.norm", a.hidden_size);
  if (!a.tied_embeddings) linear(all, "lm_head", a.hidden_size, a.vocab_size, false);
  return all;
}

}  // namespace llmem
