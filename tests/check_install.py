#!/usr/bin/env python3
"""Installs Bolide into a temporary folder, builds examples/ against that copy alone, and runs the examples.

usage: check_install.py SOURCE BUILD [--cmake CMAKE] [--cxx COMPILER]
The language model is $BOLIDE_TEST_MODEL, else what quickstart.sh leaves in models/; the network is UltraFace in
$BOLIDE_SHARED/data/onnx/models, else in ../shared. An example without its model is built, not run.
Exit code 77 (skipped) while there is no public header or no example.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile


def run(*command, **options):
    print("+", " ".join(map(str, command)), flush=True)
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-8000:]}\nfailed with exit code {done.returncode}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--cmake", default="cmake")
    parser.add_argument("--cxx", default="c++")
    arguments = parser.parse_args()
    example = arguments.source / "examples" / "generate.cc"
    if not example.is_file() or not list((arguments.source / "include" / "bolide").glob("*.h")):
        print("install: no public header or no examples/generate.cc")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        prefix = scratch / "prefix"
        run(arguments.cmake, "--install", arguments.build, "--prefix", prefix)
        for name in ("LICENSE", "NOTICE", "THIRD_PARTY.md"):
            assert (prefix / "share" / "doc" / "bolide" / name).is_file(), f"{name} is not installed"
        # A copy of the examples, so that nothing of the source tree can be found by accident.
        work = scratch / "example"
        work.mkdir()
        for file in [*example.parent.glob("*.cc"), example.parent / "CMakeLists.txt"]:
            (work / file.name).write_text(file.read_text())
        run(arguments.cmake, "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DCMAKE_CXX_COMPILER={arguments.cxx}", "-DCMAKE_BUILD_TYPE=Release")
        run(arguments.cmake, "--build", work / "build")
        shared = pathlib.Path(os.environ.get("BOLIDE_SHARED") or arguments.source / ".." / "shared")
        network = shared / "data" / "onnx" / "models" / "ultraface-rfb-320.onnx"
        if network.exists():
            text = run(work / "build" / "run_network", network, timeout=300)
            assert "scores: 8840 values" in text, text
            print(text)
        else:
            print(f"install: run_network builds; not run, since {network} is not there")
        model = os.environ.get("BOLIDE_TEST_MODEL") or arguments.source / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if not pathlib.Path(model).exists():
            print("install: generate builds; not run, since there is no model (./quickstart.sh fetches one)")
            return 0
        text = run(work / "build" / "generate", model, "The capital of France is", timeout=300)
        assert text.strip(), "the example printed nothing"
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
