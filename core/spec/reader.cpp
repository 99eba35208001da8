#include "spec/reader.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

// Writers of JSON put 2048 as 2048.0 or 2.048e3, too.
bool whole(const Json& value, std::int64_t& out) {
  if (value.is_number_unsigned()) {
    const auto n = value.get<std::uint64_t>();
    out = static_cast<std::int64_t>(std::min<std::uint64_t>(n, INT64_MAX));
    return true;
  }
  if (value.is_number_integer()) {
    out = value.get<std::int64_t>();
    return true;
  }
  if (!value.is_number_float()) return false;
  const auto n = value.get<double>();
  if (!(std::abs(n) < 0x1p62) || n != std::floor(n)) return false;
  out = static_cast<std::int64_t>(n);
  return true;
}

std::string range(std::int64_t least, std::int64_t most) {
  return "a whole number from " + std::to_string(least) + " to " + std::to_string(most);
}

std::string range(double least, double most) {
  if (most < kUnlimited) return "a number from " + quoted(least) + " to " + quoted(most);
  return "a number of at least " + quoted(least);
}

}  // namespace

std::string not_known(std::string_view what, std::string_view found, std::span<const std::string_view> valid) {
  std::string message(what);
  message += " \"" + shortened(found) + "\" is not known";
  if (const std::string_view guess = nearest(found, valid); !guess.empty())
    message += "; did you mean \"" + std::string(guess) + "\"?";
  else
    message += ".";
  message += valid.empty() ? " None is valid here." : " Valid: " + listed(valid) + ".";
  return message;
}

ObjectReader::ObjectReader(const Json* object, std::string at, Problems& problems)
    : object_(object), at_(std::move(at)), problems_(problems) {
  if (object_ && !object_->is_object()) {
    add(problems_, {at_, "type", "must be an object, not " + quoted(*object_)});
    object_ = nullptr;
  }
}

std::string ObjectReader::at(std::string_view key) const { return pointer(at_, key); }

bool ObjectReader::present(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  return object_ && object_->find(key) != object_->end();
}

const Json* ObjectReader::find(std::string_view key) {
  if (!present(key)) return nullptr;
  const Json& value = *object_->find(key);
  return value.is_null() ? nullptr : &value;
}

void ObjectReader::problem(std::string_view key, std::string_view code, std::string message) {
  add(problems_, {at(key), std::string(code), std::move(message)});
}

bool ObjectReader::wrong_type(std::string_view key, const Json& found, std::string_view expected) {
  problem(key, "type", "must be " + std::string(expected) + ", not " + quoted(found));
  return false;
}

bool ObjectReader::integer(std::string_view key, std::int64_t& out, std::int64_t least, std::int64_t most) {
  const Json* value = find(key);
  if (!value) return false;
  std::int64_t n = 0;
  if (!whole(*value, n)) return wrong_type(key, *value, range(least, most));
  if (n < least || n > most) {
    problem(key, "range", "must be " + range(least, most) + ", not " + quoted(*value));
    return false;
  }
  out = n;
  return true;
}

bool ObjectReader::number(std::string_view key, double& out, double least, double most) {
  const Json* value = find(key);
  if (!value) return false;
  if (!value->is_number()) return wrong_type(key, *value, range(least, most));
  const auto n = value->get<double>();
  if (!(n >= least && n <= most)) {
    problem(key, "range", "must be " + range(least, most) + ", not " + quoted(*value));
    return false;
  }
  out = n;
  return true;
}

bool ObjectReader::boolean(std::string_view key, bool& out) {
  const Json* value = find(key);
  if (!value) return false;
  if (!value->is_boolean()) return wrong_type(key, *value, "true or false");
  out = value->get<bool>();
  return true;
}

bool ObjectReader::text(std::string_view key, std::string& out) {
  const Json* value = find(key);
  if (!value) return false;
  if (!value->is_string()) return wrong_type(key, *value, "a string");
  out = value->get_ref<const std::string&>();
  return true;
}

bool ObjectReader::choice(std::string_view key, std::span<const Choice> choices, int& out) {
  const Json* value = find(key);
  if (!value) return false;
  std::vector<std::string_view> valid, supported;
  for (const Choice& choice : choices) {
    valid.push_back(choice.name);
    if (choice.value != kNotYet) supported.push_back(choice.name);
  }
  if (!value->is_string()) return wrong_type(key, *value, "one of " + listed(valid));
  const std::string& name = value->get_ref<const std::string&>();
  for (const Choice& choice : choices) {
    if (choice.name != name) continue;
    if (choice.value == kNotYet)
      problem(key, "unsupported", "\"" + name + "\" is not supported yet. Supported: " + listed(supported) + ".");
    out = choice.value;
    return true;
  }
  problem(key, "unknown_value", not_known("the value", name, valid));
  return false;
}

const Json* ObjectReader::object(std::string_view key) {
  const Json* value = find(key);
  if (!value || value->is_object()) return value;
  wrong_type(key, *value, "an object");
  return nullptr;
}

void ObjectReader::only(std::string_view key, bool neutral) {
  bool value = neutral;
  if (boolean(key, value) && value != neutral)
    problem(key, "unsupported", quoted(value) + " is not supported yet. Supported: " + quoted(neutral) + ".");
}

void ObjectReader::only(std::string_view key, std::int64_t neutral, std::int64_t least, std::int64_t most) {
  std::int64_t value = neutral;
  if (integer(key, value, least, most) && value != neutral) {
    problem(key, "unsupported", quoted(value) + " is not supported yet. Supported: " + quoted(neutral) + ".");
  }
}

void ObjectReader::only(std::string_view key, double neutral, double least, double most) {
  double value = neutral;
  if (number(key, value, least, most) && value != neutral) {
    problem(key, "unsupported", quoted(value) + " is not supported yet. Supported: " + quoted(neutral) + ".");
  }
}

void ObjectReader::only_null(std::string_view key) {
  if (const Json* value = find(key)) problem(key, "unsupported", quoted(*value) + " is not supported yet. Supported: null.");
}

void ObjectReader::done() {
  if (!object_) return;
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), key) == known_.end()) problem(key, "unknown_key", not_known("the key", key, known_));
  }
}

}  // namespace llmem
