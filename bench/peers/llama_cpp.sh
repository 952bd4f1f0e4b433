#!/usr/bin/env bash
# Builds llama.cpp, a peer to measure against. Nothing in Bolide needs it.
set -euo pipefail

version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
targets=(llama-bench llama-perplexity llama-tokenize llama-quantize llama-server)

usage() {
  cat <<EOF
usage: bench/peers/llama_cpp.sh [FOLDER]

Downloads the PyPI source package llama-cpp-python $version, checks its hash, and builds llama.cpp from it, tuned for
this processor, into FOLDER (default: \${XDG_CACHE_HOME:-~/.cache}/bolide/peers/llama_cpp). What is built:
  ${targets[*]}
GCC builds it; clang-19 on processors with AMX, where GCC 12 fails. JOBS=N sets the number of compilers (default: all
processors). Running it again does only what is missing. The last line printed is the folder of the programs.
EOF
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  -*) usage >&2; exit 2 ;;
esac

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/bolide/peers/llama_cpp}
archive=llama_cpp_python-$version.tar.gz
say() { printf 'llama_cpp: %s\n' "$*"; }
fail() { printf 'llama_cpp: %s\n' "$*" >&2; exit 1; }

for program in cmake ninja python3 tar sha256sum; do
  command -v "$program" >/dev/null || fail "$program is missing; on Debian: apt-get install cmake ninja-build python3-pip"
done
mkdir -p "$folder"
cd "$folder"

if [ ! -f "$archive" ]; then
  python3 -m pip --version >/dev/null 2>&1 || fail "pip is missing; on Debian: apt-get install python3-pip"
  say "downloading $archive (77 MB) from PyPI"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    "llama-cpp-python==$version" || fail "pip could not download llama-cpp-python $version (see the lines above)"
fi
echo "$sha256  $archive" | sha256sum --check --quiet ||
  fail "$folder/$archive is not the file that was published; delete it and run this again"

if [ ! -f source/vendor/llama.cpp/CMakeLists.txt ]; then
  say "unpacking"
  rm -rf source.partial
  mkdir source.partial
  tar --extract --gzip --file "$archive" --directory source.partial --strip-components=1
  rm -rf source
  mv source.partial source
fi

if grep -qw amx_tile /proc/cpuinfo; then
  cc=clang-19 cxx=clang++-19
else
  cc=gcc cxx=g++
fi
command -v $cxx >/dev/null || fail "$cxx is missing; on Debian: apt-get install ${cxx/clang++/clang}"

if [ ! -f build/build.ninja ] || ! grep -q '^LLAMA_BUILD_SERVER:BOOL=ON' build/CMakeCache.txt; then
  say "configuring with $($cxx --version | head -n 1)"
  cmake -S source/vendor/llama.cpp -B build -G Ninja -Wno-dev \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=$cc -DCMAKE_CXX_COMPILER=$cxx \
    -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF >configure.log 2>&1 || {
    rm -f build/build.ninja
    tail -n 20 configure.log >&2
    fail "cmake failed; the whole log is $folder/configure.log"
  }
fi
say "building ${targets[*]}"
cmake --build build -j "${JOBS:-$(nproc)}" --target "${targets[@]}" >build.log 2>&1 || {
  tail -n 30 build.log >&2
  fail "the build failed; the whole log is $folder/build.log"
}
say "done"
echo "$PWD/build/bin"
