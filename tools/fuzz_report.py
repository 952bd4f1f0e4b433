#!/usr/bin/env python3
"""Turns a fuzz run's fuzz.json (tools/fuzz_run.sh) into bench/results/fuzz-DATE.json and a table.

usage: tools/fuzz_report.py OUT [--commit COMMIT] [--output FILE] [--note TEXT]

COMMIT is what the targets were built from; without it the tree's own, which must then have no changes.
"""
import argparse
import datetime
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def commit_of(given):
    if given is None and git("status", "--porcelain", "--untracked-files=no"):
        sys.exit("fuzz_report: the tree has changes; commit them, or say --commit")
    return git("rev-parse", "--short=12", given or "HEAD")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder that fuzz_run.sh wrote")
    parser.add_argument("--commit")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--note", help="a sentence on the run, kept in the result")
    arguments = parser.parse_args()
    run = json.loads((arguments.out / "fuzz.json").read_text())
    targets = run.pop("targets")
    report = {"bench": "fuzz", "date": datetime.date.today().isoformat(), "commit": commit_of(arguments.commit), **run}
    if arguments.note:
        report["note"] = arguments.note
    report["runs"] = sum(t["runs"] for t in targets)
    report["findings"] = sum(t["exit_code"] != 0 for t in targets)
    report["targets"] = targets
    path = arguments.output or ROOT / "bench/results" / f"fuzz-{report['date']}.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'target':22} {'runs':>10} {'/s':>7} {'edges':>7} {'at start':>8} {'features':>8} {'inputs':>6}  findings")
    for t in targets:
        print(f"{t['target']:22} {t['runs']:10} {t['runs_per_s']:7} {t['edges']:7} {t['edges_at_start']:8} "
              f"{t['features']:8} {t['corpus_inputs']:6}  {', '.join(t['findings']) or t['exit_code'] or 'none'}")
    print(path)


if __name__ == "__main__":
    main()
