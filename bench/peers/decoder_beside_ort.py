#!/usr/bin/env python3
"""Generates with an ONNX decoder (tools/make_decoder_onnx.py) in Bolide and in ONNX Runtime by turns, and prints medians.

usage: decoder_beside_ort.py MODEL --bench PROGRAM [--threads N] [--prompt N] [--tokens N] [--rounds N]
PROGRAM: bolide_decoder_bench. Each round is a process of its own for either, whose first pass warms up. Presents go back
as pasts without a copy by the caller on both sides. Times: wall and the processor's. Needs onnxruntime and numpy.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time


def generate(model, threads, prompt, tokens):
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if threads > 1 else "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    past_of = {n: n.replace("present", "past_key_values") for n in names if n != "logits"}
    inputs = {i.name: i.shape for i in session.get_inputs()}
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    for _ in range(2):
        feeds = {n: value(numpy.zeros((1, s[1], 0, s[3]), numpy.float32))
                 for n, s in inputs.items() if n.startswith("past")}
        given, ids = [1 + i * 37 % 1000 for i in range(prompt)], []
        start, cpu = time.perf_counter(), time.process_time()
        for step in range(tokens + 1):
            before = 0 if step == 0 else prompt + step - 1
            feeds["input_ids"] = value(numpy.array([given], numpy.int64))
            if "position_ids" in inputs:
                feeds["position_ids"] = value(numpy.arange(before, before + len(given), dtype=numpy.int64)[None])
            else:
                feeds["attention_mask"] = value(numpy.ones((1, before + len(given)), numpy.int64))
            results = dict(zip(names, session.run_with_ort_values(None, feeds)))
            for name, past in past_of.items():
                feeds[past] = results[name]
            logits = results["logits"].numpy()[0, -1]
            if step == 0:
                prompt_s, prompt_cpu_s = time.perf_counter() - start, time.process_time() - cpu
                start, cpu = time.perf_counter(), time.process_time()
            given = [int(logits.argmax())]
            if step < tokens:
                ids.append(given[0])
        wall, used = time.perf_counter() - start, time.process_time() - cpu
    return {"prompt_ms": prompt_s * 1e3, "prompt_cpu_ms": prompt_cpu_s * 1e3, "tokens_per_s": tokens / wall,
            "token_cpu_ms": used * 1e3 / tokens, "ids": ids}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--bench")
    for name, standard in (("threads", 1), ("prompt", 128), ("tokens", 64), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=standard)
    options = parser.parse_args()
    sizes = [str(options.threads), str(options.prompt), str(options.tokens)]
    if options.bench is None:
        print(json.dumps(generate(options.model, options.threads, options.prompt, options.tokens)))
        return
    commands = {"bolide": [options.bench, options.model, *sizes],
                "ort": [sys.executable, __file__, options.model, "--threads", sizes[0], "--prompt", sizes[1], "--tokens",
                        sizes[2]]}
    found = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            found[name].append(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))
    same = sum(a == b for a, b in zip(found["bolide"][0]["ids"], found["ort"][0]["ids"]))
    print(f"{options.model}: {options.threads} threads, prompt of {options.prompt}, {options.tokens} tokens, "
          f"{same} ids equal")
    for key in ("prompt_ms", "prompt_cpu_ms", "tokens_per_s", "token_cpu_ms"):
        ours, theirs = (statistics.median(r[key] for r in found[name]) for name in ("bolide", "ort"))
        speed = ours / theirs if key == "tokens_per_s" else theirs / ours
        print(f"  {key:14} bolide {ours:10.3f}  ort {theirs:10.3f}  speed {speed:.2f}")


if __name__ == "__main__":
    main()
