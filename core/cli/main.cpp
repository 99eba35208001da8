#include <malloc.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "embedded_presets.h"

namespace {

constexpr const char* version = "llmem 0.1.0: wire format 1, PyTorch 2.14, Transformers 5";

std::optional<std::string> contents(std::FILE* file) {
  std::string text;
  char piece[65536];
  while (const std::size_t n = std::fread(piece, 1, sizeof piece, file)) text.append(piece, n);
  if (std::ferror(file)) return std::nullopt;
  return text;
}

int run(const llmem::Arguments& arguments, std::FILE* in) {
  using llmem::Command;
  const llmem::ModelPresets presets = llmem::embedded_presets();
  if (arguments.command == Command::estimate) return llmem::estimate_lines(in, stdout, presets);
  if (arguments.command == Command::parameters) return llmem::parameters_lines(in, stdout, presets);
  if (arguments.command == Command::paper) return llmem::paper_lines(in, stdout, presets);
  if (arguments.command == Command::search) return llmem::search_lines(in, stdout, presets);
  if (arguments.command == Command::largest) return llmem::largest_lines(in, stdout, presets);
  if (arguments.command == Command::time) return llmem::time_lines(in, stdout, presets);
  if (arguments.command == Command::advise) return llmem::advise_lines(in, stdout, presets);
  const std::optional<std::string> spec = contents(in);
  if (!spec) {
    std::fprintf(stderr, "llmem: %s cannot be read\n", arguments.file.c_str());
    return 1;
  }
  if (arguments.command == Command::explain) return llmem::explain(*spec, arguments, stdout, stderr, presets);
  return llmem::events(*spec, stdout, stderr, presets);
}

}  // namespace

int main(int argc, char** argv) {
  const llmem::ReadArguments read = llmem::read_arguments({argv + 1, argv + argc});
  if (!read.error.empty()) {
    std::fprintf(stderr, "llmem: %s. See llmem --help.\n", read.error.c_str());
    return 2;
  }
  // One estimate's memory serves the next: without this glibc hands the trace's pages back to the kernel after every line.
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  const llmem::Arguments& arguments = read.arguments;
  if (arguments.command == llmem::Command::help) return std::fputs(llmem::help_text, stdout) < 0;
  if (arguments.command == llmem::Command::version) return std::puts(version) < 0;
  if (arguments.command == llmem::Command::families) return llmem::list_families(stdout);
  if (arguments.file == "-") return run(arguments, stdin);
  std::FILE* file = std::fopen(arguments.file.c_str(), "rb");
  if (!file) {
    std::fprintf(stderr, "llmem: %s cannot be opened\n", arguments.file.c_str());
    return 1;
  }
  const int status = run(arguments, file);
  std::fclose(file);
  return status;
}
