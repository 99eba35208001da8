#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llmem {

// A value that a key may have. `value` is the caller's; kNotYet: valid in the format, but this build cannot answer it.
struct Choice {
  std::string_view name;
  int value;
};
constexpr int kNotYet = -1;

constexpr double kUnlimited = 1e30;  // most of a number that has no upper limit

// Reads one JSON object key by key and collects every problem. A key that is absent, or null, leaves the caller's default.
// An object that is absent reads as an empty one.
class ObjectReader {
 public:
  ObjectReader(const nlohmann::json* object, std::string at, Problems& problems);
  ObjectReader(const ObjectReader&) = delete;
  ObjectReader& operator=(const ObjectReader&) = delete;

  const std::string& at() const { return at_; }
  std::string at(std::string_view key) const;

  // Makes the key known. Null where it is absent or null.
  const nlohmann::json* find(std::string_view key);
  bool given(std::string_view key) { return find(key) != nullptr; }
  // Whether it is there at all, be it as null.
  bool present(std::string_view key);

  // What each reads into `out`; false where the default was left, because the key is absent or its value wrong.
  bool integer(std::string_view key, std::int64_t& out, std::int64_t least, std::int64_t most);
  bool number(std::string_view key, double& out, double least, double most);
  bool boolean(std::string_view key, bool& out);
  bool text(std::string_view key, std::string& out);
  // One of the names; `out` is its value, kNotYet (a problem then) included.
  bool choice(std::string_view key, std::span<const Choice> choices, int& out);

  // The object at the key, to be read in its turn; null where it is absent or no object.
  const nlohmann::json* object(std::string_view key);

  // Features that this build has only at their neutral value: another value of the right type is "unsupported".
  void only(std::string_view key, bool neutral);
  void only(std::string_view key, std::int64_t neutral, std::int64_t least, std::int64_t most);
  void only(std::string_view key, double neutral, double least, double most);
  void only_null(std::string_view key);

  [[gnu::cold]] void problem(std::string_view key, std::string_view code, std::string message);

  // Every key that none of the calls above named is a problem.
  void done();

 private:
  [[gnu::cold]] bool wrong_type(std::string_view key, const nlohmann::json& found, std::string_view expected);

  const nlohmann::json* object_;  // null: read as empty
  std::string at_;
  Problems& problems_;
  std::vector<std::string_view> known_;
};

// "\"adamww\" is not known; did you mean \"adamw\"? Valid: adamw, sgd."
std::string not_known(std::string_view what, std::string_view found, std::span<const std::string_view> valid);

}  // namespace llmem
