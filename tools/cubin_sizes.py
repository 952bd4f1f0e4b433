#!/usr/bin/env python3
"""Prints how many bytes of GPU code a build holds for each architecture, by file and in all.

usage: cubin_sizes.py BUILD
Reads the fat binaries inside BUILD's *.cu.o files (as stored there, compressed); no toolkit is needed.
"""
import collections
import pathlib
import struct
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2


def entries(data):
    """(kind, architecture, bytes) of each entry of each fat binary in `data`."""
    at = data.find(MAGIC)
    while at >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        entry, end = at + header, at + header + size
        while entry + 64 <= min(end, len(data)):
            kind, _, length, payload = struct.unpack_from("<HHIQ", data, entry)
            (architecture,) = struct.unpack_from("<I", data, entry + 28)
            if kind not in (PTX, ELF) or length < 64:
                raise ValueError(f"an entry of kind {kind} at {entry:#x}")
            yield kind, architecture, payload
            entry += length + payload
        at = data.find(MAGIC, max(end, at + 4))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    totals = collections.Counter()
    for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.cu.o")):
        sizes = collections.Counter()
        for kind, architecture, size in entries(path.read_bytes()):
            sizes[f"{'ptx' if kind == PTX else 'sm'}_{architecture}"] += size
        totals.update(sizes)
        print(f"  {path.name.removesuffix('.o'):<40}" + "".join(f"  {name} {size}" for name, size in sorted(sizes.items())))
    print(f"  {'all':<40}" + "".join(f"  {name} {size}" for name, size in sorted(totals.items())))


if __name__ == "__main__":
    main()
