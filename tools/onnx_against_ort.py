#!/usr/bin/env python3
"""Runs ONNX models in Bolide and in ONNX Runtime on the same random inputs: differences of outputs, and times.

usage: tools/onnx_against_ort.py BOLIDE FOLDER [--threads N] [--rounds N] [--repeat N] [--seed N] [--steps N]
                                 [--tolerance X] [--rounded-tolerance X] [--output FILE] [--note TEXT]

FOLDER has *.onnx files; for models that are known here inputs are drawn from what they are made for (KNOWN), for others
floats are normal and integers 0 or 1. A model with inputs and outputs that carry a state (CARRIED) is run for --steps
chunks in both, each on its own state, and compared at every step.
An output is equal if the norm of the difference is at most --tolerance times that of ONNX Runtime's output at every
step, or no element differs by more than a thousandth of that. Where the norm is larger, the model is evaluated in
double precision (onnx_in_double.py), and Bolide's output is right, too, if it is no farther from that than ONNX
Runtime's, whose sigmoid of -10 is off by a third. Models that round a state to 8 bits at every step
(DynamicQuantizeLSTM) have --rounded-tolerance: a state in the middle between two codes goes to either, in all three.
The exit code is 1 if an output is none of these.
Times: --rounds rounds alternate between the two, each --repeat runs after two that are not counted, on the same threads;
the median of all runs of a kind is shown, with the rounds' lowest and highest medians in the JSON. Processor time, of
all threads, is what neighbours on the machine change least: its ratio is ONNX Runtime's by Bolide's.
Needs numpy, onnx and onnxruntime.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

import onnx_in_double

DTYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
          "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}

# By the beginning of the file's name: input > how its values are made.
def pixels(low, *shape):
    return lambda random: random.uniform(low, 1, shape).astype(np.float32)


def sound(*shape):
    return lambda random: (0.1 * random.standard_normal(shape)).astype(np.float32)


def page(height, width):
    """Dark strokes in lines on white, as text is, from -1 to 1."""
    def make(random):
        image = np.ones((1, 3, height, width), np.float32)
        for top in range(height // 8, height - 24, 40):
            for left in range(width // 8, width * 7 // 8, 9):
                if random.random() < 0.8:
                    tall, wide = random.integers(8, 20), random.integers(2, 7)
                    image[:, :, top + 20 - tall:top + 20, left:left + wide] = random.uniform(-1, -0.7)
        return image
    return make


def zeros(*shape):
    return lambda random: np.zeros(shape, np.float32)


def tokens(random):
    return random.integers(1000, 20000, (1, 32))


KNOWN = {
    "silero_vad_16k_sequence": {"input": sound(8, 576), "h": zeros(1, 1, 128), "c": zeros(1, 1, 128)},
    "silero": {
        "input": sound(1, 576),  # 64 of context and 512
        "sr": lambda random: np.array(16000, np.int64),
        "state": zeros(2, 1, 128),
    },
    "ultraface": {"input": pixels(-1, 1, 3, 240, 320)},
    "magika": {"bytes": lambda random: random.integers(0, 257, (1, 2048)).astype(np.int32)},
    "320n": {"images": pixels(0, 1, 3, 320, 320)},
    "ch_PP-OCRv4_det_infer, noise": {"x": pixels(-1, 1, 3, 64, 96)},
    "ch_PP-OCRv4_det": {"x": page(480, 640)},
    "ch_PP-OCRv4_rec": {"x": pixels(-1, 1, 3, 48, 320)},
    "common_det": {"images": lambda random: 255 * pixels(0, 1, 3, 416, 416)(random)},
    "common": {"input1": pixels(-1, 1, 1, 64, 160)},
    "open-nsfw": {"input:0": lambda random: 255 * pixels(0, 1, 224, 224, 3)(random) - 128},
    "bilstm": {"input_ids": lambda random: random.integers(1, 40, (1, 48))},
    "rawi": {"input": lambda random: random.integers(1, 40, (1, 48))},
    "ch_ppocr_mobile_v2.0_cls": {"x": pixels(-1, 1, 3, 48, 192)},
}
# More inputs for a model: on noise this one says no to every pixel, by sigmoids of about -10.
MORE = {"ch_PP-OCRv4_det_infer": ["ch_PP-OCRv4_det_infer, noise"]}
CARRIED = {"silero_vad_16k_sequence": {"h": "hn", "c": "cn"}, "silero": {"state": "stateN"}}
# Names of inputs that mean the same in all models of text.
COMMON = {"input_ids": tokens, "attention_mask": lambda random: np.ones((1, 32)),
          "token_type_ids": lambda random: np.zeros((1, 32))}


def known(table, name):
    return next((value for key, value in table.items() if name.startswith(key)), None)


def make_inputs(session, name, random):
    makers = known(KNOWN, name) or {}
    inputs = {}
    for port in session.get_inputs():
        if port.name in makers:
            inputs[port.name] = makers[port.name](random)
            continue
        if port.name in COMMON:
            inputs[port.name] = COMMON[port.name](random).astype(DTYPES[port.type])
            continue
        shape = [dim if isinstance(dim, int) else 1 for dim in port.shape]
        dtype = DTYPES.get(port.type)
        if dtype is None:
            sys.exit(f"{name}: input {port.name} is {port.type}: add it to KNOWN")
        values = random.standard_normal(shape) if np.issubdtype(dtype, np.floating) else random.integers(0, 2, shape)
        inputs[port.name] = np.asarray(values).astype(dtype)
    return inputs


class Bolide:
    def __init__(self, program, model, threads, scratch):
        self.program, self.model, self.threads, self.scratch = program, model, threads, scratch

    def call(self, command, inputs, *words):
        file = self.scratch / "inputs.npz"
        np.savez(file, **inputs)
        given = [word for name in inputs for word in ("--input", f"{name}={file}")]
        done = subprocess.run([self.program, command, self.model, *given, "--threads", str(self.threads), "--json", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{command} {self.model}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def run(self, inputs):
        file = self.scratch / "outputs.npz"
        self.call("run", inputs, "--output", file)
        with np.load(file) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def bench(self, inputs, repeat):
        return self.call("bench", inputs, "--repeat", str(repeat))


def difference(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        sys.exit(f"{got.dtype}{list(got.shape)} and {want.dtype}{list(want.shape)}")
    a, b = got.astype(np.float64), want.astype(np.float64)
    norm = np.linalg.norm(b)
    return {"max_abs": float(np.max(np.abs(a - b), initial=0)),
            "relative_l2": float(np.linalg.norm(a - b) / norm) if norm > 0 else float(np.linalg.norm(a)),
            "max_of_reference": float(np.max(np.abs(b), initial=0))}


def worst(differences):
    return {key: max(one[key] for one in differences) for key in differences[0]}


def compare(bolide, session, name, random, steps):
    """Differences by output: of one run, or the worst of some chunks, each side on its own state."""
    names = [port.name for port in session.get_outputs()]
    carried = known(CARRIED, name)
    mine = theirs = None
    by_step = []
    for _ in range(steps if carried else 1):
        inputs = make_inputs(session, name, random)
        for_bolide, for_ort = dict(inputs), dict(inputs)
        for to, from_output in (carried or {}).items() if mine is not None else ():
            for_bolide[to], for_ort[to] = mine[from_output], theirs[from_output]
        mine, theirs = bolide.run(for_bolide), dict(zip(names, session.run(None, for_ort)))
        by_step.append({key: difference(mine[key], theirs[key]) for key in names})
    return by_step, {key: worst([step[key] for step in by_step]) for key in names}


def distances_from_double(bolide, session, model, inputs):
    """Relative norms of both sides' differences from the outputs in double precision, by output."""
    names = [port.name for port in session.get_outputs()]
    exact = onnx_in_double.evaluate(model, inputs)
    mine, theirs = bolide.run(inputs), dict(zip(names, session.run(None, inputs)))
    return {key: {side: float(np.linalg.norm(one[key] - exact[key]) / np.linalg.norm(exact[key]))
                  for side, one in (("bolide", mine), ("onnxruntime", theirs))} for key in names}


