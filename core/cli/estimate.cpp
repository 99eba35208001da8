#include "report/estimate.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli/commands.h"
#include "report/paper.h"
#include "search/search.h"

namespace llmem {
namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// One line without its end; false at the end of the input. Any length, any bytes.
bool read_line(std::FILE* in, std::string& line) {
  line.clear();
  for (int c = std::getc(in); c != EOF; c = std::getc(in)) {
    if (c == '\n') return true;
    line += static_cast<char>(c);
  }
  return !line.empty();
}

}  // namespace

int answer_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets, std::string (*answer)(std::string_view, const ModelPresets&)) {
  for (std::string line; read_line(in, line);) {
    if (is_blank(line)) continue;
    const std::string text = answer(line, presets) + "\n";
    std::fwrite(text.data(), 1, text.size(), out);
    std::fflush(out);  // who asks one at a time gets each answer at once
  }
  return std::ferror(out) ? 1 : 0;
}

int estimate_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets) { return answer_lines(in, out, presets, estimate); }
int search_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets) { return answer_lines(in, out, presets, search); }
int largest_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets) { return answer_lines(in, out, presets, largest); }
int time_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets) { return answer_lines(in, out, presets, time_of); }
int advise_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets) { return answer_lines(in, out, presets, advise); }
int paper_lines(std::FILE* in, std::FILE* out, const ModelPresets& presets) { return answer_lines(in, out, presets, paper); }

}  // namespace llmem
