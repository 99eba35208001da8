#include "cli/arguments.h"

#include <cerrno>
#include <cstdlib>

namespace llmem {
namespace {

std::optional<Command> command_named(const std::string& word) {
  if (word == "estimate") return Command::estimate;
  if (word == "explain") return Command::explain;
  if (word == "events") return Command::events;
  return std::nullopt;
}

std::optional<long> count(const std::string& word) {
  errno = 0;
  char* end = nullptr;
  const long n = std::strtol(word.c_str(), &end, 10);
  if (word.empty() || *end != '\0' || errno != 0 || n < 0) return std::nullopt;
  return n;
}

// The options of `explain`, each with a value: "--at POINT" or "--at=POINT".
struct Option {
  std::string name;
  std::optional<std::string> value;
};

Option split(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, std::nullopt};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

std::string set_option(Arguments& arguments, const std::string& name, const std::string& value) {
  if (name == "--at") {
    arguments.at = value;
    return "";
  }
  const std::optional<long> n = count(value);
  if (!n) return name + " wants a number of 0 or more, not \"" + value + "\"";
  (name == "--events" ? arguments.events : arguments.top) = *n;
  return "";
}

}  // namespace

const char* const help_text =
    R"(llmem: the GPU memory that training a language model takes, by playing the step with tensors that have no data.

    llmem estimate [FILE]          one spec a line in, one answer a line out: {"ok": true, "value": …} or {"ok": false, "problems": […]}.
                                   A bad line is answered and stops nothing; blank lines are skipped.
    llmem explain [FILE] [options] one spec: the verdict, what is alive at the peak, the largest tensors
        --at POINT                 another moment than the peak: loaded, step0.forward0, step1.optimizer, …
        --events N                 also the N allocations and frees before that moment, and a few after it
        --top N                    that many of the largest tensors (12)
    llmem events [FILE]            one spec: every allocation and free, one JSON object a line
    llmem --help, llmem --version

Without FILE, or with -, standard input is read. A spec is JSON, wire format version 1, with a default for all but the model:
    echo '{"model": "Qwen/Qwen2.5-7B", "cluster": {"gpu": "h100-sxm-80gb"}}' | llmem explain
Exit status: 0 answered, 1 the spec of explain or events has problems or a file cannot be read, 2 the command line makes no sense.
)";

ReadArguments read_arguments(const std::vector<std::string>& words) {
  ReadArguments out;
  Arguments& arguments = out.arguments;
  if (words.empty()) return {arguments, "a command is missing: estimate, explain or events"};
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") return {{Command::help, "-", {}, 0, 0}, ""};
    if (word == "--version") return {{Command::version, "-", {}, 0, 0}, ""};
  }
  const std::optional<Command> command = command_named(words[0]);
  if (!command) return {arguments, "\"" + words[0] + "\" is not a command: estimate, explain or events"};
  arguments.command = *command;
  bool file_given = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].size() < 2 || words[i][0] != '-') {
      if (file_given) return {arguments, "one file is read at a time; \"" + words[i] + "\" is a second one"};
      arguments.file = words[i];
      file_given = true;
      continue;
    }
    Option option = split(words[i]);
    const bool known = option.name == "--at" || option.name == "--events" || option.name == "--top";
    if (!known || arguments.command != Command::explain)
      return {arguments, words[0] + " has no option " + option.name + (known ? "; explain has" : "")};
    if (!option.value) {
      if (i + 1 == words.size()) return {arguments, option.name + " wants a value"};
      option.value = words[++i];
    }
    if (std::string error = set_option(arguments, option.name, *option.value); !error.empty()) return {arguments, error};
  }
  return out;
}

}  // namespace llmem
