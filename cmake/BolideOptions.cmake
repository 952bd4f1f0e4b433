# Compiler, warnings, sanitizers and packages, for every target.
option(BOLIDE_BUILD_TESTS "Build the tests (needs GoogleTest)" ON)
option(BOLIDE_BUILD_FUZZERS "Build the libFuzzer targets (needs clang-19)" OFF)
option(BOLIDE_WARNINGS_AS_ERRORS "Treat warnings as errors" ON)
option(BOLIDE_PRECOMPILE "Precompile the headers of libraries: clean builds are faster; what a file forgets to include goes unseen" OFF)
set(BOLIDE_SANITIZE "" CACHE STRING "Sanitizers to build with, as -fsanitize= takes them: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(BOLIDE_CCACHE ccache)
if(BOLIDE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the tree are made relative, so that clones and worktrees share what they compile.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=true
    "${BOLIDE_CCACHE}")
endif()

# What every target shares. Warnings and sanitizers are for building Bolide, not for who links an installed copy.
add_library(bolide_flags INTERFACE)
target_compile_features(bolide_flags INTERFACE cxx_std_20)
target_include_directories(bolide_flags INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>"
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:include>")
set(flags -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # GCC 12 warns of overlapping copies inside its own std::string operator+ (GCC PR 105651).
  list(APPEND flags -Wno-restrict)
else()
  # Clang warns of what GCC 12's std::stable_sort itself uses.
  list(APPEND flags -Wno-deprecated-declarations)
endif()
if(BOLIDE_WARNINGS_AS_ERRORS)
  list(APPEND flags -Werror)
endif()
if(BOLIDE_SANITIZE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC 12 sees uninitialised parts in instrumented std::variant and std::optional that are never read.
    list(APPEND flags -Wno-maybe-uninitialized)
  endif()
  list(APPEND flags -fsanitize=${BOLIDE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # GCC compiles almost twice as long with these two. The address sanitizer stops at null, too; fuzzers, which clang
  # builds, have both.
  if(BOLIDE_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND flags -fno-sanitize=null,alignment)
  endif()
  target_link_options(bolide_flags INTERFACE "$<BUILD_INTERFACE:-fsanitize=${BOLIDE_SANITIZE}>")
endif()
target_compile_options(bolide_flags INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${flags}>>")

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Boost 1.74 REQUIRED)  # headers of Asio and Beast
find_package(OpenSSL 3.0 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(LZMA REQUIRED IMPORTED_TARGET liblzma)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-cpp)
pkg_check_modules(PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
find_path(BOLIDE_STB stb/stb_image.h REQUIRED)  # Debian: libstb-dev; a header in the system's include path
if(BOLIDE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
