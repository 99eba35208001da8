#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

// The one place that parses JSON: nlohmann's parser is a template, and each instance costs download size.
namespace llmem {

// Reads what Python's json reads: Infinity, -Infinity and NaN, which config.json files have, are taken for 1e308, -1e308 and 0.0.
// Syntax errors (with line and column), keys given twice, and nesting so deep that walking it could exhaust the stack are problems;
// `at` is the JSON pointer of the whole text in what the user sent.
Reading<nlohmann::json> parse_json(std::string_view text, std::string_view at = "");

// The JSON pointer of a member or an element (RFC 6901).
std::string pointer(std::string_view at, std::string_view key);
std::string pointer(std::string_view at, std::size_t index);

// A value as a problem quotes it: "\"two\"", "2.5", "null", "a list", "an object".
std::string quoted(const nlohmann::json& value);

}  // namespace llmem
