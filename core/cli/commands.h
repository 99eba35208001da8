#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "cli/arguments.h"
#include "spec/presets.h"

namespace llmem {

// Each writes to `out` and returns the exit status; what is wrong with a spec goes to `errors`.
int estimate_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets);
int search_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets);
int largest_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets);
int time_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets);
std::string time_of(std::string_view question, const ModelPresets& presets);
// A line in, a line out.
int answer_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets, std::string (*answer)(std::string_view, const ModelPresets&));

int parameters_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets);
int list_families(std::FILE* out);
int advise_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets);
int paper_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets);
int explain(std::string_view spec, const Arguments& arguments, std::FILE* out, std::FILE* errors, const ModelPresets& presets);
int events(std::string_view spec, std::FILE* out, std::FILE* errors, const ModelPresets& presets);

}  // namespace llmem
