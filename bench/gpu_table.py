#!/usr/bin/env python3
"""Measures what one GPU is asked for: decode and first-token rates of published shapes with random weights.

    python3 bench/gpu_table.py BOLIDE [--repeat N] [--list] [ROW...] > bench/results/gpu-table.json

BOLIDE is the program; ROW is a row's whole name ('decode-1 bf16' is that row alone), or else a part of names
('fp8 cache', 'decode-1 '). Every row is one `bolide bench` (medians of --repeat runs, 5 unless the row has its own), the
roofs are measured first, in the same call. --list shows the names. Prints a table to standard error; JSON goes to
standard output, also when a row fails or the run is interrupted.
"""
import argparse
import json
import subprocess
import sys

LLAMA = "synth:llama-3-8b"
DECODE = "--prompt 0 --depth 128 --generate 256"
BATCHES = (1, 8, 16, 32, 64, 128)
TYPES = ("bf16", "fp8", "int8", "w4")
# Each can be left out (bolide inspect --graph lists all passes; the others only clean up).
FUSIONS = ("merge_linears", "fuse_gated_act", "fuse_rope_kv_write", "fuse_gated_linear", "fuse_qkv_rope",
           "fuse_norm_linear", "fuse_add_norm", "fuse_linear_add")
LONG = "--prompt 0 --depth 1024 --generate 16 --context 1100"
SLOW_TIMEOUT_S = 400


def model_of(dtype):
    return LLAMA if dtype == "bf16" else f"{LLAMA}:{dtype}"


def decode(name, model, batch=1, flags=DECODE, **more):
    return {"name": name, "model": model, "flags": f"{flags} --batch {batch}", **more}


def prompt(name, model, tokens, **more):
    return {"name": name, "model": model, "flags": f"--prompt {tokens} --generate 0 --context {tokens + 64}", **more}


ROWS = [
    *[decode(f"decode-{b} {t}", model_of(t), b) for t in TYPES for b in BATCHES],
    *[prompt(f"prompt-{n} {t}", model_of(t), n) for t in ("bf16", "fp8") for n in (2048, 8192)],
    # 512 sequences are prefilled before each run, which takes most of a minute: one run each.
    *[decode(f"decode-512 at 1k bf16{c}", LLAMA, 512, LONG + f, repeat=1, timeout=SLOW_TIMEOUT_S)
      for c, f in (("", ""), (" fp8 cache", " --kv-type fp8"))],
    decode("qwen2-1.5b decode-1 bf16", "synth:qwen2-1.5b"),
    decode("phi-3-mini decode-1 bf16", "synth:phi-3-mini"),
    decode("smollm2-135m decode-1 bf16", "synth:smollm2-135m"),
    *[decode(f"decode-1 bf16 without {p}", LLAMA, 1, f"{DECODE} --skip-passes {p}") for p in FUSIONS],
    decode("decode-1 bf16 without any fusion", LLAMA, 1, f"{DECODE} --skip-passes {','.join(FUSIONS)}"),
    # A cache of one block a sequence is a contiguous one; the same kernels read both.
    *[decode(f"decode-{b} bf16 {kind} cache", LLAMA, b, f"{DECODE} --context 512 --block-tokens {p}")
      for b in (1, 64) for kind, p in (("paged", 64), ("contiguous", 512))],
    # Without a KV cache each token costs a prompt as long as the text so far. There is no such switch: the time of a
    # text is the sum of its prompts', taken from prompts of these lengths (see without_cache).
    *[prompt(f"no cache, prompt-{n} bf16", LLAMA, n) for n in (128, 256, 384)],
]


def without_cache(rows):
    """Tokens per second of 128 in, 256 out if every token recomputed the whole text, from the prompts' times."""
    times = {row["prompt"]: row["ttft_ms"]["median"] for name, row in rows.items()
             if name.startswith("no cache, ") and row.get("ttft_ms")}
    if len(times) < 3:
        return None
    a, b, c = (times[n] for n in sorted(times))
    # Simpson's rule over the lengths 128, 256, 384: the mean time of a token.
    mean_ms = (a + 4 * b + c) / 6
    return {"tokens_per_s": 1000 / mean_ms, "mean_ms_a_token": mean_ms,
            "how": "a token costs a prompt of the text so far; mean over lengths 128 to 384 of the measured prompts of "
                   "128, 256 and 384 tokens (Simpson's rule)"}


