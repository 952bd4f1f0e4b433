#!/usr/bin/env python3
"""Runs compute-sanitizer's four tools over bolide_gpu_tests and writes what they found.

usage: tools/gpu_sanitize.py GPU_TESTS OUT.json [--seconds N] [--jobs N] [--tools a,b] [--only a,b] [--commit COMMIT]

GPU_TESTS is the program (with what it loads beside it, or in LD_LIBRARY_PATH). Each tool runs over each group of tests
below; a group checks every N-th case (bolide_gpu_tests --every) and begins no case after --seconds (default 60). --jobs
runs so many at once (default 4: the tools keep one processor busy each, and the GPU little). --only: groups whose name
has one of these parts. Needs compute-sanitizer in PATH or in CUDA's toolkit; Python's standard library alone.

Every distinct finding (kind and kernel) is in OUT.json with its count and one example. Exit code 1: something was
found that EXPECTED below does not explain; 2: a tool did not run to its end.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

# name, tests, {tool: every which case (1 where it is not said; 0: not at all)}. Tests that provoke CUDA errors on
# purpose, measure rates or only know the CPU are left out. Every kernel should be reached by every tool within a minute:
# "cases" in the result says how often each was. racecheck is the slowest: a draw from a large vocabulary takes seconds.
GROUPS = [
    ("device", "CudaDevice.*:-CudaDevice.ErrorsSayWhat:CudaDevice.RatesAreMeasured:CudaDevice.LibrariesOpen", {}),
    ("attention-generic", "Attention.RaggedBatches*:Attention.OnDevice:Attention.ExtremeScores", {"racecheck": 5}),
    ("attention-decode", "Attention.Decode*", {"racecheck": 2}),
    ("attention-prompt", "Attention.Prompts*:Attention.LongContexts*:Attention.SharedPages*", {"racecheck": 2}),
    ("products", "LinearFused.*:-LinearFused.QkvRope:LinearFused.StoredTypes", {"racecheck": 3}),
    ("products-stored", "LinearFused.StoredTypes", {"racecheck": 2}),
    ("products-chain", "LinearChain.GivesTheBitsOfItsSteps", {"racecheck": 2}),
    ("products-qkv", "LinearFused.QkvRope", {"racecheck": 2}),
    ("products-generic", "Linear.*", {"memcheck": 23, "racecheck": 41, "initcheck": 37, "synccheck": 23}),
    ("act", "Act.*:Norm.*", {"memcheck": 7, "racecheck": 17, "initcheck": 13, "synccheck": 7}),
    ("rope", "Rope.*:Embed.*:GatherRows.*", {"memcheck": 5, "racecheck": 11, "initcheck": 7, "synccheck": 5}),
    ("moe", "Moe.*:Routing.*", {"memcheck": 5, "racecheck": 7, "initcheck": 5, "synccheck": 5}),
    ("sample", "Sample.AllKernelsMatchTheOracle", {"racecheck": 17}),
    ("sample-large", "Sample.LargeOnDevice:Sample.BadLogitsOnDevice:Sample.TiesOnDevice:Sample.ExtremeParameters",
     {"racecheck": 0}),
]
TOOLS = {
    # A captured graph's and an uncaptured stream's kernels alike; leaks are the device pools' that live to the end.
    "memcheck": ["--leak-check", "no"],
    "racecheck": ["--racecheck-report", "analysis"],
    # Reads of global memory that nobody wrote. Tests poison their outputs and workspaces, which counts as written.
    "initcheck": [],
    "synccheck": [],
}
# (tool, regular expression of a finding's text, why it is none of ours or no fault).
EXPECTED = [
    ("racecheck", r"Race reported between .* access at nvjet_sm90_\w+[^\n]*\n\s+and .* access at nvjet_sm90_",
     "both accesses are in a kernel of cuBLASLt's, which passes shared memory between warps by TMA and mbarriers; "
     "nothing of ours touches it"),
    # Just the eight reads of a pair of rows' sums (gemv_cuda.cuh, gemv_finish), so that any other race shows.
    ("racecheck", r"^[^\n]*Race reported between Write access at void bolide::cuda::gemv_(chain_)?kernel<[^\n]*"
     r"(\n\s+and Read access at void bolide::cuda::gemv_(chain_)?kernel<[^\n]*){8}$",
     "sums go from the warps that multiply to those that finish by bar.arrive and bar.sync; of a program of 20 lines that "
     "does so as PTX's manual has it (twice as many passes as buffers, or another named barrier beside) racecheck reports "
     "the same"),
]

LINE = re.compile(r"^=+ ?(.*)$")


def find_sanitizer():
    found = shutil.which("compute-sanitizer")
    for place in (found, "/usr/local/cuda/bin/compute-sanitizer"):
        if place and Path(place).exists():
            return place
    sys.exit("gpu_sanitize: there is no compute-sanitizer in PATH or in /usr/local/cuda/bin")


def short_kernel(text):
    """The kernel's name without namespaces, template arguments and parameters."""
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::|bolide::|cuda::|void ", "", text)
    return re.split(r"[<(]", name)[0].strip()


