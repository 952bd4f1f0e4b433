#!/usr/bin/env python3
"""Bolide beside llama.cpp on one GGUF file: speed, alternating, and perplexity on the same tokens.

usage: bench/peers/compare_llama_cpp.py MODEL.gguf [--peer FOLDER] [--runs 5] [--threads 1,2] [--perplexity] ...

FOLDER holds llama-bench and llama-perplexity (bench/peers/llama_cpp.sh builds them and prints it). Every round runs
both programs, taking turns at going first; each measures a prompt of 512 tokens and, from an empty context, 128 decoded
tokens once, after a warm-up of its own. A ratio is Bolide's tokens/s over llama.cpp's, the median over the rounds'
pairs; its interval is that of the sign test: with 5 rounds the smallest and largest pair, which hold the true median
with 94 % confidence. Writes JSON with every sample to bench/results/ and prints a table. Standard library only.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")


def output_of(command):
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    except OSError as problem:
        sys.exit(f"compare: {command[0]}: {problem.strerror}")
    if done.returncode != 0:
        sys.exit(f"compare: {' '.join(map(str, command))}\nfailed with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done


def processor():
    """The processor's name and the instruction sets that decide which kernels run."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    field = lambda name: (re.search(rf"^{name}\s*: (.*)$", text, re.M) or ["", "unknown"])[1]
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16")
    flags = set(field("flags").split())
    return {"name": field("model name"), "family": field("cpu family"), "model": field("model"),
            "isa": [flag for flag in known if flag in flags], "cores": len(re.findall(r"^processor", text, re.M)),
            "load_average": pathlib.Path("/proc/loadavg").read_text().split()[0], "system": platform.platform()}


def bolide_speeds(arguments, threads):
    command = [arguments.bolide, "bench", arguments.model, "--prompt", arguments.prompt, "--generate", arguments.generate,
               "--threads", threads, "--repeat", 1, "--no-roofs", "--json"]
    result = json.loads(output_of(command).stdout)
    return {"prompt": result["prompt_tokens_per_s"]["median"], "decode": result["decode_tokens_per_s"]["median"]}, result


def peer_speeds(arguments, threads):
    command = [arguments.peer / "llama-bench", "-m", arguments.model, "-p", arguments.prompt, "-n", arguments.generate,
               "-t", threads, "-r", 1, "-o", "json"]
    rows = json.loads(output_of(command).stdout)
    return {"prompt" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}, rows[0]


