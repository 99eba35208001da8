#pragma once

#include <string>
#include <string_view>

#include "spec/presets.h"

// The doors: JSON in, the envelope that `estimate` uses out. README.md has the forms.
namespace llmem {

std::string enumerate(std::string_view question, const ModelPresets& presets);  // the strategies to be estimated
std::string screen(std::string_view question, const ModelPresets& presets);     // a short estimate of each of several changes of a spec
std::string rank(std::string_view question);                                    // of strategies that were estimated
std::string largest(std::string_view question, const ModelPresets& presets);    // batch or sequence
std::string advise(std::string_view spec, const ModelPresets& presets);         // what to change
std::string search(std::string_view question, const ModelPresets& presets);     // all of it, in one go

}  // namespace llmem
