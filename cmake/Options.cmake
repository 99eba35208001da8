# What every target of this project is compiled with, natively and to WASM alike.
option(LLMEM_SANITIZE "AddressSanitizer and UndefinedBehaviorSanitizer; a finding aborts" OFF)

add_library(options INTERFACE)
target_compile_options(options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Wimplicit-fallthrough -Werror)
# GCC 12 sees overlapping copies in "text" + std::string where there are none (GCC bug 105651).
target_compile_options(options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# No exceptions and no RTTI anywhere: the WASM build has neither, and code must not behave differently there.
target_compile_options(options INTERFACE -fno-exceptions -fno-rtti)

# Link-time optimisation takes 8 % off the download.
# Bulk memory: memory.copy in place of loops and calls of memmove (in every browser since 2020).
if(EMSCRIPTEN)
  target_compile_options(options INTERFACE -flto -mbulk-memory)
  target_link_options(options INTERFACE -flto)
endif()

if(LLMEM_SANITIZE)
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(options INTERFACE ${sanitizers} -O1 -D_GLIBCXX_ASSERTIONS)
  target_link_options(options INTERFACE ${sanitizers})
endif()
