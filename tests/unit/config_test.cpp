#include "model/config.h"

#include <gtest/gtest.h>

#include <random>

#include "files.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

Json llama(const Json& change = Json::object()) {
  Json config = {{"model_type", "llama"},    {"hidden_size", 64},        {"intermediate_size", 96}, {"num_hidden_layers", 2},
                 {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"vocab_size", 128}};
  config.update(change);
  return config;
}

std::vector<std::string> problems_of(const Json& config) { return places(read_architecture(config).problems); }

using Places = std::vector<std::string>;

// Layers that share keys and values need one before them that has its own.
TEST(Config, SharedKeysNeedALayerThatHasThem) {
  const Json gemma4 = {{"model_type", "gemma4_text"}, {"num_hidden_layers", 4}, {"num_kv_shared_layers", 20}};
  EXPECT_EQ(problems_of(gemma4), (std::vector<std::string>{"/model/config/num_kv_shared_layers conflict"}));
}

// LlamaConfig(), MistralConfig(), Qwen2Config(), Qwen3Config() of Transformers 5.24.
TEST(Config, OmittedFieldsAreThoseOfTheClass) {
  const auto mistral = read_architecture({{"model_type", "mistral"}});
  EXPECT_TRUE(mistral.problems.empty());
  EXPECT_EQ(mistral.value.model_class, "MistralForCausalLM");
  EXPECT_EQ(mistral.value.kv_heads, 8);
  EXPECT_EQ(mistral.value.intermediate_size, 14336);
  EXPECT_EQ(mistral.value.sliding_window, 4096);
  EXPECT_FALSE(mistral.value.tied_embeddings);
  const auto qwen3 = read_architecture({{"model_type", "qwen3"}});
  EXPECT_EQ(qwen3.value.head_dim, 128);
  EXPECT_EQ(qwen3.value.vocab_size, 151936);
  EXPECT_TRUE(qwen3.value.qk_norm);
  EXPECT_FALSE(qwen3.value.qkv_bias);
  EXPECT_EQ(qwen3.value.sliding_window, 0);
  const auto qwen2 = read_architecture({{"model_type", "qwen2"}});
  EXPECT_TRUE(qwen2.value.qkv_bias);
  EXPECT_FALSE(qwen2.value.output_bias);
  EXPECT_EQ(qwen2.value.intermediate_size, 22016);
}

TEST(Config, BiasesAreTheFamilys) {
  const Json asked = {{"attention_bias", true}, {"mlp_bias", true}};
  const auto a = read_architecture(llama(asked)).value;
  EXPECT_TRUE(a.qkv_bias && a.output_bias && a.mlp_bias);
  Json config = llama(asked);
  config["model_type"] = "mistral";  // MistralAttention and MistralMLP: bias=False
  const auto mistral = read_architecture(config).value;
  EXPECT_FALSE(mistral.qkv_bias || mistral.output_bias || mistral.mlp_bias);
  config["model_type"] = "qwen3";
  const auto qwen3 = read_architecture(config).value;
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.output_bias);
  EXPECT_FALSE(qwen3.mlp_bias);
}

