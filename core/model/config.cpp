#include "model/config.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "model/activation.h"
#include "model/checkpoint.h"
#include "model/families.h"
#include "model/heads.h"
#include "model/litgpt.h"
#include "model/megatron_model.h"
#include "model/mixture.h"
#include "model/vision.h"
#include "spec/reader.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kWidest = 1 << 20;  // hidden_size
constexpr std::int64_t kMostLayers = 1 << 12;
constexpr std::int64_t kMostHeads = 1 << 12;
constexpr std::int64_t kMostWords = 1 << 24;  // vocab_size

const Family* read_family(ObjectReader& config) {
  std::string type;
  const auto played = [] { return "Supported: " + listed(family_names(Coverage::played)) + "."; };
  if (!config.given("model_type")) config.problem("model_type", "missing", "give the model_type. " + played());
  if (!config.text("model_type", type)) return nullptr;
  if (const Family* family = find_family(type)) return family;
  const std::string_view near = nearest(type, family_names(Coverage::parameters));
  config.problem("model_type", "unsupported",
                 "\"" + shortened(type) + "\" is not supported yet" +
                     (near.empty() ? ". " : "; the nearest family that is known is \"" + std::string(near) + "\". ") + played());
  return nullptr;
}

bool names_class(ObjectReader& config, const Family& family) {
  const Json* named = config.find("architectures");
  if (!named || !named->is_array()) return false;
  return std::any_of(named->begin(), named->end(), [&](const Json& each) {
    return each.is_string() && lower(each.get_ref<const std::string&>()) == lower(family.model_class);
  });
}

// Whether `architectures` names the family's own class, or none. Old files write LLaMAForCausalLM.
bool is_own_class(ObjectReader& config, const Family& family) {
  const Json* named = config.find("architectures");
  return !named || !named->is_array() || named->empty() || names_class(config, family);
}

// `no_forward`: what the class is made with and cannot run with.
void read_shape(ConfigReader& c, const Family& family, Architecture& out, Problems& no_forward) {
  out.vocab_size = c.count("vocab_size", 1, 1, kMostWords);
  out.hidden_size = c.count("hidden_size", 1, 1, kWidest);
  out.intermediate_size = c.count("intermediate_size", 4 * out.hidden_size, 1, 4 * kWidest);
  out.layers = c.count("num_hidden_layers", 1, 1, kMostLayers);
  ObjectReader& file = c.file();
  const std::size_t problems_before = c.problems();
  out.heads = c.count("num_attention_heads", 1, 1, kMostHeads);

  // Omitted, the class has its own number; null means "as many as heads" in each class.
  const std::string_view kv = c.in_file("num_key_value_heads");
  const bool own_default = !file.present(kv) && c.has_default("num_key_value_heads");
  out.kv_heads = c.integer_or("num_key_value_heads", out.heads, 1, kMostHeads);
  const bool heads_sound = c.problems() == problems_before;
  if (heads_sound && out.heads % out.kv_heads != 0) {
    add(no_forward, {file.at(kv), "conflict",
                     std::to_string(out.heads) + " attention heads cannot be shared out among " + std::to_string(out.kv_heads) +
                         " key/value heads" + (own_default ? " (the default)" : "")});
  }

  const std::int64_t shared_out = std::max<std::int64_t>(out.hidden_size / out.heads, 1);
  const std::string_view head_dim = c.in_file("head_dim");
  const bool null = file.present(head_dim) && !file.given(head_dim);  // None is hidden_size / heads, whatever the class's default
  out.head_dim = null ? shared_out : c.count("head_dim", shared_out, 1, 1 << 12);
  out.rotary_dim = out.head_dim;
  const std::string_view hidden = c.in_file("hidden_size");
  // LlamaConfig.validate_architecture, and what the attention of other classes asserts
  static constexpr std::string_view kWhole[] = {"llama",    "arcee",   "gpt2",        "gpt_bigcode", "gpt_neo",   "gptj", "codegen",
                                                "gpt_neox", "bloom",   "falcon",      "opt",         "biogpt",    "mpt",  "mpnet",
                                                "bert",     "roberta", "xlm-roberta", "distilbert",  "modernbert"};
  const bool whole_heads = std::find(std::begin(kWhole), std::end(kWhole), family.model_type) != std::end(kWhole);
  if (heads_sound && whole_heads && out.hidden_size % out.heads != 0) {
    file.problem(hidden, "conflict",
                 std::to_string(out.hidden_size) + " is not a multiple of the " + std::to_string(out.heads) + " attention heads");
  } else if (out.head_dim % 2 != 0 && family.declare == nullptr) {  // rotary embedding turns halves of a head
    const bool given = file.given("head_dim");
    add(no_forward, {file.at(given ? std::string_view("head_dim") : hidden), "range",
                     "rotary embedding needs an even head_dim, not " + std::to_string(out.head_dim) +
                         (given ? "" : " (hidden_size / num_attention_heads)")});
  }
}