def findings_of(output):
    """The distinct findings: [{what, kernel, count, example}]."""
    blocks, block = [], None
    for raw in output.splitlines():
        match = LINE.match(raw)
        if not match:
            continue
        line = match[1]
        if not line.strip():
            if block:
                blocks.append(block)
            block = None
        elif line.startswith(" ") and block is not None:  # more of the finding
            block.append(line.rstrip())
        elif re.match(r"(COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target application)", line):
            block = None
        else:
            if block:
                blocks.append(block)
            block = [line.rstrip()]
    if block:
        blocks.append(block)
    found = {}
    for block in blocks:
        text = "\n".join(block)
        kernel = re.search(r"\bat (.+?)\+0x", text)
        name = short_kernel(kernel[1]) if kernel else "-"
        # Without what differs from thread to thread.
        what = re.sub(r"0x[0-9a-f]+|\(\d+,\d+,\d+\)|\d+", "N", block[0])
        entry = found.setdefault((what, name), {"what": block[0], "kernel": name, "count": 0, "example": text[:4000]})
        entry["count"] += 1
    return list(found.values())


def explained(tool, finding):
    for name, pattern, why in EXPECTED:
        if name == tool and re.search(pattern, finding["example"]):
            return why
    return None


def run(sanitizer, program, tool, group, seconds):
    name, tests, every = group
    command = [sanitizer, "--tool", tool, *TOOLS[tool], "--error-exitcode", "99", "--print-limit", "200", program,
               f"--gtest_filter={tests}", "--gtest_brief=1", f"--every={every.get(tool, 1)}", f"--seconds={seconds}"]
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds * 2 + 60)
        output, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output, code = (late.stdout or b"").decode(errors="replace"), 124
    summary = re.findall(r"^=+ ((?:ERROR|RACECHECK) SUMMARY: .*)$", output, re.M)
    cases = {m[1]: int(m[2]) for m in re.finditer(r"^(\w+) +(\d+) +\d+ +\S+ +\S+$", output, re.M)}
    findings = findings_of(output)
    for finding in findings:
        if why := explained(tool, finding):
            finding["explained"] = why
    return {"tool": tool, "group": name, "every": every.get(tool, 1), "seconds": round(time.monotonic() - start, 1),
            "exit_code": code, "finished": bool(summary), "summary": summary[-1] if summary else None,
            "tests_failed": re.findall(r"^\[  FAILED  \] ([\w./]+)", output, re.M), "cases": cases,
            "findings": findings}, output


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--only", default="")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--logs", type=Path, help="folder for the whole output of each run")
    arguments = parser.parse_args()
    sanitizer = find_sanitizer()
    version = subprocess.run([sanitizer, "--version"], capture_output=True, text=True).stdout.strip().splitlines()
    query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                           capture_output=True, text=True).stdout.strip()
    jobs = [(tool, group) for tool in arguments.tools.split(",") for group in GROUPS
            if any(part in group[0] for part in arguments.only.split(",")) and group[2].get(tool, 1) > 0]
    order = {job: i for i, job in enumerate((t, g[0]) for t, g in jobs)}
    runs = []

    def write():  # after each run: what is there stays if the whole is stopped
        runs.sort(key=lambda r: order[r["tool"], r["group"]])
        report = {"bench": "compute-sanitizer", "date": datetime.date.today().isoformat(), "commit": arguments.commit,
                  "gpu": query, "sanitizer": version[-1] if version else "?",
                  "command": f"tools/gpu_sanitize.py --seconds {arguments.seconds} --jobs {arguments.jobs}",
                  "cases": {tool: sum(sum(r["cases"].values()) for r in runs if r["tool"] == tool)
                            for tool in arguments.tools.split(",")},
                  "unexplained": sum("explained" not in f for r in runs for f in r["findings"]),
                  "unfinished": len(jobs) - sum(r["finished"] for r in runs), "runs": runs}
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")
        return report

    # The slowest tool first.
    jobs.sort(key=lambda job: job[0] != "racecheck")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        started = {pool.submit(run, sanitizer, arguments.program, tool, group, arguments.seconds): (tool, group)
                   for tool, group in jobs}
        for done in concurrent.futures.as_completed(started):
            result, output = done.result()
            runs.append(result)
            write()
            if arguments.logs:
                arguments.logs.mkdir(parents=True, exist_ok=True)
                (arguments.logs / f"{result['tool']}-{result['group']}.log").write_text(output)
            unknown = sum("explained" not in f for f in result["findings"])
            print(f"{result['tool']:10} {result['group']:17} {result['seconds']:6.1f} s  "
                  f"{sum(result['cases'].values()):5} cases  {len(result['findings'])} findings, {unknown} unexplained  "
                  f"{result['summary'] or 'NOT FINISHED, exit code ' + str(result['exit_code'])}", flush=True)
    report = write()
    return 1 if report["unexplained"] else 2 if report["unfinished"] else 0


if __name__ == "__main__":
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    sys.exit(main())
