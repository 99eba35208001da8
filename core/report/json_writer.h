#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace llmem {

// Writes compact JSON front to back: commas and colons come by themselves, integers are exact, and strings are valid UTF-8 whatever
// they were (an invalid byte becomes U+FFFD). A fraction of the code and time of building a document and dumping it.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name);
  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(std::int64_t number);
  JsonWriter& value(int number) { return value(std::int64_t{number}); }
  JsonWriter& value(std::size_t number) { return value(static_cast<std::int64_t>(number)); }
  JsonWriter& value(Bytes bytes) { return value(bytes.count); }
  JsonWriter& value(bool truth) { return plain(truth ? "true" : "false"); }
  JsonWriter& null() { return plain("null"); }

  template <class T>
  JsonWriter& value(const std::optional<T>& maybe) {
    return maybe ? value(*maybe) : null();
  }

  template <class T>
  JsonWriter& member(std::string_view name, const T& what) {
    return key(name).value(what);
  }

  void reserve(std::size_t bytes) { out_.reserve(bytes); }
  std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& plain(std::string_view text);
  void separate();
  void quote(std::string_view text);

  std::string out_;
  bool comma_ = false;  // the next thing is not the first in its object or array
};

}  // namespace llmem