void read_activation(ConfigReader& c, const Family& family, Architecture& out) {
  std::string name = c.text("hidden_act");
  if (name.rfind("gated-", 0) == 0) name = name == "gated-gelu" ? "gelu_new" : name.substr(6);  // T5Config.__post_init__
  out.activation = activation_named(name);
  if (out.activation == Activation::xielu && name_of(out.names.mlp, 'x').empty()) out.activation = Activation::other;
  if (family.coverage == Coverage::played && !out.own_activation && out.activation == Activation::other)
    c.file().problem(
        c.in_file("hidden_act"), "unsupported",
        "\"" + shortened(name) +
            "\" is not supported yet. Supported: silu, gelu, gelu_new, gelu_fast, quick_gelu, gelu_pytorch_tanh, relu, relu2.");
}

// Options that change what the layer computes, and so what it keeps.
void check_options(ObjectReader& config) {
  config.only("output_attentions", false);
  config.only("output_hidden_states", false);
  config.only_null("per_layer_config");
}

// Whether the class adds load_balancing_loss_func to the loss where the config asks for it.
bool has_router_loss(const Experts& e) {
  switch (e.router) {
    case RouterKind::other:
    case RouterKind::deepseek_v2:
    case RouterKind::deepseek_v3:
    case RouterKind::hunyuan:
    case RouterKind::hunyuan_v3: return false;
    default: return e.count > 0;
  }
}

// Rotary tables are small and the same for every kind, so none is an error; an unknown one may stem from a newer Transformers.
void note_rope(ObjectReader& config, std::vector<Note>& notes) {
  static constexpr std::string_view kKinds[] = {"default", "linear",       "dynamic", "yarn", "longrope",
                                                "llama3",  "proportional", "su",      "mrope"};
  for (std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = config.find(key);
    if (!rope) continue;
    std::string kind = quoted(*rope);
    if (rope->is_object()) {
      const auto named = rope->contains("rope_type") ? rope->find("rope_type") : rope->find("type");
      if (named == rope->end() || named->is_null()) continue;
      kind = named->is_string() ? named->get_ref<const std::string&>() : quoted(*named);
    }
    if (std::find(std::begin(kKinds), std::end(kKinds), kind) != std::end(kKinds)) continue;
    notes.push_back({config.at(key), "the rotary embedding \"" + shortened(kind) + "\" is not known; it is counted like the known ones"});
  }
}

void note_quantization(ObjectReader& config, std::vector<Note>& notes) {
  const Json* stored = config.find("quantization_config");
  if (!stored) return;
  std::string method;
  if (stored->is_object() && stored->contains("quant_method")) method = " (" + quoted(*stored->find("quant_method")) + ")";
  notes.push_back({config.at("quantization_config"),
                   "the published weights are quantised" + method + "; training holds them in training.weights, which is what is counted"});
}

// integrations/moe.py gathers every pair of token and chosen expert and sorts them: how many fall to which expert shows in no size.
void note_experts(ObjectReader& config, const Architecture& a, std::vector<Note>& notes) {
  if (a.experts.count == 0) return;
  notes.push_back({config.at("model_type"),
                   "all " + std::to_string(a.experts.count) + " experts are held and trained, of which a token meets " +
                       std::to_string(a.experts.per_token) + "; how evenly tokens are shared out among them does not change the memory"});
}

// Where the decoder is in a model that sees, and how wide what it sees is.
void read_tower_size(ConfigReader& whole, const Family& family, Architecture& out) {
  if (family.text.empty()) return;
  const bool within = family.text == "llama4_text";
  out.names.model = within ? "language_model.model" : "model.language_model";
  if (within) out.names.head = "language_model.lm_head";
  PartOfConfig vision(whole, "vision_config", "hidden_size=768 vision_output_dim=7680");
  const bool by_output = family.text == "mllama_text_model";
  out.vision_size = vision.config.count(by_output ? "vision_output_dim" : "hidden_size", 768);
}

