#!/usr/bin/env python3
"""Chooses seeds for fuzz/corpus: from inputs, the few bytes that reach the most.

usage: tools/fuzz_minimise.py TARGET OUT BYTES INPUTS...     (TARGET: build/fuzz/x_fuzz; INPUTS: folders)

Greedy set cover: the input with the most new edges per byte comes next, then, while BYTES allow, the one with the most
new counts of edges. Files keep their names. libFuzzer's own -merge keeps every count and has no limit.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

COUNTS_PER_EDGE = 8  # libFuzzer's features number an edge's eight classes of counts in turn


def features_of(target, folders):
    """{path: set of features}, as libFuzzer's merge writes them to its control file."""
    with tempfile.TemporaryDirectory() as scratch:
        control, chosen = Path(scratch) / "control", Path(scratch) / "chosen"
        chosen.mkdir()
        subprocess.run([target, "-set_cover_merge=1", f"-merge_control_file={control}", chosen, *folders], check=True,
                       capture_output=True)
        lines = control.read_text().splitlines()
    files = lines[2: 2 + int(lines[0])]
    features = {}
    for line in lines:
        word = line.split(" ")
        if word[0] == "FT":
            features[Path(files[int(word[1])])] = {int(f) for f in word[2:]}
    return features


def choose(reached, sizes, budget, chosen):
    """Adds to `chosen` until nothing new fits the budget."""
    seen = set().union(*(reached[path] for path in chosen)) if chosen else set()
    left = budget - sum(sizes[path] for path in chosen)
    while True:
        fits = [p for p in reached if p not in chosen and sizes[p] <= left and not reached[p] <= seen]
        if not fits:
            return
        best = max(fits, key=lambda p: (len(reached[p] - seen) / (sizes[p] + 64), str(p)))
        chosen.append(best)
        seen |= reached[best]
        left -= sizes[best]


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    target, out, budget, folders = Path(sys.argv[1]).resolve(), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    features = features_of(target, folders)
    sizes = {path: path.stat().st_size for path in features}
    edges = {path: {f // COUNTS_PER_EDGE for f in of} for path, of in features.items()}
    chosen = []
    choose(edges, sizes, budget, chosen)
    choose(features, sizes, budget, chosen)
    out.mkdir(parents=True, exist_ok=True)
    # libFuzzer names files by forty digits.
    contents = {path.name if "." in path.name else path.name[:24]: path.read_bytes() for path in chosen}
    for name, data in contents.items():
        (out / name).write_bytes(data)
    every = set().union(*edges.values())
    covered = set().union(*(edges[path] for path in chosen))
    print(f"{target.name}: {len(chosen)} of {len(features)} inputs, {sum(map(len, contents.values()))} of "
          f"{sum(sizes.values())} bytes, {len(covered)} of {len(every)} edges")


if __name__ == "__main__":
    main()
