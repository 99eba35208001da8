#include <nlohmann/json.hpp>

#include "model/bodies.h"
#include "model/families.h"

// The GPT kind: LayerNorms with biases, MLPs without a gate, queries, keys and values often in one matrix. Each function registers what
// the modules of modeling_<model_type>.py do, in their order.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

// The names under which the trace finds the model, its layers and its head.
void named(A& a, std::string_view model, std::string_view embedding, std::string_view layers, std::string_view norm,
           std::string_view head = "lm_head") {
  a.names.model = model;
  a.names.embedding = embedding;
  a.names.layers = layers;
  a.names.norm = norm;
  a.names.head = head;
}

void gpt2_config(C& c, A& a) {
  named(a, "transformer", "wte", "h", "ln_f");
  a.dropout = c.number("resid_pdrop").value_or(0);
  a.embedding_dropout = c.number("embd_pdrop").value_or(0);
  if (c.flag("add_cross_attention")) a.unplayed = "add_cross_attention";
  if (c.flag("reorder_and_upcast_attn")) a.unplayed = "reorder_and_upcast_attn";
}

void gpt_bigcode_config(C& c, A& a) {
  gpt2_config(c, a);
  a.kv_heads = c.flag("multi_query") ? 1 : a.heads;
}

void gpt_neo_config(C& c, A& a) {
  named(a, "transformer", "wte", "h", "ln_f");
  a.dropout = c.number("resid_dropout").value_or(0);
  a.embedding_dropout = c.number("embed_dropout").value_or(0);
  a.eager_only = true;
}

void gptj_config(C& c, A& a) {
  named(a, "transformer", "wte", "h", "ln_f");
  a.dropout = c.number("resid_pdrop").value_or(0);
  a.embedding_dropout = c.number("embd_pdrop").value_or(0);
  a.rotary_dim = c.integer_or("rotary_dim", 0);
}

void gpt_neox_config(C& c, A& a) {
  named(a, "gpt_neox", "embed_in", "layers", "final_layer_norm");
  a.dropout = c.number("hidden_dropout").value_or(0);
  a.parallel_residual = c.flag("use_parallel_residual");
  a.partly_rotary = a.parts_rebound = true;
  partial_rotary(c, a, "rotary_pct", 0.25);
}

void bloom_config(C& c, A& a) {
  named(a, "transformer", "word_embeddings", "h", "ln_f");
  a.intermediate_size = 4 * a.hidden_size;
  a.dropout = c.number("hidden_dropout").value_or(0);
  a.residual_after_norm = c.flag("apply_residual_connection_post_layernorm");
  a.eager_only = a.own_activation = true;
  if (c.integer_or("pretraining_tp", 1) > 1 && c.flag("slow_but_exact")) a.unplayed = "slow_but_exact";
}

void mpt_config(C& c, A& a) {
  named(a, "transformer", "wte", "blocks", "norm_f");
  a.intermediate_size = 4 * a.hidden_size;
  a.longest_sequence = c.count("max_seq_len", 2048);
  a.eager_only = a.own_activation = true;
  const nlohmann::json* attention = c.file().find("attn_config");
  if (attention == nullptr || !attention->is_object()) return;
  const auto number = [&](const char* key) {
    const auto found = attention->find(key);
    return found != attention->end() && found->is_number() ? found->get<double>() : 0.0;
  };
  a.clipped_qkv = number("clip_qkv") != 0;
  a.dropout = number("attn_pdrop");
}

void falcon_config(C& c, A& a) {
  named(a, "transformer", "word_embeddings", "h", "ln_f");
  a.new_decoder = c.flag("new_decoder_architecture");
  a.parallel_residual = c.flag("parallel_attn");
  a.parallel_norms = c.integer_or("num_ln_in_parallel_attn", a.new_decoder ? 2 : 1);
  if (!a.new_decoder) a.kv_heads = c.flag("multi_query") ? 1 : a.heads;
  a.dropout = c.number("hidden_dropout").value_or(0);
  if (c.flag("alibi")) a.unplayed = "alibi";
  if (a.parallel_norms == 2 && !(a.new_decoder && a.parallel_residual)) a.unplayed = "num_ln_in_parallel_attn";  // its forward fails
}

