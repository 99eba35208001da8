#include "model/config.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"
#include "base/text.h"
#include "spec/reader.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

enum class Bias : std::uint8_t { never, always, asked };           // asked: by the key attention_bias
enum class Window : std::uint8_t { none, every_layer, by_layer };  // by_layer: use_sliding_window, max_window_layers, layer_types

// A model_type whose decoder is Llama's, op by op. A row holds what differs: the defaults of its configuration class
// (transformers/models/<model_type>/configuration_<model_type>.py, 5.24) and the traits of its modeling file.
// A family with other ops (multipliers, other norms, partial rotary, experts, …) is no row here.
struct Family {
  std::string_view model_type, model_class;
  std::int64_t vocab_size, hidden_size, intermediate_size, layers, heads;
  std::int64_t kv_heads;  // 0: as many as heads
  std::int64_t head_dim;  // 0: hidden_size / heads
  Bias qkv_bias, output_bias;
  bool mlp_bias;  // whether the class has the key
  bool qk_norm;
  Window window;
  bool whole_heads;  // hidden_size must divide by heads, even with a head_dim
};
// clang-format off
constexpr Family kFamilies[] = {
    // model_type, class,          vocab, hidden, intermediate, layers, heads, kv, head_dim, biases of qkv, o, mlp,         qk_norm, window, whole_heads
    {"llama", "LlamaForCausalLM",     32000, 4096, 11008, 32, 32, 0, 0,    Bias::asked, Bias::asked, true,    false, Window::none, true},
    {"mistral", "MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 0,    Bias::never, Bias::never, false,   false, Window::every_layer, false},
    {"qwen2", "Qwen2ForCausalLM",    151936, 4096, 22016, 32, 32, 32, 0,   Bias::always, Bias::never, false,  false, Window::by_layer, false},
    {"qwen3", "Qwen3ForCausalLM",    151936, 4096, 22016, 32, 32, 32, 128, Bias::asked, Bias::asked, false,   true, Window::by_layer, false},
};
// clang-format on

constexpr std::int64_t kWidest = 1 << 20;  // hidden_size
constexpr std::int64_t kMostLayers = 1 << 12;
constexpr std::int64_t kMostHeads = 1 << 12;
constexpr std::int64_t kMostWords = 1 << 24;   // vocab_size
constexpr std::int64_t kDefaultWindow = 4096;  // of MistralConfig, Qwen2Config, Qwen3Config

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.model_type);
  return names;
}

const Family* read_family(ObjectReader& config) {
  std::string type;
  if (!config.given("model_type"))
    config.problem("model_type", "missing", "give the model_type. Supported: " + listed(family_names()) + ".");
  if (!config.text("model_type", type)) return nullptr;
  for (const Family& family : kFamilies) {
    if (family.model_type == type) return &family;
  }
  config.problem("model_type", "unsupported",
                 "\"" + shortened(type) + "\" is not supported yet. Supported: " + listed(family_names()) + ".");
  return nullptr;
}

// A config of a classifier or of the bare decoder has another head than the one that is played. Old files write LLaMAForCausalLM.
void check_class(ObjectReader& config, const Family& family) {
  const Json* named = config.find("architectures");
  if (!named || !named->is_array() || named->empty()) return;
  for (const Json& each : *named) {
    if (each.is_string() && lower(each.get_ref<const std::string&>()) == lower(family.model_class)) return;
  }
  config.problem("architectures", "unsupported",
                 quoted((*named)[0]) + " is not supported yet. Supported for " + std::string(family.model_type) + ": " +
                     std::string(family.model_class) + ".");
}

void read_shape(ObjectReader& config, const Family& family, Architecture& out) {
  out.vocab_size = family.vocab_size;
  out.hidden_size = family.hidden_size;
  out.intermediate_size = family.intermediate_size;
  out.layers = family.layers;
  out.heads = family.heads;
  config.integer("vocab_size", out.vocab_size, 1, kMostWords);
  config.integer("hidden_size", out.hidden_size, 1, kWidest);
  config.integer("intermediate_size", out.intermediate_size, 1, 4 * kWidest);
  config.integer("num_hidden_layers", out.layers, 1, kMostLayers);
  const bool heads_sound = config.integer("num_attention_heads", out.heads, 1, kMostHeads) || !config.given("num_attention_heads");

  // Omitted, the class has its own number; null means "as many as heads" in each class.
  const bool own_default = family.kv_heads > 0 && !config.present("num_key_value_heads");
  out.kv_heads = own_default ? family.kv_heads : out.heads;
  const bool kv_sound = config.integer("num_key_value_heads", out.kv_heads, 1, kMostHeads) || !config.given("num_key_value_heads");
  if (heads_sound && kv_sound && out.heads % out.kv_heads != 0) {
    config.problem("num_key_value_heads", "conflict",
                   std::to_string(out.heads) + " attention heads cannot be shared out among " + std::to_string(out.kv_heads) +
                       " key/value heads" + (own_default ? " (the default)" : ""));
  }

  out.head_dim = family.head_dim ? family.head_dim : std::max<std::int64_t>(out.hidden_size / out.heads, 1);
  const bool head_dim_given = config.integer("head_dim", out.head_dim, 1, 1 << 12);
  if (heads_sound && family.whole_heads && out.hidden_size % out.heads != 0) {
    config.problem("hidden_size", "conflict",
                   std::to_string(out.hidden_size) + " is not a multiple of the " + std::to_string(out.heads) + " attention heads");
  } else if (out.head_dim % 2 != 0) {  // rotary embedding turns halves of a head
    config.problem(head_dim_given ? "head_dim" : "hidden_size", "range",
                   "rotary embedding needs an even head_dim, not " + std::to_string(out.head_dim) +
                       (head_dim_given ? "" : " (hidden_size / num_attention_heads)"));
  }
}

