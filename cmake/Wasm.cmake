# Debian's own toolchain file, and what its em++ needs to find: its optimiser's JS passes require Debian's node modules.
set(ENV{NODE_PATH} /usr/share/nodejs)
include(/usr/share/emscripten/cmake/Modules/Platform/Emscripten.cmake)
