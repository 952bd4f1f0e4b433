#!/usr/bin/env python3
"""Checks that no object of one instruction set can lend its code to the rest of the program.

An inline function that a file compiled with, say, AVX-512 emits as a weak symbol may be the copy that the linker keeps
for everybody, and then the program dies on a processor without AVX-512 (docs/adr/0006-isa-files-without-stl.md). So a
weak function in an object named *_avx2, *_avx512, *_vnni, *_avx512bf16 or *_amx must (1) lie in bolide's isa namespace
or name an isa tag, and (2) be in no object of another instruction set.

usage: check_isa_symbols.py BUILD_FOLDER [--nm PROGRAM] | --self-test
Exit code 1 if there is a finding, 77 (skipped) if the folder has no such object.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ISA = re.compile(r"_(avx2|avx512|vnni|avx512bf16|amx)\.(cc|cpp)\.o$")
OURS = re.compile(r"\bbolide::(\(anonymous namespace\)::|[\w:]*\bisa\b|[\w:<> ]*\b(avx2|avx512|vnni|avx512bf16|amx)::)|\bisa::\w+")


def weak_functions(nm, path):
    """Demangled names of weak code that the object defines (W; V is data, which carries no instructions)."""
    out = subprocess.run([nm, "--demangle", "--defined-only", str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split(" ", 2)[2] for line in out.splitlines() if re.match(r"^[0-9a-f]+ W ", line)}


def check(build, nm):
    objects = [p for p in sorted(build.rglob("*.o")) if "_deps" not in p.parts]
    isa_of = {p: m[1] if (m := ISA.search(p.name)) else None for p in objects}
    if not any(isa_of.values()):
        return None
    symbols = {p: weak_functions(nm, p) for p in objects}
    problems = []
    for path, isa in isa_of.items():
        if isa is None:
            continue
        others = {}
        for other in objects:
            if isa_of[other] != isa:
                others.update(dict.fromkeys(symbols[other], other))
        for name in sorted(symbols[path]):
            if not OURS.search(name):
                problems.append(f"{path.name}: weak function outside bolide's isa namespaces: {name}")
            elif name in others:
                problems.append(f"{path.name}: {others[name].name} defines this function too: {name}")
    return problems


def self_test(nm):
    """Compiles files that break each rule, and one that keeps them."""
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler, "the self-test needs a C++ compiler"
    lent = "template <class T> [[gnu::noinline]] T twice(T x) { return x + x; }\n"
    cases = {
        "bad_avx2": lent + "int f(int x) { return twice(x); }",
        "same_avx2": "namespace bolide::isa { " + lent + "} int g(int x) { return bolide::isa::twice(x); }",
        "same": "namespace bolide::isa { " + lent + "} int h(int x) { return bolide::isa::twice(x); }",
        "good_avx2": "namespace bolide::isa::avx2 { " + lent + "} int i(int x) { return bolide::isa::avx2::twice(x); }",
    }
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        assert check(root, nm) is None
        for name, text in cases.items():
            (root / f"{name}.cc").write_text(text)
            subprocess.run([compiler, "-O1", "-c", str(root / f"{name}.cc"), "-o", str(root / f"{name}.cc.o")], check=True)
        found = check(root, nm)
    assert any(f.startswith("bad_avx2") and "outside" in f for f in found), found
    assert any(f.startswith("same_avx2") and "too" in f for f in found), found
    assert not any(f.startswith("good_avx2") for f in found), found
    print("self-test: a lent function and a shared one are found, a tagged one passes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test(arguments.nm)
        sys.exit(0)
    if arguments.build is None:
        parser.error("which build folder?")
    result = check(arguments.build, arguments.nm)
    if result is None:
        print("isa symbols: no object of one instruction set in this build")
        sys.exit(77)
    print("\n".join(result) or "isa symbols: none can be lent")
    sys.exit(1 if result else 0)