void read_biases(ObjectReader& config, const Family& family, Architecture& out) {
  bool asked = false;
  if (family.qkv_bias == Bias::asked) config.boolean("attention_bias", asked);
  out.qkv_bias = family.qkv_bias == Bias::always || (family.qkv_bias == Bias::asked && asked);
  out.output_bias = family.output_bias == Bias::asked && asked;
  if (family.mlp_bias) config.boolean("mlp_bias", out.mlp_bias);
  out.qk_norm = family.qk_norm;
}

// Qwen2Config: without layer_types, the layers from max_window_layers on have the window.
void check_layer_windows(ObjectReader& config, std::int64_t layers) {
  bool used = false;
  std::int64_t window = kDefaultWindow, first = 28;
  config.boolean("use_sliding_window", used);
  const bool null_window = config.present("sliding_window") && !config.given("sliding_window");
  if (used) config.integer("sliding_window", window, 1, INT64_MAX);
  config.integer("max_window_layers", first, 0, INT64_MAX);
  bool slides = used && !null_window && first < layers;
  if (const Json* types = config.find("layer_types")) {
    slides = false;
    if (!types->is_array()) {
      config.problem("layer_types", "type", "must be a list with a type for each layer, not " + quoted(*types));
    } else {
      for (const Json& type : *types) slides = slides || !type.is_string() || type.get_ref<const std::string&>() != "full_attention";
      if (static_cast<std::int64_t>(types->size()) != layers) {
        config.problem("layer_types", "conflict",
                       std::to_string(types->size()) + " layer types for " + std::to_string(layers) + " layers (num_hidden_layers)");
      }
    }
  }
  if (slides) {
    config.problem(config.given("layer_types") ? "layer_types" : "use_sliding_window", "unsupported",
                   "a sliding window in some layers is not supported yet. Supported: full attention in every layer.");
  }
}

void read_window(ObjectReader& config, const Family& family, Architecture& out) {
  if (family.window == Window::by_layer) return check_layer_windows(config, out.layers);
  if (family.window == Window::none) return;
  if (!config.present("sliding_window")) out.sliding_window = kDefaultWindow;
  config.integer("sliding_window", out.sliding_window, 1, INT64_MAX);
}

// Options that change what the layer computes, and so what it keeps.
void check_options(ObjectReader& config) {
  std::string activation = "silu";
  if (config.text("hidden_act", activation) && activation != "silu" && activation != "swish") {
    config.problem("hidden_act", "unsupported", "\"" + shortened(activation) + "\" is not supported yet. Supported: silu.");
  }
  config.only("attention_dropout", 0.0, 0.0, 1.0);
  config.only("output_attentions", false);
  config.only("output_hidden_states", false);
  config.only_null("per_layer_config");
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

double count_of(const Architecture& a) {
  const double attention =
      2.0 * static_cast<double>(a.heads + a.kv_heads) * static_cast<double>(a.head_dim) * static_cast<double>(a.hidden_size);
  const double mlp = 3.0 * static_cast<double>(a.intermediate_size) * static_cast<double>(a.hidden_size);
  return static_cast<double>(a.layers) * (attention + mlp) + 2.0 * static_cast<double>(a.vocab_size) * static_cast<double>(a.hidden_size);
}

}  // namespace

Reading<Architecture> read_architecture(const Json& json) {
  Reading<Architecture> reading;
  Architecture& out = reading.value;
  ObjectReader config(&json, "/model/config", reading.problems);
  if (!json.is_object()) return reading;
  note_quantization(config, reading.notes);
  const Family* family = read_family(config);
  if (!family) return reading;
  out.model_type = family->model_type;
  out.model_class = family->model_class;
  check_class(config, *family);
  read_shape(config, *family, out);
  read_biases(config, *family, out);
  config.boolean("tie_word_embeddings", out.tied_embeddings);  // false in every family's class
  read_window(config, *family, out);
  check_options(config);
  note_rope(config, reading.notes);
  if (reading.problems.empty() && count_of(out) > 0x1p46) {
    reading.problems.push_back({"/model/config", "range", "these sizes make more than 70 trillion parameters"});
  }
  return reading;
}

Problems check_sizes(const Spec& spec, const Architecture& a) {
  const double tokens = static_cast<double>(spec.training.micro_batch) * static_cast<double>(spec.training.sequence);
  const double heads = static_cast<double>(a.heads) * static_cast<double>(a.head_dim);
  // Generous: 64 tensors of each width a token and a layer, 8 bytes an element. With eager attention also 8 of [heads, sequence].
  double layer = 64.0 * (static_cast<double>(a.hidden_size) + static_cast<double>(a.intermediate_size) + heads);
  if (spec.training.attention == Attention::eager)
    layer += 8.0 * static_cast<double>(a.heads) * static_cast<double>(spec.training.sequence);
  const double bytes = 8.0 * tokens * (static_cast<double>(a.layers) * layer + 16.0 * static_cast<double>(a.vocab_size));
  // transformers masking_utils.py, _ignore_causal_mask_sdpa: a window that binds takes a mask, and SDPA then another kernel.
  if (a.sliding_window > 0 && spec.training.sequence >= a.sliding_window)
    return {{"/training/sequence", "unsupported",
             "this model's sliding window of " + std::to_string(a.sliding_window) +
                 " tokens binds at this length, and masked attention is not yet supported: use a sequence below " +
                 std::to_string(a.sliding_window)}};
  if (bytes < 0x1p60) return {};
  return {{"/training/sequence", "range",
           "this many tokens through a model of this size could need more than 2^60 bytes: use a smaller micro_batch or sequence"}};
}

}  // namespace llmem
