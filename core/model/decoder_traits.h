#pragma once

#include "model/families.h"

// What families of decoders have in common, as their rows say it.
namespace llmem::traits {

void bias_asked(ConfigReader& c, Architecture& a);
void layer_norms(Architecture& a);
void sandwich_norms(Architecture& a);
void post_norms(Architecture& a);
void plain_mlp(Architecture& a, std::string_view names);
void normed_heads(Architecture& a, QkNorm kind = QkNorm::head);
void partial_rotary(ConfigReader& c, Architecture& a, double otherwise);
// Qwen2Config: without layer_types, the layers from max_window_layers on have the window.
void window_by_layer(ConfigReader& c, Architecture& a);
void window_everywhere(ConfigReader& c, Architecture& a);
void granite_multipliers(ConfigReader& c, Architecture& a);
void chosen_by(Architecture& a, RouterKind router, bool normed = false);
void experts(ConfigReader& c, Architecture& a, std::string_view count, std::string_view per_token, std::string_view width);
void expert_layers_of_qwen(ConfigReader& c, Architecture& a);
void experts_of_deepseek(ConfigReader& c, Architecture& a);
void latent_attention(ConfigReader& c, Architecture& a);
void deepseek(ConfigReader& c, Architecture& a);

// layer_types, or a rule where the file has none.
template <class Slides>
void sliding_layers(ConfigReader& c, Architecture& a, const Slides& slides) {
  const std::vector<std::string> types = c.each_layer("layer_types", a.layers);
  a.sliding_window = c.integer_or("sliding_window", 0, 1, INT64_MAX);
  a.sliding.assign(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i < a.sliding.size(); ++i)
    a.sliding[i] = types.empty() ? slides(static_cast<std::int64_t>(i)) : types[i] == "sliding_attention";
}

// Which layers have experts, where not all have.
template <class Rule>
void expert_layers(Architecture& a, const Rule& rule) {
  a.experts.layers.assign(static_cast<std::size_t>(a.layers), false);
  for (std::size_t i = 0; i < a.experts.layers.size(); ++i) a.experts.layers[i] = rule(static_cast<std::int64_t>(i));
}

}  // namespace llmem::traits
