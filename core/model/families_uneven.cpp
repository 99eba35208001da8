#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/families.h"

// Decoders whose layers differ from each other in more than experts, and models whose code is not part of transformers: as modeling files
// register their modules.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

void gated_mlp(const Module& mlp, const A& a, std::int64_t width) {
  mlp.linear("gate_proj", a.hidden_size, width);
  mlp.linear("up_proj", a.hidden_size, width);
  mlp.linear("down_proj", width, a.hidden_size);
}

void rotary_buffers(const Module& model, std::int64_t dim) {
  model.child("rotary_emb").buffer("inv_freq", {dim / 2});
  model.child("rotary_emb").buffer("original_inv_freq", {dim / 2});
}

void head(const A& a, const Module& root) {
  if (!a.tied_embeddings) root.linear(a.names.head, a.hidden_size, a.vocab_size);
}

// DeepseekV3's router, experts and shared experts
void deepseek_mixture(const A& a, const Module& mlp) {
  const Experts& e = a.experts;
  mlp.child("experts").parameter("gate_up_proj", {e.count, 2 * e.width, a.hidden_size});
  mlp.child("experts").parameter("down_proj", {e.count, a.hidden_size, e.width});
  mlp.child("gate").parameter("weight", {e.count, a.hidden_size}, Dtype::float32);
  mlp.child("gate").buffer("e_score_correction_bias", {e.count});
  if (e.shared_width > 0) gated_mlp(mlp.child("shared_experts"), a, e.shared_width);
}

void deepseek_experts(C& c, A& a) {
  a.experts.count = c.integer_or("n_routed_experts", 0);
  a.experts.per_token = c.integer_or("num_experts_per_tok", 1);
  a.experts.width = c.integer_or("moe_intermediate_size", 1, 1);
  a.experts.shared_width = a.experts.width * c.integer_or("n_shared_experts", 0);
}

void layers_from(A& a, std::int64_t first) {
  a.experts.layers.assign(static_cast<std::size_t>(a.layers), false);
  for (std::int64_t i = first; i < a.layers; ++i) a.experts.layers[static_cast<std::size_t>(i)] = a.experts.count > 0;
}

// ---- deepseek_v32, glm_moe_dsa: latent attention over what an indexer chooses

void sparse_latent_config(C& c, A& a) {
  deepseek_experts(c, a);
  const std::vector<std::string> types = c.each_layer("mlp_layer_types", a.layers);
  layers_from(a, c.integer_or("first_k_dense_replace", 3));
  for (std::size_t i = 0; i < types.size(); ++i) a.experts.layers[i] = types[i] != "dense";
  a.latent.query_rank = c.integer_or("q_lora_rank", 0);
  a.latent.key_value_rank = c.integer_or("kv_lora_rank", 512, 1);
  a.latent.nope_dim = c.integer_or("qk_nope_head_dim", 128);
  a.latent.rope_dim = c.integer_or("qk_rope_head_dim", 64);
  a.latent.value_dim = c.integer_or("v_head_dim", 128, 1);
  a.qkv_bias = c.flag("attention_bias");
}

// GlmMoeDsaConfig: indexer_types, a pattern of F and S, or every index_topk_freq-th layer; the others share what was chosen before.
std::vector<bool> layers_with_indexer(C& c, const A& a) {
  std::vector<bool> indexed(static_cast<std::size_t>(a.layers), true);
  const std::vector<std::string> types = c.each_layer("indexer_types", a.layers);
  const std::string pattern = c.text("index_topk_pattern");
  const std::int64_t every = c.integer_or("index_topk_freq", 1, 1), offset = c.integer_or("index_skip_topk_offset", 2);
  for (std::size_t i = 0; i < indexed.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    if (!types.empty())
      indexed[i] = types[i] == "full";
    else if (i < pattern.size())
      indexed[i] = pattern[i] == 'F';
    else
      indexed[i] = std::max<std::int64_t>(layer - offset + 1, 0) % every == 0;
  }
  return indexed;
}

