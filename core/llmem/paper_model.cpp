#include "llmem/paper_model.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "llmem/chunks.h"
#include "model/config.h"
#include "spec/reader.h"

namespace llmem {

std::int64_t PaperModel::parameter_count() const { return std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0}); }

namespace {

using Json = nlohmann::json;

// Beyond what exists, and small enough that products of sizes stay below 2^62.
constexpr std::int64_t kWidest = 1 << 18, kDeepest = 1 << 10;

// Modules in the order in which a Transformers 4.29 class registers them.
class Modules {
 public:
  explicit Modules(PaperModel& model) : model_(model) {}

  void embedding(std::int64_t rows, std::int64_t width) {
    if (model_.embeddings++ == 0) model_.input_embedding = rows * width;
    add({rows * width});
  }
  void linear(std::int64_t out, std::int64_t in, bool bias) {
    if (bias)
      add({out * in, out});
    else
      add({out * in});
  }
  void norm(std::int64_t width) { model_.parameters.insert(model_.parameters.end(), {width, width}); }
  void head(std::int64_t out, std::int64_t in, bool tied, bool bias) {
    model_.head = out * in;
    model_.head_tied = tied;
    model_.listed.push_back(out * in);
    if (!tied) model_.parameters.push_back(out * in);
    if (!bias) return;
    model_.listed.push_back(out);
    model_.parameters.push_back(out);
  }

 private:
  void add(std::initializer_list<std::int64_t> tensors) {
    model_.parameters.insert(model_.parameters.end(), tensors);
    model_.listed.insert(model_.listed.end(), tensors);
    model_.operators.push_back(std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0}));
  }

  PaperModel& model_;
};

// The numbers of a config, by whichever of its names the family uses. Fields without influence here are not looked at.
class Config {
 public:
  Config(const Json& object, Problems& problems) : reader_(&object, "/model/config", problems) {}

  std::int64_t size(std::initializer_list<std::string_view> names, std::int64_t otherwise = 0, std::int64_t most = 1 << 24) {
    std::int64_t value = otherwise;
    for (std::string_view name : names) {
      if (reader_.given(name)) {
        reader_.integer(name, value, 1, most);
        return value;
      }
    }
    if (otherwise == 0) reader_.problem(*names.begin(), "missing", "the model's " + std::string(*names.begin()) + " is needed");
    return value;
  }
  bool flag(std::string_view name, bool otherwise) {
    reader_.boolean(name, otherwise);
    return otherwise;
  }

 private:
  ObjectReader reader_;
};

void opt(Config& config, PaperModel& model) {
  const std::int64_t h = model.hidden, wide = config.size({"ffn_dim"}), width = config.size({"word_embed_proj_dim"}, h);
  const bool norm_before = config.flag("do_layer_norm_before", true),
             final_norm = norm_before && !config.flag("_remove_final_layer_norm", false);
  Modules modules(model);
  modules.embedding(model.vocabulary, width);
  modules.embedding(config.size({"max_position_embeddings"}) + 2, h);  // OPTLearnedPositionalEmbedding: offset 2
  model.output_width = width;
  if (width != h) {
    modules.linear(width, h, false);
    modules.linear(h, width, false);
  }
  if (final_norm) modules.norm(h);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    for (int projection = 0; projection < 4; ++projection) modules.linear(h, h, true);
    modules.norm(h);
    modules.linear(wide, h, true);
    modules.linear(h, wide, true);
    modules.norm(h);
  }
  modules.head(model.vocabulary, width, true, false);
}

void biogpt(Config& config, PaperModel& model) {
  const std::int64_t h = model.hidden, wide = config.size({"intermediate_size"});
  Modules modules(model);
  modules.embedding(model.vocabulary, h);
  modules.embedding(config.size({"max_position_embeddings"}) + 2, h);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    for (int projection = 0; projection < 4; ++projection) modules.linear(h, h, true);
    modules.norm(h);
    modules.linear(wide, h, true);
    modules.linear(h, wide, true);
    modules.norm(h);
  }
  modules.norm(h);
  modules.head(model.vocabulary, h, true, false);
}

void bloom(Config&, PaperModel& model) {
  const std::int64_t h = model.hidden;
  Modules modules(model);
  modules.embedding(model.vocabulary, h);
  modules.norm(h);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    modules.norm(h);
    modules.linear(3 * h, h, true);
    modules.linear(h, h, true);
    modules.norm(h);
    modules.linear(4 * h, h, true);
    modules.linear(h, 4 * h, true);
  }
  modules.norm(h);
  modules.head(model.vocabulary, h, true, false);
}