// The modules' tensors, where they can be counted at all.
void declare(ConfigReader& whole, ConfigReader& text, const Family& family, const Family& decoder, Architecture& out, Problems& problems) {
  constexpr std::int64_t kMostNorms = 1 << 17;
  if (out.qk_norm_kind == QkNorm::each_head_apart && out.heads * out.layers > kMostNorms) {
    add(problems, {"/model/config", "range", "these sizes make more than 100 thousand norms"});
    return;
  }
  std::vector<Parameter> declared;
  if (family.towers) family.towers(whole, out, Module(declared, ""));
  (decoder.declare ? decoder.declare : declare_decoder)(text, out, Module(declared, ""));
  if (out.head != Head::next_word) declare_head(out, declared);
  double count = 0;
  for (const Parameter& each : declared) {
    double product = 1;
    for (const std::int64_t size : each.shape) product *= static_cast<double>(size);
    count += product;
  }
  if (count > 0x1p46)
    add(problems, {"/model/config", "range", "these sizes make more than 70 trillion parameters"});
  else
    out.tensors = in_order_of_parameters(std::move(declared));
}

// `on_text`: what trains without images.
Reading<Architecture> read(const Json& json, bool on_text) {
  Reading<Architecture> reading;
  Architecture& out = reading.value;
  ObjectReader config(&json, "/model/config", reading.problems);
  if (!json.is_object()) return reading;
  if (!json.contains("model_type") && is_checkpoint(json)) {
    add(reading.problems, about_checkpoint(json));
    return reading;
  }
  note_quantization(config, reading.notes);
  const Family* family = read_family(config);
  if (!family) return reading;
  // What a model sees with is beside its decoder, whose fields may be in text_config.
  const Family& decoder = family->text.empty() ? *family : *find_family(family->text);
  const Json* nested = family->text.empty() ? nullptr : config.object("text_config");
  if (family->alone && (on_text || names_class(config, decoder))) {
    if (on_text)
      reading.notes.push_back({config.at("model_type"), "without images AutoModelForCausalLM makes " + std::string(decoder.model_class) +
                                                            " of this config: the tower is neither held nor trained"});
    family = &decoder;
  }
  out.model_type = family->model_type;
  out.decoder_type = decoder.model_type;
  out.model_class = family->model_class;
  if (!nested && !is_own_class(config, *family)) read_head(config, *family, out);
  ConfigReader whole(config, reading.problems, family->defaults, family->other_names);
  ObjectReader text(nested ? nested : &json, nested ? "/model/config/text_config" : "/model/config", reading.problems);
  ConfigReader fields(text, reading.problems, decoder.defaults, decoder.other_names);
  Problems no_forward;
  read_shape(fields, decoder, out, no_forward);
  decoder.read(fields, out);
  read_tower_size(whole, *family, out);
  if (!family->text.empty()) family->read(whole, out);
  const bool tied = fields.flag("tie_word_embeddings");
  const bool whole_tied = !family->text.empty() && whole.flag("tie_word_embeddings");
  switch (family->text.empty() ? Tied::by_decoder : family->tied) {
    case Tied::by_decoder: out.tied_embeddings = tied; break;
    case Tied::by_whole: out.tied_embeddings = whole_tied; break;
    case Tied::by_either: out.tied_embeddings = tied || whole_tied; break;
    case Tied::never: out.tied_embeddings = false; break;
  }
  out.attention_dropout = fields.number("attention_dropout").value_or(0);
  read_activation(fields, decoder, out);
  if (family->coverage == Coverage::played) check_options(config);
  if (has_router_loss(out.experts) && fields.flag("output_router_logits")) out.unplayed = "output_router_logits";
  note_rope(config, reading.notes);
  note_experts(config, out, reading.notes);
  if (!reading.problems.empty()) {
    reading.problems.insert(reading.problems.end(), no_forward.begin(), no_forward.end());
    return reading;
  }
  declare(whole, fields, *family, decoder, out, reading.problems);
  reading.problems.insert(reading.problems.end(), no_forward.begin(), no_forward.end());
  if (reading.problems.empty() && (family->coverage == Coverage::parameters || !out.unplayed.empty())) {
    std::int64_t count = 0;
    for (const Parameter& each : parameters_of(out)) count += each.count();
    const std::string with = out.unplayed.empty() ? "" : " with " + std::string(out.unplayed);
    config.problem("model_type", "unsupported",
                   "\"" + out.model_type + "\"" + with + " (" + out.model_class + ", here with exactly " + grouped_digits(count) +
                       " parameters) is known by its parameters only; its training step is not supported yet. Supported: " +
                       listed(family_names(Coverage::played)) + ".");
  }
  return reading;
}

}  // namespace

