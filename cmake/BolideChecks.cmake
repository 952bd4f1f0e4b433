# Checks of the tree and of the build that run as tests (Python 3, standard library only).
if(NOT BOLIDE_BUILD_TESTS)
  return()
endif()
find_package(Python3 REQUIRED COMPONENTS Interpreter)

function(bolide_check name)
  add_test(NAME ${name} COMMAND Python3::Interpreter ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 LABELS check)
endfunction()

set(checks "${PROJECT_SOURCE_DIR}/tests")
bolide_check(check.includes "${checks}/check_includes.py" "${PROJECT_SOURCE_DIR}")
bolide_check(check.includes.self_test "${checks}/check_includes.py" --self-test)
bolide_check(check.isa_symbols.self_test "${checks}/check_isa_symbols.py" --self-test --nm "${CMAKE_NM}")
if(NOT BOLIDE_SANITIZE)  # sanitizers emit weak helpers of their own into every object
  bolide_check(check.isa_symbols "${checks}/check_isa_symbols.py" "${PROJECT_BINARY_DIR}" --nm "${CMAKE_NM}")
  bolide_check(check.install "${checks}/check_install.py" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}"
    --cmake "${CMAKE_COMMAND}" --cxx "${CMAKE_CXX_COMPILER}")
endif()
