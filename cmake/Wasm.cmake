# Debian's own toolchain file. Its em++ finds the node modules of its optimiser's JS passes only if told where they are.
set_property(GLOBAL PROPERTY RULE_LAUNCH_LINK "${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs")
include(/usr/share/emscripten/cmake/Modules/Platform/Emscripten.cmake)
