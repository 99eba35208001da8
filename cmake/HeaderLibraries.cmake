# nlohmann-json and tl::expected are header-only packages of the system. A cross build must not see /usr/include (its libc would
# shadow Emscripten's), so both builds include them through links in the build tree.
add_library(header_libraries INTERFACE)
target_include_directories(header_libraries SYSTEM INTERFACE ${PROJECT_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)

function(link_header_library folder header)
  find_path(${folder}_parent ${folder}/${header} REQUIRED NO_CMAKE_FIND_ROOT_PATH PATHS /usr/include /usr/local/include)
  file(CREATE_LINK ${${folder}_parent}/${folder} ${PROJECT_BINARY_DIR}/include/${folder} SYMBOLIC)
endfunction()

link_header_library(nlohmann json.hpp)
link_header_library(tl expected.hpp)