void sparse_latent(C& c, const A& a, const Module& root) {
  const LatentAttention& l = a.latent;
  const std::int64_t index_heads = c.count("index_n_heads", 64), index_dim = c.count("index_head_dim", 128);
  const std::vector<bool> indexed = layers_with_indexer(c, a);
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), at = layer.child("self_attn"), indexer = at.child("indexer");
    at.linear("q_a_proj", a.hidden_size, l.query_rank, a.qkv_bias);
    at.norm("q_a_layernorm", l.query_rank);
    at.linear("q_b_proj", l.query_rank, a.heads * (l.nope_dim + l.rope_dim));
    at.linear("kv_a_proj_with_mqa", a.hidden_size, l.key_value_rank + l.rope_dim, a.qkv_bias);
    at.norm("kv_a_layernorm", l.key_value_rank);
    at.linear("kv_b_proj", l.key_value_rank, a.heads * (l.nope_dim + l.value_dim));
    at.linear("o_proj", a.heads * l.value_dim, a.hidden_size, a.qkv_bias);
    if (indexed[static_cast<std::size_t>(i)]) {
      indexer.linear("wq_b", l.query_rank, index_heads * index_dim);
      indexer.linear("wk", a.hidden_size, index_dim);
      indexer.norm("k_norm", index_dim, true);
      indexer.linear("weights_proj", a.hidden_size, index_heads);
    }
    if (a.experts.at(i))
      deepseek_mixture(a, layer.child("mlp"));
    else
      gated_mlp(layer.child("mlp"), a, a.intermediate_size);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  rotary_buffers(model, l.rope_dim);
  head(a, root);
}

// ---- deepseek_v4: compressed keys, experts in every layer, hyper-connections

void deepseek_v4_config(C& c, A& a) {
  deepseek_experts(c, a);
  a.experts.shared_width = a.experts.width;  // one, however many the config names
  a.mlp_bias = c.flag("mlp_bias");
  layers_from(a, 0);
}

// Its keys and values in blocks of `ratio` tokens. The finer kind has an indexer, and its blocks overlap.
void compressor(C& c, const A& a, const Module& at, std::int64_t ratio, bool fine) {
  const std::int64_t twice = fine ? 2 : 1, query_rank = c.integer_or("q_lora_rank", 1024, 1);
  const auto compress = [&](const Module& to, std::int64_t dim) {
    to.parameter("position_bias", {ratio, twice * dim});
    to.linear("kv_proj", a.hidden_size, twice * dim);
    to.linear("gate_proj", a.hidden_size, twice * dim);
    to.norm("kv_norm", dim);
  };
  const Module compress_at = at.child("compressor");
  compress(compress_at, a.head_dim);
  if (!fine) return;
  const std::int64_t heads = c.count("index_n_heads", 64), dim = c.count("index_head_dim", 128);
  const Module indexer = compress_at.child("indexer");
  compress(indexer, dim);
  indexer.linear("q_b_proj", query_rank, heads * dim);
  indexer.child("scorer").linear("weights_proj", a.hidden_size, heads);
}

enum class Compressed : std::uint8_t { no, finely, heavily };

// DeepseekV4Config.__post_init__: layer_types, else the older compress_ratios (0, 4 or 128), else heavily twice, then in turns
std::vector<Compressed> compressed_layers(C& c, const A& a) {
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  const std::vector<std::int64_t> ratios = c.integers("compress_ratios");
  std::vector<Compressed> layers(static_cast<std::size_t>(a.layers), Compressed::no);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!types.empty())
      layers[i] = types[i] == "compressed_sparse_attention"    ? Compressed::finely
                  : types[i] == "heavily_compressed_attention" ? Compressed::heavily
                                                               : Compressed::no;
    else if (!ratios.empty())
      layers[i] = i >= ratios.size() || ratios[i] == 0 ? Compressed::no : ratios[i] == 4 ? Compressed::finely : Compressed::heavily;
    else
      layers[i] = i >= 2 && i % 2 != 0 ? Compressed::finely : Compressed::heavily;
  }
  return layers;
}

