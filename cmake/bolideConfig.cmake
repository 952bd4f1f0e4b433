# find_package(bolide) gives the target bolide::bolide: the C++ API of <bolide/...> and everything it links.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(nlohmann_json)
find_dependency(PkgConfig)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(LZMA REQUIRED IMPORTED_TARGET liblzma)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
find_package(CUDAToolkit QUIET)  # of a build with CUDA: its static runtime
include("${CMAKE_CURRENT_LIST_DIR}/bolideTargets.cmake")
