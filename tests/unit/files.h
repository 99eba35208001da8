#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"

// Files of the repository, for tests.
namespace llmem {

inline std::string file_text(const std::string& path) {
  std::ifstream file(std::string(LLMEM_ROOT "/") + path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::json file_json(const std::string& path) {
  Reading<nlohmann::json> reading = parse_json(file_text(path));
  EXPECT_TRUE(reading.problems.empty()) << path;
  return reading.value;
}

// One JSON value a line.
inline std::vector<nlohmann::json> file_lines(const std::string& path) {
  std::ifstream file(std::string(LLMEM_ROOT "/") + path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(parse_json(line).value);
  }
  return lines;
}

inline std::string shown(const Problems& problems) {
  std::string text;
  for (const Problem& problem : problems) text += problem.at + " [" + problem.code + "] " + problem.message + "\n";
  return text;
}

// "place code", one a problem: what tests compare.
inline std::vector<std::string> places(const Problems& problems) {
  std::vector<std::string> all;
  for (const Problem& problem : problems) all.push_back(problem.at + " " + problem.code);
  return all;
}

}  // namespace llmem
