# The download counts, so the core is compiled under -Os; but what runs at every event of a trace under -O2 (an estimate takes three
# times as long otherwise), and what runs once an estimate under -Oz.
# Each file gets exactly one -O flag: em++ remembers an -Os that a later -O2 replaced, and goes on inlining less.
function(optimise_for_download)
  set(once "/(base|spec|report|plan|time|search)/|/step/(optimizer_|grad_scaler|trainer)[^/]*$|/model/(config|families)[^/]*$|declaration")
  set(hot "/allocator/|/tensor/(autograd|device|shape|tensor)\\.cpp$")
  set(warm "/report/(ledger|report)\\.cpp$")
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${source})
    if(name MATCHES "${hot}")
      set(level -O2)
    elseif(name MATCHES "${once}" AND NOT name MATCHES "${warm}")
      set(level -Oz)
    else()
      set(level -Os)
    endif()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS ${level})
  endforeach()
endfunction()
