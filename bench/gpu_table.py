#!/usr/bin/env python3
"""Measures what one GPU is asked for: decode and first-token rates of published shapes with random weights.

    python3 bench/gpu_table.py BOLIDE [ROW...] > bench/results/gpu-table.json

BOLIDE is the program; ROW picks rows by a part of their name. Every row is one `bolide bench` (medians of --repeat runs),
the roofs are measured first, in the same call. Prints a table to standard error.
"""
import json
import subprocess
import sys

LLAMA = "synth:llama-3-8b"
DECODE = "--prompt 0 --depth 128 --generate 256"


def decode(name, model, batch=1, extra=DECODE):
    return name, model, f"{extra} --batch {batch}"


def prompt(name, model, tokens, extra=""):
    return name, model, f"--prompt {tokens} --generate 0 --context {tokens + 64} {extra}"


ROWS = [
    decode("decode-1 bf16", LLAMA),
    decode("decode-1 fp8", LLAMA + ":fp8"),
    decode("decode-1 int8", LLAMA + ":int8"),
    decode("decode-1 w4", LLAMA + ":w4"),
    *[decode(f"decode-{b} bf16", LLAMA, b) for b in (8, 16, 32, 64, 128)],
    *[decode(f"decode-{b} fp8", LLAMA + ":fp8", b) for b in (8, 16, 32, 64, 128)],
    *[prompt(f"prompt-{t} bf16", LLAMA, t) for t in (2048, 8192)],
    *[prompt(f"prompt-{t} fp8", LLAMA + ":fp8", t) for t in (2048, 8192)],
    decode("decode-512 at 1k bf16", LLAMA, 512, "--prompt 0 --depth 1024 --generate 16 --context 1100"),
    decode("decode-512 at 1k fp8 cache", LLAMA, 512, "--prompt 0 --depth 1024 --generate 16 --context 1100 --kv-type fp8"),
    decode("qwen2-1.5b decode-1 bf16", "synth:qwen2-1.5b"),
    decode("phi-3-mini decode-1 bf16", "synth:phi-3-mini"),
    decode("smollm2-135m decode-1 bf16", "synth:smollm2-135m"),
    *[decode(f"decode-1 bf16 without {p}", LLAMA, 1, DECODE + f" --skip-passes {p}")
      for p in ("fuse_norm_linear", "fuse_qkv_rope", "fuse_gated_linear", "fuse_linear_add")],
    decode("decode-1 bf16 contiguous cache", LLAMA, 1, DECODE + " --context 512 --block-tokens 512"),
]


def run(bolide, arguments, timeout=240):
    command = [bolide, "bench", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        return {"command": command[1:], "error": done.stderr.strip()[-400:]}
    return {"command": command[1:], **json.loads(done.stdout)}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    bolide, wanted = sys.argv[1], sys.argv[2:]
    result = {"roofs": run(bolide, ["--machine", "--device", "cuda"]), "rows": {}}
    for name, model, flags in ROWS:
        if wanted and not any(part in name for part in wanted):
            continue
        row = run(bolide, [model, "--device", "cuda", "--no-roofs", "--repeat", "5", *flags.split()])
        result["rows"][name] = row
        rate = row.get("decode_tokens_per_s") if row.get("generate") else row.get("prompt_tokens_per_s")
        if rate is None:
            print(f"{name:34} {row.get('error', '?')[:150]}", file=sys.stderr)
            continue
        ttft = f"  first token {row['ttft_ms']['median']:.1f} ms" if row.get("ttft_ms") and row.get("prompt") else ""
        print(f"{name:34} {rate['median']:10.1f} tokens/s ({rate['min']:.1f} to {rate['max']:.1f})  "
              f"{row.get('decode_gb_per_s') or 0:7.0f} GB/s{ttft}", file=sys.stderr, flush=True)
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
