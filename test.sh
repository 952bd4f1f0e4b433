#!/usr/bin/env bash
# Builds Bolide with its tests and runs them.
set -euo pipefail
cd "$(dirname "$0")"
script=test.sh
. tools/shell.sh

usage() {
  cat <<EOF
usage: ./test.sh [WHAT]

  (nothing)    release build, the whole suite
  NAME-REGEX   release build, the tests whose names match (ctest -R)
  asan         address and undefined-behaviour sanitizers, the whole suite
  tsan         thread sanitizer, the whole suite
  fuzz         every libFuzzer target for FUZZ_SECONDS (default 60) each, from fuzz/corpus/TARGET; JOBS at once
  tidy         clang-tidy on the files changed since the merge base with main (tools/tidy.sh --all: on every file)
  format       clang-format: which files differ
  all          format, tidy, asan, tsan, then the release suite

Installs what is missing, as root or with sudo. Tests that need the goldens in ../shared, or the model that
./quickstart.sh downloads, say that they are skipped where there are none. JOBS=N sets the number of compilers.
EOF
}

build_and_test() { # preset, arguments of ctest
  local preset=$1
  shift
  drop_moved_build "$preset"
  step "configuring ($preset)" "build/logs/configure-$preset.log" cmake --preset "$preset" -Wno-dev -DBOLIDE_BUILD_TESTS=ON ||
    fail "cmake could not configure the $preset build (see above)"
  step "building ($preset)" "build/logs/build-$preset.log" cmake --build --preset "$preset" -j "${JOBS:-$(job_count)}" ||
    fail "the $preset build failed (see above)"
  say "testing ($preset)"
  ctest --preset "$preset" --no-tests=error "$@"
}

fuzz() {
  local targets seconds=${FUZZ_SECONDS:-60}
  drop_moved_build fuzz
  mapfile -t targets < <(find src -name '*_fuzz.cc' -exec basename {} .cc \;)
  step "configuring (fuzz)" build/logs/configure-fuzz.log cmake --preset fuzz -Wno-dev || fail "cmake could not configure the fuzz build (see above)"
  step "building (fuzz)" build/logs/build-fuzz.log cmake --build --preset fuzz -j "${JOBS:-$(job_count)}" --target "${targets[@]}" ||
    fail "the fuzz build failed (see above)"
  step "fuzzing ${#targets[@]} targets for $seconds s each" build/logs/fuzz.log tools/fuzz_run.sh build/fuzz fuzz/corpus build/fuzz/run "$seconds" ||
    fail "found faults: build/fuzz/run/TARGET.log says which" "the inputs are build/fuzz/run/TARGET-*; run build/fuzz/TARGET with one as its argument"
  say "no fault found; tools/fuzz_report.py build/fuzz/run shows the coverage and keeps it in bench/results"
}

[ $# -le 1 ] || { usage >&2; exit 2; }
case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  -*) usage >&2; exit 2 ;;
esac
check_machine 1500
install_packages release test
case "${1:-}" in fuzz | tidy | format | asan | all) install_packages clang ;; esac
check_compiler

case "${1:-}" in
  '') build_and_test release ;;
  asan | tsan) build_and_test "$1" ;;
  fuzz) fuzz ;;
  tidy) tools/tidy.sh ;;
  format) tools/format.sh --check ;;
  all)
    tools/format.sh --check
    tools/tidy.sh
    build_and_test asan
    build_and_test tsan
    build_and_test release
    ;;
  *) build_and_test release -R "$1" ;;
esac
