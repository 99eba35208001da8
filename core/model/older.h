#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/architecture.h"
#include "model/masks.h"
#include "spec/spec.h"

// What Transformers did otherwise before version 5.
namespace llmem {

// cache_utils.DynamicCache over one forward: it holds every layer's keys and values, from 4.56 on as copies.
class KeyValueCache {
 public:
  explicit KeyValueCache(Transformers version) : copies_(version >= Transformers::v4_56) {}
  // The states to go on with.
  Tensor updated(const Tensor& states);

 private:
  bool copies_;
  std::vector<Tensor> held_;
};

// The attention mask, or none where SDPA needs none. inputs_embeds [B, S, h]; position_ids [1, S].
Tensor older_causal_mask(const Tensor& inputs_embeds, const Tensor& position_ids, Attention attention, Transformers version,
                         const PaddingMask& padding);

// Whether Trainer counts this parameter's weight as decaying: by the module's type, where the family registered its norm, and by name.
bool decayed_before_4_56(std::string_view name, Transformers version, bool norm_is_registered);

// What is not known of earlier versions.
Problems check_older(const Spec& spec, const Architecture& architecture);

}  // namespace llmem
