#include "model/families.h"

#include "cli/commands.h"

namespace llmem {

// The table of core/model/FAMILIES.md.
int list_families(std::FILE* out) {
  std::fputs("| model_type | class | covered | images |\n|---|---|---|---|\n", out);
  for (const std::string_view name : family_names(Coverage::parameters)) {
    const Family& family = *find_family(name);
    const std::string_view words = covered(family), images = images_of(family);
    std::fprintf(out, "| %.*s | %.*s | %.*s | %.*s |\n", static_cast<int>(name.size()), name.data(),
                 static_cast<int>(family.model_class.size()), family.model_class.data(), static_cast<int>(words.size()), words.data(),
                 static_cast<int>(images.size()), images.data());
  }
  return std::ferror(out) ? 1 : 0;
}

}  // namespace llmem
