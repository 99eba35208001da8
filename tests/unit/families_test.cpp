#include "model/families.h"

#include <gtest/gtest.h>

#include "estimates.h"
#include "files.h"

namespace llmem {
namespace {

// The table of core/model/FAMILIES.md, as the code has it.
std::string families_table() {
  std::string table = "| model_type | class | covered | images |\n|---|---|---|---|\n";
  for (const std::string_view name : family_names(Coverage::parameters)) {
    const Family& family = *find_family(name);
    table += "| " + std::string(name) + " | " + std::string(family.model_class) + " | ";
    table += std::string(covered(family)) + " | " + std::string(images_of(family)) + " |\n";
  }
  return table;
}

TEST(Families, TheTableInTheDocsIsThatOfTheCode) {
  const std::string text = file_text("core/model/FAMILIES.md");
  EXPECT_NE(text.find(families_table()), std::string::npos) << "core/model/FAMILIES.md should hold:\n" << families_table();
}

TEST(Families, EachIsNamedOnce) {
  const auto names = family_names(Coverage::parameters);
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(names[i], names[j]);
}

// modeling_utils.py, _check_and_adjust_attn_implementation: eager where the class has no SDPA and nothing is asked for; asked for, it is an error.
TEST(Attention, ThatIsNotNamedIsWhatTransformersTakes) {
  const Json spec = {{"model", "google/gemma-2-2b"}, {"training", {{"sequence", 256}}}};
  Json eager = spec, sdpa = spec;
  eager["training"]["attention"] = "eager";
  sdpa["training"]["attention"] = "sdpa";
  const Json by_itself = report(spec), named = report(eager);
  EXPECT_EQ(by_itself["ranks"], named["ranks"]);
  EXPECT_NE(by_itself.dump().find("it takes eager attention"), std::string::npos);
  EXPECT_EQ(answer(sdpa)["problems"][0]["at"], "/training/attention");
}

}  // namespace
}  // namespace llmem