void opt_config(C& c, A& a) {
  named(a, "model.decoder", "embed_tokens", "layers", "final_layer_norm");
  a.norms_first = c.flag("do_layer_norm_before");
  a.final_norm = a.norms_first && !c.flag("_remove_final_layer_norm");
  a.dropout = c.number("dropout").value_or(0);
  if (c.number("layerdrop").value_or(0) > 0) a.unplayed = "layerdrop";
}

void biogpt_config(C& c, A& a) {
  named(a, "biogpt", "embed_tokens", "layers", "layer_norm", "output_projection");
  a.dropout = c.number("hidden_dropout_prob").value_or(0);
  a.activation_dropout = c.number("activation_dropout").value_or(0);
  if (c.number("layerdrop").value_or(0) > 0) a.unplayed = "layerdrop";
}

void rotary_buffers(const Module& model, std::int64_t dim) {
  model.child("rotary_emb").buffer("inv_freq", {dim / 2});
  model.child("rotary_emb").buffer("original_inv_freq", {dim / 2});
}

void gpt2_block(const Module& block, const A& a, std::int64_t qkv, bool conv) {
  const auto dense = [&](const Module& of, std::string_view name, std::int64_t in, std::int64_t out) {
    conv ? of.conv1d_of_gpt2(name, in, out) : of.linear(name, in, out, true);
  };
  block.norm("ln_1", a.hidden_size, true);
  dense(block.child("attn"), "c_attn", a.hidden_size, qkv);
  dense(block.child("attn"), "c_proj", a.hidden_size, a.hidden_size);
  block.norm("ln_2", a.hidden_size, true);
  dense(block.child("mlp"), "c_fc", a.hidden_size, a.intermediate_size);
  dense(block.child("mlp"), "c_proj", a.intermediate_size, a.hidden_size);
}

// wte, wpe, the blocks, ln_f and a head that is tied unless the config says otherwise
template <class Block>
void gpt2_kind(C& c, const A& a, const Module& root, const Block& block) {
  const Module transformer = root.child("transformer");
  transformer.embedding("wte", a.vocab_size, a.hidden_size);
  transformer.embedding("wpe", c.count("max_position_embeddings", 1), a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) block(transformer.child("h", i));
  transformer.norm("ln_f", a.hidden_size, true);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

void gpt2(C& c, const A& a, const Module& root) {
  gpt2_kind(c, a, root, [&](const Module& block) { gpt2_block(block, a, 3 * a.hidden_size, true); });
}

void gpt_bigcode(C& c, const A& a, const Module& root) {
  const std::int64_t keys = c.flag("multi_query") ? a.head_dim : a.hidden_size, longest = c.count("max_position_embeddings", 1);
  gpt2_kind(c, a, root, [&](const Module& block) { gpt2_block(block, a, a.hidden_size + 2 * keys, false); });
  root.child("transformer").buffer("bias", {longest, longest}, Dtype::boolean);
}

void gpt_neo(C& c, const A& a, const Module& root) {
  gpt2_kind(c, a, root, [&](const Module& block) {
    block.norm("ln_1", a.hidden_size, true);
    const Module attention = block.child("attn").child("attention");
    const std::int64_t longest = c.count("max_position_embeddings", 1);
    attention.buffer("bias", {1, 1, longest, longest}, Dtype::boolean);
    for (const char* name : {"k_proj", "v_proj", "q_proj"}) attention.linear(name, a.hidden_size, a.hidden_size);
    attention.linear("out_proj", a.hidden_size, a.hidden_size, true);
    block.norm("ln_2", a.hidden_size, true);
    block.child("mlp").linear("c_fc", a.hidden_size, a.intermediate_size, true);
    block.child("mlp").linear("c_proj", a.intermediate_size, a.hidden_size, true);
  });
}

// gptj and codegen
void gptj_kind(C& c, const A& a, const Module& root, bool one_matrix) {
  const Module transformer = root.child("transformer");
  transformer.embedding("wte", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module block = transformer.child("h", i), attention = block.child("attn"), mlp = block.child("mlp");
    block.norm("ln_1", a.hidden_size, true);
    if (one_matrix) {
      attention.linear("out_proj", a.hidden_size, a.hidden_size);
      attention.linear("qkv_proj", a.hidden_size, 3 * a.hidden_size);
    } else {
      for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) attention.linear(name, a.hidden_size, a.hidden_size);
    }
    mlp.linear("fc_in", a.hidden_size, a.intermediate_size, true);
    mlp.linear("fc_out", a.intermediate_size, a.hidden_size, true);
  }
  transformer.norm("ln_f", a.hidden_size, true);
  transformer.child("rotary_emb")
      .buffer("embed_positions", {c.count("max_position_embeddings", 1), a.rotary_dim > 0 ? a.rotary_dim : a.hidden_size});
  if (!a.tied_embeddings)
    root.linear("lm_head", a.hidden_size, a.vocab_size, true);
  else
    root.child("lm_head").parameter("bias", {a.vocab_size});
}

