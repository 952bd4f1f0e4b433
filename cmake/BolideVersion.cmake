# bolide_version: base/version.h's facts, written at build time so that the commit is the one that was built.
# Run as a script (cmake -P) it writes the file; included, it sets up the target that runs it.
if(CMAKE_SCRIPT_MODE_FILE)
  set(commit "unknown")
  find_program(git git)
  if(git)
    execute_process(COMMAND "${git}" -C "${SOURCE_DIR}" describe --always --dirty --abbrev=12 --exclude=*
      OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(described)
      set(commit "${described}")
    endif()
  endif()
  configure_file("${TEMPLATE}" "${OUTPUT}" @ONLY)  # touches the file only if it changes
  return()
endif()

function(bolide_version_target)
  set(isas "scalar")
  foreach(isa avx2 avx512 vnni avx512bf16 amx)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*_${isa}.cc")
    if(files)
      string(APPEND isas " ${isa}")
    endif()
  endforeach()
  set(output "${PROJECT_BINARY_DIR}/generated/version.cc")
  add_custom_target(bolide_version_source
    COMMAND "${CMAKE_COMMAND}" "-DSOURCE_DIR=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${output}"
      "-DTEMPLATE=${PROJECT_SOURCE_DIR}/cmake/version.cc.in" "-DVERSION=${PROJECT_VERSION}"
      "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" "-DISAS=${isas}" "-DCUDA=${BOLIDE_CUDA_VERSION}"
      "-DBUILD_TYPE=${CMAKE_BUILD_TYPE}" "-DSANITIZE=${BOLIDE_SANITIZE}"
      -P "${PROJECT_SOURCE_DIR}/cmake/BolideVersion.cmake"
    BYPRODUCTS "${output}" COMMENT "Checking which commit this is" VERBATIM)
  add_library(bolide_version STATIC "${output}")
  add_dependencies(bolide_version bolide_version_source)
  target_link_libraries(bolide_version PUBLIC bolide_flags)
endfunction()
