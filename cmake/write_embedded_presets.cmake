# cmake -D OUTPUT=file.cpp -D FOLDER=presets/models -P write_embedded_presets.cmake
file(GLOB files ${FOLDER}/*.json)
set(ids "")
foreach(path IN LISTS files)
  get_filename_component(name ${path} NAME)
  string(REGEX REPLACE "\\.json$" "" name "${name}")
  string(REPLACE "__" "/" id "${name}")
  list(APPEND ids "${id}")
endforeach()
list(SORT ids)  # bytewise: ModelPresets promises it

set(rows "")
foreach(id IN LISTS ids)
  string(REPLACE "/" "__" name "${id}")
  # Read and passed quoted throughout: brackets and semicolons in a config would break a CMake list.
  file(READ "${FOLDER}/${name}.json" text)
  string(APPEND rows "    {\"${id}\", R\"preset(${text})preset\"},\n")
endforeach()
list(LENGTH ids count)

file(WRITE ${OUTPUT} "#include \"embedded_presets.h\"

#include <array>

namespace llmem {

ModelPresets embedded_presets() {
  static constexpr std::array<ModelPreset, ${count}> presets = {{
${rows}  }};
  return presets;
}

}  // namespace llmem
")
