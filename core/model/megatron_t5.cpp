#include <algorithm>

#include "model/megatron_model.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// megatron/core/models/T5/t5_model.py: an encoder over padded rows, a decoder that looks at what it made, one embedding for both.
namespace llmem {

void MegatronModel::make_decoder() {
  encoder_norm_ = make_norm("encoder.final_layernorm", shape_.hidden);
  for (std::int64_t i = 0; i < shape_.decoder_layers; ++i) layers_.push_back(make_layer(shape_.layers + i));
}

// attention.py, CrossAttention
MegatronModel::CrossAttention MegatronModel::make_cross_attention(const std::string& name) {
  CrossAttention made;
  const std::int64_t features = shape_.heads * shape_.head_dim;
  made.norm = make_norm(name + ".pre_cross_attn_layernorm", shape_.hidden);
  made.proj = make_linear(name + ".cross_attention.linear_proj", features, shape_.hidden, Split::rows, shape_.linear_bias);
  made.q = make_linear(name + ".cross_attention.linear_q", shape_.hidden, features, Split::columns, shape_.linear_bias);
  made.kv = make_linear(name + ".cross_attention.linear_kv", shape_.hidden, 2 * features, Split::columns, shape_.linear_bias);
  return made;
}

Tensor MegatronModel::run_cross_attention(const CrossAttention& attention, const Tensor& hidden_states) const {
  const std::int64_t heads = shape_.heads / rank_.tensor, d = shape_.head_dim;
  Tensor context;
  {
    const Tensor input = normed(attention.norm, hidden_states);
    const Tensor mixed = column(attention.kv, encoded_, true);
    const Tensors parts = split_last(view(mixed, {mixed.size(0), mixed.size(1), heads, 2 * d}), {d, d});
    const Tensor q = column(attention.q, input, true);
    const Tensor query = view(q, {q.size(0), q.size(1), heads, d});
    // t5_dataset.py: which of the encoder's tokens are padding, [b, 1, s of the decoder, s of the encoder]
    padding_ = device_.empty({mixed.size(1), 1, q.size(0), mixed.size(0)}, Dtype::boolean);
    context = core_attention(query, parts[0], parts[1]);
    padding_.reset();
  }
  return row(attention.proj, context);
}

Tensor MegatronModel::run_t5(const Tensor& ids, const Tensor& position_ids, const Tensor& decoder_ids) const {
  {
    const ModuleScope scope(device_, "encoder");
    padding_ = device_.empty({ids.size(0), 1, ids.size(1), ids.size(1)}, Dtype::boolean);
    encoded_ = run_layers(embedded(ids, position_ids), 0, shape_.layers);
    padding_.reset();
    encoded_ = normed(encoder_norm_, encoded_);
  }
  const ModuleScope scope(device_, "decoder");
  const Tensor positions = device_.empty(decoder_ids.sizes(), Dtype::int64);
  const Tensor states = run_layers(embedded(decoder_ids, positions), shape_.layers, shape_.layers + shape_.decoder_layers);
  encoded_.reset();
  return normed(final_norm_, states);
}

}  // namespace llmem
