#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "model/architecture.h"
#include "model/config_class.h"
#include "model/declaration.h"

namespace llmem {

class Body;
class MadeModule;

// How far a family is known: kParameters counts every tensor, kPlayed plays its training step as well.
enum class Coverage : std::uint8_t { parameters, played };

// Whose tie_word_embeddings counts in a model that sees: its own, or that of its decoder's config.
enum class Tied : std::uint8_t { by_whole, by_decoder, by_either, never };

// A model_type of transformers: the defaults of its configuration class, what sets it apart, and what its modules register.
struct Family {
  std::string_view model_type, model_class;
  Coverage coverage;
  std::string_view defaults;                              // of the configuration class: "field=value …"
  std::string_view other_names;                           // "field=name …": what the class or older files call a field
  void (*read)(ConfigReader& config, Architecture& out);  // after the fields that all share
  void (*declare)(ConfigReader& config, const Architecture& a, const Module& root);  // null: declare_decoder
  // The forward, where it is not that of Llama's kind; null: it is, or there is none.
  std::unique_ptr<const Body> (*body)(const Architecture& a, const MadeModule& root) = nullptr;
  // Of a model that sees or hears: the family of its decoder, whose fields are in text_config or beside the others, and what is declared
  // before the decoder (towers, projectors). `config` reads the whole file.
  std::string_view text = {};
  void (*towers)(ConfigReader& config, const Architecture& a, const Module& root) = nullptr;
  Tied tied = Tied::by_whole;
  bool alone = false;  // AutoModelForCausalLM makes the decoder alone of this config: that is what trains where there are no images
};

// In core/model/families_*.cpp.
std::span<const Family> decoder_families();       // Llama's layer with other traits, experts included
std::span<const Family> recent_families();        // the same, fine-tuned less often
std::span<const Family> classic_families();       // the GPT kind, and code that is not part of transformers
std::span<const Family> encoder_families();       // BERT and T5 kinds
std::span<const Family> more_encoder_families();  // more of them
std::span<const Family> state_space_families();   // Mamba and hybrids
std::span<const Family> hybrid_families();        // of attention with convolutions, linear attention or state-space layers
std::span<const Family> uneven_families();        // decoders whose layers differ, or whose code is not part of transformers
std::span<const Family> multimodal_families();    // with a tower for images before the decoder
std::span<const Family> megatron_families();      // in the arguments of Megatron-LM
const Family* find_family(std::string_view model_type);
std::vector<std::string_view> family_names(Coverage least);
std::string_view covered(const Family& family);  // in words
// Whether training.images is taken, in words: "-" where the class sees nothing (config.cpp).
std::string_view images_of(const Family& family);

// How much of a head is turned: rope_parameters (Transformers 5) has partial_rotary_factor, 4 had it under `key`.
void partial_rotary(ConfigReader& config, Architecture& a, std::string_view key, double otherwise);

// The tensors of a decoder that Architecture's traits describe.
void declare_decoder(ConfigReader& config, const Architecture& a, const Module& root);

}  // namespace llmem
