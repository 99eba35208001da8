#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace llmem {

// One tensor that a model's modules register. A tied head is none of its own.
struct Parameter {
  enum class Kind : std::uint8_t { parameter, frozen, buffer };  // frozen: a parameter that never wants a gradient

  std::string name;  // "model.layers.3.mlp.up_proj.weight"
  std::vector<std::int64_t> shape;
  Kind kind = Kind::parameter;
  std::optional<Dtype> dtype;  // none: that of the weights
  bool of_linear = false;      // the weight of an nn.Linear: an adapter may be put on it
  std::int64_t count() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
};

enum class NormKind : std::uint8_t {
  rms,             // weight * x.to(dtype): llama
  rms_float,       // (weight * x).to(dtype): olmo2
  rms_one_plus,    // (x * (1 + weight)).to(dtype): gemma
  rms_all_float,   // (weight.to(fp32) * x).to(dtype): helium
  l2,              // without a weight: nanochat
  rms_after,       // l2, then * weight: llama4
  rms_by_power,    // (x * mean ** -0.5 * weight in fp32).to(dtype), with or without a weight: gemma4
  rms_fused,       // torch.nn.RMSNorm: torchtitan
  layer,           // nn.LayerNorm
  layer_bare,      // without weight, in fp32: olmo
  layer_cohere,    // in fp32, with a weight and no bias, op by op: cohere
  layer_one_plus,  // nn.functional.layer_norm with 1 + weight, in fp32: nemotron
};
enum class QkNorm : std::uint8_t {
  none,
  head,               // one weight of head_dim for all heads: qwen3
  head_transposed,    // the same, once heads are before tokens: gemma3
  head_after_rotary,  // the same, after the rotary embedding: hunyuan
  whole,              // over all heads together: olmo2
  heads_by_dim,       // a weight of [heads, head_dim]: cohere
  each_head_apart,    // a LayerNorm for each head: stablelm
};
enum class ScaledEmbedding : std::uint8_t { no, by_number, by_number_after_mask, by_tensor, by_buffer };
enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, gelu_new, gelu_fast, quick_gelu, relu, relu_squared, xielu, other };
enum class Rotary : std::uint8_t {
  none,
  halves,          // llama: rotate_half over the two halves of a head
  halves_float,    // olmo: as halves, cos and sin in fp32
  pairs,           // glm: neighbouring values are turned
  pairs_float,     // cohere: as pairs, in fp32
  repeated_float,  // ernie4_5: as pairs_float, cos and sin repeated in every layer
  chunked,         // gpt_oss: two halves apart, angles of half a head
  interleaved,     // deepseek_v3: neighbouring values apart, halves of the angles
  complex,         // deepseek_v2: neighbouring values as complex numbers
  grid_in_turns,   // qwen3_vl: as halves, with positions along time, height and width that take turns over the frequencies
  grid_in_parts,   // qwen2_5_vl: the same, each with a part of the frequencies
};

// The names of a family's modules, in the order in which they are defined. Each word is a role and a name:
// layer:     a attention, m MLP, s an MLP beside the experts (granitemoeshared), norms: 1 before and 2 after attention, 3 before and 4 after the MLP
// attention: q k v o, f all three of q, k, v in one, Q K the norms of q and k
// mlp:       g gate, u up, d down, f gate and up in one, x an activation with parameters (apertus), n a norm before down (bitnet)
//            attention: n the same before o
struct Names {
  std::string_view model = "model", embedding = "embed_tokens", layers = "layers", norm = "norm", head = "lm_head";
  std::string_view layer = "a:self_attn m:mlp 1:input_layernorm 3:post_attention_layernorm";
  std::string_view attention = "q:q_proj k:k_proj v:v_proj o:o_proj Q:q_norm K:k_norm";
  std::string_view mlp = "g:gate_proj u:up_proj d:down_proj";
  // mixture of experts: R router, E experts, S shared expert, G its gate
  std::string_view mixture = "R:gate E:experts";
  std::string_view decoder_layers = "";  // of an encoder-decoder, from the root; `model` and `layers` are the encoder's
};
// The name that has this role, "" where there is none.
std::string_view name_of(std::string_view names, char role);

// How a mixture chooses its experts: whose router it is.
enum class RouterKind : std::uint8_t {
  other,
  mixtral,
  qwen,
  jamba,
  granite,
  hunyuan,
  gpt_oss,
  deepseek_v2,
  deepseek_v3,
  minimax,
  ernie,
  hunyuan_v3,
  phimoe
};

