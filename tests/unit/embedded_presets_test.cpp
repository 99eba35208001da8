#include "embedded_presets.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"

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

}  // namespace
}  // namespace llmem
