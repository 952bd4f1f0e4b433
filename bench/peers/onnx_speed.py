#!/usr/bin/env python3
"""Bolide beside ONNX Runtime on ONNX files: time of a run, taking turns, and the difference of the outputs.

usage: bench/peers/onnx_speed.py MODEL.onnx[:NAME=1x3x224x224[,NAME=...]] ... [--threads 1,2] [--rounds 7] [--seconds 1]
                                 [--bolide FILE] [--bolide-flag WORD ...] [--peer MODEL.onnx] [--output FILE]

Both get the same random inputs (floats normal, integers 0 or 1). A round measures both for about --seconds each, on the
same threads, and rounds alternate which goes first; a side's time in a round is the median of its runs after some that
are not counted. The ratio is ONNX Runtime's time over Bolide's (above 1: Bolide is faster): the median over the rounds,
with the lowest and the highest. --peer: the file that ONNX Runtime runs instead, as when Bolide runs a quantised or
bf16 form. Writes JSON with every sample and prints a table. Needs numpy and onnxruntime.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
          "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8,
          "tensor(bool)": np.bool_}


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()

    def field(name):
        return (re.search(rf"^{name}\s*: (.*)$", text, re.M) or ["", "unknown"])[1]
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16")
    flags = set(field("flags").split())
    return {"name": field("model name"), "family": field("cpu family"), "model": field("model"),
            "isa": [flag for flag in known if flag in flags], "cores": len(re.findall(r"^processor", text, re.M)),
            "system": platform.platform()}


def commit():
    done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def make_inputs(session, shapes, random):
    inputs = {}
    for port in session.get_inputs():
        shape = shapes.get(port.name) or [dim if isinstance(dim, int) else 1 for dim in port.shape]
        dtype = DTYPES.get(port.type) or sys.exit(f"input {port.name} is {port.type}")
        is_float = np.issubdtype(dtype, np.floating)
        inputs[port.name] = np.asarray(random.standard_normal(shape) if is_float else random.integers(0, 2, shape)).astype(dtype)
    return inputs


class Bolide:
    def __init__(self, arguments, model, threads, inputs, folder):
        self.arguments, self.model, self.threads, self.folder = arguments, model, threads, pathlib.Path(folder)
        file = self.folder / "inputs.npz"
        np.savez(file, **inputs)
        self.given = [word for name in inputs for word in ("--input", f"{name}={file}")]
        self.flags = [word for flag in arguments.bolide_flag for word in shlex.split(flag)]

    def call(self, command, *words):
        line = [self.arguments.bolide, command, self.model, *self.given, "--threads", self.threads, "--json", *self.flags, *words]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, line))}\n{done.stderr.strip()}")
        return json.loads(done.stdout)

    def outputs(self):
        file = self.folder / "outputs.npz"
        self.call("run", "--output", file)
        with np.load(file) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def bench(self, repeat):
        return self.call("bench", "--repeat", repeat)["latency_ms"]["median"]


def bench_peer(session, inputs, repeat):
    runs = []
    for i in range(repeat + 2):
        start = time.perf_counter()
        session.run(None, inputs)
        if i >= 2:
            runs.append((time.perf_counter() - start) * 1e3)
    return statistics.median(runs)


def difference(mine, theirs):
    """The largest over the outputs: relative in the L2 norm, and absolute."""
    relative = absolute = 0.0
    for name, want in theirs.items():
        a, b = mine[name].astype(np.float64), want.astype(np.float64)
        if a.shape != b.shape:
            sys.exit(f"output {name} is {list(a.shape)}, ONNX Runtime's {list(b.shape)}")
        absolute = max(absolute, float(np.max(np.abs(a - b), initial=0)))
        relative = max(relative, float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)))
    return {"relative_l2": relative, "max_abs": absolute}


def parse(text):
    """MODEL.onnx:ids=1x128,mask=1x128"""
    path, _, shapes = text.partition(":")
    named = (part.split("=") for part in shapes.split(",") if part)
    return pathlib.Path(path), {name: [int(dim) for dim in dims.split("x")] for name, dims in named}


def compare(arguments, text, threads):
    path, shapes = parse(text)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(arguments.peer or path), options, providers=["CPUExecutionProvider"])
    inputs = make_inputs(session, shapes, np.random.default_rng(arguments.seed))
    with tempfile.TemporaryDirectory() as folder:
        bolide = Bolide(arguments, path, threads, inputs, folder)
        theirs = dict(zip([port.name for port in session.get_outputs()], session.run(None, inputs)))
        row = {"model": path.name, "shapes": shapes, "threads": threads, "difference": difference(bolide.outputs(), theirs)}

        def repeat(milliseconds):
            return int(min(max(arguments.seconds * 1e3 / milliseconds, 3), 1000))
        mine_repeat, peer_repeat = repeat(bolide.bench(3)), repeat(bench_peer(session, inputs, 3))
        mine, peer = [], []
        for i in range(arguments.rounds):
            for turn in ((0, 1) if i % 2 == 0 else (1, 0)):
                if turn == 0:
                    mine.append(bolide.bench(mine_repeat))
                else:
                    peer.append(bench_peer(session, inputs, peer_repeat))
    ratios = [b / a for a, b in zip(mine, peer)]
    row.update(bolide_ms=statistics.median(mine), onnxruntime_ms=statistics.median(peer), ratio=statistics.median(ratios),
               ratio_min=min(ratios), ratio_max=max(ratios), samples={"bolide_ms": mine, "onnxruntime_ms": peer},
               repeat={"bolide": mine_repeat, "onnxruntime": peer_repeat})
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", default="2", help="one or more numbers, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bolide", type=pathlib.Path, default=ROOT / "build/release/bolide")
    parser.add_argument("--bolide-flag", action="append", default=[], help='more words for Bolide: --bolide-flag="--dtype bf16"')
    parser.add_argument("--peer", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--note", default="")
    arguments = parser.parse_args()
    command = shlex.join(["bench/peers/onnx_speed.py", *(pathlib.Path(word).name if "/" in word else word for word in sys.argv[1:])])
    report = {"date": datetime.date.today().isoformat(), "commit": commit(), "command": command, "processor": processor(),
              "versions": {"onnxruntime": onnxruntime.__version__, "numpy": np.__version__, "python": platform.python_version()},
              "note": arguments.note, "load_average_before": os.getloadavg()[0], "rows": []}
    print("| model | threads | Bolide ms | ONNX Runtime ms | ratio | of rounds | relative difference |\n|---|---|---|---|---|---|---|")
    for threads in (int(word) for word in arguments.threads.split(",")):
        for text in arguments.models:
            row = compare(arguments, text, threads)
            report["rows"].append(row)
            print(f"| {row['model']} | {threads} | {row['bolide_ms']:.2f} | {row['onnxruntime_ms']:.2f} | {row['ratio']:.2f} | "
                  f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f} | {row['difference']['relative_l2']:.1e} |", flush=True)
    report["load_average_after"] = os.getloadavg()[0]
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
