#pragma once

#include <cstdio>

#include "base/result.h"

namespace llmem {

// One line a problem, for a terminal. Returns the exit status, 1.
int print_problems(const Problems& problems, std::FILE* errors);

}  // namespace llmem