// A mixture of experts in place of the MLP, in the layers that have it.
struct Experts {
  std::int64_t count = 0, per_token = 0, width = 0;  // of one expert
  std::int64_t shared_width = 0;                     // of the shared expert; 0: none
  bool biased = false;                               // router and experts have biases (gpt_oss)
  bool float_router = false;                         // the router's weight is fp32, whatever the weights are
  bool correction = false;                           // the router has a buffer that corrects its scores (deepseek_v3)
  bool correction_on_block = false;                  // the same, on the block (minimax_m2)
  bool frozen_correction = false;                    // the same, a parameter without gradient (ernie4_5_moe)
  RouterKind router = RouterKind::other;
  bool normed = false;                       // the chosen weights are divided by their sum (norm_topk_prob)
  bool gated = true;                         // an MLP with a gate
  std::int64_t latent = 0;                   // nemotron_h: what a token is projected to first; 0: it is not
  bool shared_last = false;                  // the shared experts come after the others
  bool float_combine = false;                // … and are added to them in fp32 (hy_v3)
  std::int64_t groups = 1, groups_kept = 1;  // experts are chosen from some groups of them (n_group, topk_group)
  std::vector<bool> layers;                  // which layers have experts; empty: all of them
  bool at(std::int64_t layer) const { return count > 0 && (layers.empty() || layers[static_cast<std::size_t>(layer)]); }
};

// Multi-head latent attention; without a rank for keys and values, there is none.
struct LatentAttention {
  std::int64_t query_rank = 0, key_value_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
};

// A Mamba-2 mixer: heads of head_dim channels, which read and write states through groups of B and C.
struct StateSpace {
  std::int64_t heads = 0, head_dim = 0, groups = 1, states = 0, kernel = 4, chunk = 256;
  std::int64_t rank = 0;  // mamba: of the time step
  bool conv_bias = true, bias = false, out_bias = false;
  bool normed = true;      // falcon_h1: mamba_rms_norm
  bool norm_first = true;  // falcon_h1: mamba_norm_before_gate
  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t channels() const { return inner() + 2 * groups * states; }  // of the convolution
};

// A gated delta net (qwen3_next): value heads share key heads.
struct DeltaNet {
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, kernel = 4;
  std::int64_t keys() const { return key_heads * key_dim; }
  std::int64_t values() const { return value_heads * value_dim; }
};

// What a model's class ends in: the next word of every token, the masked words, the words of a target that a decoder makes, or labels of whole
// sequences or of tokens.
enum class Head : std::uint8_t { next_word, masked_word, target_word, sequence_label, token_label };
// problem_type: one of several classes, a number each, or any of several classes.
enum class LabelKind : std::uint8_t { one_of, number, any_of };
struct Classifier {
  std::int64_t labels = 2;
  LabelKind kind = LabelKind::one_of;
  bool finds_padding = false;  // a pad_token_id: the last token of a row is looked for
  double dropout = 0;
};

// What Megatron-Core's TransformerConfig and GPTModel need to know of a model.
struct MegatronShape {
  std::int64_t decoder_layers = 0;  // T5: layers with cross-attention, after those of the encoder
  std::int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, groups = 0, head_dim = 0, vocabulary = 0, positions = 0;
  bool learned_positions = false;  // position_embedding_type; else rotary
  bool rms = false;                // normalization
  bool gated = false;              // swiglu
  bool linear_bias = false;        // add_bias_linear
  bool qkv_bias = false;           // add_qkv_bias, where linear_bias is not
  bool qk_norm = false;            // qk_layernorm
  bool tied = false;
  double hidden_dropout = 0, attention_dropout = 0;
  LatentAttention latent;
  Experts experts;
  bool bert = false;  // BertModel: padded rows, attention in both directions, a head of its own
};

struct Vision;  // model/vision.h

// What config.json says, with every omitted field resolved to what the Hugging Face class would use.
struct Architecture {
  std::string model_type;    // "llama", "qwen3", …
  std::string decoder_type;  // the same, or of what sees: that of its decoder
  std::string model_class;   // "LlamaForCausalLM", …
  std::int64_t hidden_size = 0, intermediate_size = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab_size = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;  // of q, k, v; of o; of the MLP's Linears
  bool head_bias = false;                                        // of lm_head
  bool qk_norm = false;                                          // whether q and k are normed (of which kind: qk_norm_kind)
  std::int64_t sliding_window = 0;                               // 0: none. Where it binds (window <= sequence) SDPA needs a mask.

