#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/activation.h"
#include "model/bodies.h"
#include "model/families.h"
#include "model/vision.h"

// Models that see: a tower for images and a projector before a decoder of another family. What is trained on is text alone, so that the
// towers' weights are held and not run. modeling_<model_type>.py.
namespace llmem {

namespace {

using C = ConfigReader;
using A = Architecture;

void nothing(C&, A&) {}

// ---- what is seen through

std::int64_t side_of(std::int64_t count) { return static_cast<std::int64_t>(std::sqrt(static_cast<double>(count))); }

// What CLIP and SigLIP say of themselves alike.
Vision tower_of(C& c, Vision::Kind kind) {
  Vision vision;
  vision.kind = kind;
  vision.hidden = c.count("hidden_size", 1);
  vision.layers = c.count("num_hidden_layers", 1);
  vision.heads = c.count("num_attention_heads", 1);
  vision.channels = c.count("num_channels", 3);
  vision.side = c.count("image_size", 1);
  vision.patch = c.count("patch_size", 1);
  vision.activation = activation_named(c.text("hidden_act"));
  vision.dropout = c.number("attention_dropout").value_or(0);
  return vision;
}

bool is_sound(const Vision& vision) {
  return vision.hidden % vision.heads == 0 && vision.patch <= vision.side && vision.activation != Activation::other &&
         vision.projector_activation != Activation::other;
}

// LlavaConfig: several layers' states beside each other, or another tower, are not played.
void llava_config(C& whole, A& a) {
  const nlohmann::json* layer = whole.file().find("vision_feature_layer");
  if (layer && !layer->is_number_integer()) return;
  constexpr const char* kClip =
      "model_type=clip_vision_model hidden_size=1024 num_hidden_layers=24 image_size=336 patch_size=14 hidden_act=quick_gelu "
      "num_attention_heads=16";
  constexpr const char* kClipOfFile =
      "model_type=clip_vision_model hidden_size=1024 num_hidden_layers=24 image_size=336 patch_size=14 hidden_act=quick_gelu "
      "num_attention_heads=12";
  PartOfConfig part(whole, "vision_config", whole.file().object("vision_config") ? kClipOfFile : kClip);
  if (part.config.text("model_type") != "clip_vision_model") return;
  Vision vision = tower_of(part.config, Vision::Kind::llava);
  vision.keeps_first = whole.text("vision_feature_select_strategy") == "full";
  vision.projector_activation = activation_named(whole.text("projector_hidden_act"));
  const std::int64_t from_end = layer ? layer->get<std::int64_t>() : -2;
  vision.taken = from_end < 0 ? vision.layers + 1 + from_end : from_end;
  if (!is_sound(vision) || vision.taken < 0 || vision.taken > vision.layers) return;
  a.vision = std::make_shared<const Vision>(std::move(vision));
}

// Gemma3Config: a tower with a head is not played.
void gemma3_config(C& whole, A& a) {
  PartOfConfig part(whole, "vision_config",
                    "hidden_size=768 num_hidden_layers=12 num_attention_heads=12 image_size=224 patch_size=16 "
                    "hidden_act=gelu_pytorch_tanh vision_use_head=true");
  Vision vision = tower_of(part.config, Vision::Kind::gemma3);
  vision.side_tokens = side_of(whole.count("mm_tokens_per_image", 256));
  if (part.config.flag("vision_use_head") || !is_sound(vision) || vision.side / vision.patch < vision.side_tokens) return;
  a.vision = std::make_shared<const Vision>(std::move(vision));
}

// ---- towers

struct TowerShape {
  std::int64_t hidden, width, layers;
};

// SiglipEncoderLayer and CLIPEncoderLayer: the same modules in another order
void vision_layer(const Module& layer, const TowerShape& t, bool norms_last) {
  const auto norms = [&](const char* name) { layer.norm(name, t.hidden, true); };
  const auto attention = [&] {
    for (const char* name : {"k_proj", "v_proj", "q_proj", "out_proj"}) layer.child("self_attn").linear(name, t.hidden, t.hidden, true);
  };
  const auto mlp = [&] {
    layer.child("mlp").linear("fc1", t.hidden, t.width, true);
    layer.child("mlp").linear("fc2", t.width, t.hidden, true);
  };
  if (!norms_last) norms("layer_norm1");
  attention();
  norms(norms_last ? "layer_norm1" : "layer_norm2");
  mlp();
  if (norms_last) norms("layer_norm2");
}

void siglip(C& whole, const Module& tower) {
  PartOfConfig part(whole, "vision_config",
                    "hidden_size=768 intermediate_size=3072 num_hidden_layers=12 num_channels=3 image_size=224 patch_size=16 "
                    "vision_use_head=true");
  C& c = part.config;
  const TowerShape t{c.count("hidden_size", 768), c.count("intermediate_size", 3072), c.count("num_hidden_layers", 12)};
  const std::int64_t patch = c.count("patch_size", 16), side = c.count("image_size", 224) / patch;
  tower.child("embeddings.patch_embedding").parameter("weight", {t.hidden, c.count("num_channels", 3), patch, patch});
  tower.child("embeddings.patch_embedding").parameter("bias", {t.hidden});
  tower.child("embeddings").embedding("position_embedding", side * side, t.hidden);
  tower.child("embeddings").buffer("position_ids", {1, side * side}, Dtype::int64);
  for (std::int64_t i = 0; i < t.layers; ++i) vision_layer(tower.child("encoder.layers", i), t, false);
  tower.norm("post_layernorm", t.hidden, true);
  if (!c.flag("vision_use_head")) return;
  const Module head = tower.child("head");
  head.parameter("probe", {1, 1, t.hidden});
  head.child("attention").parameter("in_proj_weight", {3 * t.hidden, t.hidden});
  head.child("attention").parameter("in_proj_bias", {3 * t.hidden});
  head.child("attention").linear("out_proj", t.hidden, t.hidden, true);
  head.norm("layernorm", t.hidden, true);
  head.child("mlp").linear("fc1", t.hidden, t.width, true);
  head.child("mlp").linear("fc2", t.width, t.hidden, true);
}

void gemma3_towers(C& c, const A& a, const Module& root) {
  siglip(c, root.child("model.vision_tower"));
  PartOfConfig part(c, "vision_config", "hidden_size=768");
  const std::int64_t vision = part.config.count("hidden_size", 768);
  const Module projector = root.child("model.multi_modal_projector");
  projector.parameter("mm_input_projection_weight", {vision, a.hidden_size});
  projector.norm("mm_soft_emb_norm", vision);
}

void llava_towers(C& whole, const A& a, const Module& root) {
  PartOfConfig part(whole, "vision_config",
                    "hidden_size=1024 intermediate_size=4096 num_hidden_layers=24 num_channels=3 image_size=336 patch_size=14");
  C& c = part.config;
  const TowerShape t{c.count("hidden_size", 1024), c.count("intermediate_size", 4096), c.count("num_hidden_layers", 24)};
  const std::int64_t patch = c.count("patch_size", 14), side = c.count("image_size", 336) / patch;
  const Module tower = root.child("model.vision_tower"), embeddings = tower.child("embeddings");
  embeddings.parameter("class_embedding", {t.hidden});
  embeddings.child("patch_embedding").parameter("weight", {t.hidden, c.count("num_channels", 3), patch, patch});
  embeddings.embedding("position_embedding", side * side + 1, t.hidden);
  embeddings.buffer("position_ids", {1, side * side + 1}, Dtype::int64);
  tower.norm("pre_layrnorm", t.hidden, true);
  for (std::int64_t i = 0; i < t.layers; ++i) vision_layer(tower.child("encoder.layers", i), t, true);
  tower.norm("post_layernorm", t.hidden, true);
  const bool bias = whole.flag("multimodal_projector_bias");
  root.child("model.multi_modal_projector").linear("linear_1", t.hidden, a.hidden_size, bias);
  root.child("model.multi_modal_projector").linear("linear_2", a.hidden_size, a.hidden_size, bias);
}

// The vision rotary embeddings' compute_axial_rope_parameters
void axial_buffers(const Module& rotary, std::int64_t head_dim) {
  for (const char* name : {"inv_freq", "original_inv_freq"}) rotary.buffer(name, {(head_dim / 2 + 1) / 2});
}

void qwen2_5_vl_towers(C& whole, const A&, const Module& root) {
  PartOfConfig part(whole, "vision_config",
                    "depth=32 hidden_size=3584 intermediate_size=3420 num_heads=16 in_channels=3 patch_size=14 spatial_merge_size=2 "
                    "temporal_patch_size=2 out_hidden_size=3584",
                    "in_channels=in_chans");
  C& c = part.config;
  const std::int64_t hidden = c.count("hidden_size", 3584), width = c.count("intermediate_size", 3420), patch = c.count("patch_size", 14);
  const std::int64_t merge = c.count("spatial_merge_size", 2), merged = hidden * merge * merge;
  const Module visual = root.child("model.visual");
  visual.child("patch_embed.proj")
      .parameter("weight", {hidden, c.count("in_channels", 3), c.count("temporal_patch_size", 2), patch, patch});
  axial_buffers(visual.child("rotary_pos_emb"), hidden / c.count("num_heads", 16));
  for (std::int64_t i = 0; i < c.count("depth", 32); ++i) {
    const Module block = visual.child("blocks", i);
    block.norm("norm1", hidden);
    block.norm("norm2", hidden);
    block.child("attn").linear("qkv", hidden, 3 * hidden, true);
    block.child("attn").linear("proj", hidden, hidden, true);
    block.child("mlp").linear("gate_proj", hidden, width, true);
    block.child("mlp").linear("up_proj", hidden, width, true);
    block.child("mlp").linear("down_proj", width, hidden, true);
  }
  visual.child("merger").norm("ln_q", hidden);
  visual.child("merger.mlp").linear("0", merged, merged, true);
  visual.child("merger.mlp").linear("2", merged, c.count("out_hidden_size", 3584), true);
}

// Qwen3VLVisionModel; Qwen3.5's has no deepstack
void qwen3_visual(C& whole, const Module& visual, bool deepstack) {
  PartOfConfig part(whole, "vision_config",
                    "depth=27 hidden_size=1152 intermediate_size=4304 num_heads=16 in_channels=3 patch_size=16 spatial_merge_size=2 "
                    "temporal_patch_size=2 out_hidden_size=3584 num_position_embeddings=2304");
  C& c = part.config;
  const std::int64_t hidden = c.count("hidden_size", 1152), width = c.count("intermediate_size", 4304), patch = c.count("patch_size", 16);
  const std::int64_t merge = c.count("spatial_merge_size", 2), merged = hidden * merge * merge, out = c.count("out_hidden_size", 3584);
  visual.child("patch_embed.proj")
      .parameter("weight", {hidden, c.count("in_channels", 3), c.count("temporal_patch_size", 2), patch, patch});
  visual.child("patch_embed.proj").parameter("bias", {hidden});
  visual.embedding("pos_embed", c.count("num_position_embeddings", 2304), hidden);
  axial_buffers(visual.child("rotary_pos_emb"), hidden / c.count("num_heads", 16));
  for (std::int64_t i = 0; i < c.count("depth", 27); ++i) {
    const Module block = visual.child("blocks", i);
    block.norm("norm1", hidden, true);
    block.norm("norm2", hidden, true);
    block.child("attn").linear("qkv", hidden, 3 * hidden, true);
    block.child("attn").linear("proj", hidden, hidden, true);
    block.child("mlp").linear("linear_fc1", hidden, width, true);
    block.child("mlp").linear("linear_fc2", width, hidden, true);
  }
  const auto merger = [&](const Module& at, std::int64_t normed) {
    at.norm("norm", normed, true);
    at.linear("linear_fc1", merged, merged, true);
    at.linear("linear_fc2", merged, out, true);
  };
  merger(visual.child("merger"), hidden);
  if (!deepstack) return;
  const nlohmann::json* given = part.file.find("deepstack_visual_indexes");
  const std::int64_t count = given && given->is_array() ? static_cast<std::int64_t>(given->size()) : 3;
  for (std::int64_t i = 0; i < count; ++i) merger(visual.child("deepstack_merger_list", i), merged);
}

void qwen3_vl_towers(C& c, const A&, const Module& root) { qwen3_visual(c, root.child("model.visual"), true); }
void qwen3_5_towers(C& c, const A&, const Module& root) { qwen3_visual(c, root.child("model.visual"), false); }

// ---- gemma4

void gemma4_whole_config(C& whole, A& a) {
  if (whole.file().given("audio_config")) a.unplayed = "audio_config";
}

// Gemma4AudioModel, where the config has one
void gemma4_audio(C& whole, const A& a, const Module& root) {
  if (!whole.file().given("audio_config")) return;
  PartOfConfig part(whole, "audio_config",
                    "hidden_size=1024 num_hidden_layers=12 num_attention_heads=8 conv_kernel_size=5 output_proj_dims=1536");
  C& c = part.config;
  const std::int64_t hidden = c.count("hidden_size", 1024), out = c.count("output_proj_dims", 1536),
                     kernel = c.count("conv_kernel_size", 5);
  const std::int64_t head = hidden / c.count("num_attention_heads", 8);
  std::vector<std::int64_t> channels = c.integers("subsampling_conv_channels");
  if (channels.size() != 2) channels = {128, 32};
  const Module tower = root.child("model.audio_tower"), subsample = tower.child("subsample_conv_projection");
  subsample.child("layer0.conv").parameter("weight", {channels[0], 1, 3, 3});
  subsample.child("layer0").norm("norm", channels[0]);
  subsample.child("layer1.conv").parameter("weight", {channels[1], channels[0], 3, 3});
  subsample.child("layer1").norm("norm", channels[1]);
  subsample.linear("input_proj_linear", channels[0] / 4 * channels[1], hidden);
  const auto clipped = [](const Module& at, std::string_view name, std::int64_t in, std::int64_t to) {
    at.child(name).linear("linear", in, to);
  };
  for (std::int64_t i = 0; i < c.count("num_hidden_layers", 12); ++i) {
    const Module layer = tower.child("layers", i), at = layer.child("self_attn"), conv = layer.child("lconv1d");
    for (const char* name : {"feed_forward1", "feed_forward2"}) {
      clipped(layer.child(name), "ffw_layer_1", hidden, 4 * hidden);
      clipped(layer.child(name), "ffw_layer_2", 4 * hidden, hidden);
      for (const char* norm : {"pre_layer_norm", "post_layer_norm"}) layer.child(name).norm(norm, hidden);
    }
    at.parameter("per_dim_scale", {head});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "post"}) clipped(at, name, hidden, hidden);
    at.linear("relative_k_proj", hidden, hidden);
    clipped(conv, "linear_start", hidden, 2 * hidden);
    clipped(conv, "linear_end", hidden, hidden);
    conv.child("depthwise_conv1d").parameter("weight", {hidden, 1, kernel});
    for (const char* norm : {"pre_layer_norm", "conv_norm"}) conv.norm(norm, hidden);
    for (const char* norm : {"norm_pre_attn", "norm_post_attn", "norm_out"}) layer.norm(norm, hidden);
  }
  tower.linear("output_proj", hidden, out, true);
  root.child("model.embed_audio").linear("embedding_projection", out, a.hidden_size);
}

