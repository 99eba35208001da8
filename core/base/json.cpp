#include "base/json.h"

#include <cstdio>

#include "base/text.h"

namespace llmem {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 64;            // nesting; a spec with a config.json has 6
constexpr std::size_t kCompared = 500;  // keys of one object that are watched for a second mention

std::string place_in(std::string_view text, std::size_t byte) {
  std::size_t line = 1, column = 1;
  for (char c : text.substr(0, byte)) {
    if (c == '\n') {
      ++line;
      column = 1;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {  // count characters, not the bytes of one
      ++column;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

// What is left of text that need not be UTF-8.
std::string printable(std::string_view text, std::size_t bytes) {
  std::string out(text.substr(0, bytes));
  for (char& c : out) {
    if (c < ' ' || c > '~') c = '?';
  }
  return out;
}

// Replaces each `word` outside of strings by as many bytes.
void replace_outside_strings(std::string& text, std::string_view word, std::string_view by) {
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      inside = !inside;
    } else if (inside && text[i] == '\\') {
      ++i;
    } else if (!inside && text.compare(i, word.size(), word) == 0) {
      text.replace(i, word.size(), by);
    }
  }
}

// Builds the value as nlohmann's own handler does, and notices what that one does not tell.
class Handler : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  Handler(Json& out, std::string_view text, std::string_view at, Problems& problems)
      : json_sax_dom_parser(out, false), text_(text), at_(at), problems_(problems) {}

  bool key(std::string& name) {
    Open& object = open_.back();
    object.current = name;
    for (const std::string& other : object.seen) {
      if (other == name) add(problems_, {here(), "conflict", "the key \"" + shortened(name) + "\" is given twice in one object"});
    }
    if (object.seen.size() < kCompared) object.seen.push_back(name);
    return json_sax_dom_parser::key(name);
  }
  bool start_object(std::size_t size) {
    open_.emplace_back();
    return deeper() && json_sax_dom_parser::start_object(size);
  }
  bool end_object() {
    open_.pop_back();
    --depth_;
    return json_sax_dom_parser::end_object();
  }
  bool start_array(std::size_t size) { return deeper() && json_sax_dom_parser::start_array(size); }
  bool end_array() {
    --depth_;
    return json_sax_dom_parser::end_array();
  }
  // `byte` counts from 1 and is the last byte read.
  bool parse_error(std::size_t byte, const std::string& token, const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while …; expected …"
    std::string_view why = error.what();
    if (const std::size_t colon = why.find(": "); colon != why.npos) why.remove_prefix(colon + 2);
    add(problems_,
        {std::string(at_), "syntax",
         place_in(text_, byte > 0 ? byte - 1 : 0) + ": not valid JSON near '" + printable(token, 20) + "': " + printable(why, 160)});
    return false;
  }

 private:
  struct Open {
    std::string current;            // the key whose value is read
    std::vector<std::string> seen;  // keys so far
  };

  std::string here() const {
    std::string at(at_);
    for (const Open& object : open_) at = pointer(at, object.current);
    return at;
  }

  bool deeper() {
    if (++depth_ <= kDeepest) return true;
    add(problems_, {std::string(at_), "syntax", "nested more than " + std::to_string(kDeepest) + " levels deep"});
    return false;
  }

  std::string_view text_, at_;
  Problems& problems_;
  std::vector<Open> open_;  // the objects around the place that is read
  int depth_ = 0;
};

}  // namespace

Reading<Json> parse_json(std::string_view text, std::string_view at) {
  std::string replaced;
  if (text.find("Infinity") != text.npos || text.find("NaN") != text.npos) {
    replaced = text;
    replace_outside_strings(replaced, "Infinity", "1e308   ");
    replace_outside_strings(replaced, "NaN", "0.0");
    text = replaced;
  }
  Reading<Json> reading;
  Handler handler(reading.value, text, at, reading.problems);
  if (!Json::sax_parse(text, &handler)) reading.value = nullptr;
  return reading;
}

std::string pointer(std::string_view at, std::string_view key) {
  std::string out(at);
  out += '/';
  for (char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string pointer(std::string_view at, std::size_t index) { return std::string(at) + "/" + std::to_string(index); }

namespace {

// A short list of plain values as it stands; what is longer or deeper by its kind.
std::string quoted_list(const Json& list) {
  constexpr std::size_t most = 4;
  std::string text = "[";
  for (const Json& element : list) {
    if (list.size() > most || element.is_structured()) return "a list";
    text += (text.size() > 1 ? ", " : "") + quoted(element);
  }
  return text + "]";
}

}  // namespace

std::string quoted(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case Json::value_t::number_integer: return std::to_string(value.get<std::int64_t>());
    case Json::value_t::number_unsigned: return std::to_string(value.get<std::uint64_t>());
    case Json::value_t::number_float: {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.10g", value.get<double>());
      return digits;
    }
    case Json::value_t::string: return "\"" + shortened(value.get_ref<const std::string&>()) + "\"";
    case Json::value_t::array: return quoted_list(value);
    default: return "an object";
  }
}

}  // namespace llmem