void gptj(C& c, const A& a, const Module& root) { gptj_kind(c, a, root, false); }
void codegen(C& c, const A& a, const Module& root) { gptj_kind(c, a, root, true); }

void gpt_neox(C& c, const A& a, const Module& root) {
  const bool bias = c.flag("attention_bias");
  const Module model = root.child("gpt_neox");
  model.embedding("embed_in", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    layer.norm("input_layernorm", a.hidden_size, true);
    layer.norm("post_attention_layernorm", a.hidden_size, true);
    layer.child("attention").linear("query_key_value", a.hidden_size, 3 * a.hidden_size, bias);
    layer.child("attention").linear("dense", a.hidden_size, a.hidden_size, bias);
    layer.child("mlp").linear("dense_h_to_4h", a.hidden_size, a.intermediate_size, true);
    layer.child("mlp").linear("dense_4h_to_h", a.intermediate_size, a.hidden_size, true);
  }
  model.norm("final_layer_norm", a.hidden_size, true);
  rotary_buffers(model, a.rotary_dim);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

void bloom(C&, const A& a, const Module& root) {
  const Module transformer = root.child("transformer");
  transformer.embedding("word_embeddings", a.vocab_size, a.hidden_size);
  transformer.norm("word_embeddings_layernorm", a.hidden_size, true);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module block = transformer.child("h", i);
    block.norm("input_layernorm", a.hidden_size, true);
    block.child("self_attention").linear("query_key_value", a.hidden_size, 3 * a.hidden_size, true);
    block.child("self_attention").linear("dense", a.hidden_size, a.hidden_size, true);
    block.norm("post_attention_layernorm", a.hidden_size, true);
    block.child("mlp").linear("dense_h_to_4h", a.hidden_size, 4 * a.hidden_size, true);
    block.child("mlp").linear("dense_4h_to_h", 4 * a.hidden_size, a.hidden_size, true);
  }
  transformer.norm("ln_f", a.hidden_size, true);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

void falcon(C& c, const A& a, const Module& root) {
  const bool new_kind = c.flag("new_decoder_architecture"), bias = c.flag("bias");
  const std::int64_t keys = new_kind ? a.kv_heads : c.flag("multi_query") ? 1 : a.heads;
  const std::int64_t head = a.hidden_size / a.heads;
  const std::int64_t norms = c.integer_or("num_ln_in_parallel_attn", new_kind ? 2 : 1);
  const Module transformer = root.child("transformer");
  transformer.embedding("word_embeddings", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module block = transformer.child("h", i);
    block.child("self_attention").linear("query_key_value", a.hidden_size, (a.heads + 2 * keys) * head, bias);
    block.child("self_attention").linear("dense", a.hidden_size, a.hidden_size, bias);
    block.child("mlp").linear("dense_h_to_4h", a.hidden_size, a.intermediate_size, bias);
    block.child("mlp").linear("dense_4h_to_h", a.intermediate_size, a.hidden_size, bias);
    if (c.flag("parallel_attn") && norms == 2) {
      block.norm("ln_attn", a.hidden_size, true);
      block.norm("ln_mlp", a.hidden_size, true);
    } else {
      if (!c.flag("parallel_attn")) block.norm("post_attention_layernorm", a.hidden_size, true);
      block.norm("input_layernorm", a.hidden_size, true);
    }
  }
  transformer.norm("ln_f", a.hidden_size, true);
  rotary_buffers(transformer, a.head_dim);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

// OPTDecoderLayer and BioGptDecoderLayer
void opt_layer(const Module& layer, const A& a, bool bias, bool affine) {
  const Module attention = layer.child("self_attn");
  for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) attention.linear(name, a.hidden_size, a.hidden_size, bias);
  if (affine) layer.norm("self_attn_layer_norm", a.hidden_size, true);
  layer.linear("fc1", a.hidden_size, a.intermediate_size, bias);
  layer.linear("fc2", a.intermediate_size, a.hidden_size, bias);
  if (affine) layer.norm("final_layer_norm", a.hidden_size, true);
}

// OPTLearnedPositionalEmbedding and BioGpt's keep two rows for padding.
constexpr std::int64_t kPositionsForPadding = 2;

void opt(C& c, const A& a, const Module& root) {
  const std::int64_t width = c.integer_or("word_embed_proj_dim", a.hidden_size, 1);
  const bool affine = c.flag("layer_norm_elementwise_affine");
  const Module decoder = root.child("model").child("decoder");
  decoder.embedding("embed_tokens", a.vocab_size, width);
  decoder.embedding("embed_positions", c.count("max_position_embeddings", 1) + kPositionsForPadding, a.hidden_size);
  if (width != a.hidden_size) {
    decoder.linear("project_out", a.hidden_size, width);
    decoder.linear("project_in", width, a.hidden_size);
  }
  if (c.flag("do_layer_norm_before") && !c.flag("_remove_final_layer_norm") && affine)
    decoder.norm("final_layer_norm", a.hidden_size, true);
  for (std::int64_t i = 0; i < a.layers; ++i) opt_layer(decoder.child("layers", i), a, c.flag("enable_bias"), affine);
  if (!a.tied_embeddings) root.linear("lm_head", width, a.vocab_size);
}

void biogpt(C& c, const A& a, const Module& root) {
  const Module model = root.child("biogpt");
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  model.embedding("embed_positions", c.count("max_position_embeddings", 1) + kPositionsForPadding, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) opt_layer(model.child("layers", i), a, true, true);
  model.norm("layer_norm", a.hidden_size, true);
  if (!a.tied_embeddings) root.linear("output_projection", a.hidden_size, a.vocab_size);
}

void mpt(C&, const A& a, const Module& root) {
  const Module transformer = root.child("transformer");
  const std::int64_t width = 4 * a.hidden_size;  // MptMLP, whatever expansion_ratio says
  transformer.embedding("wte", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module block = transformer.child("blocks", i);
    block.norm("norm_1", a.hidden_size);
    block.child("attn").linear("Wqkv", a.hidden_size, 3 * a.hidden_size);
    block.child("attn").linear("out_proj", a.hidden_size, a.hidden_size);
    block.norm("norm_2", a.hidden_size);
    block.child("ffn").linear("up_proj", a.hidden_size, width);
    block.child("ffn").linear("down_proj", width, a.hidden_size);
  }
  transformer.norm("norm_f", a.hidden_size);
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

// ---- models whose code is not part of transformers: as their own modeling files register them

void internlm2(C& c, A& a) {
  a.qkv_bias = a.output_bias = c.flag("bias");
  a.names.embedding = "tok_embeddings";
  a.names.head = "output";
  a.names.layer = "a:attention m:feed_forward 1:attention_norm 3:ffn_norm";
  a.names.attention = "f:wqkv o:wo";
  a.names.mlp = "g:w1 u:w3 d:w2";
}

void internlm3(C& c, A& a) {
  a.qkv_bias = c.flag("qkv_bias");
  a.output_bias = a.mlp_bias = c.flag("bias");
}

void baichuan(C&, A& a) { a.names.attention = "f:W_pack o:o_proj"; }

void qwen(C& c, A& a) {
  a.qkv_bias = true;
  a.output_bias = a.mlp_bias = !c.flag("no_bias");
  a.head_dim = a.rotary_dim = c.count("kv_channels", a.head_dim);
  a.intermediate_size /= 2;  // QWenMLP: both halves of the intermediate_size
  a.names = {"transformer", "wte", "h", "ln_f", "lm_head", "1:ln_1 a:attn 3:ln_2 m:mlp", "f:c_attn o:c_proj", "u:w1 g:w2 d:c_proj", ""};
}

void chatglm(C& c, A& a) {
  a.head_dim = a.rotary_dim = c.count("kv_channels", a.head_dim);
  a.kv_heads = c.flag("multi_query_attention") ? c.count("multi_query_group_num", 1) : a.heads;
  a.output_bias = a.mlp_bias = c.flag("add_bias_linear");
  a.qkv_bias = a.mlp_bias || c.flag("add_qkv_bias");
  a.vocab_size = c.count("padded_vocab_size", a.vocab_size);
  a.names = {"transformer",
             "embedding.word_embeddings",
             "encoder.layers",
             "encoder.final_layernorm",
             "transformer.output_layer",
             "1:input_layernorm a:self_attention 3:post_attention_layernorm m:mlp",
             "f:query_key_value o:dense",
             "f:dense_h_to_4h d:dense_4h_to_h",
             ""};
}

constexpr Family kFamilies[] = {
    {"gpt2", "GPT2LMHeadModel", Coverage::played,
     "vocab_size=50257 max_position_embeddings=1024 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 "
     "hidden_act=gelu_new resid_pdrop=0.1 embd_pdrop=0.1 attention_dropout=0.1 summary_type=cls_index summary_use_proj=true "
     "summary_proj_to_labels=true summary_first_dropout=0.1 scale_attn_weights=true tie_word_embeddings=true",
     "max_position_embeddings=n_positions hidden_size=n_embd num_hidden_layers=n_layer num_attention_heads=n_head "
     "intermediate_size=n_inner hidden_act=activation_function attention_dropout=attn_pdrop",
     gpt2_config, gpt2, gpt2_body},
    {"gpt_bigcode", "GPTBigCodeForCausalLM", Coverage::played,
     "vocab_size=50257 max_position_embeddings=1024 hidden_size=768 num_hidden_layers=12 num_attention_heads=12 "
     "hidden_act=gelu_pytorch_tanh resid_pdrop=0.1 embd_pdrop=0.1 attention_dropout=0.1 scale_attn_weights=true "
     "attention_softmax_in_fp32=true scale_attention_softmax_in_fp32=true multi_query=true tie_word_embeddings=true",
     "max_position_embeddings=n_positions hidden_size=n_embd num_hidden_layers=n_layer num_attention_heads=n_head "
     "intermediate_size=n_inner hidden_act=activation_function attention_dropout=attn_pdrop",
     gpt_bigcode_config, gpt_bigcode, gpt_bigcode_body},
    {"gpt_neo", "GPTNeoForCausalLM", Coverage::played,
     "vocab_size=50257 max_position_embeddings=2048 hidden_size=2048 num_hidden_layers=24 num_attention_heads=16 "
     "window_size=256 hidden_act=gelu_new tie_word_embeddings=true",
     "num_hidden_layers=num_layers num_attention_heads=num_heads hidden_act=activation_function", gpt_neo_config, gpt_neo, gpt_neo_body},
    {"gptj", "GPTJForCausalLM", Coverage::played,
     "vocab_size=50400 max_position_embeddings=2048 hidden_size=4096 num_hidden_layers=28 num_attention_heads=16 "
     "rotary_dim=64 hidden_act=gelu_new",
     "max_position_embeddings=n_positions hidden_size=n_embd num_hidden_layers=n_layer num_attention_heads=n_head "
     "intermediate_size=n_inner hidden_act=activation_function attention_dropout=attn_pdrop",
     gptj_config, gptj, gptj_body},
    {"codegen", "CodeGenForCausalLM", Coverage::played,
     "vocab_size=50400 max_position_embeddings=2048 n_ctx=2048 hidden_size=4096 num_hidden_layers=28 num_attention_heads=16 "
     "rotary_dim=64 hidden_act=gelu_new",
     "max_position_embeddings=n_positions hidden_size=n_embd num_hidden_layers=n_layer num_attention_heads=n_head "
     "intermediate_size=n_inner hidden_act=activation_function attention_dropout=attn_pdrop",
     gptj_config, codegen, codegen_body},
    {"gpt_neox", "GPTNeoXForCausalLM", Coverage::played,
     "vocab_size=50432 hidden_size=6144 num_hidden_layers=44 num_attention_heads=64 intermediate_size=24576 hidden_act=gelu "
     "use_parallel_residual=true attention_bias=true",
     "", gpt_neox_config, gpt_neox, gpt_neox_body},
    {"bloom", "BloomForCausalLM", Coverage::played,
     "vocab_size=250880 hidden_size=64 num_hidden_layers=2 num_attention_heads=8 tie_word_embeddings=true",
     "num_hidden_layers=n_layer num_attention_heads=n_head", bloom_config, bloom, bloom_body},
    {"falcon", "FalconForCausalLM", Coverage::played,
     "vocab_size=65024 hidden_size=4544 num_hidden_layers=32 num_attention_heads=71 multi_query=true parallel_attn=true "
     "hidden_act=gelu tie_word_embeddings=true",
     "num_key_value_heads=num_kv_heads intermediate_size=ffn_hidden_size hidden_act=activation", falcon_config, falcon, falcon_body},
    {"opt", "OPTForCausalLM", Coverage::played,
     "vocab_size=50272 hidden_size=768 num_hidden_layers=12 intermediate_size=3072 max_position_embeddings=2048 "
     "do_layer_norm_before=true dropout=0.1 num_attention_heads=12 hidden_act=relu init_std=0.02 enable_bias=true "
     "layer_norm_elementwise_affine=true tie_word_embeddings=true",
     "intermediate_size=ffn_dim hidden_act=activation_function", opt_config, opt, opt_body},
    {"biogpt", "BioGptForCausalLM", Coverage::played,
     "vocab_size=42384 hidden_size=1024 num_hidden_layers=24 num_attention_heads=16 intermediate_size=4096 hidden_act=gelu "
     "hidden_dropout_prob=0.1 attention_dropout=0.1 max_position_embeddings=1024 scale_embedding=true "
     "tie_word_embeddings=true",
     "attention_dropout=attention_probs_dropout_prob", biogpt_config, biogpt, biogpt_body},
    {"mpt", "MptForCausalLM", Coverage::played,
     "hidden_size=2048 num_attention_heads=16 num_hidden_layers=24 expansion_ratio=4 max_seq_len=2048 vocab_size=50368 "
     "learned_pos_emb=true init_device=cpu no_bias=true embedding_fraction=1.0 norm_type=low_precision_layernorm "
     "tie_word_embeddings=true",
     "hidden_size=d_model num_attention_heads=n_heads num_hidden_layers=n_layers", mpt_config, mpt, mpt_body},
    {"internlm2", "InternLM2ForCausalLM", Coverage::parameters,
     "vocab_size=103168 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu bias=true", "",
     internlm2, nullptr},
    {"internlm3", "InternLM3ForCausalLM", Coverage::parameters,
     "vocab_size=128512 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 num_key_value_heads=32 "
     "hidden_act=silu",
     "", internlm3, nullptr},
    {"baichuan", "BaichuanForCausalLM", Coverage::parameters,
     "vocab_size=125696 hidden_size=4096 intermediate_size=11008 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu", "", baichuan,
     nullptr},
    {"qwen", "QWenLMHeadModel", Coverage::parameters,
     "vocab_size=151936 hidden_size=4096 intermediate_size=22016 num_hidden_layers=32 num_attention_heads=32 hidden_act=silu "
     "kv_channels=128 no_bias=true",
     "", qwen, nullptr},
    {"chatglm", "ChatGLMModel", Coverage::parameters,
     "padded_vocab_size=65024 hidden_size=4096 intermediate_size=13696 num_hidden_layers=28 num_attention_heads=32 kv_channels=128 "
     "hidden_act=silu multi_query_group_num=1",
     "num_hidden_layers=num_layers intermediate_size=ffn_hidden_size", chatglm, nullptr},
};

}  // namespace

std::span<const Family> classic_families() { return kFamilies; }

}  // namespace llmem