Reading<Architecture> read_architecture(const Json& json) { return read(json, false); }
std::string_view images_of(const Family& family) {
  if (family.towers == nullptr) return "-";
  // The sizes of published towers: those of the classes do not fit each other.
  const Json tower = {
      {"hidden_size", 1024}, {"num_attention_heads", 16}, {"image_size", 896}, {"patch_size", 14}, {"vision_use_head", false}};
  const Json config = {{"model_type", family.model_type}, {"vision_config", tower}};
  return read(config, false).value.vision ? "tower and projector" : "refused";
}
Reading<Architecture> read_trained_architecture(const Json& json, const Training& training) { return read(json, !training.images); }

namespace {

// Whether every op of the forward is one that Llama's, Mistral's or Qwen's has, too.
bool is_llamas_layer(const Architecture& a) {
  return find_family(a.decoder_type)->body == nullptr && a.experts.count == 0 && a.norm == NormKind::rms && a.rotary == Rotary::halves &&
         a.latent.key_value_rank == 0 && !a.scaled_queries && !a.scaled_head_input && a.names.attention == Names().attention &&
         a.names.layer == Names().layer && a.names.mlp == Names().mlp && !a.partly_rotary && !a.scaled_residual && !a.scaled_logits &&
         a.scaled_embedding == ScaledEmbedding::no && a.unturned.empty() && a.qk_norm_kind <= QkNorm::head && a.dropout == 0;
}

// What a split by tensors or stages leaves as it is: no rotary in some layers, and what tensor parallelism scales between its Linears.
bool is_split_as_llama(const Architecture& a, bool in_stages) {
  Architecture like = a;
  like.unturned.clear();
  if (!in_stages) {
    like.scaled_residual = like.scaled_logits = like.scaled_queries = false;
    like.scaled_embedding = ScaledEmbedding::no;
  }
  return is_llamas_layer(like);
}

// torchtitan has models of its own: of those, what is played.
std::optional<Problem> check_torchtitan(const Spec& spec, const Architecture& a) {
  if (spec.training.stack != Stack::torchtitan || (is_llamas_layer(a) && !a.qkv_bias && !a.output_bias)) return std::nullopt;
  return Problem{
      "/software/stack", "unsupported",
      "\"" + a.model_type + "\" is not supported with torchtitan yet. Supported: models of Llama's kind without biases (llama, qwen3)"};
}

// What accelerate's units of FSDP2 are played for: an embedding, layers of one kind, and norm and head.
std::optional<Problem> check_loop_over_fsdp2(const Spec& spec, const Architecture& a) {
  if (spec.data.kind != DataKind::fsdp2 || spec.training.loop == Loop::plain) return std::nullopt;
  if (is_llamas_layer(a) && a.head == Head::next_word && !a.tied_embeddings) return std::nullopt;
  return Problem{"/training/loop", "unsupported",
                 "a loop of Transformers over FSDP2 is not supported yet for \"" + a.model_type +
                     "\" as it is here. Supported: decoders of Llama's kind whose head is not tied to the embedding."};
}

// What a tensor-parallel group has to divide.
std::optional<Problem> check_split(const Spec& spec, const Architecture& a) {
  const std::int64_t ranks = spec.tensor.degree;
  const auto does_not_divide = [&](const char* code, std::int64_t count, const char* what) {
    return Problem{"/parallel/tensor/degree", code,
                   std::to_string(ranks) + " ranks do not divide the model's " + std::to_string(count) + " " + what};
  };
  if (a.kv_heads % ranks != 0) return does_not_divide("conflict", a.kv_heads, "key/value heads");
  if (a.vocab_size % ranks != 0) return does_not_divide("unsupported", a.vocab_size, "words, which is not supported yet");
  if (a.intermediate_size % ranks != 0)
    return does_not_divide("unsupported", a.intermediate_size, "features of the MLP, which is not supported yet");
  if (!is_split_as_llama(a, false))
    return Problem{"/parallel/tensor/degree", "unsupported", "tensor parallelism is not supported yet for \"" + a.model_type + "\""};
  if (a.tied_embeddings && (spec.pipeline.degree > 1 || (spec.tensor.hf_plan && spec.data.kind != DataKind::fsdp2)))
    return Problem{"/parallel/tensor/degree", "unsupported",
                   "tensor parallelism over tied embeddings is not supported yet in a pipeline or by Transformers' own plan"};
  return std::nullopt;
}

// peft/tuners/tuners_utils.py, inject_adapter: a list of names of which the model has none is an error.
std::optional<Problem> check_targets(const AdapterOptions& adapter, const Architecture& a) {
  std::vector<std::string_view> valid;
  const std::vector<Parameter> parameters = parameters_of(a);
  for (const Parameter& each : parameters) {
    if (!each.of_linear) continue;
    std::string_view module = each.name;
    module.remove_suffix(module.size() - module.rfind('.'));  // ".weight"
    const auto is_target = [&](const std::string& target) {
      return module == target ||
             (module.size() > target.size() && module.ends_with(target) && module[module.size() - target.size() - 1] == '.');
    };
    if (std::any_of(adapter.targets.begin(), adapter.targets.end(), is_target)) return std::nullopt;
    const std::string_view last = module.substr(module.rfind('.') + 1);
    if (std::find(valid.begin(), valid.end(), last) == valid.end()) valid.push_back(last);
  }
  return Problem{"/training/adapter/targets", "conflict",
                 "no module of \"" + a.model_type + "\" has one of these names. It has " + listed(valid) + "; or take \"all-linear\""};
}

// trl/trainer/sft_trainer.py, aux_loss_enabled: SFTTrainer adds the load-balancing loss of the routers.
std::optional<Problem> check_router_loss(const Spec& spec, const Architecture& a) {
  if (spec.training.loop != Loop::sft_trainer || spec.software.trl != Trl::v1 || !has_router_loss(a.experts)) return std::nullopt;
  return Problem{
      "/training/loop", "unsupported",
      "SFTTrainer adds the routers' load-balancing loss, which is not supported yet for \"" + a.model_type + "\": give loop trainer"};
}

// trl/trainer/sft_trainer.py raises: the head's weight is read, an adapter on it would not train.
std::optional<Problem> check_adapted_head(const Spec& spec, const Architecture& a) {
  const Training& training = spec.training;
  if (training.loop != Loop::sft_trainer || spec.software.trl != Trl::v1 || training.adapter.all_linear) return std::nullopt;
  const std::vector<std::string>& targets = training.adapter.targets;
  if (std::find(targets.begin(), targets.end(), a.names.head) == targets.end()) return std::nullopt;
  return Problem{"/training/adapter/targets", "conflict", "SFTTrainer takes no adapter on the head: leave it out, or save it whole"};
}

// What the bodies of these families leave out.
std::optional<Problem> check_body(const Training& training, const Architecture& a) {
  const auto unsupported = [&](const char* at, const std::string& what) {
    return Problem{at, "unsupported", what + " is not supported yet for \"" + a.model_type + "\""};
  };
  const bool llama4 = a.decoder_type == "llama4_text", gemma4 = a.decoder_type == "gemma4_text";
  if (llama4 && training.attention == Attention::eager) return unsupported("/training/attention", "eager attention");
  if (llama4 && training.mask == Mask::padded) return unsupported("/training/mask", "a mask with padding");
  if ((llama4 || a.experts.router == RouterKind::phimoe) && training.method == Method::lora && training.adapter.all_linear)
    return Problem{"/training/adapter/targets", "conflict",
                   "PEFT cannot adapt the router of \"" + a.model_type + "\", which returns more than one tensor: name the targets"};
  if (llama4 && a.sliding_window > 0 && training.sequence > a.sliding_window)
    return unsupported("/training/sequence", "a sequence longer than attention_chunk_size (" + std::to_string(a.sliding_window) + ")");
  const bool plain_layers = a.model_type == "albert" || a.model_type == "mpnet";  // no GradientCheckpointingLayer
  if (plain_layers && training.checkpointing != Checkpointing::none)
    return Problem{"/training/checkpointing", "conflict", "Transformers has no gradient checkpointing for \"" + a.model_type + "\""};
  const bool others = std::find(a.attends.begin(), a.attends.end(), false) != a.attends.end();
  const bool all_recur = a.loops_over_tokens || (a.state_space.heads > 0 && a.attends.empty());
  const bool recurs = all_recur || (a.layer_kinds.empty() ? others : a.layer_kinds.find('M') != std::string::npos);
  if (recurs && training.mask == Mask::padded)
    return unsupported("/training/mask", "a mask with padding, which state-space layers and convolutions apply to what enters them,");
  // Layers that hand on their attention weights: they are outputs of CheckpointFunction, which makes zeros of the gradients that they lack.
  constexpr std::string_view kHandOnWeights[] = {"bamba", "bloom", "falcon", "gpt_neo", "mpt"};
  const bool hands_on = training.attention == Attention::eager &&
                        std::find(std::begin(kHandOnWeights), std::end(kHandOnWeights), a.model_type) != std::end(kHandOnWeights);
  if ((gemma4 || hands_on) && training.checkpointing == Checkpointing::full_reentrant)
    return unsupported("/training/checkpointing", hands_on ? "reentrant checkpointing of eager attention" : "reentrant checkpointing");
  return std::nullopt;
}

// liger_kernel/transformers/monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN: whose losses Liger has.
std::optional<Problem> check_liger_loss(const Training& training, const Architecture& a) {
  constexpr std::string_view kPatched[] = {"deepseek_v2",
                                           "deepseek_v3",
                                           "exaone4",
                                           "falcon_h1",
                                           "gemma",
                                           "gemma2",
                                           "gemma3",
                                           "gemma3_text",
                                           "gemma4",
                                           "gemma4_text",
                                           "glm4",
                                           "gpt_oss",
                                           "granite",
                                           "llama",
                                           "llama4",
                                           "llama4_text",
                                           "llava",
                                           "ministral",
                                           "mistral",
                                           "mixtral",
                                           "mllama",
                                           "nemotron",
                                           "hunyuan_v1_dense",
                                           "hunyuan_v1_moe",
                                           "olmo2",
                                           "olmo3",
                                           "phi3",
                                           "qwen2",
                                           "qwen2_5_vl",
                                           "qwen3",
                                           "qwen3_5",
                                           "qwen3_5_moe",
                                           "qwen3_5_text",
                                           "qwen3_5_moe_text",
                                           "qwen3_moe",
                                           "qwen3_next",
                                           "qwen3_vl",
                                           "qwen3_vl_moe",
                                           "smollm3",
                                           "kimi_k2"};
  const bool fused = training.loss == Loss::liger_fused_linear;
  if (training.stack != Stack::transformers || (!fused && training.loss != Loss::liger_cross_entropy)) return std::nullopt;
  if (std::find(std::begin(kPatched), std::end(kPatched), a.model_type) == std::end(kPatched))
    return Problem{"/training/loss", "conflict", "Liger has no kernels for \"" + a.model_type + "\": use \"standard\""};
  if (fused && a.model_type == "granite")
    return Problem{"/training/loss", "conflict", "Liger has no fused head for \"granite\": use \"liger_cross_entropy\""};
  return std::nullopt;
}

// The kernels of the layers are Llama's, and those that Liger patches alike (liger_kernel/transformers/monkey_patch.py).
std::optional<Problem> check_liger(const Training& training, const Architecture& a) {
  constexpr std::string_view kPatched[] = {"llama", "mistral", "qwen2", "qwen3", "granite", "smollm3"};
  const bool kernels = training.liger.rms_norm || training.liger.rope || training.liger.swiglu;
  if (!kernels || std::find(std::begin(kPatched), std::end(kPatched), a.model_type) != std::end(kPatched)) return std::nullopt;
  return Problem{"/training/kernels/liger", "unsupported",
                 "Liger's kernels of the layers are not supported yet for \"" + a.model_type +
                     "\". Supported: llama, mistral, qwen2, qwen3, granite, smollm3"};
}

std::optional<Problem> check_flash(const Architecture& a) {
  const auto is = [&](std::string_view type) { return a.decoder_type == type; };
  if (is("bloom") || is("mpt") || is("llama4_text"))
    return Problem{"/training/attention", "conflict", "Transformers has no flash_attention_2 for \"" + a.model_type + "\""};
  if (is("gemma4_text") || is("falcon") || is("gpt_neo") || is("biogpt") || a.latent.key_value_rank > 0)
    return Problem{"/training/attention", "unsupported", "flash_attention_2 is not supported yet for \"" + a.model_type + "\""};
  return std::nullopt;
}

std::optional<Problem> check_context(const Spec& spec, const Architecture& a, bool calls_others) {
  if (calls_others || a.sliding_window > 0 || a.softcapped_attention || a.latent.key_value_rank > 0)
    return Problem{"/parallel/context/degree", "unsupported", "context parallelism is not supported yet for \"" + a.model_type + "\""};
  if (!spec.context.ulysses) return std::nullopt;
  if (spec.tensor.degree > 1 || spec.pipeline.degree > 1)
    return Problem{"/parallel/context/kind", "unsupported", "Ulysses with tensor parallelism or a pipeline is not supported yet."};
  const std::int64_t ranks = spec.context.degree;
  if (a.heads % ranks == 0 && (a.kv_heads % ranks == 0 || ranks % a.kv_heads == 0)) return std::nullopt;
  return Problem{"/parallel/context/degree", "conflict",
                 "Ulysses gives each rank as many heads: " + std::to_string(ranks) + " ranks do not divide " + std::to_string(a.heads) +
                     " attention heads and " + std::to_string(a.kv_heads) + " key/value heads"};
}

bool has_no_sdpa(const Architecture& a) { return a.eager_only || a.decoder_type == "gemma2"; }

// modeling_utils.py, _check_and_adjust_attn_implementation: what is asked for and not there is an error.
std::optional<Problem> check_attention(const Training& training, const Architecture& a) {
  if (training.attention == Attention::eager || training.stack == Stack::litgpt) return std::nullopt;
  const std::string name = "\"" + a.model_type + "\"";
  if (a.eager_only) return Problem{"/training/attention", "conflict", name + " has eager attention only: use \"eager\""};
  if (has_no_sdpa(a) && training.attention == Attention::sdpa)
    return Problem{"/training/attention", "conflict",
                   "Transformers has no sdpa attention for " + name + ": use \"eager\", its own choice, or \"flash_attention_2\""};
  return std::nullopt;
}

}  // namespace

