#include <gtest/gtest.h>

#include "base/dtype.h"
#include "base/json.h"
#include "base/text.h"
#include "files.h"

namespace llmem {
namespace {

TEST(Dtype, NamesArePyTorchs) {
  EXPECT_EQ(name_of(Dtype::bfloat16), "bfloat16");
  EXPECT_EQ(name_of(Dtype::boolean), "bool");
  for (int i = 0; i <= static_cast<int>(Dtype::boolean); ++i) EXPECT_EQ(dtype_named(name_of(static_cast<Dtype>(i))), static_cast<Dtype>(i));
  EXPECT_EQ(dtype_named("bf16"), std::nullopt);
  EXPECT_EQ(dtype_named(""), std::nullopt);
}

TEST(Dtype, Sizes) {
  EXPECT_EQ(size_of(Dtype::float64), Bytes{8});
  EXPECT_EQ(size_of(Dtype::float32), Bytes{4});
  EXPECT_EQ(size_of(Dtype::bfloat16), Bytes{2});
  EXPECT_EQ(size_of(Dtype::boolean), Bytes{1});
  EXPECT_TRUE(is_floating(Dtype::float16));
  EXPECT_FALSE(is_floating(Dtype::int64));
}

TEST(Json, SyntaxErrorsHaveLineAndColumn) {
  for (const auto& [text, place] : std::vector<std::pair<std::string, std::string>>{
           {"", "line 1, column 1"},
           {"{\"a\": 1,\n  \"b\": }", "line 2, column 8"},
           {"{\"é\": x}", "line 1, column 7"},
           {"{} {}", "line 1, column 4"},
           {"{\"a\": 1e999}", "line 1, column 11"},
       }) {
    const auto reading = parse_json(text, "/here");
    ASSERT_EQ(reading.problems.size(), 1u) << text;
    EXPECT_EQ(reading.problems[0].at, "/here");
    EXPECT_EQ(reading.problems[0].code, "syntax");
    EXPECT_EQ(reading.problems[0].message.substr(0, place.size()), place) << text;
    EXPECT_TRUE(reading.value.is_null());
  }
}

TEST(Json, BytesThatAreNoUtf8DoNotReachTheMessage) {
  for (const std::string& text : {std::string("\xff\xfe"), std::string("{\"a\xc3\": 1}"), std::string("\"\x80\""), std::string("\0", 1)}) {
    const auto reading = parse_json(text);
    ASSERT_EQ(reading.problems.size(), 1u);
    for (char c : reading.problems[0].message) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST(Json, KeysGivenTwiceAreFoundWhereTheyAre) {
  const auto reading = parse_json(R"({"a": {"b/c": 1, "x": [{"y": 1}], "b/c": 2}, "a": 3})");
  EXPECT_EQ(places(reading.problems), (std::vector<std::string>{"/a/b~1c conflict", "/a conflict"}));
}

TEST(Json, DeepNestingIsAnswered) {
  for (const std::string opener : {"[", "{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 100000; ++i) text += opener;
    const auto reading = parse_json(text);
    ASSERT_EQ(reading.problems.size(), 1u);
    EXPECT_EQ(reading.problems[0].code, "syntax");
    EXPECT_NE(reading.problems[0].message.find("deep"), std::string::npos);
  }
}

TEST(Json, NumbersThatOnlyPythonWrites) {
  const auto reading = parse_json(R"({"a": [0.0, Infinity, -Infinity, NaN], "b": "Infinity \" NaN"})");
  ASSERT_TRUE(reading.problems.empty()) << shown(reading.problems);
  EXPECT_EQ(reading.value, (nlohmann::json{{"a", {0.0, 1e308, -1e308, 0.0}}, {"b", "Infinity \" NaN"}}));
}

TEST(Json, Pointers) {
  EXPECT_EQ(pointer("", "model"), "/model");
  EXPECT_EQ(pointer("/a", "b/c~d"), "/a/b~1c~0d");
  EXPECT_EQ(pointer("/a", std::size_t{3}), "/a/3");
}

TEST(Text, EditDistanceIsLevenshteins) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("SDPA", "sdpa"), 0);
  EXPECT_EQ(edit_distance(std::string(1000, 'a'), std::string(1000, 'b')), 64);
}

TEST(Text, NearestIsNearOrNothing) {
  const std::string_view words[] = {"micro_batch", "sequence", "accumulation"};
  EXPECT_EQ(nearest("microbatch", words), "micro_batch");
  EXPECT_EQ(nearest("sequense", words), "sequence");
  EXPECT_EQ(nearest("gradient_clip", words), "");
  EXPECT_EQ(nearest("seq", words), "sequence");  // short for it
  EXPECT_EQ(nearest("mb", words), "");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Text, ShortenedCutsBetweenCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc…");
  EXPECT_EQ(shortened("aéb", 2), "a…");
  EXPECT_EQ(shortened("\x80\x80\x80", 1), "…");
}

}  // namespace
}  // namespace llmem
