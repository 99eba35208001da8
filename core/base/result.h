#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

namespace llmem {

// What is wrong with an input: where (a JSON pointer into it), which kind of fault, and in words what was found and what would be valid.
struct Problem {
  std::string at;
  std::string code;  // "syntax", "missing", "type", "range", "unknown_key", "unknown_value", "conflict", "unsupported", "unknown_model"
  std::string message;
};

using Problems = std::vector<Problem>;

// Cold: what makes a problem's words is moved out of the way of what runs when all is well, in the WASM into a file of its own.
[[gnu::cold]] inline void add(Problems& problems, Problem problem) { problems.push_back(std::move(problem)); }

// What a reader should know about an input that is not wrong: where, and in words.
struct Note {
  std::string at;
  std::string message;
};

// What could be read of an input, and everything that is wrong with it. `value` is sound only where `problems` is empty, but is
// filled as far as possible, so that later rooms can look for more problems before anything is answered.
template <class T>
struct Reading {
  T value;
  Problems problems;
  std::vector<Note> notes;
};

template <class T>
using Result = tl::expected<T, Problems>;

}  // namespace llmem
