#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/architecture.h"
#include "model/made.h"
#include "model/options.h"

namespace llmem {

// What a model sees with: a tower of encoder layers over the patches of images, and how its images become tokens.
struct Vision {
  enum class Kind : std::uint8_t { llava, gemma3 };
  Kind kind = Kind::llava;
  std::int64_t hidden = 0, layers = 0, heads = 1, channels = 3;
  std::int64_t side = 0;         // of an image, in pixels: a processor scales to it
  std::int64_t patch = 1;        // pixels along a side
  std::int64_t taken = 0;        // llava's vision_feature_layer: how many layers run before the states that are taken
  bool keeps_first = false;      // llava: vision_feature_select_strategy is "full", the class token stays
  std::int64_t side_tokens = 0;  // gemma3: tokens along a side, after pooling
  Activation activation = Activation::gelu, projector_activation = Activation::gelu;
  double dropout = 0;  // of attention
};

// What a processor makes of a batch's images, all of one size.
struct ImageBatch {
  std::int64_t count = 0;      // of all rows
  std::int64_t tokens = 0;     // of each, among the words
  Tensor pixels, token_types;  // [count, channels, side, side] of float32; [B, S] of int64, where the class takes them
};

// Words that one image takes the place of, and what of a spec does not go with the images it asks for.
std::int64_t image_tokens(const Architecture& a);
[[gnu::noinline]] std::optional<Problem> check_images(const Spec& spec, const Architecture& a);
// Whether a parameter of the tower or the projector takes part in what becomes of images.
bool makes_tokens(const Vision& vision, std::string_view name);
// The images of a batch of `rows`.
ImageBatch make_images(Device& device, const Architecture& a, const Training& training, std::int64_t rows);

// create_masks_for_vision_model: each image is seen whole by its own words. Masks as SDPA or eager attention take them, of all layers and of those
// with a window; `blocks` is a variable of the model's forward.
struct ImageMasks {
  Tensor full, sliding, blocks;
};
ImageMasks image_masks(const Tensor& token_types, const Tensor& inputs_embeds, const ForwardOptions& options);

// What the model's forward makes of images before its decoder runs.
struct Seen {
  Tensor inputs_embeds;        // [B, S, h], images in the place of their words
  ImageMasks masks;            // where the class makes masks of its own
  std::vector<Tensor> locals;  // variables of the forward, until it returns
};

// Written as the model's forward is, up to its decoder.
class Tower {
 public:
  virtual ~Tower() = default;
  virtual Seen see(const Tensor& ids, Tensor inputs_embeds, const ForwardOptions& options) const = 0;
  // What the model's outputs hold until its caller lets them go.
  void forget() const { outputs_.clear(); }

 protected:
  mutable std::vector<Tensor> outputs_;
};

// Of an architecture that has a Vision.
std::shared_ptr<const Tower> make_tower(const Architecture& a, const MadeModule& root);
std::shared_ptr<const Tower> llava_tower(const Architecture& a, const MadeModule& root);   // vision_clip.cpp
std::shared_ptr<const Tower> gemma3_tower(const Architecture& a, const MadeModule& root);  // vision_clip.cpp

// get_placeholder_mask: which words stand for images, [B, S, 1]
Tensor placeholder_mask(const Tensor& ids);

// A layer of a tower, checkpointed as those of the decoder are.
Tensor run_tower_layer(const ForwardOptions& options, const Tensor& input, const std::function<Tensor(const Tensor&)>& forward);

}  // namespace llmem
