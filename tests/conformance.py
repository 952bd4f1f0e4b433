#!/usr/bin/env python3
"""Runs the ONNX backend tests: none may fail that tests/onnx/exclusions.txt does not explain.

usage: conformance.py BOLIDE WORK_FOLDER

The suite is, of the first that is there: $BOLIDE_SHARED or ../shared: data/onnx/backend-tests-*.tar.xz; Debian's
libonnx-testdata. Exit code 77: there is none.
"""
import json
import os
import pathlib
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = pathlib.Path("/usr/include/onnx/backend/test/data")  # of onnx 1.12


def suite(work):
    shared = pathlib.Path(os.environ.get("BOLIDE_SHARED", ROOT.parent / "shared"))
    archives = sorted(shared.glob("data/onnx/backend-tests-*.tar.xz"))
    if not archives:
        return DEBIAN if DEBIAN.is_dir() else None
    folder = work / archives[-1].name.removesuffix(".tar.xz")
    if not (folder / "data" / "node").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archives[-1]) as archive:
            archive.extractall(folder, filter="data")
    return folder / "data"


def main():
    bolide, work = sys.argv[1], pathlib.Path(sys.argv[2])
    data = suite(work)
    if data is None:
        print("skipped: neither ../shared/data/onnx nor libonnx-testdata is there")
        return 77
    names = {p.name for p in data.glob("*/test_*")}
    exclusions = work / "exclusions.txt"
    exclusions.parent.mkdir(parents=True, exist_ok=True)
    lines = (ROOT / "tests" / "onnx" / "exclusions.txt").read_text().splitlines(keepends=True)
    if data == DEBIAN:
        lines += (ROOT / "tests" / "onnx" / "exclusions-1.12.txt").read_text().splitlines(keepends=True)
    exclusions.write_text("".join(line for line in lines if line.startswith("#") or line.split(" ")[0] in names))
    done = subprocess.run([bolide, "conformance", data, "--exclusions", exclusions, "--json"], capture_output=True, text=True)
    if not done.stdout:
        print(done.stderr)
        return 1
    result = json.loads(done.stdout)
    for case in result["cases"]:
        if case["outcome"] == "failed":
            print(f"FAIL {case['kind']}/{case['name']}: {case['why']}")
    print(f"{data}: {result['passed']} of {result['total']} cases pass, {result['failed']} fail, {result['excluded']} are excluded")
    return 0 if result["failed"] == 0 and result["passed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
