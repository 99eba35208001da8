#include "embedded_presets.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "spec/read_spec.h"

namespace llmem {
namespace {

TEST(EmbeddedPresets, AreSortedById) {
  const auto presets = embedded_presets();
  EXPECT_FALSE(presets.empty());
  EXPECT_TRUE(std::is_sorted(presets.begin(), presets.end(), [](const auto& a, const auto& b) { return a.id < b.id; }));
}

TEST(EmbeddedPresets, AreJsonObjects) {
  for (const ModelPreset& preset : embedded_presets()) {
    SCOPED_TRACE(preset.id);
    EXPECT_TRUE(parse_json(preset.text).value.is_object());
  }
}

// An answer is made of the spec alone, so that the same spec gives the same bytes; tests/unit/cases_test.cpp has a whole answer.
TEST(EmbeddedPresets, PastedIsTheSameSpec) {
  const auto presets = embedded_presets();
  for (const ModelPreset& preset : presets) {
    const nlohmann::json file = parse_json(preset.text).value;
    const auto named = read_parsed_spec({{"model", preset.id}}, presets);
    const auto pasted = read_parsed_spec({{"model", {{"name", preset.id}, {"config", file["config"]}}}}, presets);
    EXPECT_TRUE(named.problems.empty() && pasted.problems.empty()) << preset.id;
    EXPECT_EQ(named.value.model.name, pasted.value.model.name);
    ASSERT_TRUE(named.value.model.config && pasted.value.model.config) << preset.id;
    EXPECT_EQ(named.value.model.config->dump(), pasted.value.model.config->dump()) << preset.id;
  }
}

}  // namespace
}  // namespace llmem
