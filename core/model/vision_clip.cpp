#include <utility>

#include "model/activation.h"
#include "model/encoder.h"
#include "model/vision.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"
#include "tensor/patches.h"

// modeling_clip.py under modeling_llava.py; modeling_siglip.py under modeling_gemma3.py.
namespace llmem {

namespace {

struct VisionLayer {
  NormModule layer_norm1, layer_norm2;
  DenseModule q_proj, k_proj, v_proj, out_proj, fc1, fc2;
};

// CLIPVisionModel and SiglipVisionModel
class Encoder {
 public:
  Encoder(const Vision& vision, const MadeModule& tower) : vision_(vision) {
    const MadeModule embeddings = tower.child("embeddings");
    class_embedding_ = embeddings.tensor("class_embedding");
    patch_weight_ = embeddings.tensor("patch_embedding.weight");
    patch_bias_ = embeddings.tensor("patch_embedding.bias");
    position_embedding_ = embeddings.tensor("position_embedding.weight");
    position_ids_ = embeddings.tensor("position_ids");
    if (class_embedding_) pre_layrnorm_ = tower.norm("pre_layrnorm");
    post_layernorm_ = tower.norm("post_layernorm");
    for (std::int64_t i = 0; i < vision.layers; ++i) {
      const MadeModule layer = tower.child("encoder.layers", i), attention = layer.child("self_attn"), mlp = layer.child("mlp");
      layers_.push_back({layer.norm("layer_norm1"), layer.norm("layer_norm2"), attention.dense("q_proj"), attention.dense("k_proj"),
                         attention.dense("v_proj"), attention.dense("out_proj"), mlp.dense("fc1"), mlp.dense("fc2")});
    }
  }

  struct Outputs {
    Tensor last_hidden_state, pooler_output, taken;
  };
  // `take`: the states that enter this layer, or leave the last one; -1: none
  Outputs operator()(const Tensor& pixels, std::int64_t take, const ForwardOptions& options) const {
    const ModuleScope scope(pixels.device(), "vision_tower");
    Outputs outputs;
    Tensor hidden_states = embedded(pixels, options);
    if (class_embedding_) hidden_states = pre_layrnorm_(hidden_states);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (static_cast<std::int64_t>(i) == take) outputs.taken = hidden_states;
      const VisionLayer& layer = layers_[i];
      hidden_states = run_tower_layer(options, hidden_states, [this, &layer, attention = options.attention](const Tensor& input) {
        return forward(layer, input, attention);
      });
    }
    if (static_cast<std::int64_t>(layers_.size()) == take) outputs.taken = hidden_states;
    outputs.last_hidden_state = hidden_states;
    if (class_embedding_)
      outputs.pooler_output = post_layernorm_(select(hidden_states, 1));
    else
      outputs.last_hidden_state = post_layernorm_(hidden_states);
    return outputs;
  }

 private:
  Tensor embedded(const Tensor& pixels, const ForwardOptions& options) const {
    const ModuleScope scope(pixels.device(), "embeddings");
    const auto of_patches = [&] {
      const Tensor convolved = patch_convolution(to(pixels, patch_weight_.dtype()), patch_weight_, patch_bias_);
      if (options.inputs_require_grad && !convolved.requires_grad()) require_grad_of_activation(convolved);
      const Dims& s = convolved.sizes();
      return transpose(view(convolved, {s[0], s[1], s[2] * s[3]}), 1, 2);
    };
    const Tensor patch_embeds = of_patches();
    Tensor embeddings = patch_embeds;
    if (class_embedding_) {
      const Tensor class_embeds = expand(class_embedding_, {patch_embeds.size(0), 1, vision_.hidden});
      embeddings = cat({class_embeds, patch_embeds}, 1);
    }
    const auto positioned = [&] {
      const Tensor positions = llmem::embedding(position_embedding_, position_ids_);
      return add(embeddings, positions);
    };
    embeddings = positioned();
    return embeddings;
  }

  Tensor forward(const VisionLayer& layer, const Tensor& input, Attention kind) const {
    Tensor residual = input;
    Tensor hidden_states = layer.layer_norm1(input);
    AttentionResult attended = attention(layer, hidden_states, kind);
    hidden_states = std::exchange(attended.output, {});
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = layer.layer_norm2(hidden_states);
    hidden_states = mlp(layer, hidden_states);
    hidden_states = add(residual, hidden_states);
    return hidden_states;
  }

  AttentionResult attention(const VisionLayer& layer, const Tensor& hidden_states, Attention kind) const {
    const ModuleScope scope(hidden_states.device(), "self_attn", Category::attention);
    const std::int64_t head_dim = vision_.hidden / vision_.heads;
    const Tensor queries = by_heads(layer.q_proj(hidden_states), head_dim);
    const Tensor keys = by_heads(layer.k_proj(hidden_states), head_dim);
    const Tensor values = by_heads(layer.v_proj(hidden_states), head_dim);
    AttentionResult result;
    if (kind == Attention::eager)
      result = eager_attention(queries, keys, values, {}, vision_.dropout, false);
    else
      result = sdpa_attention(queries, keys, values, {}, vision_.dropout);
    result.output = merged_heads(result.output, hidden_states.size(0), hidden_states.size(1));
    result.output = layer.out_proj(result.output);
    return result;
  }