TEST(Config, SlidingWindows) {
  const auto window = [](Json config) { return read_architecture(config).value.sliding_window; };
  EXPECT_EQ(window({{"model_type", "mistral"}, {"sliding_window", nullptr}}), 0);
  EXPECT_EQ(window({{"model_type", "mistral"}, {"sliding_window", 1000}}), 1000);
  EXPECT_EQ(window(llama({{"sliding_window", 1000}})), 0);  // LlamaModel does not look at it

  Json qwen = llama({{"model_type", "qwen2"}, {"sliding_window", 16}});
  EXPECT_EQ(problems_of(qwen), Places{});
  qwen["use_sliding_window"] = true;  // from max_window_layers, 28, on
  EXPECT_EQ(problems_of(qwen), Places{});
  qwen["max_window_layers"] = 1;
  EXPECT_EQ(problems_of(qwen), Places{});
  EXPECT_EQ(read_architecture(qwen).value.sliding, (std::vector<bool>{false, true}));
  EXPECT_EQ(window(qwen), 16);
  qwen["sliding_window"] = nullptr;
  EXPECT_EQ(problems_of(qwen), Places{});
  qwen["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(problems_of(qwen), Places{});
  qwen["layer_types"] = {"full_attention", "full_attention", "full_attention"};
  EXPECT_EQ(problems_of(qwen), Places{"/model/config/layer_types conflict"});
}

TEST(Config, FieldsWithoutInfluenceOnMemoryAreNotLookedAt) {
  EXPECT_EQ(problems_of(llama({{"torch_dtype", "float16"},
                               {"dtype", 3},
                               {"pad_token_id", -1},
                               {"bos_token_id", {1, 2}},
                               {"rope_theta", "x"},
                               {"use_cache", true},
                               {"attention_dropout", 0.0},
                               {"auto_map", {{"AutoModel", "x"}}},
                               {"hidden_act", "swish"}})),
            Places{});
}

TEST(Config, EveryProblemAtOnceEachWithItsPlace) {
  EXPECT_EQ(problems_of({{"model_type", "llama"},
                         {"architectures", {"LlamaForQuestionAnswering"}},
                         {"vocab_size", -5},
                         {"hidden_size", "4096"},
                         {"intermediate_size", 11008.5},
                         {"num_hidden_layers", 0},
                         {"num_attention_heads", 12},
                         {"num_key_value_heads", 5},
                         {"head_dim", 7},
                         {"attention_bias", 1},
                         {"mlp_bias", "no"},
                         {"tie_word_embeddings", "yes"},
                         {"hidden_act", "gelu_like"},
                         {"output_attentions", true}}),
            (Places{"/model/config/architectures unsupported", "/model/config/vocab_size range", "/model/config/hidden_size type",
                    "/model/config/intermediate_size type", "/model/config/num_hidden_layers range", "/model/config/hidden_size conflict",
                    "/model/config/attention_bias type", "/model/config/mlp_bias type", "/model/config/tie_word_embeddings type",
                    "/model/config/hidden_act unsupported", "/model/config/output_attentions unsupported",
                    "/model/config/num_key_value_heads conflict"}));
}

TEST(Config, HeadsMustFit) {
  EXPECT_EQ(problems_of(llama({{"hidden_size", 66}})), Places{"/model/config/hidden_size conflict"});
  EXPECT_EQ(problems_of(llama({{"hidden_size", 66}, {"head_dim", 16}})),
            Places{"/model/config/hidden_size conflict"});  // LlamaConfig's own rule
  EXPECT_EQ(problems_of(llama({{"model_type", "qwen2"}, {"hidden_size", 66}, {"head_dim", 16}})), Places{});
  EXPECT_EQ(problems_of(llama({{"num_key_value_heads", 3}})), Places{"/model/config/num_key_value_heads conflict"});
  EXPECT_EQ(problems_of(llama({{"num_key_value_heads", 8}})), Places{"/model/config/num_key_value_heads conflict"});
  EXPECT_EQ(problems_of({{"model_type", "mistral"}, {"num_attention_heads", 4}}), Places{"/model/config/num_key_value_heads conflict"});
  EXPECT_EQ(problems_of(llama({{"head_dim", 15}})), Places{"/model/config/head_dim range"});
  EXPECT_EQ(problems_of(llama({{"hidden_size", 60}})), Places{"/model/config/hidden_size range"});
}

TEST(Config, FamiliesThatAreNotPlayedAreSaidSo) {
  for (const char* type : {"dbrx", "minimax", "Llama", "", "zamba"}) {
    const auto reading = read_architecture(llama({{"model_type", type}}));
    EXPECT_EQ(places(reading.problems), Places{"/model/config/model_type unsupported"}) << type;
    EXPECT_NE(reading.problems[0].message.find("llama, mistral, qwen2, qwen3"), std::string::npos);
  }
  EXPECT_EQ(problems_of(Json::object()), Places{"/model/config/model_type missing"});
  EXPECT_EQ(problems_of({{"model_type", 3}}), Places{"/model/config/model_type type"});
  for (const Json& odd : {Json(nullptr), Json(3), Json("x"), Json::array({1})}) EXPECT_EQ(problems_of(odd), Places{"/model/config type"});
}

TEST(Config, TheClassMustBeTheCausalLanguageModel) {
  EXPECT_EQ(problems_of(llama({{"architectures", {"LLaMAForCausalLM"}}})), Places{});
  EXPECT_EQ(problems_of(llama({{"architectures", Json::array()}})), Places{});
  EXPECT_EQ(problems_of(llama({{"architectures", {"LlamaModel"}}})), Places{"/model/config/architectures unsupported"});
  EXPECT_EQ(problems_of(llama({{"architectures", {3}}})), Places{"/model/config/architectures unsupported"});
}

TEST(Config, WholeFloatsAreNumbersToo) {
  const auto reading = read_architecture(llama({{"hidden_size", 128.0}}));
  EXPECT_TRUE(reading.problems.empty());
  EXPECT_EQ(reading.value.hidden_size, 128);
}

TEST(Config, SizesThatCannotBeCountedAreRefused) {
  EXPECT_EQ(problems_of(llama({{"hidden_size", 1e300}})), Places{"/model/config/hidden_size type"});
  EXPECT_EQ(problems_of(llama({{"hidden_size", 18446744073709551615ull}})), Places{"/model/config/hidden_size range"});
  EXPECT_EQ(problems_of({{"model_type", "llama"},
                         {"hidden_size", 1 << 20},
                         {"intermediate_size", 1 << 22},
                         {"num_hidden_layers", 4096},
                         {"num_attention_heads", 4096},
                         {"vocab_size", 1 << 24}}),
            Places{"/model/config range"});

  Spec spec;
  spec.training.micro_batch = 1;
  spec.training.sequence = 1 << 24;
  const auto sizes = [&](const Json& config) { return places(check_sizes(spec, read_architecture(config).value)); };
  EXPECT_EQ(sizes({{"model_type", "llama"}}), Places{});  // 7 billion parameters, 16 M tokens
  spec.training.attention = Attention::eager;
  EXPECT_EQ(sizes({{"model_type", "llama"}}), Places{"/training/sequence range"});
  spec.training.sequence = 1 << 17;
  EXPECT_EQ(sizes({{"model_type", "llama"}}), Places{});
}

// A few thousand configs of which each field is right, wrong or absurd: none crashes, and without a problem it has parameters.
TEST(Config, AnyValueIsAnswered) {
  std::mt19937 random(1);
  const std::vector<Json> values = {nullptr,
                                    true,
                                    false,
                                    0,
                                    1,
                                    -1,
                                    2,
                                    7,
                                    64,
                                    4096,
                                    1 << 20,
                                    1e9,
                                    1e300,
                                    0.5,
                                    -0.0,
                                    "",
                                    "x",
                                    "full_attention",
                                    "llama",
                                    "4096",
                                    Json::array(),
                                    Json::array({1, "x", nullptr}),
                                    Json::object(),
                                    Json{{"type", "x"}},
                                    INT64_MAX,
                                    INT64_MIN};
  const std::vector<std::string> keys = {
      "architectures",       "vocab_size",         "hidden_size",         "intermediate_size", "num_hidden_layers",
      "num_attention_heads", "head_dim",           "layer_types",         "attention_bias",    "mlp_bias",
      "sliding_window",      "use_sliding_window", "rope_scaling",        "hidden_act",        "max_window_layers",
      "num_key_value_heads", "attention_dropout",  "tie_word_embeddings", "rope_parameters",   "quantization_config",
      "per_layer_config"};
  int sound = 0;
  for (int i = 0; i < 4000; ++i) {
    Json config = llama({{"model_type", std::vector<const char*>{"llama", "mistral", "qwen2", "qwen3"}[random() % 4]}});
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes)
      config[keys[random() % keys.size()]] = values[random() % values.size()];
    const auto reading = read_architecture(config);
    for (const Problem& problem : reading.problems) {
      EXPECT_EQ(problem.at.substr(0, 13), "/model/config") << config;
      EXPECT_FALSE(problem.message.empty());
    }
    if (!reading.problems.empty()) continue;
    ++sound;
    std::int64_t total = 0;
    for (const Parameter& each : parameters_of(reading.value)) {
      EXPECT_GT(each.count(), 0) << config;
      total += each.count();
    }
    EXPECT_LT(total, std::int64_t{1} << 47) << config;
  }
  EXPECT_GT(sound, 100);
}

}  // namespace
}  // namespace llmem
