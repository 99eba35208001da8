# The model presets as text inside `llmem` and the tests, so that each is one file. The WASM door carries none: the page
# fetches the one it needs and sends it along.
set(preset_folder ${PROJECT_SOURCE_DIR}/presets/models)
set(embedded ${PROJECT_BINARY_DIR}/generated/embedded_presets.cpp)
file(GLOB preset_files CONFIGURE_DEPENDS ${preset_folder}/*.json)
# The list itself is a dependency too: a preset that is removed must vanish from the programs.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/preset_files.txt CONTENT "${preset_files}\n" @ONLY)
add_custom_command(
  OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -D OUTPUT=${embedded} -D FOLDER=${preset_folder} -P ${PROJECT_SOURCE_DIR}/cmake/write_embedded_presets.cmake
  DEPENDS ${preset_files} ${PROJECT_BINARY_DIR}/generated/preset_files.txt ${PROJECT_SOURCE_DIR}/cmake/write_embedded_presets.cmake
  VERBATIM)

add_library(embedded_presets STATIC ${embedded})
target_include_directories(embedded_presets PUBLIC ${PROJECT_SOURCE_DIR}/cmake)
target_link_libraries(embedded_presets PUBLIC core)
