#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/options.h"
#include "spec/spec.h"
#include "tensor/megatron.h"

// megatron/core/models/gpt: GPTModel of the layers that gpt_layer_specs.py puts together, in TransformerEngine's modules or in
// Megatron-Core's own.
namespace llmem {

// The arguments that a model of Transformers becomes, where Megatron-Core has its layer (as Megatron-Bridge's conversions have them).
std::optional<MegatronShape> megatron_shape(const Architecture& architecture);

// What one rank does: its part of every layer.
struct MegatronRank {
  std::int64_t tensor = 1, context = 1, expert = 1, expert_tensor = 1;
  bool sequence = false;
  bool all_to_all = false;  // context ranks exchange heads for tokens, else keys and values go round
};

Problems check_megatron_sizes(const Spec& spec, const Architecture& architecture);

// vocab_size_with_padding
std::int64_t padded_vocabulary(const MegatronShape& shape, const MegatronOptions& options, std::int64_t tensor_ranks);

struct MegatronParameter {
  std::string name;
  Tensor tensor;
  bool expert = false;  // of the experts' own data-parallel group
};

class MegatronModel {
 public:
  // The layers of one pipeline stage.
  struct Chunk {
    std::int64_t first = 0, end = 0;
    bool embeds = true, heads = true;
  };
  MegatronModel(Device& device, const MegatronShape& shape, const Training& training, const MegatronRank& rank, MegatronKernels& kernels,
                const Chunk& chunk);

  const std::vector<MegatronParameter>& parameters() const { return parameters_; }
  const Chunk& chunk() const { return chunk_; }

  // From token ids [b, s], or from what the stage before sent, to what goes to the next stage, or to the loss of each token [b, s].
  // T5: `input` is the decoder's ids, to which the labels belong.
  Tensor forward(const Tensor& ids, const Tensor& position_ids, const Tensor& labels, const Tensor& input) const;

 private:
  struct Norm {
    Tensor weight, bias;
  };
  struct Linear {
    Norm norm;  // of TransformerEngine's norm and linear in one
    Tensor weight, bias;
  };
  struct Attention {
    Linear qkv, proj;
    Linear q_down, q_up, kv_down, kv_up, q;  // of latent attention
    Norm q_norm, k_norm;
  };
  struct Experts {
    Tensor router;
    Linear fc1, fc2;  // of all that the rank has
    Linear shared_fc1, shared_fc2;
  };
  struct CrossAttention {
    Norm norm;
    Linear proj, q, kv;
  };
  struct Layer {
    Norm input_norm;
    Attention attention;
    CrossAttention cross;  // of T5's decoder
    Norm mlp_norm;
    Linear fc1, fc2;
    Experts experts;
  };

  // ---- making
  Tensor make(const std::string& name, const Dims& sizes, bool expert = false);
  Norm make_norm(const std::string& name, std::int64_t features);
  Linear make_linear(const std::string& name, std::int64_t in, std::int64_t out, Split split, bool bias, bool norm = false,
                     bool expert = false);
  Attention make_attention(const std::string& name);
  Attention make_latent_attention(const std::string& name);
  Layer make_layer(std::int64_t index);
  CrossAttention make_cross_attention(const std::string& name);
  void make_decoder();  // T5's
  Experts make_experts(const std::string& name);

  // ---- running
  Tensor normed(const Norm& norm, const Tensor& input) const;
  Tensor column(const Linear& linear, const Tensor& input, bool adds_bias) const;  // split by columns, maybe after its norm
  Tensor row(const Linear& linear, const Tensor& input) const;                     // split by rows, its bias left to what follows
  Tensor plain(const Linear& linear, const Tensor& input) const;                   // whole on each rank
  Tensor embedded(const Tensor& ids, const Tensor& position_ids) const;
  Tensor run_layers(Tensor hidden_states) const;
  Tensor run_layers(Tensor hidden_states, std::int64_t first, std::int64_t end) const;
  Tensor run_layer(std::int64_t index, const Tensor& input) const;
  Tensor run_cross_attention(const CrossAttention& attention, const Tensor& hidden_states) const;
  Tensor run_t5(const Tensor& ids, const Tensor& position_ids, const Tensor& decoder_ids) const;
  Tensor run_attention(const Layer& layer, const Tensor& hidden_states) const;
  Tensor run_latent_attention(const Attention& attention, const Tensor& hidden_states) const;
  Tensor core_attention(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor attention_of_all_to_all(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor attention_of_ring(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor local_attention(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor unfused_attention(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value) const;
  Tensor run_mlp(const Layer& layer, const Tensor& hidden_states) const;
  Tensor run_experts(const Experts& experts, const Tensor& hidden_states) const;
  Tensor run_routed(const Experts& experts, const Tensor& tokens, const Tensor& factors) const;
  Tensor exchange_by_gather(const Experts& experts, const Tensor& tokens, const Routing& routing) const;
  Tensor exchange_by_all_to_all(const Experts& experts, const Tensor& tokens, const Routing& routing) const;
  Tensor loss_of(const Tensor& hidden_states, const Tensor& labels) const;
  bool recomputes(std::string_view module) const;
  // Runs it as a checkpoint where `module` is to be recomputed.
  Tensor recomputed(std::string_view module, const std::function<Tensor()>& function) const;
  // … and gives its result's memory back once it was used, until backward comes to `end` (random.py, CheckpointWithoutOutput).
  void discard(std::string_view module, const Tensor& output, const Tensor& end) const;

  Device& device_;
  MegatronShape shape_;
  const Training& training_;
  MegatronRank rank_;
  MegatronKernels& kernels_;
  Chunk chunk_;
  std::int64_t vocabulary_;
  std::vector<MegatronParameter> parameters_;
  Tensor word_embeddings_, position_embeddings_, output_layer_;
  Tensor token_types_, output_bias_;     // BERT's
  Linear head_dense_, pooler_, binary_;  // BERT's
  Norm head_norm_;
  mutable Tensor padding_;  // of the microbatch that runs: [b, 1, s, s]
  mutable Tensor encoded_;  // … what T5's encoder made of it
  Norm encoder_norm_;
  std::vector<Layer> layers_;
  Norm final_norm_;
};

}  // namespace llmem
