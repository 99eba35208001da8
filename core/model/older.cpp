#include "model/older.h"

#include <algorithm>

#include "base/json.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

namespace {

// torch.cat([an empty tensor, states], dim=-2): a copy without gaps; backward its part of the gradient
Tensor copied(const Tensor& states) {
  Recorder grad("cat", {&states});
  const Tensor result = states.device().empty(states.sizes(), states.dtype());
  grad.attach(result);
  grad.backward([length = states.size(2)](Tensors& gradients) { return Tensors{narrow(gradients[0], 2, 0, length)}; });
  return result;
}

}  // namespace

Tensor KeyValueCache::updated(const Tensor& states) {
  held_.push_back(copies_ ? copied(states) : states);
  return held_.back();
}

namespace {

// modeling_llama.py, _prepare_4d_causal_attention_mask_with_cache_position; without a mask given, one column more than there are keys
Tensor mask_by_position(const Tensor& embeds, const Tensor& attention_mask) {
  Device& device = embeds.device();
  const std::int64_t rows = embeds.size(0), sequence = embeds.size(1), target = attention_mask ? sequence : sequence + 1;
  const auto square = [&](Dtype dtype) { return device.empty({sequence, target}, dtype); };
  Tensor mask = square(embeds.dtype());
  mask = square(embeds.dtype());  // triu
  {
    const Tensor range = device.empty({target}, Dtype::int64);
    const Tensor later = square(Dtype::boolean);
  }
  mask = expand(unsqueeze(unsqueeze(mask, 0), 0), {rows, 1, sequence, target});
  if (!attention_mask) return narrow(mask, 3, 0, sequence);
  const auto whole = [&](Dtype dtype) { return device.empty({rows, 1, sequence, target}, dtype); };
  mask = whole(embeds.dtype());  // clone
  Tensor padding = whole(embeds.dtype());
  padding = whole(Dtype::boolean);
  device.scratch(mask->storage->bytes);  // masked_fill
  return mask;
}

// modeling_attn_mask_utils.py, AttentionMaskConverter._unmask_unattended
Tensor unmask_unattended(const Tensor& mask) {
  Device& device = mask.device();
  const std::int64_t rows = mask.size(0), sequence = mask.size(2);
  const auto every = [&] {
    const Tensor lowest = device.empty(mask.sizes(), Dtype::boolean);
    return device.empty({rows, 1, sequence, 1}, Dtype::boolean);
  };
  const auto some = [&] {
    const Tensor all = every();
    return device.empty(all.sizes(), Dtype::boolean);
  };
  const Tensor attended = some();
  return device.empty(mask.sizes(), mask.dtype());
}

// masking_utils.eager_mask of 4.56
Tensor mask_by_function(const Tensor& embeds, const Tensor& kept) {
  Device& device = embeds.device();
  const std::int64_t rows = embeds.size(0), sequence = embeds.size(1);
  const auto range = [&](std::int64_t count) { return device.empty({count}, Dtype::int64); };
  const Tensor keys = range(sequence);
  const auto square = [&](std::int64_t of_rows) { return device.empty({of_rows, 1, sequence, sequence}, Dtype::boolean); };
  const auto allowed = [&] {
    const Tensor batch = range(rows), head = range(1);
    if (!kept) return square(1);
    Tensor all = device.empty({}, Dtype::boolean);
    {
      const Tensor causal = square(1);
      all = square(1);
    }
    const Tensor of_rows = device.empty({rows, sequence}, Dtype::boolean);
    return square(rows);
  };
  const Tensor mask = allowed();
  const Tensor zero = device.empty({}, embeds.dtype()), lowest = device.empty({}, embeds.dtype());
  return device.empty({rows, 1, sequence, sequence}, embeds.dtype());
}

void ask_for_all(Device& device, const Tensor& mask) {
  (void)mask;
  device.scratch(Bytes{1});
}

}  // namespace

Tensor older_causal_mask(const Tensor& embeds, const Tensor& position_ids, Attention attention, Transformers version,
                         const PaddingMask& padding) {
  Device& device = embeds.device();
  if (version == Transformers::v4_56) {
    Tensor kept;
    if (padding.mask) {
      kept = unary_no_grad(padding.mask, "attention_mask", Dtype::boolean);
    } else {
      ask_for_packed_sequences(position_ids, embeds.size(0));
    }
    if (attention == Attention::eager) return mask_by_function(embeds, kept);
    if (kept) ask_for_all(device, kept);
    return {};
  }
  if (attention == Attention::eager) return mask_by_position(embeds, padding.mask);
  if (padding.mask) {
    const Tensor ones = unary_no_grad(padding.mask, "equal", Dtype::boolean);
    ask_for_all(device, ones);
  }
  if (!padding.padding) return {};
  const Tensor mask = mask_by_position(embeds, padding.mask);
  return unmask_unattended(mask);
}

bool decayed_before_4_56(std::string_view name, Transformers version, bool norm_is_registered) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("bias") || (norm_is_registered && has("norm"))) return false;
  return version <= Transformers::v4_48 || (!has("layernorm") && !has("rmsnorm"));
}

namespace {

// The window by which SDPA's mask is decided. Qwen2Model asks config.sliding_window before version 4.56, be it in use or not (Qwen2Config: 4096).
std::int64_t window_of_mask(const Spec& spec, const Architecture& a) {
  if (a.sliding_window > 0 || a.model_type != "qwen2" || spec.software.transformers >= Transformers::v4_56) return a.sliding_window;
  const auto found = spec.model.config->find("sliding_window");
  if (found == spec.model.config->end()) return 4096;
  return found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

}  // namespace

Problems check_older(const Spec& spec, const Architecture& a) {
  const Transformers version = spec.software.transformers;
  if (version == Transformers::v5) return {};
  const auto is = [&](std::string_view type) { return a.model_type == type; };
  const bool own_loss = is("gpt_bigcode") && version <= Transformers::v4_48 && spec.training.attention == Attention::flash_attention_2 &&
                        spec.training.loss == Loss::standard;
  if (own_loss) return {};
  const bool known = is("llama") || is("mistral") || is("qwen2") || is("granite") || (is("qwen3") && version >= Transformers::v4_51);
  if (!known)
    return {{"/software/transformers", "unsupported",
             "this family is not supported with that version yet. Supported: llama, mistral, qwen2, granite, and qwen3 from 4.51 on."}};
  const std::int64_t window = window_of_mask(spec, a);
  if (window > 0 && spec.training.sequence >= window && spec.training.attention == Attention::sdpa)
    return {{"/training/sequence", "unsupported",
             "with Transformers 4 SDPA gets a mask of " + std::to_string(window) +
                 " tokens and more (config.sliding_window), which is not supported yet"}};
  if (a.sliding_window > 0 && spec.training.attention == Attention::eager)
    return {{"/training/attention", "unsupported", "eager attention over a sliding window is not supported with Transformers 4 yet."}};
  return {};
}

}  // namespace llmem
