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
bolide_check(check.conformance "${checks}/conformance.py" $<TARGET_FILE:bolide> "${PROJECT_BINARY_DIR}/conformance")
bolide_check(check.playground "${checks}/serve/playground_test.py")
bolide_check(check.openai "${checks}/serve/openai_client_test.py" $<TARGET_FILE:bolide>)
bolide_check(check.litellm "${checks}/serve/litellm_client_test.py" $<TARGET_FILE:bolide>)
bolide_check(check.tritonclient "${checks}/serve/tritonclient_test.py" $<TARGET_FILE:bolide>)
bolide_check(check.tritonclient_grpc "${checks}/serve/tritonclient_grpc_test.py" $<TARGET_FILE:bolide>)
bolide_check(check.includes.self_test "${checks}/check_includes.py" --self-test)
bolide_check(check.isa_symbols.self_test "${checks}/check_isa_symbols.py" --self-test --nm "${CMAKE_NM}")
if(NOT BOLIDE_SANITIZE)
  # Checkpoints too large to commit, for the tests of the folders that check them: with sanitizers that takes minutes.
  set(models "${PROJECT_BINARY_DIR}/fast_models")
  bolide_check(make.fast_models "${PROJECT_SOURCE_DIR}/tools/golden/make_fast_models.py" "${models}")
  set_tests_properties(make.fast_models PROPERTIES FIXTURES_SETUP fast_models)
  set_tests_properties(app eval PROPERTIES FIXTURES_REQUIRED fast_models ENVIRONMENT "BOLIDE_FAST_MODELS=${models}")
endif()
if(NOT BOLIDE_SANITIZE)  # sanitizers emit weak helpers of their own into every object
  bolide_check(check.isa_symbols "${checks}/check_isa_symbols.py" "${PROJECT_BINARY_DIR}" --nm "${CMAKE_NM}")
  bolide_check(check.install "${checks}/check_install.py" "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}"
    --cmake "${CMAKE_COMMAND}" --cxx "${CMAKE_CXX_COMPILER}")
endif()