bool settle_attention(Training& training, const Architecture& a) {
  const bool chooses = !training.attention_given && training.stack == Stack::transformers && has_no_sdpa(a);
  if (chooses) training.attention = Attention::eager;
  return chooses;
}

Problems check_sizes(const Spec& spec, const Architecture& a) {
  if (spec.model.tensors)
    if (Problems problems = check_checkpoint(*spec.model.tensors, a); !problems.empty()) return problems;
  if (spec.training.stack == Stack::megatron) return check_megatron_sizes(spec, a);
  if (a.megatron)
    return {{"/model/config/model_type", "conflict",
             "a model in Megatron's own arguments runs in Megatron: give software {\"stack\": \"megatron\"}"}};
  if (std::optional<Problem> problem = check_torchtitan(spec, a)) return {*std::move(problem)};
  if (std::optional<Problem> problem = check_loop_over_fsdp2(spec, a)) return {*std::move(problem)};
  if (spec.training.stack == Stack::litgpt)
    if (std::optional<Problem> problem = check_litgpt(spec.training, a)) return {*std::move(problem)};
  if (a.head != Head::next_word || spec.training.target_sequence)
    if (std::optional<Problem> problem = check_head(spec, a)) return {*std::move(problem)};
  const double tokens = static_cast<double>(spec.training.micro_batch) * static_cast<double>(spec.training.sequence);
  const double heads = static_cast<double>(a.heads) * static_cast<double>(a.head_dim);
  // Generous: 64 tensors of each width a token and a layer, 8 bytes an element. With eager attention also 8 of [heads, sequence].
  double layer = 64.0 * (static_cast<double>(a.hidden_size) + static_cast<double>(a.intermediate_size) + heads);
  if (spec.training.attention == Attention::eager)
    layer += 8.0 * static_cast<double>(a.heads) * static_cast<double>(spec.training.sequence);
  const double bytes = 8.0 * tokens * (static_cast<double>(a.layers) * layer + 16.0 * static_cast<double>(a.vocab_size));
  if (spec.training.attention == Attention::flash_attention_2 && a.head_dim > 256)  // flash-attn, csrc/flash_attn/flash_api.cpp
    return {{"/training/attention", "conflict", "flash_attention_2 takes heads of at most 256, not " + std::to_string(a.head_dim)}};
  if (std::optional<Problem> problem = check_body(spec.training, a)) return {*std::move(problem)};
  if (std::optional<Problem> problem = check_router_loss(spec, a)) return {*std::move(problem)};
  const Family &whole = *find_family(a.model_type), &family = *find_family(a.decoder_type);
  const bool alone = spec.data.kind == DataKind::none && spec.pipeline.degree == 1 && spec.tensor.degree == 1;
  if (whole.towers != nullptr && spec.training.stack != Stack::transformers)
    return {{"/software/stack", "unsupported", "\"" + a.model_type + "\" is not supported with another stack yet"}};
  if (whole.towers != nullptr && spec.software.transformers != Transformers::v5)
    return {{"/software/transformers", "unsupported", "\"" + a.model_type + "\" is not supported with an older Transformers yet"}};
  const bool of_text_loss = a.decoder_type == "llama" || a.decoder_type == "gemma3_text";
  if (whole.towers != nullptr && spec.training.loop != Loop::plain && !of_text_loss)  // accepts_loss_kwargs is False
    return {{"/training/loop", "unsupported", "a Trainer is not supported yet for \"" + a.model_type + "\""}};
  if (whole.towers != nullptr && spec.training.base_quantization && a.decoder_type == "gemma4_text")
    return {{"/training/base_quantization", "unsupported", "a quantised base is not supported yet for \"" + a.model_type + "\""}};
  if (spec.training.images)
    if (std::optional<Problem> problem = check_images(spec, a)) return {*std::move(problem)};
  if (whole.towers != nullptr && !alone)
    return {{"/parallel", "unsupported",
             "\"" + a.model_type +
                 "\" is trained on text here, so that its vision tower gets no gradients; several GPUs are not supported for that yet"}};
  const bool on_experts = spec.training.method == Method::lora && expert_targets(a, spec.training.adapter).any();
  if (on_experts && names_half_of_experts(a, spec.training.adapter))
    return {{"/training/adapter/targets", "conflict",
             "the experts' gate and up projections are one matrix in \"" + a.model_type + "\", which PEFT adapts whole only: name both"}};
  if (spec.training.method == Method::lora && !spec.training.adapter.all_linear && !on_experts && spec.training.stack != Stack::litgpt)
    if (std::optional<Problem> problem = check_targets(spec.training.adapter, a)) return {*std::move(problem)};
  const AdapterOptions& adapter = spec.training.adapter;
  if (spec.training.method == Method::lora && adapter.dora && adapter.dropout > 0 && a.decoder_type == "gpt2")
    return {{"/training/adapter", "unsupported", "DoRA with dropout over the Conv1D layers of \"gpt2\" is not supported yet."}};
  if (spec.training.method == Method::lora)
    if (std::optional<Problem> problem = check_adapted_head(spec, a)) return {*std::move(problem)};
  if (on_experts &&
      (spec.training.adapter.dora || spec.training.adapter.dropout > 0))  // peft/tuners/lora/layer.py, ParamWrapper.__init__ raises
    return {{"/training/adapter", "conflict",
             "in \"" + a.model_type + "\" these targets are experts, for which PEFT has neither DoRA nor dropout"}};
  constexpr std::int64_t kMostLoops = 1 << 17;  // what a minute has room for
  if (a.loops_over_tokens && a.layers * spec.training.sequence > kMostLoops)
    return {{"/training/sequence", "range",
             "without the package mamba-ssm \"" + a.model_type + "\" runs ops for each token and layer, more than can be played: at most " +
                 std::to_string(kMostLoops / a.layers) + " tokens"}};
  const bool flattens = spec.data.kind == DataKind::fsdp1 || spec.data.kind == DataKind::fsdp2;
  if (on_experts && flattens)
    return {{"/training/adapter/targets", "unsupported",
             "in \"" + a.model_type + "\" these targets are experts, whose adapters are not supported yet where FSDP shards them"}};
  if (flattens && spec.training.method == Method::lora && !spec.training.adapter.modules_to_save.empty())
    return {{"/training/adapter/modules_to_save", "unsupported", "modules_to_save is not supported yet where FSDP shards the copies"}};
  if (family.body != nullptr && !spec.training.adapter.modules_to_save.empty())
    return {{"/training/adapter/modules_to_save", "unsupported", "modules_to_save is not supported yet for \"" + a.model_type + "\""}};
  const bool calls_others = family.body != nullptr || a.experts.count > 0;
  if (spec.data.kind == DataKind::zero3 && calls_others)  // its hooks are played where Linears, norms and embeddings are called
    return {{"/parallel/data/kind", "unsupported", "zero3 is not supported yet for \"" + a.model_type + "\""}};
  if (spec.context.degree > 1)
    if (std::optional<Problem> problem = check_context(spec, a, calls_others)) return {*std::move(problem)};
  if (std::optional<Problem> problem = check_liger(spec.training, a)) return {*std::move(problem)};
  if (std::optional<Problem> problem = check_liger_loss(spec.training, a)) return {*std::move(problem)};
  if (spec.training.attention == Attention::flash_attention_2)
    if (std::optional<Problem> problem = check_flash(a)) return {*std::move(problem)};
  if (std::optional<Problem> problem = check_attention(spec.training, a)) return {*std::move(problem)};
  const std::int64_t stages = spec.pipeline.degree * spec.pipeline.virtual_stages;
  if (spec.pipeline.degree > 1 && a.layers < stages)
    return {
        {"/parallel/pipeline/degree", "conflict", std::to_string(a.layers) + " layers do not fill " + std::to_string(stages) + " stages"}};
  if (spec.tensor.degree > 1)
    if (std::optional<Problem> problem = check_split(spec, a)) return {*std::move(problem)};
  if (spec.pipeline.degree > 1 && !is_split_as_llama(a, true))
    return {{"/parallel/pipeline/degree", "unsupported", "pipeline stages are not supported yet for \"" + a.model_type + "\""}};
  if (bytes < 0x1p60) return {};
  return {{"/training/sequence", "range",
           "this many tokens through a model of this size could need more than 2^60 bytes: use a smaller micro_batch or sequence"}};
}

}  // namespace llmem
