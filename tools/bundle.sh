#!/usr/bin/env bash
# Writes a tarball of programs and the shared libraries they need, glibc's aside: it runs on any Linux of this processor
# with the glibc that it was built with (Debian 12: 2.36) or a newer one. CUDA's libraries are the GPU machine's.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: tools/bundle.sh FILE.tar.zst|FILE.tar.gz PROGRAM..." >&2; exit 2; }
out=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
case $out in
  *.tar.zst) compress=(zstd -q -T0 -19) ;;
  *.tar.gz) compress=(gzip -9n) ;;
  *) echo "bundle.sh: $out is neither .tar.zst nor .tar.gz" >&2; exit 2 ;;
esac
name=$(basename "${out%.tar.*}")
limit=60000000  # bytes
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
top=$staging/$name
mkdir -p "$top/bin" "$top/lib" "$top/share/doc/bolide/libraries" "$(dirname "$out")"

for program in "$@"; do
  strip -o "$top/bin/$(basename "$program")" "$program"
  chmod 755 "$top/bin/$(basename "$program")"
done
needed() { # what the programs load, glibc's own aside
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3} $0 ~ /not found/ {print "missing: " $1 > "/dev/stderr"; bad = 1} END {exit bad}' |
    grep -vE '/(ld-linux-[^/]*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libnsl)\.so\.[0-9]+$' | sort -u
}
needed "$@" | while read -r library; do
  strip -o "$top/lib/$(basename "$library")" "$(readlink -f "$library")"
  # Each library's licence goes with it.
  package=$(dpkg -S "$(readlink -f "$library")" 2>/dev/null | head -n 1 | cut -d: -f1 || true)
  [ -z "$package" ] || [ ! -e "/usr/share/doc/$package/copyright" ] ||
    cp -L "/usr/share/doc/$package/copyright" "$top/share/doc/bolide/libraries/$package.txt"
done
cp "$root/LICENSE" "$root/NOTICE" "$root/THIRD_PARTY.md" "$top/share/doc/bolide/"

# Newest glibc symbol that anything in it asks for.
glibc=$(objdump -T "$top"/bin/* "$top"/lib/* | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1)
tar -C "$staging" --sort=name --owner=0 --group=0 -cf - "$name" | "${compress[@]}" >"$out"
size=$(stat -c %s "$out")
echo "$out: $size bytes, $(($(du -sb "$top" | cut -f1) / 1000000)) MB unpacked; needs ${glibc/_/ }"
(cd "$top" && find . -type f -path './[bl]*' -printf '  %s %P\n' | sort -k2)
[ "$size" -lt $limit ] || { echo "the bundle is larger than $limit bytes" >&2; exit 1; }