void deepseek_v4(C& c, const A& a, const Module& root) {
  const std::int64_t query_rank = c.integer_or("q_lora_rank", 1024, 1), groups = c.count("o_groups", 8),
                     rank = c.count("o_lora_rank", 1024);
  const std::int64_t streams = c.count("hc_mult", 4), mixes = streams * streams + 2 * streams;
  const std::vector<Compressed> compressed = compressed_layers(c, a);
  PartOfConfig rates(c, "compress_rates", "compressed_sparse_attention=4 heavily_compressed_attention=128");
  const std::int64_t fine = c.integer_or("compress_rate_csa", rates.config.count("compressed_sparse_attention", 4), 1);
  const std::int64_t coarse = c.integer_or("compress_rate_hca", rates.config.count("heavily_compressed_attention", 128), 1);
  const Module model = root.child("model");
  const auto hyper = [&](const Module& at) {
    at.parameter("fn", {mixes, streams * a.hidden_size}, Dtype::float32);
    at.parameter("base", {mixes}, Dtype::float32);
    at.parameter("scale", {3}, Dtype::float32);
  };
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), at = layer.child("self_attn");
    at.parameter("sinks", {a.heads});
    at.linear("q_a_proj", a.hidden_size, query_rank);
    at.norm("q_a_norm", query_rank);
    at.linear("q_b_proj", query_rank, a.heads * a.head_dim);
    at.linear("kv_proj", a.hidden_size, a.head_dim);
    at.norm("kv_norm", a.head_dim);
    at.linear("o_a_proj", a.heads * a.head_dim / groups, groups * rank);
    at.linear("o_b_proj", groups * rank, a.hidden_size);
    const Compressed how = compressed[static_cast<std::size_t>(i)];
    if (how != Compressed::no) compressor(c, a, at, how == Compressed::finely ? fine : coarse, how == Compressed::finely);
    const Experts& e = a.experts;
    layer.child("mlp.gate").parameter("weight", {e.count, a.hidden_size});
    layer.child("mlp.experts").parameter("gate_up_proj", {e.count, 2 * e.width, a.hidden_size});
    layer.child("mlp.experts").parameter("down_proj", {e.count, a.hidden_size, e.width});
    for (const char* name : {"gate_proj", "up_proj"})
      layer.child("mlp.shared_experts").linear(name, a.hidden_size, e.shared_width, a.mlp_bias);
    layer.child("mlp.shared_experts").linear("down_proj", e.shared_width, a.hidden_size, a.mlp_bias);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
    hyper(layer.child("attn_hc"));
    hyper(layer.child("ffn_hc"));
  }
  model.norm("norm", a.hidden_size);
  model.child("hc_head").parameter("hc_fn", {streams, streams * a.hidden_size}, Dtype::float32);
  model.child("hc_head").parameter("hc_base", {streams}, Dtype::float32);
  model.child("hc_head").parameter("hc_scale", {1}, Dtype::float32);
  head(a, root);
}

// ---- mimo_v2_flash: layers with the window have twice the key heads, and sinks

void mimo_v2_flash_config(C& c, A& a) {
  deepseek_experts(c, a);
  layers_from(a, 1);
  const std::vector<std::string> mlps = c.each_layer("mlp_layer_types", a.layers), types = c.each_layer("layer_types", a.layers);
  for (std::size_t i = 0; i < mlps.size(); ++i) a.experts.layers[i] = mlps[i] == "sparse";
  a.sliding.assign(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i < a.sliding.size(); ++i)
    a.sliding[i] = types.empty() ? i != 0 && (i + 1) % 6 != 0 : types[i] == "sliding_attention";
}