def interval(pairs):
    """Order statistics that hold the median with at least 90 % confidence, if there are enough pairs for that."""
    ordered, n = sorted(pairs), len(pairs)
    outside, drop = 0.0, 0
    for k in range(n // 2):
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 0.10:
            break
        drop = k
    confidence = 1 - sum(2 * math.comb(n, k) / 2**n for k in range(drop + 1))
    return [ordered[drop], ordered[-1 - drop]], confidence


def compare_speed(arguments):
    rows, details = [], {}
    for threads in arguments.threads:
        ours, theirs = [], []
        for run in range(arguments.runs):
            for who in ("bolide", "peer") if run % 2 == 0 else ("peer", "bolide"):
                if who == "bolide":
                    speeds, details["bolide"] = bolide_speeds(arguments, threads)
                    ours.append(speeds)
                else:
                    speeds, details["llama.cpp"] = peer_speeds(arguments, threads)
                    theirs.append(speeds)
            print(f"  threads {threads}, round {run + 1} of {arguments.runs}: bolide {ours[-1]['prompt']:.1f} and "
                  f"{ours[-1]['decode']:.1f}, llama.cpp {theirs[-1]['prompt']:.1f} and {theirs[-1]['decode']:.1f} tokens/s",
                  file=sys.stderr, flush=True)
        for phase in ("prompt", "decode"):
            pairs = [a[phase] / b[phase] for a, b in zip(ours, theirs)]
            bounds, confidence = interval(pairs)
            rows.append({"threads": threads, "phase": phase, "ratio": statistics.median(pairs), "ratio_interval": bounds,
                         "ratio_confidence": confidence,
                         "bolide_tokens_per_s": statistics.median(a[phase] for a in ours),
                         "llama_cpp_tokens_per_s": statistics.median(b[phase] for b in theirs),
                         "bolide_samples": [a[phase] for a in ours], "llama_cpp_samples": [b[phase] for b in theirs]})
    return rows, details


def compare_perplexity(arguments):
    threads = max(arguments.threads)
    # llama-perplexity scores tokens 257 to 511 of every window of 512: the last 255.
    ours = json.loads(output_of([arguments.bolide, "eval", "perplexity", arguments.model, arguments.text, "--window", 512,
                                 "--skip", 256, "--threads", threads, "--json"]).stdout)
    done = output_of([arguments.peer / "llama-perplexity", "-m", arguments.model, "-f", arguments.text, "-c", 512, "-t", threads])
    found = re.search(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)", done.stdout + done.stderr)
    if not found:
        sys.exit("compare: llama-perplexity printed no final estimate")
    chunks = re.search(r"over (\d+) chunks", done.stdout + done.stderr)
    theirs = float(found[1])
    return {"text": arguments.text.name, "bolide": ours["perplexity"], "llama_cpp": theirs, "bolide_tokens": ours["tokens"],
            "llama_cpp_tokens": 255 * int(chunks[1]) if chunks else None, "difference": ours["perplexity"] / theirs - 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--bolide", type=pathlib.Path, default=ROOT / "build/release/bolide")
    parser.add_argument("--peer", type=pathlib.Path, default=CACHE / "bolide/peers/llama_cpp/build/bin")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", default=[1, 2], type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--perplexity", action="store_true", help="compare perplexity too (minutes)")
    parser.add_argument("--only-perplexity", action="store_true")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "tests/data/opticks.txt")
    parser.add_argument("--output", type=pathlib.Path, help="where the JSON goes (default: bench/results/DATE-CPU-llama_cpp.json)")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs is at least 1")

    machine = processor()
    print(f"{machine['name']}, family {machine['family']} model {machine['model']}, {machine['cores']} cores, {' '.join(machine['isa'])}")
    report = {"date": datetime.date.today().isoformat(), "machine": machine, "model": arguments.model.name,
              "model_bytes": arguments.model.stat().st_size, "prompt": arguments.prompt, "generate": arguments.generate,
              "runs": arguments.runs,
              "commit": subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()}
    if not arguments.only_perplexity:
        report["speed"], details = compare_speed(arguments)
        report["bolide"] = {key: details["bolide"].get(key) for key in ("isa", "device", "machine", "peak_memory_bytes", "load_ms")}
        report["llama_cpp"] = {"package": "llama-cpp-python 0.3.36"} | {key: details["llama.cpp"].get(key) for key in ("cpu_info", "model_type", "backends", "n_batch", "n_ubatch", "type_k", "flash_attn")}
        print("threads  phase    bolide  llama.cpp  ratio  interval")
        for row in report["speed"]:
            low, high = row["ratio_interval"]
            print(f"{row['threads']:7}  {row['phase']:6}  {row['bolide_tokens_per_s']:7.1f}  {row['llama_cpp_tokens_per_s']:9.1f}"
                  f"  {row['ratio']:5.2f}  {low:.2f} to {high:.2f} ({100 * row['ratio_confidence']:.0f} %)")
    if arguments.perplexity or arguments.only_perplexity:
        report["perplexity"] = found = compare_perplexity(arguments)
        print(f"perplexity on {found['text']}: bolide {found['bolide']:.4f} over {found['bolide_tokens']} tokens, llama.cpp "
              f"{found['llama_cpp']:.4f} over {found['llama_cpp_tokens']}: {100 * found['difference']:+.2f} %")

    slug = re.sub(r"[^a-z0-9]+", "-", f"{machine['name']} {machine['family']}-{machine['model']}".lower()).strip("-")
    path = arguments.output or ROOT / "bench/results" / f"{report['date']}-{slug}-llama_cpp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