def call(command, timeout):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None, f"ran longer than {timeout} s"
    return (done.stdout, None) if done.returncode == 0 else (None, done.stderr.strip()[-400:])


def bench(bolide, arguments, timeout=240):
    command = [bolide, "bench", *arguments, "--json"]
    out, error = call(command, timeout)
    if error is not None:
        return {"command": command[1:], "error": error}
    return {"command": command[1:], **json.loads(out)}


def gpu_state():
    """Clocks and driver as the driver's own tool gives them; empty where there is none."""
    fields = ["name", "driver_version", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem", "power.limit",
              "temperature.gpu", "clocks_throttle_reasons.active"]
    try:
        out, _ = call(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"], 20)
    except FileNotFoundError:
        return {}
    return dict(zip(fields, map(str.strip, out.splitlines()[0].split(",")))) if out else {}


def choose(words):
    """Rows named in full, else by a part; every word must pick something."""
    chosen = []
    for word in words:
        exact = [row for row in ROWS if row["name"] == word]
        found = exact or [row for row in ROWS if word in row["name"]]
        if not found:
            sys.exit(f"gpu_table: no row has '{word}' in its name; --list shows them")
        chosen += [row for row in found if row not in chosen]
    return chosen or ROWS


def show(name, row):
    rate = row.get("decode_tokens_per_s") if row.get("generate") else row.get("prompt_tokens_per_s")
    if rate is None:
        return f"{name:40} {row.get('error', '?')[:150]}"
    line = f"{name:40} {rate['median']:10.1f} tokens/s ({rate['min']:.1f} to {rate['max']:.1f})"
    if row.get("generate"):
        line += f"  {row['decode_gb_per_s']:6.0f} GB/s"
        if "percent_of_read_roof" in row:
            line += f", {row['percent_of_read_roof']:.1f} % of the read roof"
    elif row.get("ttft_ms"):
        line += f"  first token {row['ttft_ms']['median']:.1f} ms"
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bolide", nargs="?")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--repeat", type=int, help="runs of every row")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(row["name"] for row in ROWS))
        return
    if arguments.bolide is None:
        parser.error("BOLIDE is missing")
    chosen = choose(arguments.rows)
    result = {"gpu": gpu_state(), "roofs": bench(arguments.bolide, ["--machine", "--device", "cuda"]), "rows": {}}
    roofs = {roof["name"]: roof["median"] for roof in result["roofs"].get("roofs", [])}
    try:
        for spec in chosen:
            repeat = arguments.repeat or spec.get("repeat", 5)
            row = bench(arguments.bolide, [spec["model"], "--device", "cuda", "--no-roofs", "--repeat", str(repeat),
                                           *spec["flags"].split()], spec.get("timeout", 240))
            if row.get("generate") and roofs.get("memory_read"):
                row["percent_of_read_roof"] = 100 * row["decode_gb_per_s"] / roofs["memory_read"]
            elif row.get("prompt") and roofs.get("bf16"):
                kind = "fp8" if ":fp8" in spec["model"] and "fp8" in roofs else "bf16"
                row[f"percent_of_{kind}_roof"] = 100 * row["prompt_gflop_per_s"] / roofs[kind]
            result["rows"][spec["name"]] = row
            result.setdefault("commit", row.get("commit"))
            result.setdefault("driver", row.get("gpu_state", {}).get("driver"))
            print(show(spec["name"], row), file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        result["interrupted"] = True
    if summary := without_cache(result["rows"]):
        result["without_cache"] = summary
        print(f"{'without a cache, 128 in, 256 out':40} {summary['tokens_per_s']:10.1f} tokens/s (computed)",
              file=sys.stderr)
    result["gpu_after"] = gpu_state()
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