def rounds_a_state(model):
    return any(node.op_type == "DynamicQuantizeLSTM" for node in onnx.load(model, load_external_data=False).graph.node)


def measure(bolide, session, inputs, rounds, repeat):
    mine, theirs, theirs_cpu = [], [], []
    for _ in range(rounds):
        mine.append(bolide.bench(inputs, repeat))
        runs, cpu = [], []
        for i in range(repeat + 2):
            start, start_cpu = time.perf_counter(), time.process_time()
            session.run(None, inputs)
            if i >= 2:
                runs.append((time.perf_counter() - start) * 1e3)
                cpu.append((time.process_time() - start_cpu) * 1e3)
        theirs.append(statistics.median(runs))
        theirs_cpu.append(statistics.median(cpu))
    medians = [one["latency_ms"]["median"] for one in mine]
    cpu_ms = [statistics.median(one["cpu_ms"]["median"] for one in mine), statistics.median(theirs_cpu)]

    def spread(values):
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return mine[0], spread(medians), spread(theirs), cpu_ms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bolide", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--rounded-tolerance", type=float, default=2e-2)
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--note", default="")
    arguments = parser.parse_args()
    models = sorted(arguments.folder.glob("*.onnx"))
    if not models:
        sys.exit(f"{arguments.folder} has no .onnx files")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.log_severity_level = 3  # errors alone: old exporters' files make hundreds of warnings
    report = {"date": datetime.date.today().isoformat(), "onnxruntime": onnxruntime.__version__, "note": arguments.note,
              "threads": arguments.threads, "seed": arguments.seed, "load_average_before": os.getloadavg()[0],
              "rounds": arguments.rounds, "repeat": arguments.repeat, "tolerance": arguments.tolerance, "models": {}}
    print("| model | opset | inputs | output | max abs | of at most | relative L2 (from double: Bolide, ONNX Runtime) | Bolide ms | ONNX Runtime ms | processor time |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    equal = True
    with tempfile.TemporaryDirectory() as folder:
        for model, name in ((model, name) for model in models for name in (model.stem, *MORE.get(model.stem, []))):
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            bolide = Bolide(arguments.bolide, model, arguments.threads, pathlib.Path(folder))
            steps, outputs = compare(bolide, session, name, np.random.default_rng(arguments.seed), arguments.steps)
            inputs = make_inputs(session, name, np.random.default_rng(arguments.seed))
            machine, mine, theirs, cpu_ms = measure(bolide, session, inputs, arguments.rounds, arguments.repeat)
            opset = max((one.version for one in onnx.load(model, load_external_data=False).opset_import
                         if one.domain in ("", "ai.onnx")), default=1)
            tolerance = arguments.rounded_tolerance if rounds_a_state(model) else arguments.tolerance
            is_equal = all(one["relative_l2"] <= tolerance or one["max_abs"] <= arguments.tolerance / 1000
                           for one in outputs.values())
            is_near = all(one["relative_l2"] <= arguments.tolerance for one in outputs.values())
            from_double = {} if is_near else distances_from_double(bolide, session, model, inputs)
            is_right = is_equal or all(one["bolide"] <= one["onnxruntime"] for one in from_double.values())
            equal = equal and is_right
            report.update(machine=machine["machine"], isa=machine["isa"])
            report["models"][name] = {"opset": opset, "inputs": machine["inputs"], "equal": is_equal,
                                      "tolerance": tolerance, "outputs": outputs, "steps": len(steps), "relative_l2_from_double": from_double,
                                      "bolide_ms": mine, "onnxruntime_ms": theirs,
                                      "bolide_cpu_ms": cpu_ms[0], "onnxruntime_cpu_ms": cpu_ms[1],
                                      "cpu_ratio": cpu_ms[1] / cpu_ms[0]}
            for key, one in outputs.items():
                chunks = f" ({len(steps)} chunks)" if len(steps) > 1 else ""
                shapes = ", ".join(f"{port} {shape}" for port, shape in machine["inputs"].items())
                double = from_double.get(key)
                beside = "" if double is None else f" ({double['bolide']:.1e}, {double['onnxruntime']:.1e})"
                print(f"| {name}{chunks} | {opset} | {shapes} | {key} | {one['max_abs']:.2e} | {one['max_of_reference']:.3g} | "
                      f"{one['relative_l2']:.2e}{beside} | {mine['median']:.2f} | {theirs['median']:.2f} | "
                      f"{cpu_ms[1] / cpu_ms[0]:.2f}{'' if is_right else ' DIFFERS'} |", flush=True)
    report["load_average_after"] = os.getloadavg()[0]
    if arguments.output:
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
