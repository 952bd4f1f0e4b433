#!/usr/bin/env bash
# clang-tidy-19 over the source files changed since the merge base with main, or over all of them.
set -euo pipefail
cd "$(dirname "$0")/.."
script=tidy.sh
. tools/shell.sh

sources() { # of the whole tree
  git ls-files '*.cc' '*.h'
}

# What changed: since main (or origin's main) parted from here; on main itself, in the last four hours, or in the last
# commit if the whole history is younger; together with what is not committed. A shallow clone that has neither: everything.
changed() {
  local base='' main
  for main in origin/main main; do
    base=$(git merge-base HEAD $main 2>/dev/null) && [ "$base" != "$(git rev-parse HEAD)" ] && break
    base=''
  done
  [ -n "$base" ] || base=$(git rev-list -1 --before='4 hours ago' HEAD)
  [ -n "$base" ] || base=$(git rev-parse --verify --quiet HEAD~1) || base=''
  if [ -z "$base" ]; then
    say "the history is too short to tell what changed: every file" >&2
    sources
    return
  fi
  git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.h'
  git ls-files --others --exclude-standard -- '*.cc' '*.h'
}

seconds=86400
if [ "${1:-}" = --seconds ]; then
  seconds=$2
  shift 2
fi
case "${1:-}" in
  '') files=$(changed) ;;
  --all) files=$(sources) ;;
  *)
    echo "usage: tools/tidy.sh [--seconds N] [--all]    clang-tidy on what changed since the merge base with main, or on"
    echo "everything; files whose turn comes after N seconds are named and left out"
    exit 2
    ;;
esac
[ -f build/release/compile_commands.json ] || cmake --preset release -Wno-dev >/dev/null
cmake --build --preset release --target bolide_version >/dev/null  # the one file that is generated

# A changed header is checked through the source file of its name, or else one that includes it. What the build does not
# compile is left out.
units=$(printf '%s\n' "$files" | while read -r file; do
  case $file in
    *.h)
      unit=${file%.h}.cc
      [ -f "$unit" ] || unit=$(git grep -lF "\"$(printf %s "$file" | sed -E "s,^(src|include)/,,")\"" -- '*.cc' | head -n 1)
      ;;
    *) unit=$file ;;
  esac
  if [ -n "$unit" ] && grep -qF "/$unit\"" build/release/compile_commands.json; then
    echo "$unit"
  fi
done | sort -u)
[ -n "$units" ] || { say "nothing to check"; exit 0; }
say "checking $(printf '%s\n' "$units" | wc -l) files"
deadline=$(($(date +%s) + seconds))
# shellcheck disable=SC2016  # expanded by the inner bash
check='[ "$(date +%s)" -lt "$0" ] || { echo "left out for lack of time: $1"; exit 0; }
  exec clang-tidy-19 -p build/release --quiet "$1"'
printf '%s\n' "$units" | xargs -d '\n' -P "${JOBS:-$(job_count)}" -n 1 bash -c "$check" "$deadline" \
  2> >(grep -vE '^[0-9]+ warnings? generated|^Suppressed' >&2)
say "clean"
