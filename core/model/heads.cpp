#include "model/heads.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "model/causal_lm.h"
#include "tensor/autograd.h"
#include "tensor/ops.h"

// transformers modeling_layers.py, GenericForSequenceClassification and GenericForTokenClassification; classes of their own
// (GPT2ForSequenceClassification, …) do the same. loss_utils.py: ForSequenceClassificationLoss, ForTokenClassification.
namespace llmem {

namespace {

using Json = nlohmann::json;

// The families that have the class: grep "ForSequenceClassification(" and "GenericForTokenClassification, " models/*/modeling_*.py
constexpr std::string_view kOfSequences =
    " arcee biogpt bloom deepseek_v2 deepseek_v3 exaone4 falcon gemma gemma2 gemma3_text glm glm4 gpt2 gpt_bigcode gpt_neo gpt_neox "
    "gpt_oss "
    "albert bert distilbert electra modernbert mpnet roberta xlm-roberta gptj hunyuan_v1_dense hunyuan_v1_moe jamba llama mistral mixtral "
    "mpt nemotron olmo "
    "olmo2 olmo3 opt phi phi3 qwen2 qwen2_moe qwen3 "
    "qwen3_moe qwen3_next seed_oss smollm3 stablelm starcoder2 ";
constexpr std::string_view kOfTokens =
    " arcee deepseek_v3 exaone4 gemma gemma2 glm glm4 gpt_oss llama mistral mixtral nemotron phi phi3 qwen2 qwen2_moe qwen3 qwen3_moe "
    "qwen3_next seed_oss smollm3 stablelm starcoder2 albert electra mpnet bert distilbert modernbert roberta xlm-roberta ";

bool is_in(std::string_view names, std::string_view name) { return names.find(" " + std::string(name) + " ") != std::string_view::npos; }

// "LlamaForCausalLM" -> "Llama"
std::string stem_of(const Family& family) {
  if (family.model_type == "gemma3_text") return "Gemma3Text";
  const std::string_view name = family.model_class;
  return std::string(name.substr(0, std::min(name.find("For"), name.find("LMHead"))));
}

// PreTrainedConfig: id2label says how many labels there are, else num_labels, else 2; problem_type, else what the labels' number and type say.
void read_labels(ObjectReader& config, Classifier& out) {
  config.integer("num_labels", out.labels, 1, 1 << 20);
  if (const Json* names = config.object("id2label"); names && !names->empty()) out.labels = static_cast<std::int64_t>(names->size());
  static constexpr Choice kKinds[] = {{"single_label_classification", static_cast<int>(LabelKind::one_of)},
                                      {"regression", static_cast<int>(LabelKind::number)},
                                      {"multi_label_classification", static_cast<int>(LabelKind::any_of)}};
  int kind = static_cast<int>(out.labels == 1 ? LabelKind::number : LabelKind::one_of);
  config.choice("problem_type", kKinds, kind);
  out.kind = static_cast<LabelKind>(kind);
  if (out.labels == 1 && out.kind == LabelKind::one_of)
    config.problem("problem_type", "conflict", "one label is not one of several: give num_labels above 1, or \"regression\"");
  out.finds_padding = config.given("pad_token_id");
}

// GenericForTokenClassification.__init__
void read_dropout(ObjectReader& config, Classifier& out) {
  out.dropout = 0.1;
  if (!config.number("classifier_dropout", out.dropout, 0.0, 1.0)) config.number("hidden_dropout", out.dropout, 0.0, 1.0);
}

}  // namespace

void read_head(ObjectReader& config, const Family& family, Architecture& out) {
  const Json* named = config.find("architectures");
  const std::string stem = stem_of(family), of_sequences = stem + "ForSequenceClassification", of_tokens = stem + "ForTokenClassification";
  const bool has_sequences = is_in(kOfSequences, family.model_type), has_tokens = is_in(kOfTokens, family.model_type);
  for (const Json& each : *named) {
    if (!each.is_string()) continue;
    const std::string& name = each.get_ref<const std::string&>();
    const bool sequence = has_sequences && name == of_sequences, token = has_tokens && name == of_tokens;
    if (!sequence && !token) continue;
    out.head = sequence ? Head::sequence_label : Head::token_label;
    out.model_class = name;
    read_labels(config, out.classifier);
    if (token) read_dropout(config, out.classifier);
    return;
  }
  std::string valid(family.model_class);
  if (has_sequences) valid += ", " + of_sequences;
  if (has_tokens) valid += ", " + of_tokens;
  config.problem("architectures", "unsupported",
                 quoted((*named)[0]) + " is not supported yet. Supported for " + std::string(family.model_type) + ": " + valid + ".");
}

void declare_head(Architecture& a, std::vector<Parameter>& declared) {
  if (a.own_classifier || (a.head != Head::sequence_label && a.head != Head::token_label)) return;
  const std::string words = std::string(a.names.head) + ".";
  declared.erase(std::remove_if(declared.begin(), declared.end(), [&](const Parameter& each) { return each.name.rfind(words, 0) == 0; }),
                 declared.end());
  a.names.head = "score";
  a.tied_embeddings = a.head_bias = a.scaled_logits = a.softcapped_logits = a.float_logits = false;
  Module(declared, "").linear(a.names.head, a.hidden_size, a.classifier.labels, a.head == Head::token_label);
}

namespace {

// Encoders, whose attention has no causal mask.
bool looks_both_ways(const Architecture& a) { return a.decoder_layers > 0 || a.own_classifier || a.head == Head::masked_word; }

// sdp_utils.cpp: neither fused kernel takes bfloat16 before Ampere, nor these heads.
bool lacks_fused_attention(const Spec& spec, const Architecture& a) {
  const Training& training = spec.training;
  const Dtype dtype = training.autocast.value_or(training.weights);
  const bool ampere = spec.cluster.gpu.compute_capability >= 80;
  const std::int64_t alignment = dtype != Dtype::float32 ? 8 : ampere ? 4 : 1;
  return training.attention == Attention::sdpa && ((dtype == Dtype::bfloat16 && !ampere) || a.head_dim % alignment != 0);
}

}  // namespace

std::optional<Problem> check_head(const Spec& spec, const Architecture& a) {
  const Training& training = spec.training;
  if (training.target_sequence && a.decoder_layers == 0)
    return Problem{"/training/target_sequence", "conflict", a.model_class + " has no decoder beside an encoder: leave it out"};
  if (a.head == Head::next_word) return std::nullopt;
  const auto refused = [&](const char* at, const std::string& what) {
    return Problem{at, "unsupported", what + " is not supported yet for " + a.model_class};
  };
  if (a.head == Head::sequence_label && !a.own_classifier && !a.classifier.finds_padding &&
      training.micro_batch > 1)  // GenericForSequenceClassification raises
    return Problem{"/model/config/pad_token_id", "conflict", "without a pad_token_id " + a.model_class + " takes rows one by one"};
  if (looks_both_ways(a) && lacks_fused_attention(spec, a))
    return refused("/training/attention", "attention that is neither flash nor memory-efficient");
  // peft/utils/other.py, _set_trainable: what is trained whole has an adapter already
  const bool adapts_classifier = a.head == Head::token_label || (a.head == Head::sequence_label && a.model_type == "distilbert");
  if (training.method == Method::lora && training.adapter.all_linear && adapts_classifier)
    return Problem{"/training/adapter/targets", "conflict",
                   "in " + a.model_class + " PEFT's all-linear takes the classifier, which trains whole: name the targets"};
  if (training.objective != Objective::sft)
    return Problem{"/training/objective", "conflict", "dpo compares words, which " + a.model_class + " has none of: use \"sft\""};
  if (training.loss != Loss::standard)
    return Problem{"/training/loss", "conflict", a.model_class + " has a loss of its own: use \"standard\""};
  if (training.loop == Loop::sft_trainer || training.evaluation || training.label_smoothing)
    return refused("/training/loop", "this part of a Trainer");
  if (spec.software.transformers != Transformers::v5) return refused("/software/transformers", "an older Transformers");
  if (training.stack != Stack::transformers) return refused("/software/stack", "another stack");
  if (spec.data.kind == DataKind::zero3) return refused("/parallel/data/kind", "zero3");
  if (spec.data.kind == DataKind::fsdp1 && !a.own_classifier && (a.head == Head::masked_word || a.head == Head::target_word))
    return refused("/parallel/data/kind", "fsdp1");
  if (a.head == Head::target_word && training.checkpointing == Checkpointing::full_reentrant)
    return refused("/training/checkpointing", "reentrant checkpointing, whose layers hand on more than one tensor,");
  if (a.head == Head::target_word && training.weights == Dtype::float16)  // T5Block clamps what overflows
    return refused("/training/weights", "training in float16");
  if (a.head == Head::target_word && training.base_quantization)  // _keep_in_fp32_modules
    return refused("/training/base_quantization", "a quantised base");
  if (a.head == Head::target_word && training.attention == Attention::flash_attention_2)
    return Problem{"/training/attention", "conflict",
                   a.model_class + " adds biases to the scores, for which flash_attention_2 has no place"};
  if (spec.tensor.degree > 1) return refused("/parallel/tensor/degree", "tensor parallelism");
  if (spec.pipeline.degree > 1) return refused("/parallel/pipeline/degree", "a pipeline");
  if (spec.context.degree > 1) return refused("/parallel/context/degree", "context parallelism");
  return std::nullopt;
}

// The data collator's: integers, or numbers in the dtype of the logits, which the losses over numbers ask for.
Tensor make_labels(Device& device, const Architecture& a, const Training& training, std::int64_t rows) {
  if (a.head != Head::sequence_label)
    return device.empty({rows, a.head == Head::target_word ? training.target_length() : training.sequence}, Dtype::int64);
  if (a.classifier.kind == LabelKind::one_of) return device.empty({rows}, Dtype::int64);
  const bool one = a.classifier.kind == LabelKind::number && a.classifier.labels == 1;
  return device.empty(one ? Dims{rows} : Dims{rows, a.classifier.labels}, Dtype::float32);
}

std::vector<std::string> trained_whole(const Architecture& a, const AdapterOptions& options) {
  std::vector<std::string> modules = options.modules_to_save;
  if (a.head == Head::sequence_label || a.head == Head::token_label) modules.insert(modules.end(), {"classifier", "score"});
  return modules;
}

std::int64_t tied_head_bias(const Architecture& a) {
  if (!a.tied_embeddings) return 0;
  if (a.head == Head::next_word) {
    const std::string bias = std::string(a.names.head) + ".bias";
    return std::any_of(a.tensors.begin(), a.tensors.end(), [&](const Parameter& each) { return each.name == bias; }) ? a.vocab_size : 0;
  }
  if (a.head != Head::masked_word) return 0;
  for (const Parameter& each : a.tensors)
    if (each.shape.size() == 1 && each.shape[0] == a.vocab_size) return a.vocab_size;
  return 0;
}

namespace {

// (token_indices * non_pad_mask).argmax(-1), and the names that the forward holds until it returns
struct LastTokens {
  Tensor non_pad_mask, token_indices, index;
};
LastTokens last_tokens(const Tensor& ids) {
  Device& device = ids.device();
  LastTokens found;
  {
    const Tensor differs = device.empty(ids.sizes(), Dtype::boolean);
    found.non_pad_mask = device.empty(ids.sizes(), Dtype::int32);
  }
  found.token_indices = device.empty({ids.size(1)}, Dtype::int32);
  const Tensor product = device.empty(ids.sizes(), Dtype::int32);
  found.index = device.empty({ids.size(0)}, Dtype::int64);
  return found;
}

Tensor label_loss(const Classifier& classifier, const Tensor& logits, const Tensor& labels) {
  switch (classifier.kind) {
    case LabelKind::one_of: return cross_entropy(logits, labels);
    case LabelKind::number: return mean_squared_error(logits, labels);
    case LabelKind::any_of: return binary_cross_entropy(logits, labels);
  }
  return {};
}

}  // namespace

Tensor CausalLm::loss_of_labels(const Tensor& ids, const Tensor& labels, const ForwardOptions& given, const UnitHooks& hooks,
                                Tensor* kept_logits) const {
  const Architecture& a = *architecture_;
  ForwardOptions options = given;
  if (a.head == Head::target_word) options.target = labels;
  if (hooks.before) hooks.before(-1, ids);
  Tensor hidden = hidden_states(ids, options, hooks), loss;
  const ModuleScope scope(ids.device(), a.names.head, Category::logits_and_loss);
  const Classifier& classifier = a.classifier;
  const std::int64_t rows = ids.size(0);
  const auto flat = [&](const Tensor& logits) { return view(logits, {labels.numel(), logits.size(-1)}); };
  const auto of_rows = [&](const Tensor& pooled) {
    if (kept_logits) *kept_logits = pooled;
    const bool one = classifier.kind == LabelKind::number && classifier.labels == 1;
    return label_loss(classifier, one ? view(pooled, {rows}) : pooled, labels);
  };
  std::vector<Tensor> locals;
  if (body_ && body_->has_logits()) {
    const Tensor logits = body_->logits(hidden, locals);
    if (kept_logits) *kept_logits = logits;
    if (a.head == Head::sequence_label) {
      loss = of_rows(logits);
    } else {
      const Tensor compared = a.float_logits ? to(logits, Dtype::float32) : logits;
      loss = cross_entropy(flat(compared), view(labels, {labels.numel()}));
      if (a.float_logits && options.num_items) loss = div(loss, options.num_items);
    }
  } else if (a.head == Head::token_label) {
    const Tensor sequence_output = dropout(hidden, classifier.dropout);
    const Tensor logits = lm_head_.forward(sequence_output);
    if (kept_logits) *kept_logits = logits;
    loss = cross_entropy(to(flat(logits), Dtype::float32), view(labels, {labels.numel()}));
  } else {
    const Tensor logits = lm_head_.forward(hidden);
    LastTokens last;
    if (classifier.finds_padding) last = last_tokens(ids);
    const Tensor range = ids.device().empty({rows}, Dtype::int64);
    loss = of_rows(last.index ? index_rows(logits, rows, range, last.index) : index_along(select(logits, 1), 0, range));
  }
  hidden.reset();
  locals.clear();
  return hooks.after ? hooks.after(-1, loss) : loss;
}

}  // namespace llmem
