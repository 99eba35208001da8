#pragma once

#include <optional>
#include <string>
#include <vector>

namespace llmem {

enum class Command { help, version, estimate, explain, events };

struct Arguments {
  Command command = Command::help;
  std::string file = "-";         // "-": standard input
  std::optional<std::string> at;  // explain: the point to look at; none: the peak
  long events = 0;                // explain: how many events before it to print
  long top = 12;                  // explain: how many of the largest tensors
};

// What the words mean, or in `error` what is wrong with them.
struct ReadArguments {
  Arguments arguments;
  std::string error;
};
ReadArguments read_arguments(const std::vector<std::string>& words);

extern const char* const help_text;

}  // namespace llmem