void gemma4_vision(C& whole, const A& a, const Module& root) {
  PartOfConfig part(whole, "vision_config",
                    "hidden_size=768 intermediate_size=3072 num_hidden_layers=16 num_attention_heads=12 num_key_value_heads=12 head_dim=64 "
                    "patch_size=16 position_embedding_size=10240");
  C& c = part.config;
  const std::int64_t hidden = c.count("hidden_size", 768), width = c.count("intermediate_size", 3072), head = c.count("head_dim", 64);
  const std::int64_t queries = head * c.count("num_attention_heads", 12), keys = head * c.count("num_key_value_heads", 12);
  const std::int64_t patch = c.count("patch_size", 16);
  const Module tower = root.child("model.vision_tower");
  // Gemma4ClippableLinear
  const auto linear = [clips = c.flag("use_clipped_linears")](const Module& at, const char* name, std::int64_t in, std::int64_t to) {
    at.child(name).linear("linear", in, to);
    for (const char* bound : {"input_min", "input_max", "output_min", "output_max"})
      if (clips) at.child(name).buffer(bound, {}, std::nullopt);
  };
  if (c.flag("standardize"))
    for (const char* name : {"std_bias", "std_scale"}) tower.buffer(name, {hidden}, std::nullopt);
  tower.child("patch_embedder").parameter("position_embedding_table", {2, c.count("position_embedding_size", 10240), hidden});
  tower.child("patch_embedder").linear("input_proj", 3 * patch * patch, hidden);
  axial_buffers(tower.child("encoder.rotary_emb"), head);
  for (std::int64_t i = 0; i < c.count("num_hidden_layers", 16); ++i) {
    const Module layer = tower.child("encoder.layers", i), at = layer.child("self_attn"), mlp = layer.child("mlp");
    linear(at, "q_proj", hidden, queries);
    linear(at, "k_proj", hidden, keys);
    linear(at, "v_proj", hidden, keys);
    linear(at, "o_proj", queries, hidden);
    at.norm("q_norm", head);
    at.norm("k_norm", head);
    linear(mlp, "gate_proj", hidden, width);
    linear(mlp, "up_proj", hidden, width);
    linear(mlp, "down_proj", width, hidden);
    for (const char* name : {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"})
      layer.norm(name, hidden);
  }
  gemma4_audio(whole, a, root);
}

// The decoder: layers that share keys and values, inputs of each layer's own, experts beside the MLP
void gemma4_layer(C& c, const A& a, const Module& layer, bool full, bool shares) {
  const bool same = c.flag("attention_k_eq_v") && full;
  const std::int64_t head = full ? c.integer_or("global_head_dim", a.head_dim, 1) : a.head_dim;
  const std::int64_t kv_heads = same ? c.integer_or("num_global_key_value_heads", a.kv_heads, 1) : a.kv_heads;
  const Module at = layer.child("self_attn");
  const bool bias = c.flag("attention_bias");
  at.linear("q_proj", a.hidden_size, a.heads * head, bias);
  at.norm("q_norm", head);
  if (!shares) {
    at.norm("k_norm", head);
    at.linear("k_proj", a.hidden_size, kv_heads * head, bias);
    if (!same) at.linear("v_proj", a.hidden_size, kv_heads * head, bias);
  }
  at.linear("o_proj", a.heads * head, a.hidden_size, bias);
  const std::int64_t width = shares && c.flag("use_double_wide_mlp") ? 2 * a.intermediate_size : a.intermediate_size;
  layer.child("mlp").linear("gate_proj", a.hidden_size, width);
  layer.child("mlp").linear("up_proj", a.hidden_size, width);
  layer.child("mlp").linear("down_proj", width, a.hidden_size);
  for (const char* name : {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"})
    layer.norm(name, a.hidden_size);
  if (const std::int64_t own = c.integer_or("hidden_size_per_layer_input", 0); own > 0) {
    layer.linear("per_layer_input_gate", a.hidden_size, own);
    layer.linear("per_layer_projection", own, a.hidden_size);
    layer.norm("post_per_layer_input_norm", a.hidden_size);
  }
  if (!c.flag("enable_moe_block")) return;
  const std::int64_t expert_width = c.integer_or("moe_intermediate_size", 1, 1);
  layer.child("router").parameter("scale", {a.hidden_size});
  layer.child("router").parameter("per_expert_scale", {a.experts.count});
  layer.child("router").linear("proj", a.hidden_size, a.experts.count);
  layer.child("experts").parameter("gate_up_proj", {a.experts.count, 2 * expert_width, a.hidden_size});
  layer.child("experts").parameter("down_proj", {a.experts.count, a.hidden_size, expert_width});
  for (const char* name : {"post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"})
    layer.norm(name, a.hidden_size);
}

// Gemma4TextModel.forward: a layer of the last `num_kv_shared_layers` takes keys and values of one before them that looks as far.
void check_shared_keys(C& c, const A& a) {
  const std::int64_t shared = c.integer_or("num_kv_shared_layers", 0);
  if (shared <= 0) return;
  const auto first = a.sliding.begin() + static_cast<std::ptrdiff_t>(std::max<std::int64_t>(a.layers - shared, 0));
  for (auto layer = first; layer != a.sliding.end(); ++layer) {
    if (std::find(a.sliding.begin(), first, *layer) != first) continue;
    c.file().problem("num_kv_shared_layers", "conflict",
                     "leaves no layer whose keys and values the last " + std::to_string(shared) + " could share");
    return;
  }
}

void gemma4_config(C& c, A& a) {
  a.experts.count = c.flag("enable_moe_block") ? c.integer_or("num_experts", 0) : 0;
  a.experts.per_token = c.integer_or("top_k_experts", 1);
  a.experts.width = c.integer_or("moe_intermediate_size", 1, 1);
  a.softcapped_logits = c.has("final_logit_softcapping");
  a.sliding_window = c.integer_or("sliding_window", 0, 1);
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  a.sliding.assign(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i + 1 < a.sliding.size(); ++i) a.sliding[i] = types.empty() ? (i + 1) % 6 != 0 : types[i] != "full_attention";
  if (c.text("use_bidirectional_attention") == "all") a.unplayed = "use_bidirectional_attention";
  check_shared_keys(c, a);
}

void gemma4(C& c, const A& a, const Module& root) {
  const std::int64_t shared = c.integer_or("num_kv_shared_layers", 0), first_shared = a.layers - shared;
  const std::int64_t own = c.integer_or("hidden_size_per_layer_input", 0);
  const Module model = root.child(a.names.model);
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  model.child("embed_tokens").buffer("embed_scale", {}, std::nullopt);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    gemma4_layer(c, a, layer, !a.sliding[static_cast<std::size_t>(i)], shared > 0 && i >= first_shared);
    layer.buffer("layer_scalar", {1}, std::nullopt);
  }
  model.norm("norm", a.hidden_size);
  for (const bool slides : {false, true}) {
    if (std::find(a.sliding.begin(), a.sliding.end(), slides) == a.sliding.end()) continue;
    const std::string kind = slides ? "sliding_attention_" : "full_attention_";
    const std::int64_t head = slides ? a.head_dim : c.integer_or("global_head_dim", a.head_dim, 1);
    model.child("rotary_emb").buffer(kind + "inv_freq", {head / 2});
    model.child("rotary_emb").buffer(kind + "original_inv_freq", {head / 2});
  }
  if (own > 0) {
    model.embedding("embed_tokens_per_layer", c.count("vocab_size_per_layer_input", 262144), own * a.layers);
    model.child("embed_tokens_per_layer").buffer("embed_scale", {}, std::nullopt);
    model.linear("per_layer_model_projection", a.hidden_size, own * a.layers);
    model.norm("per_layer_projection_norm", own);
  }
  if (a.names.model != "model") {
    root.child("model.embed_vision").linear("embedding_projection", a.vision_size > 0 ? a.vision_size : 768, a.hidden_size);
  }
  if (!a.tied_embeddings) root.linear("lm_head", a.hidden_size, a.vocab_size);
}

// ---- llama4

void llama4_config(C& c, A& a) {
  a.experts.count = c.count("num_local_experts", 16);
  a.experts.per_token = c.count("num_experts_per_tok", 1);
  a.experts.width = a.intermediate_size;
  a.qkv_bias = a.output_bias = c.flag("attention_bias");
  const std::vector<std::int64_t> listed = c.integers("moe_layers");
  const std::int64_t step = c.integer_or("interleave_moe_layer_step", 1, 1);
  a.experts.layers.assign(static_cast<std::size_t>(a.layers), false);
  for (std::int64_t i = step - 1; listed.empty() && i < a.layers; i += step) a.experts.layers[static_cast<std::size_t>(i)] = true;
  for (const std::int64_t i : listed)
    if (i >= 0 && i < a.layers) a.experts.layers[static_cast<std::size_t>(i)] = true;
  // Llama4TextConfig: no_rope_layers names those that are turned; the others see everything
  const std::vector<std::int64_t> turned = c.integers("no_rope_layers");
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  const std::int64_t interval = c.integer_or("no_rope_layer_interval", 4, 1);
  a.sliding_window = c.integer_or("attention_chunk_size", 0, 1);
  a.qk_norm = c.flag("use_qk_norm");
  a.scaled_queries = c.flag("attn_temperature_tuning");
  a.names.layer = "a:self_attn m:feed_forward 1:input_layernorm 3:post_attention_layernorm";
  a.unturned.assign(a.experts.layers.size(), false);
  a.sliding.assign(a.experts.layers.size(), false);
  for (std::size_t i = 0; i < a.unturned.size(); ++i) {
    a.unturned[i] = turned.empty() ? (static_cast<std::int64_t>(i) + 1) % interval == 0 : i < turned.size() && turned[i] == 0;
    a.sliding[i] = types.empty() ? !a.unturned[i] && a.sliding_window > 0 : types[i] == "chunked_attention";
  }
}

void llama4_feed_forward(const Module& at, const A& a, std::int64_t width) {
  at.linear("gate_proj", a.hidden_size, width);
  at.linear("up_proj", a.hidden_size, width);
  at.linear("down_proj", width, a.hidden_size);
}

void llama4(C& c, const A& a, const Module& root) {
  const Module model = root.child(a.names.model);
  model.embedding("embed_tokens", a.vocab_size, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i), at = layer.child("self_attn"), feed = layer.child("feed_forward");
    at.linear("q_proj", a.hidden_size, a.heads * a.head_dim, a.qkv_bias);
    at.linear("k_proj", a.hidden_size, a.kv_heads * a.head_dim, a.qkv_bias);
    at.linear("v_proj", a.hidden_size, a.kv_heads * a.head_dim, a.qkv_bias);
    at.linear("o_proj", a.heads * a.head_dim, a.hidden_size, a.qkv_bias);
    if (a.experts.at(i)) {
      feed.child("experts").parameter("gate_up_proj", {a.experts.count, a.hidden_size, 2 * a.experts.width});
      feed.child("experts").parameter("down_proj", {a.experts.count, a.experts.width, a.hidden_size});
      feed.linear("router", a.hidden_size, a.experts.count);
      llama4_feed_forward(feed.child("shared_expert"), a, a.intermediate_size);
    } else {
      llama4_feed_forward(feed, a, c.count("intermediate_size_mlp", 16384));
    }
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  model.child("rotary_emb").buffer("inv_freq", {a.head_dim / 2});
  model.child("rotary_emb").buffer("original_inv_freq", {a.head_dim / 2});
  if (!a.tied_embeddings) root.linear(a.names.head, a.hidden_size, a.vocab_size);
}

void llama4_towers(C& whole, const A& a, const Module& root) {
  PartOfConfig part(whole, "vision_config",
                    "hidden_size=768 num_hidden_layers=34 num_channels=3 intermediate_size=5632 vision_output_dim=7680 image_size=448 "
                    "patch_size=14 pixel_shuffle_ratio=0.5 projector_input_dim=4096 projector_output_dim=4096");
  C& c = part.config;
  const std::int64_t hidden = c.count("hidden_size", 768), width = c.count("intermediate_size", 5632), patch = c.count("patch_size", 14);
  const std::int64_t side = c.count("image_size", 448) / patch, projected = c.count("projector_input_dim", 4096);
  const Module vision = root.child("vision_model");
  vision.parameter("class_embedding", {hidden});
  vision.parameter("positional_embedding_vlm", {side * side + 1, hidden});
  vision.child("patch_embedding").linear("linear", c.count("num_channels", 3) * patch * patch, hidden);
  vision.norm("layernorm_pre", hidden, true);
  vision.norm("layernorm_post", hidden, true);
  for (std::int64_t i = 0; i < c.count("num_hidden_layers", 34); ++i) {
    const Module layer = vision.child("model.layers", i);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) layer.child("self_attn").linear(name, hidden, hidden, true);
    layer.child("mlp").linear("fc1", hidden, width, true);
    layer.child("mlp").linear("fc2", width, hidden, true);
    layer.norm("input_layernorm", hidden, true);
    layer.norm("post_attention_layernorm", hidden, true);
  }
  vision.child("vision_adapter.mlp").linear("fc1", width, projected);  // Llama4VisionMLP2: intermediate_size
  const std::int64_t out = c.count("projector_output_dim", 4096);
  vision.child("vision_adapter.mlp").linear("fc2", out, out);
  root.child("multi_modal_projector").linear("linear_1", c.count("vision_output_dim", 7680), a.hidden_size);
}

// ---- mllama

void mllama_towers(C& whole, const A&, const Module& root) {
  PartOfConfig part(whole, "vision_config",
                    "hidden_size=1280 num_hidden_layers=32 num_global_layers=8 num_channels=3 intermediate_size=5120 image_size=448 "
                    "patch_size=14 max_num_tiles=4");
  C& c = part.config;
  const std::int64_t hidden = c.count("hidden_size", 1280), width = c.count("intermediate_size", 5120), patch = c.count("patch_size", 14);
  const std::int64_t patches = (c.count("image_size", 448) / patch) * (c.count("image_size", 448) / patch) + 1;
  const std::int64_t tiles = c.count("max_num_tiles", 4);
  const nlohmann::json* ratios = part.file.find("supported_aspect_ratios");
  const std::int64_t aspects = (ratios && ratios->is_array() ? static_cast<std::int64_t>(ratios->size()) : 8) + 1;
  const Module vision = root.child("model.vision_model");
  vision.parameter("class_embedding", {hidden});
  vision.child("patch_embedding").parameter("weight", {hidden, c.count("num_channels", 3), patch, patch});
  const Module positions = vision.child("gated_positional_embedding");
  positions.parameter("gate", {1});
  positions.parameter("embedding", {patches, hidden});
  positions.embedding("tile_embedding", aspects, tiles * patches * hidden);
  for (const char* name : {"pre_tile_positional_embedding", "post_tile_positional_embedding"}) {
    vision.child(name).parameter("gate", {1});
    vision.child(name).embedding("embedding", aspects, tiles * hidden);
  }
  vision.norm("layernorm_pre", hidden, true);
  vision.norm("layernorm_post", hidden, true);
  const auto layers = [&](const char* transformer, std::int64_t count, bool gated) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Module layer = vision.child(std::string(transformer) + ".layers", i);
      if (gated) {
        layer.parameter("gate_attn", {1});
        layer.parameter("gate_ffn", {1});
      }
      for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) layer.child("self_attn").linear(name, hidden, hidden);
      layer.child("mlp").linear("fc1", hidden, width, true);
      layer.child("mlp").linear("fc2", width, hidden, true);
      layer.norm("input_layernorm", hidden, true);
      layer.norm("post_attention_layernorm", hidden, true);
    }
  };
  layers("transformer", c.count("num_hidden_layers", 32), false);
  layers("global_transformer", c.count("num_global_layers", 8), true);
}

