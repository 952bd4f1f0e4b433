#!/usr/bin/env python3
"""Installs Bolide into a temporary folder, builds examples/ against that copy alone, and runs the example.

usage: check_install.py SOURCE BUILD [--cmake CMAKE] [--cxx COMPILER]
The model is $BOLIDE_TEST_MODEL, else what quickstart.sh leaves in models/; without one the example is built, not run.
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
        # A copy of the example, so that nothing of the source tree can be found by accident.
        work = scratch / "example"
        work.mkdir()
        (work / "generate.cc").write_text(example.read_text())
        (work / "CMakeLists.txt").write_text((arguments.source / "examples" / "CMakeLists.txt").read_text())
        run(arguments.cmake, "-S", work, "-B", work / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DCMAKE_CXX_COMPILER={arguments.cxx}", "-DCMAKE_BUILD_TYPE=Release")
        run(arguments.cmake, "--build", work / "build")
        model = os.environ.get("BOLIDE_TEST_MODEL") or arguments.source / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
        if not pathlib.Path(model).exists():
            print("install: the example builds; not run, since there is no model (./quickstart.sh fetches one)")
            return 0
        text = run(work / "build" / "generate", model, "The capital of France is", timeout=300)
        assert text.strip(), "the example printed nothing"
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