  Names names;
  NormKind norm = NormKind::rms;
  bool norm_bias = false;
  QkNorm qk_norm_kind = QkNorm::none;
  bool parallel_residual = false;  // attention and MLP read the same hidden states and are added to them together
  Activation activation = Activation::silu;
  Rotary rotary = Rotary::halves;
  std::int64_t rotary_dim = 0;  // how much of a head is turned
  ScaledEmbedding scaled_embedding = ScaledEmbedding::no;
  bool scaled_residual = false;  // what is added to the residual is multiplied by a number first (granite)
  bool scaled_logits = false, softcapped_logits = false, softcapped_attention = false;
  bool qk_norm_bias = false;
  bool square_output = false;  // o_proj takes hidden_size, whatever the heads make (helium)
  bool attention_sinks = false;
  bool clipped_qkv = false;                   // q, k, v are clamped
  bool scaled_queries = false;                // … are multiplied by a number of their position (ministral3)
  bool scaled_head_input = false;             // what enters the head is divided by a number (minicpm3)
  bool integer_embed_scale = false;           // the scale of the embedding is an integer tensor (minicpm3)
  bool normed_embeddings = false;             // the last norm is also the first (nanochat)
  bool masks_as_needed = false;               // only for the kinds of layers that there are (dots1)
  bool local_rotary = false;                  // layers with the window have a rotary embedding of their own (gemma3)
  double dropout = 0, embedding_dropout = 0;  // of what is added to the residual; of the embeddings
  Experts experts;
  LatentAttention latent;
  std::vector<bool> sliding;   // per layer, where only some layers have the window
  std::vector<bool> unturned;  // per layer: no rotary embedding (smollm3)

  bool partly_rotary = false;          // a head is cut in what is turned and what is not, be that empty
  bool parts_rebound = false;          // … and each is put together under the name of what was turned (gpt_neox)
  bool parts_inside = false;           // … in a function of its own, whose names die with it (nemotron)
  bool partly_rotary_at_once = false;  // q is put together again before k is turned (phi3)
  bool dropout_in_blocks = false;      // attention and MLP drop out of their own results (starcoder2)
  bool rotary_before_norm = false;     // in the order of the model's members (phi)
  bool normed_lives_on = false;        // what was normed before attention keeps its name through the layer (stablelm)
  bool residual_last = false;          // attention + MLP + residual, in this order (phi)
  double attention_dropout = 0, activation_dropout = 0;

  // ---- hybrids
  std::vector<bool> attends;     // which layers have attention; the others have what the family has in its place
  std::int64_t conv_kernel = 0;  // lfm2: of its short convolutions
  bool conv_bias = false;

  StateSpace state_space;
  DeltaNet delta_net;
  Head head = Head::next_word;
  bool own_classifier = false;  // the family declares it, and what is before it, itself
  Classifier classifier;
  std::int64_t decoder_layers = 0;  // of an encoder-decoder, the last of `layers`
  std::int64_t encoder_layers() const { return layers - decoder_layers; }

  std::string layer_kinds;         // nemotron_h: a letter for each layer
  bool gated_output = false;       // qwen3_next: q_proj makes a gate of the attention's result as well
  bool scaled_keys = false;        // falcon_h1: keys are multiplied by a number
  bool loops_over_tokens = false;  // mamba: ops for each token
  bool float_residual = false;     // mamba: residual_in_fp32
  bool float_logits = false;       // the head's result is cast to fp32, and its input to the head's dtype

  // ---- of the families that have a Body
  bool eager_only = false;            // the class has no other attention
  bool own_activation = false;        // … and an activation that no config names
  bool norms_first = true;            // opt: do_layer_norm_before
  bool final_norm = true;             // opt: whether there is a norm after the layers
  bool residual_after_norm = false;   // bloom: apply_residual_connection_post_layernorm
  bool new_decoder = false;           // falcon: new_decoder_architecture
  std::int64_t parallel_norms = 1;    // falcon: num_ln_in_parallel_attn
  std::int64_t longest_sequence = 0;  // mpt: what its biases are made for

  std::int64_t vision_size = 0;          // features of an image token that enter the projector
  std::shared_ptr<const Vision> vision;  // none: sees nothing, or is not played over images
  std::vector<bool> crosses;             // mllama: layers that look at images, which nothing runs where there are none

  bool litgpt = false;  // in litgpt's modules

  std::optional<MegatronShape> megatron;  // of a config in Megatron's own arguments

  std::string_view unplayed;  // what of this config is known by its tensors only; "": nothing

  std::vector<Parameter> tensors;  // in the order of named_parameters(), buffers among them
};

// Every parameter, in the order of model.parameters().
std::vector<Parameter> parameters_of(const Architecture& architecture);

// The parameters that one token meets: of the routed experts, those that are chosen for it.
std::int64_t active_parameters(const Architecture& architecture);

}  // namespace llmem