void mllama_config(C& c, A& a) {
  a.float_logits = true;
  a.crosses.assign(static_cast<std::size_t>(a.layers), false);
  std::vector<std::int64_t> listed = c.integers("cross_attention_layers");
  if (listed.empty()) listed = {3, 8, 13, 18, 23, 28, 33, 38};
  for (const std::int64_t i : listed)
    if (i >= 0 && i < a.layers) a.crosses[static_cast<std::size_t>(i)] = true;
}

void mllama(C&, const A& a, const Module& root) {
  const Module model = root.child(a.names.model);
  constexpr std::int64_t kWordsForImages = 8;  // MllamaTextModel: vocab_size + 8
  model.embedding("embed_tokens", a.vocab_size + kWordsForImages, a.hidden_size);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Module layer = model.child("layers", i);
    const bool cross = a.crosses[static_cast<std::size_t>(i)];
    if (cross) {
      layer.parameter("cross_attn_attn_gate", {1});
      layer.parameter("cross_attn_mlp_gate", {1});
    }
    const Module at = layer.child(cross ? "cross_attn" : "self_attn");
    at.linear("q_proj", a.hidden_size, a.heads * a.head_dim);
    at.linear("k_proj", a.hidden_size, a.kv_heads * a.head_dim);
    at.linear("v_proj", a.hidden_size, a.kv_heads * a.head_dim);
    at.linear("o_proj", a.heads * a.head_dim, a.hidden_size);
    if (cross)
      for (const char* name : {"q_norm", "k_norm"}) at.norm(name, a.head_dim);
    llama4_feed_forward(layer.child("mlp"), a, a.intermediate_size);
    layer.norm("input_layernorm", a.hidden_size);
    layer.norm("post_attention_layernorm", a.hidden_size);
  }
  model.norm("norm", a.hidden_size);
  for (const char* name : {"inv_freq", "original_inv_freq"}) model.child("rotary_emb").buffer(name, {a.head_dim / 2});
  if (a.names.model != "model") root.child("model").linear("multi_modal_projector", a.vision_size, a.hidden_size, true);
  root.linear("lm_head", a.hidden_size, a.vocab_size);  // never tied
}

