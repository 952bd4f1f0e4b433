#!/usr/bin/env bash
# clang-format-19 over every source file that git knows.
set -euo pipefail
cd "$(dirname "$0")/.."
case "${1:-}" in
  '') git ls-files -z --cached --others --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 -r clang-format-19 -i ;;
  --check) git ls-files -z --cached --others --exclude-standard '*.cc' '*.h' '*.cu' '*.cuh' | xargs -0 -r clang-format-19 --dry-run -Werror ;;
  *) echo "usage: tools/format.sh [--check]    formats every source file, or says which lines differ" >&2; exit 2 ;;
esac
