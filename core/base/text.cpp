#include "base/text.h"

#include <algorithm>

namespace llmem {
namespace {

constexpr std::size_t kCompared = 64;  // bytes of a word that edit_distance looks at

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// "bf16" is short for "bfloat16", "flash" for "flash_attention_2".
bool abbreviates(std::string_view typed, std::string_view word) {
  if (typed.size() < 3 || word.empty() || lower(typed[0]) != lower(word[0])) return false;
  for (char c : word) {
    if (!typed.empty() && lower(typed[0]) == lower(c)) typed.remove_prefix(1);
  }
  return typed.empty();
}

}  // namespace

std::string listed(std::span<const std::string_view> words) {
  std::string text;
  for (std::string_view word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

int edit_distance(std::string_view a, std::string_view b) {
  a = a.substr(0, kCompared);
  b = b.substr(0, kCompared);
  int row[kCompared + 1];  // Levenshtein's table, one row at a time
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view typed, std::span<const std::string_view> words) {
  std::string_view best;
  int best_distance = 2 + static_cast<int>(std::min(typed.size(), kCompared)) / 4;  // further away is another word
  for (std::string_view word : words) {
    const int distance = abbreviates(typed, word) ? 1 : edit_distance(typed, word);
    if (distance < best_distance) {
      best = word;
      best_distance = distance;
    }
  }
  return best;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

std::string shortened(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return std::string(text);
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;  // 10xxxxxx continues a character
  return std::string(text.substr(0, bytes)) + "…";
}

std::string grouped_digits(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace llmem
