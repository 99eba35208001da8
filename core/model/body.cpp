#include "model/body.h"

#include "tensor/autograd.h"
#include "tensor/ops.h"

namespace llmem {

Tensor Body::whole(const Tensor& ids, const ForwardOptions& options, LayerContext& context, int layers, const RunLayers& run) const {
  std::vector<Tensor> locals;
  Tensor hidden = begin(ids, options, context, locals);
  hidden = run(std::move(hidden), context, 0, layers);
  return end(std::move(hidden));
}

Tensor embedded_ids(const Tensor& weight, std::string_view name, const Tensor& ids, const ForwardOptions& options) {
  const ModuleScope scope(ids.device(), name);
  Tensor embeds = embedding(weight, ids);
  if (options.inputs_require_grad && !embeds.requires_grad()) require_grad_of_activation(embeds);
  return embeds;
}

Tensor arange_positions(const Tensor& inputs_embeds, const ForwardOptions& options) {
  if (options.position_ids) return options.position_ids;
  return unsqueeze(add_scalar(inputs_embeds.device().empty({inputs_embeds.size(1)}, Dtype::int64)), 0);
}

Tensor causal_mask(const Tensor& inputs_embeds, const Tensor& position_ids, const ForwardOptions& options) {
  const std::int64_t rows = inputs_embeds.size(0), sequence = inputs_embeds.size(1);
  Device& device = inputs_embeds.device();
  if (options.attention == Attention::flash_attention_2) return flash_mask(position_ids, rows, options.padding);
  if (options.attention != Attention::eager) return sdpa_causal_mask(device, position_ids, rows, sequence, options.padding);
  return eager_causal_mask(device, position_ids, rows, sequence, inputs_embeds.dtype(), false, options.padding);
}

Tensor merged_heads(const Tensor& output, std::int64_t rows, std::int64_t sequence) {
  return contiguous(reshape(output, {rows, sequence, output.numel() / (rows * sequence)}));
}

}  // namespace llmem
