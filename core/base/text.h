#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Words for people: how a problem quotes what it found and what would be valid.
namespace llmem {

// "a, b and c" would read better, but a list of option values is easier to copy from plain commas: "a, b, c".
std::string listed(std::span<const std::string_view> words);

// The word that was most probably meant, or "" when none is near.
std::string_view nearest(std::string_view typed, std::span<const std::string_view> words);

// Edits (insert, delete, replace a byte, ASCII letters' case aside) that turn one into the other; of long strings the first 64 bytes.
int edit_distance(std::string_view a, std::string_view b);

// Lower-case ASCII; other bytes as they are.
std::string lower(std::string_view text);

// At most `bytes` bytes of `text`, cut between two UTF-8 characters and then marked "…".
std::string shortened(std::string_view text, std::size_t bytes = 60);

// "1,234,567"
std::string grouped_digits(std::int64_t n);

}  // namespace llmem