  Tensor mlp(const VisionLayer& layer, const Tensor& input) const {
    const ModuleScope scope(input.device(), "mlp", Category::mlp);
    Tensor hidden_states = layer.fc1(input);
    hidden_states = activate(vision_.activation, hidden_states);
    hidden_states = layer.fc2(hidden_states);
    return hidden_states;
  }

  const Vision& vision_;
  Tensor class_embedding_, patch_weight_, patch_bias_, position_embedding_, position_ids_;
  NormModule pre_layrnorm_, post_layernorm_;
  std::vector<VisionLayer> layers_;
};

class Llava : public Tower {
 public:
  Llava(const Architecture& a, const MadeModule& root) : vision_(*a.vision), encoder_(*a.vision, root.child("model.vision_tower")) {
    const MadeModule projector = root.child("model.multi_modal_projector");
    linear_1_ = projector.dense("linear_1");
    linear_2_ = projector.dense("linear_2");
  }

  Seen see(const Tensor& ids, Tensor inputs_embeds, const ForwardOptions& options) const override {
    Seen seen;
    const Tensor features = image_features(options);
    const auto together = [&] { return to(rows_in_a_row(features), inputs_embeds.dtype()); };
    const Tensor image_features = together();
    const Tensor special_image_mask = placeholder_mask(ids);
    seen.inputs_embeds = scatter_rows(inputs_embeds, special_image_mask, image_features);
    seen.locals = {image_features, special_image_mask};
    return seen;
  }

 private:
  Tensor image_features(const ForwardOptions& options) const {
    const Encoder::Outputs outputs = encoder_(options.images->pixels, vision_.taken, options);
    const Tensor& taken = outputs.taken;
    const Tensor selected = vision_.keeps_first ? taken : narrow(taken, 1, 1, taken.size(1) - 1);
    const Tensor features = projected(selected);
    outputs_ = {outputs.last_hidden_state, taken, features};
    return features;
  }

  Tensor projected(const Tensor& features) const {
    const ModuleScope scope(features.device(), "multi_modal_projector");
    Tensor hidden_states = linear_1_(features);
    hidden_states = activate(vision_.projector_activation, hidden_states);
    hidden_states = linear_2_(hidden_states);
    return hidden_states;
  }

  const Vision& vision_;
  Encoder encoder_;
  DenseModule linear_1_, linear_2_;
};

class Gemma3 : public Tower {
 public:
  Gemma3(const Architecture& a, const MadeModule& root) : vision_(*a.vision), encoder_(*a.vision, root.child("model.vision_tower")) {
    const MadeModule projector = root.child("model.multi_modal_projector");
    projection_weight_ = projector.tensor("mm_input_projection_weight");
    norm_ = projector.norm("mm_soft_emb_norm", NormKind::rms_one_plus);
  }

  Seen see(const Tensor& ids, Tensor inputs_embeds, const ForwardOptions& options) const override {
    Seen seen;
    const Encoder::Outputs outputs = encoder_(options.images->pixels, -1, options);
    const Tensor features = projected(outputs.last_hidden_state);
    outputs_ = {outputs.last_hidden_state, features};
    const Tensor image_features = to(features, inputs_embeds.dtype());
    const Tensor special_image_mask = placeholder_mask(ids);
    seen.inputs_embeds = scatter_rows(inputs_embeds, special_image_mask, image_features);
    inputs_embeds.reset();
    seen.masks = image_masks(options.images->token_types, seen.inputs_embeds, options);
    seen.locals = {image_features, special_image_mask};
    return seen;
  }

 private:
  // Gemma3MultiModalProjector
  Tensor projected(const Tensor& vision_outputs) const {
    const ModuleScope scope(vision_outputs.device(), "multi_modal_projector");
    const std::int64_t images = vision_outputs.size(0), hidden = vision_outputs.size(2), side = vision_.side / vision_.patch;
    const Tensor reshaped = contiguous(reshape(transpose(vision_outputs, 1, 2), {images, hidden, side, side}));
    const Tensor averaged = average_pool(reshaped, side / vision_.side_tokens);
    const Tensor pooled = transpose(view(averaged, {images, hidden, averaged.size(2) * averaged.size(3)}), 1, 2);
    const Tensor normed = norm_(pooled);
    const Tensor rows = reshape(normed, {images * pooled.size(1), hidden});
    const Tensor made = view(mm(rows, projection_weight_), {images, pooled.size(1), projection_weight_.size(1)});
    return to(made, vision_outputs.dtype());
  }

  const Vision& vision_;
  Encoder encoder_;
  Tensor projection_weight_;
  NormModule norm_;
};

}  // namespace

std::shared_ptr<const Tower> llava_tower(const Architecture& a, const MadeModule& root) { return std::make_shared<Llava>(a, root); }
std::shared_ptr<const Tower> gemma3_tower(const Architecture& a, const MadeModule& root) { return std::make_shared<Gemma3>(a, root); }

}  // namespace llmem
