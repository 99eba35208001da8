#include "model/megatron_model.h"

namespace llmem {

// What Megatron-LM's own checks ask of sizes (arguments.py, validate_args; transformer_config.py, __post_init__).
Problems check_megatron_sizes(const Spec& spec, const Architecture& a) {
  const std::optional<MegatronShape> shape = megatron_shape(a);
  if (!shape)
    return {{"/software/stack", "unsupported",
             "\"" + a.model_type +
                 "\" is not supported with Megatron yet. Supported: gpt2, models of Llama's kind (llama, mistral, qwen2, "
                 "qwen3), mixtral, qwen3_moe, deepseek_v2, deepseek_v3, and \"megatron\" with Megatron's own arguments"}};
  const auto does_not_divide = [](const char* at, std::int64_t ranks, std::int64_t count, const char* what) {
    return Problem{at, "conflict", std::to_string(ranks) + " ranks do not divide the model's " + std::to_string(count) + " " + what};
  };
  MegatronRank rank;
  rank.tensor = spec.tensor.degree, rank.context = spec.context.degree, rank.sequence = spec.tensor.sequence;
  rank.expert = spec.expert.degree, rank.expert_tensor = spec.expert.tensor.value_or(spec.tensor.degree);
  if (shape->heads % rank.tensor != 0) return {does_not_divide("/parallel/tensor/degree", rank.tensor, shape->heads, "attention heads")};
  if (shape->latent.key_value_rank == 0 && shape->groups % rank.tensor != 0)
    return {does_not_divide("/parallel/tensor/degree", rank.tensor, shape->groups, "key/value heads")};
  if (shape->ffn % rank.tensor != 0) return {does_not_divide("/parallel/tensor/degree", rank.tensor, shape->ffn, "features of the MLP")};
  if (rank.expert > 1 && shape->experts.count == 0)
    return {{"/parallel/expert/degree", "conflict", "the model has no experts to share out"}};
  if (shape->experts.count % rank.expert != 0)
    return {does_not_divide("/parallel/expert/degree", rank.expert, shape->experts.count, "experts")};
  if (shape->experts.count > 0 && shape->experts.width % rank.expert_tensor != 0)
    return {does_not_divide("/parallel/expert/tensor", rank.expert_tensor, shape->experts.width, "features of an expert")};
  if (shape->decoder_layers > 0 && (spec.pipeline.degree > 1 || spec.training.checkpointing == Checkpointing::full))
    return {{"/parallel/pipeline/degree", "unsupported", "T5 is not supported yet in a pipeline or with full recomputation"}};
  if ((shape->bert || shape->decoder_layers > 0) &&
      (rank.context > 1 || (rank.sequence && shape->bert) ||
       (spec.training.attention != Attention::eager && spec.training.megatron.transformer_engine)))
    return {
        {"/training/attention", "unsupported",
         "BERT and T5 are supported with eager attention (unfused) and without context parallelism, BERT without sequence parallelism"}};
  if (rank.context > 1 && spec.training.attention == Attention::eager)
    return {{"/training/attention", "conflict", "context parallelism needs flash or fused attention"}};
  if (rank.context > 1 && spec.context.all_to_all && shape->groups % (rank.tensor * rank.context) != 0)
    return {does_not_divide("/parallel/context/degree", rank.tensor * rank.context, shape->groups, "key/value heads")};
  const PipelineParallel& pipeline = spec.pipeline;
  // transformer_config.py: what the first and the last stage do not take is shared out among the others.
  std::int64_t places = shape->layers + (pipeline.counts_embedding ? 1 : 0) + (pipeline.counts_loss ? 1 : 0);
  std::int64_t ranks = pipeline.degree;
  for (const std::optional<std::int64_t>& own : {pipeline.first_layers, pipeline.last_layers}) {
    if (!own) continue;
    places -= *own;
    --ranks;
    if (*own % pipeline.virtual_stages != 0 || places < 0)
      return {{"/parallel/pipeline", "conflict",
               std::to_string(*own) + " layers of an end stage are not shared out evenly among its " +
                   std::to_string(pipeline.virtual_stages) + " chunks, or are more than the model has"}};
  }
  const std::int64_t stages = ranks * pipeline.virtual_stages;
  if (stages == 0 ? places != 0 : places % stages != 0)
    return {{"/parallel/pipeline/degree", "conflict",
             std::to_string(places) + " layers are not shared out evenly among " + std::to_string(stages) + " stages"}};
  return {};
}

}  // namespace llmem
