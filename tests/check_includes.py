#!/usr/bin/env python3
"""Checks who includes whom in src/ against the table in ARCHITECTURE.md ("Who may include whom").

usage: check_includes.py ROOT | --self-test
Prints one line per finding, file:line: what is wrong. Exit code 1 if there is any.
"""
import pathlib
import re
import sys
import tempfile

# folder: the folders it may include; what those may include is allowed too.
MAY_INCLUDE = {
    "base": "", "tensor": "base", "device": "tensor", "comm": "device", "formats": "tensor", "ir": "tensor",
    "kv": "device", "text": "formats", "kernels": "ir device", "tune": "kernels", "passes": "ir ops",
    "plan": "passes tune kernels comm", "models": "ir formats", "ops": "ir kernels formats", "onnx": "ops formats",
    "load": "models onnx formats text synth", "engine": "kv plan text comm", "measure": "plan device",
    "app": "engine load passes models onnx", "eval": "app measure onnx", "synth": "formats onnx models", "zoo": "synth formats", "server": "app",
    "api": "app", "cli": "server eval measure synth zoo app onnx",
}
# (files, includes, why): a regular expression of paths, one of includes they must not have.
FORBIDDEN = [
    (r"src/kernels/(?!.*_test\.cc$)", r"ir/(?!(ops|type)\.h$)", "kernels see op attributes and types of ir (ir/ops.h, ir/type.h), never a Graph"),
    (r"src/passes/", r"kernels/(?!(registry|kernel)\.h$)", "passes may not include kernels: they ask the lists (kernels/registry.h)"),
    (r"src/engine/scheduler(?!.*_test)", r"device/|chrono$|thread$|mutex$|random$", "the scheduler sees no device, clock, thread or chance"),
    (r"src/(?!device/cuda/|comm/|kernels/.*\.cuh?$)", r"(cuda|cublas|cudnn|cufft|nccl|nvrtc|nvml|cub/|cute/|cutlass/)",
     "only device/cuda, comm and kernels/*/*.cu include CUDA headers"),
    (r"src/(?!device/cuda/|comm/|kernels/(.*_cuda\.cc|common/cuda\.h|common/cuda_launch\.cuh)$)", r"device/cuda/",
     "only device/cuda, comm and kernels' *_cuda.cc see how a stream is a CUDA stream"),
    (r"src/.*\.cuh?$", r"(fmt/|base/|ir/|device/(?!cuda/\w+_parts\.h)|kernels/kernel\.h|kernels/common/(cuda|launch)\.h|variant$|vector$|string$|functional$|memory$)",
     ".cu files include CUDA's headers and plain data alone: each is compiled once for every architecture"),
    (r"src/(?!cli/)", r"CLI/", "only cli sees flags"),
    (r"src/(?!server/)", r"boost/(beast|asio)", "only server sees HTTP"),
    (r"src/(?!server/grpc/)", r"(grpc|grpcpp|google/protobuf|pb)/", "only server/grpc sees gRPC and protobuf"),
    (r"src/.*_(avx2|avx512|vnni|avx512bf16|amx)\.cc$",
     r"(algorithm|any|deque|fmt/.*|format|functional|iostream|list|map|memory_resource|mutex|numeric|optional|queue|random|"
     r"regex|set|sstream|stdexcept|string|unordered_.*|variant|vector)$", "files of one instruction set use no STL containers or algorithms"),
    (r"include/|examples/", r"(?!bolide/)[a-z_]+/", "public headers and examples include only bolide/ and the standard library"),
]
# Headers outside their folder's row: (including folder, header).
ALSO = {("plan", "formats/weight_source.h")}
LINES = [(r"\bgetenv\s*\(", r"src/base/knobs\.cc$", "only src/base/knobs.cc reads the environment"),
         (r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*CUDA", r"$^", "no #if on CUDA: a file is compiled or its absent twin is")]
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def closure(folder):
    seen, todo = set(), [folder]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += MAY_INCLUDE.get(name, "").split()
    return seen


def check(root):
    files = [p for top in ("src", "include", "examples") for p in sorted((root / top).rglob("*")) if p.suffix in SUFFIXES]
    for path in files:
        name = path.relative_to(root).as_posix()
        parts = name.split("/")
        folder = None if parts[0] != "src" else parts[1] if len(parts) > 2 else "cli"  # src/main.cc
        if folder is not None and folder not in MAY_INCLUDE:
            yield f"{name}:1: src/{folder} has no row in tests/check_includes.py and ARCHITECTURE.md"
            continue
        is_test = re.search(r"_(test|fuzz)\.cc$", name) is not None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for pattern, allowed, why in LINES:
                if folder and not is_test and re.search(pattern, line) and not re.search(allowed, name):
                    yield f"{name}:{number}: {why}"
            found = re.match(r'\s*#\s*include\s*([<"])([^">]+)[">]', line)
            if not found:
                continue
            quoted, header = found[1] == '"', found[2]
            for pattern, banned, why in FORBIDDEN:
                if re.match(pattern, name) and re.match(banned, header):
                    yield f"{name}:{number}: includes {header}: {why}"
            if quoted and folder:
                target = header.split("/")[0]
                if target != "bolide" and not (root / "src" / header).is_file():
                    yield f"{name}:{number}: {header} is not in src/ (write the path from src/)"
                elif target not in closure(folder) | {"bolide"} and (folder, header) not in ALSO:
                    yield f"{name}:{number}: {folder} may not include {target} ({header})"


def self_test():
    """Every rule finds its fault, and a clean tree has none."""
    bad = {
        "src/tensor/a.cc": ['#include "ir/type.h"', "tensor may not include ir"],
        "src/kernels/b.cc": ['#include "ir/graph.h"', "never a Graph"],
        "src/passes/c.cc": ['#include "kernels/batch.h"', "passes may not include kernels"],
        "src/text/d.cc": ["#include <cuda_runtime.h>", "CUDA headers"],
        "src/kernels/x/d.cc": ['#include "device/cuda/c.h"', "a CUDA stream"],
        "src/kernels/x/d.cu": ['#include "ir/type.h"', "plain data alone"],
        "src/text/e.cc": ["#include <CLI/CLI.hpp>", "only cli"],
        "src/server/l.cc": ["#include <pb/kserve.pb.h>", "only server/grpc"],
        "src/kernels/f_avx512.cc": ["#include <vector>", "no STL"],
        "src/engine/g.cc": ['const char* home = std::getenv("HOME");', "knobs.cc"],
        "src/engine/h.cc": ["#ifdef BOLIDE_CUDA", "no #if on CUDA"],
        "src/engine/i.cc": ['#include "sibling.h"', "not in src/"],
        "src/engine/scheduler.cc": ["#include <chrono>", "scheduler"],
        "src/unknown/j.cc": ["", "no row"],
        "include/bolide/k.h": ["#include <fmt/core.h>", "public headers"],
    }
    good = {"src/ir/type.h": '#include "tensor/t.h"', "src/ir/graph.h": "", "src/tensor/t.h": "#include <vector>", "src/kernels/batch.h": "",
            "src/base/knobs.cc": "std::getenv(name);", "src/kernels/x/y.cu": "#include <cuda_runtime.h>",
            "src/device/cuda/c.h": "", "src/kernels/x/y_cuda.cc": '#include "device/cuda/c.h"',
            "src/eval/z.cc": '#include "ir/graph.h"'}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**good, **{n: b[0] for n, b in bad.items()}}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text + "\n")
        findings = list(check(root))
        for name, (_, expected) in bad.items():
            assert any(f.startswith(name + ":") and expected in f for f in findings), (name, findings)
            (root / name).unlink()
        assert list(check(root)) == [], list(check(root))
    print(f"self-test: {len(bad)} faults found, a clean tree passes")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        sys.exit(0)
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    problems = list(check(pathlib.Path(sys.argv[1])))
    print("\n".join(problems) or "includes: as the table says")
    sys.exit(1 if problems else 0)
