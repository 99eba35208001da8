#pragma once

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

// The command line. All in this header, so that the tests, which are built without the program, can call it.
namespace llmem {

enum class Command { help, version, estimate, explain, events, paper, search, largest, advise, time, parameters, families };

struct Arguments {
  Command command = Command::help;
  std::string file = "-";         // "-": standard input
  std::optional<std::string> at;  // explain: the point to look at; none: the peak
  long events = 0;                // explain: how many events before it to print
  long top = 12;                  // explain: how many of the largest tensors
};

inline constexpr const char* help_text =
    R"(llmem: the GPU memory that training a language model takes, by playing the step with tensors that have no data.

    llmem estimate [FILE]          one spec a line in, one answer a line out: {"ok": true, "value": …} or {"ok": false, "problems": […]}.
                                   A bad line is answered and stops nothing; blank lines are skipped.
    llmem explain [FILE] [options] one spec: the verdict, what is alive at the peak, the largest tensors
        --at POINT                 another moment than the peak: loaded, step0.forward0, step1.optimizer, …
        --events N                 also the N allocations and frees before that moment, and a few after it
        --top N                    that many of the largest tensors (12)
    llmem events [FILE]            one spec: every allocation and free, one JSON object a line
    llmem search [FILE]            one question a line: {"spec", "gpus": 64, "global_batch": 64}: every way to train on so many GPUs, ranked
    llmem largest [FILE]           one question a line: {"spec", "of": "micro_batch" | "sequence"}: the largest that fits
    llmem parameters [FILE]        one spec a line: every parameter of its model, grouped over layers, also where only those are known
    llmem families                 every model_type that is known, and how far
    llmem advise [FILE]            one spec a line: what to change so that it fits, or what there is to give back
    llmem paper [FILE]             the LLMem paper's own estimate, one question a line: {"model", "gpus", "sequence", "base_mb", …}
    llmem --help, llmem --version

Without FILE, or with -, standard input is read. A spec is JSON, wire format version 1, with a default for all but the model:
    echo '{"model": "Qwen/Qwen2.5-7B", "cluster": {"gpu": "h100-sxm-80gb"}}' | llmem explain
Exit status: 0 answered, 1 the spec of explain or events has problems or a file cannot be read, 2 the command line makes no sense.
)";

namespace command_line {

inline constexpr const char* commands = "estimate, explain, events, parameters, families, search, largest, advise or paper";

inline std::optional<Command> command_named(const std::string& word) {
  if (word == "estimate") return Command::estimate;
  if (word == "explain") return Command::explain;
  if (word == "events") return Command::events;
  if (word == "paper") return Command::paper;
  if (word == "search") return Command::search;
  if (word == "largest") return Command::largest;
  if (word == "advise") return Command::advise;
  if (word == "families") return Command::families;
  if (word == "parameters") return Command::parameters;
  if (word == "time") return Command::time;
  return std::nullopt;
}

inline std::optional<long> count(const std::string& word) {
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

inline Option split(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, std::nullopt};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

inline std::string not_an_option(const std::string& name, Command command, const std::string& command_name) {
  const bool known = name == "--at" || name == "--events" || name == "--top";
  if (known && command == Command::explain) return "";
  return command_name + " has no option " + name + (known ? "; explain has" : "");
}

inline std::string set_option(Arguments& arguments, const std::string& name, const std::string& value) {
  if (name == "--at") {
    arguments.at = value;
    return "";
  }
  const std::optional<long> n = count(value);
  if (!n) return name + " wants a number of 0 or more, not \"" + value + "\"";
  (name == "--events" ? arguments.events : arguments.top) = *n;
  return "";
}

}  // namespace command_line

// What the words mean, or in `error` what is wrong with them.
struct ReadArguments {
  Arguments arguments;
  std::string error;
};

inline ReadArguments read_arguments(const std::vector<std::string>& words) {
  Arguments read;
  for (const std::string& word : words) {
    if (word == "--help" || word == "-h") return {{Command::help, "-", {}, 0, 0}, ""};
    if (word == "--version") return {{Command::version, "-", {}, 0, 0}, ""};
  }
  if (words.empty()) return {read, "a command is missing: " + std::string(command_line::commands)};
  const std::optional<Command> command = command_line::command_named(words[0]);
  if (!command) return {read, "\"" + words[0] + "\" is not a command: " + std::string(command_line::commands)};
  read.command = *command;
  bool file_given = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].size() > 1 && words[i][0] == '-') {
      command_line::Option option = command_line::split(words[i]);
      if (const std::string error = command_line::not_an_option(option.name, read.command, words[0]); !error.empty()) return {read, error};
      if (!option.value) {
        if (i + 1 == words.size()) return {read, option.name + " wants a value"};
        option.value = words[++i];
      }
      if (const std::string error = command_line::set_option(read, option.name, *option.value); !error.empty()) return {read, error};
    } else if (file_given) {
      return {read, "one file is read at a time; \"" + words[i] + "\" is a second one"};
    } else {
      read.file = words[i];
      file_given = true;
    }
  }
  return {read, ""};
}

}  // namespace llmem
