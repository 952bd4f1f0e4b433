#!/usr/bin/env python3
"""Compares the networks of `bolide zoo` with ONNX Runtime: the same file, the same random inputs, fp32.

usage: zoo_compare.py [--bolide PROGRAM] [--folder DIR] [--names A,B] [--threads N] [--runs N] [--json FILE]
       [--tolerance X] [--activations]
Needs onnxruntime, numpy and (for --activations) onnx. Files that are in DIR already are taken as they are.
The error is the largest difference of an output over its largest value. Exit code 1 if one is above the tolerance.
"""
import argparse
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import numpy
import onnxruntime

# Inputs of a network: dims by input. Names of kinds: "image" normal, "pixels" 0 to 1, "ids", "mask", "kinds".
TEXT = {"input_ids": ("ids", (1, 128)), "attention_mask": ("mask", (1, 128)), "token_type_ids": ("kinds", (1, 128))}
IMAGE = {"input": ("image", (1, 3, 224, 224))}
NETWORKS = {
    "resnet-18": IMAGE, "resnet-50": IMAGE, "mobilenet-v2": IMAGE, "vit-b-16": IMAGE,
    "yolov8n": {"images": ("pixels", (1, 3, 640, 640))},
    "minilm-l6": TEXT, "bert-base": TEXT, "bert-large": TEXT,
    "whisper-base-encoder": {"input_features": ("image", (1, 80, 3000))},
}


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def make_input(kind, shape, random):
    if kind == "ids":
        return random.integers(0, 30522, shape, dtype=numpy.int64)
    if kind == "kinds":
        return random.integers(0, 2, shape, dtype=numpy.int64)
    if kind == "mask":  # the end is padding
        mask = numpy.ones(shape, dtype=numpy.int64)
        mask[:, -shape[1] // 8:] = 0
        return mask
    if kind == "pixels":
        return random.random(shape, dtype=numpy.float32)
    return random.standard_normal(shape, dtype=numpy.float32)


def session_of(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def activations(path, inputs, threads):
    """Smallest and largest root mean square of what the nodes give, and of what depth they are."""
    import onnx
    model = onnx.load(path)
    wanted = [out for node in model.graph.node if node.op_type in ("Conv", "MatMul", "Add", "Relu", "Clip", "Mul", "Gemm",
                                                                   "BatchNormalization") for out in node.output]
    have = {output.name for output in model.graph.output}
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in wanted if n not in have)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    sizes = {}
    for name, value in zip([o.name for o in session.get_outputs()], session.run(None, inputs)):
        if value.dtype == numpy.float32 and value.size > 1 and numpy.abs(value).max() < 1e30:
            sizes[name] = float(numpy.sqrt(numpy.mean(numpy.square(value, dtype=numpy.float64))))
    return min(sizes.items(), key=lambda s: s[1]), max(sizes.items(), key=lambda s: s[1])


def compare(name, path, arguments, random):
    inputs = {key: make_input(kind, shape, random) for key, (kind, shape) in NETWORKS[name].items()}
    session = session_of(path, arguments.threads)
    names = [output.name for output in session.get_outputs()]
    expected = session.run(names, inputs)
    peer_ms = []
    for _ in range(arguments.runs):
        start = time.perf_counter()
        session.run(names, inputs)
        peer_ms.append((time.perf_counter() - start) * 1e3)
    with tempfile.TemporaryDirectory() as folder:
        numpy.savez(f"{folder}/in.npz", **inputs)
        command = [arguments.bolide, "run", str(path), "--output", f"{folder}/out.npz", "--json", "--threads",
                   str(arguments.threads)]
        for key in inputs:
            command += ["--input", f"{key}={folder}/in.npz:{key}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return {"name": name, "failed": done.stderr.strip()[-400:]}
        said = json.loads(done.stdout)
        got = dict(numpy.load(f"{folder}/out.npz"))
    error, spread = 0.0, float("inf")
    for key, value in zip(names, expected):
        difference = numpy.abs(got[key].astype(numpy.float64) - value).max()
        error = max(error, float(difference / numpy.abs(value).max()))
        if not numpy.isfinite(got[key]).all():
            error = float("inf")
        spread = min(spread, float(value.std()))
    row = {"name": name, "inputs": {key: list(value.shape) for key, value in inputs.items()},
           "relative_error": error, "output_deviation": spread, "bolide_ms": said["ms"],
           "onnxruntime_ms": min(peer_ms), "bolide_load_ms": said["load_ms"], "file_bytes": path.stat().st_size}
    if arguments.activations:
        low, high = activations(path, inputs, arguments.threads)
        row["smallest_rms"], row["largest_rms"] = {"node": low[0], "rms": low[1]}, {"node": high[0], "rms": high[1]}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bolide", default="build/release/bolide")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--names", default=",".join(NETWORKS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--activations", action="store_true")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or pathlib.Path(temporary)
        print(f"{'network':<21} {'error':>9} {'deviation':>10} {'bolide ms':>10} {'ort ms':>9} {'MB':>7}")
        for name in arguments.names.split(","):
            path = folder / f"{name}.onnx"
            if not path.is_file():
                subprocess.run([arguments.bolide, "zoo", name, "-o", str(path)], check=True, stdout=subprocess.DEVNULL)
            row = compare(name, path, arguments, numpy.random.default_rng(arguments.seed))
            rows.append(row)
            if "failed" in row:
                print(f"{name:<21} {row['failed']}", flush=True)
                continue
            print(f"{name:<21} {row['relative_error']:>9.2e} {row['output_deviation']:>10.3g} {row['bolide_ms']:>10.1f} "
                  f"{row['onnxruntime_ms']:>9.1f} {row['file_bytes'] / 1e6:>7.1f}", flush=True)
            if arguments.activations:
                print(f"{'':<21} rms {row['smallest_rms']['rms']:.3g} {row['smallest_rms']['node']} to "
                      f"{row['largest_rms']['rms']:.3g} {row['largest_rms']['node']}", flush=True)
            if arguments.folder is None:
                path.unlink()
    if arguments.json:
        out = {"processor": processor(), "threads": arguments.threads, "onnxruntime": onnxruntime.__version__,
               "tolerance": arguments.tolerance, "networks": rows}
        arguments.json.write_text(json.dumps(out, indent=1) + "\n")
    bad = [row["name"] for row in rows if "failed" in row or not row["relative_error"] <= arguments.tolerance]
    print("equal within the tolerance" if not bad else f"not equal: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
