#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

// What is asked: the wire format, version 1, as plain values. Every default here is the wire format's default.
namespace llmem {

enum class Attention : std::uint8_t { sdpa, eager, flash_attention_2, fused };  // fused: cuDNN's, in Megatron
enum class Checkpointing : std::uint8_t { none, full, full_reentrant, selective };
enum class Method : std::uint8_t { full, lora };
enum class Objective : std::uint8_t { sft, dpo };
enum class Mask : std::uint8_t { none, padded };
enum class Loss : std::uint8_t { standard, chunked, liger_fused_linear, liger_cross_entropy, trl_tiled };
enum class Loop : std::uint8_t { plain, trainer, sft_trainer };
enum class DataKind : std::uint8_t { none, ddp, zero_redundancy, zero1, zero2, zero3, fsdp1, fsdp2, distributed_optimizer };

enum class OptimizerName : std::uint8_t {
  adamw,
  adam,
  sgd,
  adafactor,
  rmsprop,
  adagrad,
  nadam,
  adamax,
  radam,
  muon,
  adafactor_hf,
  lion,
  schedule_free_adamw,
  adamw_8bit,
  paged_adamw,
  paged_adamw_8bit,
  adamw_bnb,
  lion_8bit,
  lion_bnb,
  paged_lion,
  paged_lion_8bit,
  ademamix,
  ademamix_8bit,
  sgd_8bit,
  rmsprop_8bit,
  adamw_8bit_torchao,
  adamw_4bit_torchao,
  adamw_fp8_torchao,
  adamw_torchao,
};
enum class OptimizerImplementation : std::uint8_t { foreach, fused, loop };

struct OptimizerOptions {
  OptimizerName name = OptimizerName::adamw;
  OptimizerImplementation implementation = OptimizerImplementation::foreach;
  bool weight_decay = false;     // whether there is any
  bool momentum = false;         // sgd, rmsprop: whether there is any
  bool amsgrad = false;          // adamw, adam
  bool nesterov = false;         // sgd
  bool centered = false;         // rmsprop
  bool maximize = false;         // torch.optim
  bool capturable = false;       // adamw, adam: by CUDA graphs
  bool first_moment = false;     // adafactor_hf: whether there is a beta1
  bool scale_parameter = false;  // adafactor_hf
  // A step of its own for each parameter as soon as its gradient is there, which then goes.
  bool in_backward = false;
};

// Low-rank adapters (PEFT's LoraConfig).
struct AdapterOptions {
  std::int64_t rank = 16;
  bool all_linear = false;
  std::vector<std::string> targets = {"q_proj", "v_proj"};  // modules by the end of their names, where not all_linear
  double dropout = 0.0;
  bool dora = false;
  std::vector<std::string> modules_to_save;
  bool upcast = true;  // adapters of a half-precision base in fp32
};

// The frozen base of adapters held in 4 or 8 bits: by bitsandbytes, or as a GPTQ checkpoint in 4 bits and trained over float16.
struct BaseQuantization {
  int bits = 4;
  bool gptq = false;
  bool keeps_inputs = false;             // 4 bits, bitsandbytes before 0.43.2: until backward
  std::int64_t group_size = 128;         // gptq: values of a column that share a scale
  bool double_quant = false;             // 4 bits: the scales themselves in 8 bits
  Dtype compute_dtype = Dtype::float32;  // 4 bits
  Dtype storage = Dtype::uint8;          // 4 bits: what the bytes are held as (bnb_4bit_quant_storage)
  double threshold = 6.0;                // 8 bits: 0 looks for no outliers
  std::vector<std::string> skip;         // modules left as they are; empty: the head
};

struct LigerKernels {
  bool rms_norm = false, rope = false, swiglu = false;
};

// Trainer.evaluate after the last step.
struct Evaluation {
  std::int64_t batches = 4, batch = 8;  // batch: rows
  bool compute_metrics = false;         // the logits of every batch are kept
  std::int64_t accumulation_steps = 0;  // … and moved to the host every so many batches; 0: at the end
  bool preprocess_argmax = false;       // … as the words they stand for
};

// Megatron's cross-entropy: op by op, compiled (native), or TransformerEngine's kernel over the logits in place.
enum class MegatronLoss : std::uint8_t { unfused, native, transformer_engine };

// Megatron's arguments beside those that all programs have.
struct MegatronOptions {
  bool transformer_engine = true;            // transformer_impl; else Megatron-Core's own modules ("local")
  bool gradient_accumulation_fusion = true;  // weight gradients are added to the main gradients by the GEMM
  MegatronLoss loss = MegatronLoss::unfused;
  bool deterministic = false;                                  // deterministic_mode
  std::int64_t vocabulary_multiple = 128;                      // make_vocab_size_divisible_by, times the tensor ranks
  std::int64_t recompute_layers = 1;                           // full recomputation: layers that are recomputed together …
  bool recompute_block = false;                                // … or (recompute_method block) how many of a stage's are, one by one
  std::vector<std::string> recompute_modules = {"core_attn"};  // selective recomputation
  bool all_to_all = false;              // token_dispatcher: the experts' tokens are exchanged, else all ranks' are gathered
  bool grouped_gemm = false;            // moe_grouped_gemm: all experts of a rank in one product
  bool float_router = false;            // moe_router_dtype fp32
  bool bf16_gradients = false;          // main gradients in bf16 (no accumulate_allreduce_grads_in_fp32)
  Dtype moments = Dtype::float32;       // exp_avg_dtype and exp_avg_sq_dtype of the precision-aware optimizer
  std::int64_t decoder_sequence = 128;  // decoder_seq_length, of T5
};

// Whose training program runs.
enum class Stack : std::uint8_t { transformers, megatron, torchtitan, litgpt };

// The images in each row of a batch, as the processor hands them to the model: scaled to what the tower takes.
struct ImageOptions {
  std::int64_t per_sample = 1;
};

struct Training {
  Stack stack = Stack::transformers;
  Method method = Method::full;
  Objective objective = Objective::sft;
  AdapterOptions adapter;
  std::optional<BaseQuantization> base_quantization;
  bool prepare_kbit = true;         // peft.prepare_model_for_kbit_training on a quantised base
  Dtype weights = Dtype::bfloat16;  // what the parameters are held in
  std::optional<Dtype> autocast;
  bool grad_scaler = false;
  OptimizerOptions optimizer;
  std::int64_t micro_batch = 1;                 // rows
  std::int64_t sequence = 2048;                 // tokens a row
  std::optional<std::int64_t> target_sequence;  // tokens a row that an encoder-decoder writes; none: as many
  std::int64_t target_length() const { return target_sequence.value_or(sequence); }
  std::int64_t accumulation = 1;  // micro-batches an optimizer step
  Checkpointing checkpointing = Checkpointing::none;
  std::int64_t checkpoint_every = 1;  // checkpointing of each so many-th decoder layer, from the first on
  Attention attention = Attention::sdpa;
  bool attention_given = false;  // else it is what the class takes by itself
  Mask mask = Mask::none;
  Loss loss = Loss::standard;
  std::int64_t loss_chunk = 1024;  // tokens, of the chunked loss
  LigerKernels liger;
  bool keep_loss = false;  // a plain loop's `loss` lives until the next forward returns
  Loop loop = Loop::plain;
  std::optional<Evaluation> evaluation;
  bool label_smoothing = false;  // whether there is any
  bool weight_decay = false;     // Trainer's argument: whether there is any
  std::optional<double> max_grad_norm;
  // Method full: modules, by a part of their dotted name ("layers.0", "lm_head"), that alone train (none: all), and that do not.
  std::vector<std::string> trained, frozen;
  MegatronOptions megatron;
  std::optional<ImageOptions> images;  // none: a model that sees is trained on text
};

// The series of each library that runs. Older ones allocate otherwise.
enum class Transformers : std::uint8_t { v4_45, v4_48, v4_51, v4_56, v5 };
enum class Trl : std::uint8_t { v0_24, v1 };
enum class Torchtitan : std::uint8_t { v0_1, v0_2 };  // 0.2: what FSDP2 wraps since July 2025

struct Software {
  Transformers transformers = Transformers::v5;
  Trl trl = Trl::v1;
  Torchtitan torchtitan = Torchtitan::v0_2;
  bool config_use_cache = false;  // before 5 Trainer leaves the config's cache on
};

// DeepSpeed's zero_optimization, in elements. None: Transformers' size for "auto", or DeepSpeed's default.
struct ZeroOptimization {
  static constexpr std::int64_t automatic = -1;  // a size as Transformers fills it in for "auto"
  std::optional<std::int64_t> reduce_bucket_size = std::nullopt;
  bool overlap_comm = false;  // zero3: on unless said otherwise
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  bool round_robin_gradients = false;  // zero1, zero2
  // zero3
  std::optional<std::int64_t> prefetch_bucket_size = std::nullopt;
  std::optional<std::int64_t> persistence_threshold = std::nullopt;  // parameters up to so many elements are not sharded in a step
  std::int64_t max_live_parameters = 1'000'000'000;
  std::int64_t max_reuse_distance = 1'000'000'000;
  std::int64_t sub_group_size = 1'000'000'000;
};

// What a pasted ds_config.json says of the rest.
struct DeepSpeedEngine {
  std::optional<bool> clips = std::nullopt;  // none: as max_grad_norm says
  bool has_optimizer = false;                // DeepSpeed's own fused Adam
  bool offloads_optimizer = false, offloads_parameters = false;
};

enum class BackwardPrefetch : std::uint8_t { before, after, none };

struct DataParallel {
  DataKind kind = DataKind::none;
  std::int64_t degree = 1;  // ranks
  // ddp and zero_redundancy
  std::optional<std::int64_t> bucket_cap_mb = std::nullopt;  // none: 25, and 1 for the first
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  bool find_unused_parameters = false;
  bool overlap_grad_reduce = false;        // Megatron
  bool parameters_as_bucket_view = false;  // zero_redundancy
  // zero1, zero2, zero3
  bool auto_buckets = true;  // Transformers' sizes for "auto"
  ZeroOptimization zero = {};
  DeepSpeedEngine engine = {};
  // fsdp1, fsdp2
  std::int64_t replicate = 1;  // copies of the sharded model (HSDP, HYBRID_SHARD); degree counts all ranks
  std::optional<Dtype> param_dtype = Dtype::bfloat16;
  std::optional<Dtype> reduce_dtype = Dtype::float32;
  bool reshard_after_forward = true;      // fsdp1: FULL_SHARD, HYBRID_SHARD
  bool cpu_ram_efficient_loading = true;  // one process of a node reads the checkpoint (accelerate launch's default)
  // fsdp1
  bool shards = true;                                // not NO_SHARD
  std::optional<Dtype> buffer_dtype = std::nullopt;  // none: param_dtype
  bool use_orig_params = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::before;
  bool forward_prefetch = false;
  bool limit_all_gathers = true;
  bool adapters_apart = false;  // each adapter's Linear is a unit of its own (PEFT's fsdp_auto_wrap_policy)

