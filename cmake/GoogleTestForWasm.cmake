# Debian ships GoogleTest's sources as well as its native library; WASM needs its own build of them.
find_path(googletest_source src/gtest-all.cc REQUIRED NO_CMAKE_FIND_ROOT_PATH PATHS /usr/src/googletest/googletest)
add_library(googletest_wasm STATIC ${googletest_source}/src/gtest-all.cc ${googletest_source}/src/gtest_main.cc)
target_include_directories(googletest_wasm SYSTEM PUBLIC ${googletest_source}/include PRIVATE ${googletest_source})
target_compile_options(googletest_wasm PRIVATE -fno-exceptions -O1)