void codegen(Config& config, PaperModel& model) {
  const std::int64_t h = model.hidden, wide = config.size({"n_inner"}, 4 * h);
  Modules modules(model);
  modules.embedding(model.vocabulary, h);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    modules.norm(h);
    modules.linear(3 * h, h, false);
    modules.linear(h, h, false);
    modules.linear(wide, h, true);
    modules.linear(h, wide, true);
  }
  modules.norm(h);
  modules.head(model.vocabulary, h, false, true);
  model.fp32_logits = true;
}

void gpt_neo(Config& config, PaperModel& model) {
  const std::int64_t h = model.hidden, wide = config.size({"intermediate_size"}, 4 * h);
  Modules modules(model);
  modules.embedding(model.vocabulary, h);
  modules.embedding(config.size({"max_position_embeddings"}), h);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    modules.norm(h);
    for (int projection = 0; projection < 3; ++projection) modules.linear(h, h, false);
    modules.linear(h, h, true);
    modules.norm(h);
    modules.linear(wide, h, true);
    modules.linear(h, wide, true);
  }
  modules.norm(h);
  modules.head(model.vocabulary, h, true, false);
  model.fp32_logits = true;
}

void gpt_bigcode(Config& config, PaperModel& model) {
  const std::int64_t h = model.hidden, wide = config.size({"n_inner"}, 4 * h);
  const std::int64_t kv = config.flag("multi_query", true) ? h / config.size({"n_head"}) : h;
  Modules modules(model);
  modules.embedding(model.vocabulary, h);
  modules.embedding(config.size({"n_positions"}), h);
  for (std::int64_t i = 0; i < model.layers; ++i) {
    modules.norm(h);
    modules.linear(h + 2 * kv, h, true);
    modules.linear(h, h, true);
    modules.norm(h);
    modules.linear(wide, h, true);
    modules.linear(h, wide, true);
  }
  modules.norm(h);
  modules.head(model.vocabulary, h, true, false);
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// A decoder of which only the parameter list is known: whatever is called a norm is neither Embedding nor Linear.
void from_parameters(const Architecture& architecture, PaperModel& model) {
  model.hidden = model.output_width = architecture.hidden_size;
  model.layers = architecture.layers;
  model.vocabulary = architecture.vocab_size;
  model.head = architecture.vocab_size * architecture.hidden_size;
  model.head_tied = architecture.tied_embeddings;
  model.embeddings = 1;
  for (const Parameter& parameter : parameters_of(architecture)) {
    const std::int64_t count = parameter.count();
    model.parameters.push_back(count);
    if (parameter.name.find("norm") != std::string::npos) continue;
    model.listed.push_back(count);
    if (model.operators.empty()) model.input_embedding = count;
    if (parameter.name == "lm_head.weight") continue;
    if (ends_with(parameter.name, ".bias"))
      model.operators.back() += count;
    else
      model.operators.push_back(count);
  }
  if (model.head_tied) model.listed.push_back(model.head);
}

struct Family {
  std::string_view type;
  void (*build)(Config&, PaperModel&);
};
constexpr Family families[] = {{"opt", opt},         {"biogpt", biogpt},   {"bloom", bloom},
                               {"codegen", codegen}, {"gpt_neo", gpt_neo}, {"gpt_bigcode", gpt_bigcode}};

void from_modules(const Family& family, Config& config, PaperModel& model, const Problems& problems) {
  model.hidden = model.output_width = config.size({"hidden_size", "n_embd"}, 0, kWidest);
  model.layers = config.size({"num_hidden_layers", "n_layer", "num_layers"}, 0, kDeepest);
  model.vocabulary = config.size({"vocab_size"});
  if (problems.empty()) family.build(config, model);
}

const Family* family_of(const Json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return nullptr;
  for (const Family& family : families)
    if (family.type == type->get_ref<const std::string&>()) return &family;
  return nullptr;
}

}  // namespace

Reading<PaperModel> read_paper_model(const Json& config) {
  Reading<PaperModel> reading;
  if (const Family* family = family_of(config)) {
    Config reader(config, reading.problems);
    from_modules(*family, reader, reading.value, reading.problems);
  } else {
    Reading<Architecture> architecture = read_architecture(config);
    reading.problems = std::move(architecture.problems);
    if (reading.problems.empty()) from_parameters(architecture.value, reading.value);
  }
  if (reading.problems.empty()) reading.value.chunk = chunk_size(reading.value.parameters);
  return reading;
}

}  // namespace llmem