  std::int64_t shard_ranks() const { return degree / replicate; }
};

struct TensorParallel {
  std::int64_t degree = 1;  // ranks
  bool sequence = false;    // norms and residuals on a part of the sequence each
  bool loss = false;        // logits and loss on a part of the vocabulary each
  bool hf_plan = false;     // Transformers' own plan for the model, else torch's usual one
};

// Each rank has a part of every row's sequence; attention gathers or passes on keys and values.
struct ContextParallel {
  std::int64_t degree = 1;
  bool ulysses = false;      // in attention each has all tokens of some heads (DeepSpeed's sequence parallelism); else a ring
  bool all_to_all = false;   // keys and values go from rank to rank, else all are gathered at once
  bool load_balance = true;  // each rank has a chunk of the beginning and one of the end
};

enum class PipelineSchedule : std::uint8_t {
  one_forward_one_backward,
  gpipe,
  interleaved_1f1b,
  looped_bfs,
  interleaved_zero_bubble,
  zbv,
  dual_pipe_v
};

struct PipelineParallel {
  std::int64_t degree = 1;  // ranks, a stage each
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  std::int64_t microbatches = 1;    // of training.micro_batch rows
  std::int64_t virtual_stages = 1;  // stages a rank
  // Megatron: decoder_first_pipeline_num_layers and decoder_last_pipeline_num_layers; none: as many as the others.
  std::optional<std::int64_t> first_layers = std::nullopt, last_layers = std::nullopt;
  // Megatron: the embedding and the loss count as a layer each when layers are shared out.
  bool counts_embedding = false, counts_loss = false;
};

// Experts are shared out among ranks that otherwise hold different data; within an expert, `tensor` ranks split its matrices.
struct ExpertParallel {
  std::int64_t degree = 1;
  std::optional<std::int64_t> tensor = std::nullopt;  // none: as the other layers
};

// What lives in the host's memory.
struct Offload {
  bool optimizer = false;
  bool parameters = false;
  bool activations = false;  // what checkpointed layers keep or, without checkpointing, all that is saved for backward
};

constexpr std::string_view kDefaultGpu = "a100-sxm-80gb";

struct Gpu {
  std::string id;  // empty: described, not named
  std::string name;
  int compute_capability = 80;  // major * 10 + minor
  int sms = 108;                // streaming multiprocessors
  std::optional<Bytes> memory;  // what CUDA reports as total; none: unknown
};

struct Cluster {
  Gpu gpu;
  std::int64_t gpus_per_node = 8;
  std::int64_t nodes = 1;
  std::optional<Bytes> memory;               // for the allocator; none: what the GPU shows less what lies outside
  std::optional<std::int64_t> network_gbps;  // Gb/s of each GPU to other nodes; none: as the vendor's own systems
  std::optional<Bytes> host_memory;          // of a node; none: not known
};

struct AllocatorOptions {
  bool expandable_segments = false;
  std::optional<std::int64_t> max_split_size_mb;
  std::int64_t roundup_power2_divisions = 0;  // 0: sizes are not rounded up
};

// The model as asked for: a preset's id and its config, or the user's own name and pasted config.
struct ModelSource {
  std::string name;
  // A Hugging Face config.json, not yet understood: that is core/model's work. Null: it is missing, which is a problem already.
  std::shared_ptr<const nlohmann::json> config;
  // What the checkpoint has, as its index or header says; none: the config alone.
  std::shared_ptr<const nlohmann::json> tensors;
};

struct Spec {
  ModelSource model;
  Training training;
  DataParallel data;
  TensorParallel tensor;
  PipelineParallel pipeline;
  ContextParallel context;
  ExpertParallel expert;
  Offload offload;
  std::int64_t rank = 0;  // the rank that is played
  // Of all ranks tensor ranks lie next to each other, then context, then data, then pipeline (torch's device mesh, torchtitan's order).
  std::int64_t world() const { return data.degree * tensor.degree * pipeline.degree * context.degree; }
  Cluster cluster;
  AllocatorOptions allocator;
  Software software;
};

}  // namespace llmem