void mimo_v2_flash(C& c, const A& a, const Module& root) {
  const std::int64_t value_dim = c.count("v_head_dim", 128);
  const bool bias = c.flag("attention_bias");
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), at = layer.child("self_attn");
    const bool slides = a.sliding[static_cast<std::size_t>(i)];
    const std::int64_t kv_heads = slides ? 2 * a.kv_heads : a.kv_heads;
    if (slides) at.parameter("sinks", {a.heads});
    at.linear("q_proj", a.hidden_size, a.heads * a.head_dim, bias);
    at.linear("k_proj", a.hidden_size, kv_heads * a.head_dim, bias);
    at.linear("v_proj", a.hidden_size, kv_heads * value_dim, bias);
    at.linear("o_proj", a.heads * value_dim, a.hidden_size);
    if (a.experts.at(i))
      deepseek_mixture(a, layer.child("mlp"));
    else
      gated_mlp(layer.child("mlp"), a, a.intermediate_size);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  head(a, root);
}

// ---- dbrx: every expert's matrices in one, experts written as a loop in Python

void dbrx_config(C& c, A& a) {
  PartOfConfig attention(c, "attn_config", "kv_n_heads=1"), ffn(c, "ffn_config", "ffn_hidden_size=3584 moe_num_experts=4 moe_top_k=1");
  a.kv_heads = attention.config.count("kv_n_heads", 1);
  a.experts.count = ffn.config.count("moe_num_experts", 4);
  a.experts.per_token = ffn.config.count("moe_top_k", 1);
  a.experts.width = ffn.config.count("ffn_hidden_size", 3584);
}

void dbrx(C&, const A& a, const Module& root) {
  const Module transformer = root.child("transformer");
  transformer.embedding("wte", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module block = transformer.child("blocks", i), first = block.child("norm_attn_norm");
    first.norm("norm_1", a.hidden_size);
    first.child("attn").linear("Wqkv", a.hidden_size, a.hidden_size + 2 * a.kv_heads * (a.hidden_size / a.heads));
    first.child("attn").linear("out_proj", a.hidden_size, a.hidden_size);
    first.norm("norm_2", a.hidden_size);
    block.child("ffn.router").linear("layer", a.hidden_size, a.experts.count);
    for (const char* name : {"w1", "v1", "w2"})
      block.child("ffn.experts.mlp").parameter(name, {a.experts.count * a.experts.width, a.hidden_size});
  }
  transformer.norm("norm_f", a.hidden_size);
  head(a, root);
}

// ---- code that is not part of transformers

void deepseek_v1_config(C& c, A& a) {
  a.qkv_bias = a.output_bias = c.flag("attention_bias");
  deepseek_experts(c, a);
  layers_from(a, c.integer_or("first_k_dense_replace", 0));
  const std::int64_t every = c.integer_or("moe_layer_freq", 1, 1);
  for (std::size_t i = 0; i < a.experts.layers.size(); ++i)
    a.experts.layers[i] = a.experts.layers[i] && static_cast<std::int64_t>(i) % every == 0;
  a.names.mixture = "E:experts R:gate S:shared_experts";
}

void mimo_config(C& c, A& a) { a.qkv_bias = c.flag("attention_bias"); }

void grok_config(C& c, A& a) {
  a.experts.count = c.count("num_experts", 8);
  a.experts.per_token = c.count("num_experts_per_tok", 2);
  a.experts.width = a.intermediate_size;
}

