#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/reader.h"

namespace llmem {

// A config.json as a family's configuration class reads it: an omitted field is the class's default, null is None.
// `defaults` is "field=value field=value …"; `other_names` is "field=name field=name …": what files may call a field instead.
class ConfigReader {
 public:
  ConfigReader(ObjectReader& file, Problems& problems, std::string_view defaults, std::string_view other_names)
      : file_(file), problems_(problems), defaults_(defaults), other_names_(other_names) {}

  ObjectReader& file() { return file_; }
  std::size_t problems() const { return problems_.size(); }  // so far
  Problems& problem_list() { return problems_; }

  // None where the file says null, or says nothing and the class has no number.
  std::optional<std::int64_t> integer(std::string_view key, std::int64_t least = 0, std::int64_t most = kMost);
  // Where null means nothing of its own: the class's number, or `otherwise` where it has none.
  std::int64_t count(std::string_view key, std::int64_t otherwise, std::int64_t least = 1, std::int64_t most = kMost);
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise, std::int64_t least = 0, std::int64_t most = kMost);
  std::optional<double> number(std::string_view key);
  bool flag(std::string_view key);
  std::string text(std::string_view key);
  // Whether it is neither absent without a default nor null.
  bool has(std::string_view key);
  bool has_default(std::string_view key) const { return !value_of(defaults_, key).empty(); }
  // The strings of a list, one for each layer; empty where there is none.
  std::vector<std::string> each_layer(std::string_view key, std::int64_t layers);
  // Integers of a list, as they stand; empty where there is none.
  std::vector<std::int64_t> integers(std::string_view key);

  // How the file calls it.
  std::string_view in_file(std::string_view key);

  static constexpr std::int64_t kMost = std::int64_t{1} << 24;

 private:
  static std::string_view value_of(std::string_view pairs, std::string_view key);

  ObjectReader& file_;
  Problems& problems_;
  std::string_view defaults_, other_names_;
};

// An object within a config that has a class of its own (vision_config).
struct PartOfConfig {
  PartOfConfig(ConfigReader& whole, std::string_view key, std::string_view defaults, std::string_view other_names = "")
      : file(whole.file().object(key), whole.file().at(key), whole.problem_list()),
        config(file, whole.problem_list(), defaults, other_names) {}

  ObjectReader file;
  ConfigReader config;
};

}  // namespace llmem