constexpr Family kFamilies[] = {
    {"gemma3", "Gemma3ForConditionalGeneration", Coverage::played, "tie_word_embeddings=true", "", gemma3_config, nullptr, nullptr,
     "gemma3_text", gemma3_towers},
    {"llava", "LlavaForConditionalGeneration", Coverage::played, "multimodal_projector_bias=true projector_hidden_act=gelu", "",
     llava_config, nullptr, nullptr, "llama", llava_towers, Tied::by_either},
    {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", Coverage::played, "", "", nothing, nullptr, nullptr, "qwen2_5_vl_text",
     qwen2_5_vl_towers, Tied::by_either},
    {"qwen3_vl", "Qwen3VLForConditionalGeneration", Coverage::played, "", "", nothing, nullptr, nullptr, "qwen3_vl_text", qwen3_vl_towers},
    {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", Coverage::played, "", "", nothing, nullptr, nullptr, "qwen3_vl_moe_text",
     qwen3_vl_towers},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", Coverage::parameters, "", "", nothing, nullptr, nullptr, "qwen3_5_text", qwen3_5_towers,
     Tied::by_whole, true},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", Coverage::parameters, "", "", nothing, nullptr, nullptr, "qwen3_5_moe_text",
     qwen3_5_towers, Tied::by_whole, true},
    {"gemma4", "Gemma4ForConditionalGeneration", Coverage::played, "tie_word_embeddings=true", "", gemma4_whole_config, nullptr, nullptr,
     "gemma4_text", gemma4_vision},
    {"gemma4_text", "Gemma4ForCausalLM", Coverage::played,
     "vocab_size=262144 hidden_size=2304 intermediate_size=9216 num_hidden_layers=30 num_attention_heads=8 num_key_value_heads=4 "
     "head_dim=256 hidden_act=gelu_pytorch_tanh tie_word_embeddings=true vocab_size_per_layer_input=262144 "
     "hidden_size_per_layer_input=256 global_head_dim=512 sliding_window=512",
     "hidden_act=hidden_activation moe_intermediate_size=expert_intermediate_size", gemma4_config, gemma4, gemma4_body},
    {"llama4", "Llama4ForConditionalGeneration", Coverage::parameters, "", "", nothing, nullptr, nullptr, "llama4_text", llama4_towers,
     Tied::by_decoder, true},
    {"llama4_text", "Llama4ForCausalLM", Coverage::played,
     "vocab_size=202048 hidden_size=5120 intermediate_size=8192 intermediate_size_mlp=16384 num_hidden_layers=48 num_attention_heads=40 "
     "num_key_value_heads=8 head_dim=128 hidden_act=silu num_experts_per_tok=1 num_local_experts=16 interleave_moe_layer_step=1 "
     "use_qk_norm=true no_rope_layer_interval=4 attention_chunk_size=8192 attn_temperature_tuning=true",
     "", llama4_config, llama4, llama4_body},
    {"mllama", "MllamaForConditionalGeneration", Coverage::parameters, "", "", nothing, nullptr, nullptr, "mllama_text_model",
     mllama_towers, Tied::never, true},
    {"mllama_text_model", "MllamaForCausalLM", Coverage::played,
     "vocab_size=128256 hidden_size=4096 hidden_act=silu num_hidden_layers=40 num_attention_heads=32 num_key_value_heads=8 "
     "intermediate_size=14336",
     "", mllama_config, mllama},
};

}  // namespace

std::span<const Family> multimodal_families() { return kFamilies; }

}  // namespace llmem