void grok(C&, const A& a, const Module& root) {
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), at = layer.child("attn"), moe = layer.child("moe_block");
    at.linear("q_proj", a.hidden_size, a.heads * a.head_dim);
    at.linear("k_proj", a.hidden_size, a.kv_heads * a.head_dim);
    at.linear("v_proj", a.hidden_size, a.kv_heads * a.head_dim);
    at.linear("o_proj", a.heads * a.head_dim, a.hidden_size);
    moe.linear("gate", a.hidden_size, a.experts.count);
    for (std::int64_t e = 0; e < a.experts.count; ++e) {
      moe.child("experts", e).linear("linear_v", a.hidden_size, a.experts.width);
      moe.child("experts", e).linear("linear_1", a.experts.width, a.hidden_size);
      moe.child("experts", e).linear("linear", a.hidden_size, a.experts.width);
    }
    for (const char* name : {"pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"}) layer.norm(name, a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  head(a, root);
}

void nemotron_nas_config(C&, A&) {}

// DeciLM: each layer's attention and MLP as block_configs says; an MLP's width is 2/3 of ffn_mult * hidden_size, up to a multiple of 256
void nemotron_nas(C& c, const A& a, const Module& root) {
  const nlohmann::json* blocks = c.file().find("block_configs");
  const Module model = root.child("model");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  const auto count = blocks && blocks->is_array() ? static_cast<std::int64_t>(blocks->size()) : 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const nlohmann::json& block = (*blocks)[static_cast<std::size_t>(i)];
    const Module layer = model.child("layers", i);
    const auto part = [&](const char* key) { return block.is_object() && block.contains(key) ? block.find(key) : block.end(); };
    const auto of = [&](auto at, const char* key) -> const nlohmann::json* {
      if (at == block.end() || !at->is_object()) return nullptr;
      const auto found = at->find(key);
      return found == at->end() || found->is_null() ? nullptr : &*found;
    };
    const auto yes = [&](auto at, const char* key) {
      return of(at, key) && of(at, key)->is_boolean() && of(at, key)->template get<bool>();
    };
    const auto attention = part("attention"), ffn = part("ffn");
    if (yes(attention, "replace_with_linear")) {
      layer.child("self_attn").linear("linear_attn", a.hidden_size, a.hidden_size);
    } else if (!yes(attention, "no_op")) {
      const nlohmann::json* group = of(attention, "n_heads_in_group");
      const std::int64_t kv_heads =
          group && group->is_number_integer() ? a.heads / std::max<std::int64_t>(group->get<std::int64_t>(), 1) : a.heads;
      const Module at = layer.child("self_attn");
      at.linear("q_proj", a.hidden_size, a.heads * a.head_dim);
      at.linear("k_proj", a.hidden_size, kv_heads * a.head_dim);
      at.linear("v_proj", a.hidden_size, kv_heads * a.head_dim);
      at.linear("o_proj", a.heads * a.head_dim, a.hidden_size);
    }
    if (yes(ffn, "replace_with_linear")) {
      layer.child("mlp").linear("linear_mlp", a.hidden_size, a.hidden_size);
    } else if (!yes(ffn, "no_op")) {
      const nlohmann::json* factor = of(ffn, "ffn_mult");
      const double mult = factor && factor->is_number() ? factor->get<double>() : 4.0;
      const auto wanted = static_cast<std::int64_t>(2 * mult * static_cast<double>(a.hidden_size) / 3);
      gated_mlp(layer.child("mlp"), a, (wanted + 255) / 256 * 256);
    }
    if (!yes(attention, "no_op")) layer.norm("input_layernorm", a.hidden_size);
    if (!yes(ffn, "no_op")) layer.norm("post_attention_layernorm", a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  head(a, root);
}

constexpr Family kFamilies[] = {
    {"deepseek_v32", "DeepseekV32ForCausalLM", Coverage::parameters,
     "vocab_size=129280 hidden_size=7168 intermediate_size=18432 moe_intermediate_size=2048 num_hidden_layers=61 num_attention_heads=128 "
     "num_key_value_heads=128 n_shared_experts=1 n_routed_experts=256 kv_lora_rank=512 q_lora_rank=1536 qk_rope_head_dim=64 v_head_dim=128 "
     "qk_nope_head_dim=128 num_experts_per_tok=8 hidden_act=silu index_head_dim=128 index_n_heads=64 first_k_dense_replace=3",
     "n_routed_experts=num_local_experts", sparse_latent_config, sparse_latent},
    {"glm_moe_dsa", "GlmMoeDsaForCausalLM", Coverage::parameters,
     "vocab_size=154880 hidden_size=6144 intermediate_size=12288 moe_intermediate_size=2048 num_hidden_layers=78 num_attention_heads=64 "
     "num_key_value_heads=64 n_shared_experts=1 n_routed_experts=256 kv_lora_rank=512 q_lora_rank=2048 qk_rope_head_dim=64 v_head_dim=256 "
     "qk_nope_head_dim=192 num_experts_per_tok=8 hidden_act=silu index_head_dim=128 index_n_heads=32 first_k_dense_replace=3",
     "n_routed_experts=num_local_experts", sparse_latent_config, sparse_latent},
    {"deepseek_v4", "DeepseekV4ForCausalLM", Coverage::parameters,
     "vocab_size=129280 hidden_size=4096 moe_intermediate_size=2048 num_hidden_layers=43 num_attention_heads=64 num_key_value_heads=1 "
     "head_dim=512 q_lora_rank=1024 num_experts_per_tok=6 n_routed_experts=256 n_shared_experts=1 hc_mult=4 o_groups=8 o_lora_rank=1024 "
     "index_n_heads=64 index_head_dim=128 hidden_act=silu",
     "n_routed_experts=num_local_experts intermediate_size=moe_intermediate_size", deepseek_v4_config, deepseek_v4},
    {"mimo_v2_flash", "MiMoV2FlashForCausalLM", Coverage::parameters,
     "vocab_size=152576 hidden_size=4096 intermediate_size=16384 num_hidden_layers=48 num_attention_heads=64 num_key_value_heads=4 "
     "hidden_act=silu moe_intermediate_size=2048 num_experts_per_tok=8 n_routed_experts=256 head_dim=192 v_head_dim=128",
     "n_routed_experts=num_local_experts", mimo_v2_flash_config, mimo_v2_flash},
    {"dbrx", "DbrxForCausalLM", Coverage::parameters,
     "hidden_size=2048 num_attention_heads=16 num_hidden_layers=24 vocab_size=32000 hidden_act=silu",
     "hidden_size=d_model num_attention_heads=n_heads num_hidden_layers=n_layers", dbrx_config, dbrx},
    {"deepseek", "DeepseekForCausalLM", Coverage::parameters,
     "vocab_size=102400 hidden_size=4096 intermediate_size=11008 moe_intermediate_size=1407 num_hidden_layers=30 num_attention_heads=32 "
     "num_key_value_heads=32 hidden_act=silu moe_layer_freq=1",
     "", deepseek_v1_config, nullptr},
    {"mimo", "MiMoForCausalLM", Coverage::parameters,
     "vocab_size=151680 hidden_size=4096 intermediate_size=11008 num_hidden_layers=36 num_attention_heads=32 num_key_value_heads=8 "
     "hidden_act=silu attention_bias=true",
     "", mimo_config, nullptr},
    {"grok-1", "Grok1ModelForCausalLM", Coverage::parameters,
     "vocab_size=131072 hidden_size=6144 intermediate_size=32768 num_hidden_layers=64 num_attention_heads=48 num_key_value_heads=8 "
     "hidden_act=gelu num_experts=8 num_experts_per_tok=2 tie_word_embeddings=true",
     "", grok_config, grok},
    {"nemotron-nas", "DeciLMForCausalLM", Coverage::parameters,
     "vocab_size=128256 hidden_size=8192 num_hidden_layers=80 num_attention_heads=64 hidden_act=silu", "", nemotron_nas_config,
     nemotron_nas},
};

}  // namespace

std::span<const Family> uneven_families() { return kFamilies; }

}  // namespace llmem
