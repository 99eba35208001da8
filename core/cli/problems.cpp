#include "cli/problems.h"

namespace llmem {

int print_problems(const Problems& problems, std::FILE* errors) {
  for (const Problem& problem : problems)
    std::fprintf(errors, "%s: %s\n", problem.at.empty() ? "the spec" : problem.at.c_str(), problem.message.c_str());
  return 1;
}

}  // namespace llmem
