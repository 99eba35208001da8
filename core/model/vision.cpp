#include "model/vision.h"

#include <cstdlib>
#include <string>

#include "tensor/checkpoint.h"
#include "tensor/ops.h"

namespace llmem {

std::int64_t image_tokens(const Architecture& a) {
  const Vision& vision = *a.vision;
  if (vision.side_tokens > 0) return vision.side_tokens * vision.side_tokens;
  const std::int64_t along = vision.side / vision.patch;
  return along * along + (vision.keeps_first ? 1 : 0);
}

std::optional<Problem> check_images(const Spec& spec, const Architecture& a) {
  const Training& training = spec.training;
  const auto problem = [](const char* at, const char* code, std::string message) { return Problem{at, code, std::move(message)}; };
  if (!a.vision) return problem("/training/images", "unsupported", "images are not supported yet for \"" + a.model_type + "\"");
  const std::int64_t tokens = training.images->per_sample * image_tokens(a);
  if (tokens > training.sequence)
    return problem("/training/sequence", "conflict",
                   "the images alone take " + std::to_string(tokens) + " tokens a row, which are part of its sequence");
  const auto unsupported = [&](const char* at, const std::string& what) {
    return problem(at, "unsupported", what + " with images is not supported yet");
  };
  if (a.vision->kind == Vision::Kind::gemma3 && (training.attention == Attention::eager || training.autocast))
    return unsupported("/training/attention", "eager attention or autocast");
  if (training.loop != Loop::plain) return unsupported("/training/loop", "a Trainer");
  if (training.objective != Objective::sft) return unsupported("/training/objective", "dpo");
  if (training.loss != Loss::standard) return unsupported("/training/loss", "this loss");
  if (training.mask != Mask::none) return unsupported("/training/mask", "a mask with padding");
  if (training.attention == Attention::flash_attention_2) return unsupported("/training/attention", "flash_attention_2");
  if (training.base_quantization) return unsupported("/training/base_quantization", "a quantised base");
  if (training.checkpointing == Checkpointing::full_reentrant || spec.offload.activations)
    return unsupported("/training/checkpointing", "reentrant checkpointing, or checkpoints in the host's memory,");
  return std::nullopt;
}

// Of llava's tower nothing after the layer whose states are taken.
bool makes_tokens(const Vision& vision, std::string_view name) {
  if (vision.kind != Vision::Kind::llava) return true;
  constexpr std::string_view tower = "model.vision_tower.", layers = "model.vision_tower.encoder.layers.";
  if (name.substr(0, layers.size()) == layers) return std::atoll(std::string(name.substr(layers.size())).c_str()) < vision.taken;
  return name.substr(0, tower.size()) != tower || name.find("post_layernorm") == std::string_view::npos;
}

ImageBatch make_images(Device& device, const Architecture& a, const Training& training, std::int64_t rows) {
  const Vision& vision = *a.vision;
  ImageBatch made;
  made.count = rows * training.images->per_sample;
  made.tokens = image_tokens(a);
  made.pixels = device.empty({made.count, vision.channels, vision.side, vision.side}, Dtype::float32);
  if (vision.kind == Vision::Kind::gemma3) made.token_types = device.empty({rows, training.sequence}, Dtype::int64);
  return made;
}

std::shared_ptr<const Tower> make_tower(const Architecture& a, const MadeModule& root) {
  return a.vision->kind == Vision::Kind::llava ? llava_tower(a, root) : gemma3_tower(a, root);
}

// The number of them is compared with that of the features: torch_compilable_check.
Tensor placeholder_mask(const Tensor& ids) {
  Device& device = ids.device();
  const OpScope op(device, "get_placeholder_mask");
  const Tensor mask = unary_no_grad(ids, "eq", Dtype::boolean);
  const Tensor count = sum_of_booleans(mask);
  Tensor agrees;
  {
    const Tensor values = device.empty({}, Dtype::int64);
    agrees = device.empty({}, Dtype::boolean);
  }
  device.scratch(Bytes{1});
  return unsqueeze(mask, 2);
}

namespace {

// get_block_sequence_ids_for_mask
Tensor blocks_of(const Tensor& token_types) {
  Device& device = token_types.device();
  const std::int64_t rows = token_types.size(0), sequence = token_types.size(1);
  const auto of = [&](Dtype dtype) { return device.empty({rows, sequence}, dtype); };
  const Tensor is_image = of(Dtype::boolean), padded = device.empty({rows, sequence + 1}, Dtype::boolean);
  const auto starts = [&] {
    const Tensor others = of(Dtype::boolean);
    return of(Dtype::boolean);
  };
  const Tensor new_image_start = starts();
  const auto counted = [&] {
    const Tensor numbers = of(Dtype::int32);
    Tensor sums;
    {
      const Tensor wide = of(Dtype::int64);
      sums = of(Dtype::int64);
      if (rows == 1) device.scratch(scan_scratch(sequence));
    }
    return sums;
  };
  const auto shifted = [&] {
    const Tensor sums = counted();
    return of(Dtype::int64);
  };
  const Tensor group_ids = shifted();
  const Tensor none = device.empty({}, Dtype::int64);
  return of(Dtype::int64);
}

// masking_utils.py, sdpa_mask of OR(causal, blockwise), and of it AND(sliding window)
Tensor mask_over_blocks(Device& device, std::int64_t rows, std::int64_t sequence, bool window) {
  const Tensor batch = device.empty({rows}, Dtype::int64), head = device.empty({1}, Dtype::int64);
  const auto range = [&] { return add_scalar(device.empty({sequence}, Dtype::int64)); };
  const Tensor queries = range();
  const Tensor keys = range();
  const auto booleans = [&](std::int64_t of_rows) { return device.empty({of_rows, 1, sequence, sequence}, Dtype::boolean); };
  const auto group = [&] {
    const auto index = [&] { return device.empty({rows, 1, sequence, 1}, Dtype::int64); };
    const Tensor of_rows = index(), of_words = rows > 1 ? index() : Tensor();
    return index();
  };
  const auto blockwise = [&] {
    const Tensor of_queries = group();
    const Tensor of_keys = group();
    const Tensor same = booleans(rows), is_image = device.empty({rows, 1, sequence, 1}, Dtype::boolean);
    return booleans(rows);
  };
  const auto either = [&] {
    const Tensor causal = booleans(1);
    const Tensor block = blockwise();
    return booleans(rows);
  };
  Tensor mask = either();
  if (!window) return mask;
  const auto in_window = [&] {
    const Tensor first = add_scalar(queries);
    return booleans(1);
  };
  const Tensor near = in_window();
  return booleans(rows);
}

}  // namespace

ImageMasks image_masks(const Tensor& token_types, const Tensor& inputs_embeds, const ForwardOptions& options) {
  Device& device = token_types.device();
  const OpScope op(device, "attention_mask");
  const std::int64_t rows = token_types.size(0), sequence = token_types.size(1);
  const auto finished = [&](const Tensor& allowed) {
    if (options.attention != Attention::eager) return allowed;
    const Tensor zero = device.empty({}, inputs_embeds.dtype()), lowest = device.empty({}, inputs_embeds.dtype());
    return device.empty({rows, 1, sequence, sequence}, inputs_embeds.dtype());
  };
  ImageMasks made;
  made.blocks = blocks_of(token_types);
  made.full = finished(mask_over_blocks(device, rows, sequence, false));
  made.sliding = finished(mask_over_blocks(device, rows, sequence, true));
  return made;
}

Tensor run_tower_layer(const ForwardOptions& options, const Tensor& input, const std::function<Tensor(const Tensor&)>& forward) {
  if (options.checkpointing == Checkpointing::none) return forward(input);
  return checkpoint(input.device(), [forward, input] { return forward(input); });
}

}  // namespace llmem
