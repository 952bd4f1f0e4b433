#!/usr/bin/env python3
"""Soaks `bolide serve`: many streams, many requests, drains, cancels and kills (Linux, Python 3, standard library only).

    python3 bench/serve_soak.py --fake build/release/bolide_fake_serve_bench --streams 10000 --workers 4
    python3 bench/serve_soak.py --bolide build/release/bolide --requests 100000 --drains 100 --cancels 5000 --kills 10

Every phase that has a count runs, says a line on standard error and writes a line of JSON to standard output. Exit code 1
if a phase found a fault.
  --streams  at once, of a scripted model: no token may be missing, come twice or belong to another; memory a stream
  --requests short ones of all kinds: the server's memory is flat (last quarter against the second), given so many that
             the first quarter has used all of the KV cache once (-- --cache-tokens N makes it small)
  --drains   SIGTERM at a random moment under load: what was accepted ends whole, what was not is refused
  --cancels  clients that leave at a random moment: afterwards nothing runs and no cache is held
  --kills    SIGKILL under load and a new start at the same port: the time until it is ready against the model's load
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

import serve_soak_client as client
import serve_soak_load as load

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "serve"))
from bolide_serve import Serve  # noqa: E402 (it lies with the tests)

MiB = 1 << 20
ENDING_S = 60     # that a server has to end what it has accepted
QUIET_S = 30      # after which nothing runs of what clients have left
PAGE = 4096


class Watch(threading.Thread):
    """A server's memory, and its metrics' highest values, as time goes."""

    def __init__(self, server, seconds=0.2, of=lambda: 0):
        super().__init__(daemon=True)
        self.server, self.seconds, self.of = server, seconds, of
        self.samples, self.highest, self.done = [], {}, threading.Event()

    def resident(self):
        return int(pathlib.Path(f"/proc/{self.server.pid}/statm").read_text().split()[1]) * PAGE

    def run(self):
        while not self.done.wait(self.seconds):
            self.samples.append((self.of(), self.resident()))
            for name, value in self.server.metrics().items():
                self.highest[name] = max(value, self.highest.get(name, 0))

    def __enter__(self):
        self.begin_bytes = self.resident()
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()

    def peak_bytes(self):
        return max([self.begin_bytes, *(resident for _, resident in self.samples)])


def cpu_seconds(server):
    return server.metrics()["process_cpu_seconds_total"]


def percentile(values, share):
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 4) if values else None


def serve(flags, *more, port=0):
    return Serve(flags.bolide, "serve", f"small={flags.model}", "--port", port, "--threads", flags.threads,
                 "--context", flags.context, *more, *flags.serve_flags)


def streams(flags):
    """All at once; each is sent to the same script with numbers of its own."""
    with Serve(flags.fake, flags.streams, flags.step_ms, flags.tokens + 16) as server:
        cpu = cpu_seconds(server)
        begin = time.monotonic()
        with Watch(server) as watch:
            parts = load.run_streams(server.port, flags.streams, flags.tokens, flags.workers)
        seconds = time.monotonic() - begin
        server.wait_idle(timeout_s=QUIET_S)
        cpu = cpu_seconds(server) - cpu
    faults = sum((part["faults"] for part in parts), start=load.Counter())
    first = [second for part in parts for second in part["first_s"]]
    result = {
        "phase": "streams", "streams": flags.streams, "tokens_each": flags.tokens, "step_ms": flags.step_ms, "seconds": round(seconds, 2),
        "whole": sum(part["whole"] for part in parts), "tokens": sum(part["tokens"] for part in parts),
        "running_max": watch.highest["bolide_num_requests_running"], "connections_max": watch.highest["bolide_connections"],
        "first_token_s": {"median": percentile(first, 0.5), "p99": percentile(first, 0.99)},
        "server_cpu_s": round(cpu, 2), "server_bytes_before": watch.begin_bytes, "server_bytes_max": watch.peak_bytes(),
        "bytes_per_stream": (watch.peak_bytes() - watch.begin_bytes) // flags.streams,
        "faults": dict(faults), "examples": [line for part in parts for line in part["examples"]][:10],
    }
    if result["running_max"] < flags.streams:
        result["faults"]["not all at once: give more --tokens or --step-ms"] = flags.streams - int(result["running_max"])
    if result["whole"] < flags.streams:
        result["faults"]["not whole"] = flags.streams - result["whole"]
    return result, (f"{result['whole']} of {flags.streams} streams whole, {int(result['running_max'])} at once, {result['tokens']} tokens in "
                    f"{seconds:.1f} s, {result['bytes_per_stream'] / 1024:.1f} KiB a stream")


def requests(flags):
    with serve(flags) as server:
        work = load.Mixed(flags.requests, flags.chat_share)
        loop = client.Loop(server.port)
        with Watch(server, 0.1, of=lambda: work.ended) as watch:
            for _ in range(flags.clients):
                loop.start(work.following())
            begin = time.monotonic()
            stuck = not loop.run(flags.timeout_s)
            seconds = time.monotonic() - begin
    quarter = lambda n: [resident for ended, resident in watch.samples if n * flags.requests <= 4 * ended < (n + 1) * flags.requests]
    second, last = quarter(1), quarter(3)
    result = {"phase": "requests", "requests": flags.requests, "seconds": round(seconds, 2), "by_status": dict(work.statuses),
              "faults": dict(work.faults), "examples": work.examples}
    if stuck:
        result["faults"]["no end"] = len(loop.connections)
    if not second or not last:
        result["faults"]["too few samples of memory: give more --requests"] = 1
        return result, "too short to tell"
    growth = statistics.median(last) - statistics.median(second)
    result.update({"second_quarter_bytes": statistics.median(second), "last_quarter_bytes": statistics.median(last), "growth_bytes": growth})
    if growth > max(flags.growth_bytes, 0.01 * statistics.median(second)):
        result["faults"]["memory grows"] = growth
    return result, (f"{work.ended} requests in {seconds:.1f} s, resident {statistics.median(second) / MiB:.1f} MiB in the second quarter, "
                    f"{growth / MiB:+.2f} MiB in the last")


def one_drain(flags, total):
    """SIGTERM under load, while new clients keep coming."""
    with serve(flags, "--max-sequences", 8, "--drain-seconds", ENDING_S) as server:
        work = load.Draining(total, flags.chat_share)
        loop = client.Loop(server.port)
        for _ in range(flags.clients):
            loop.start(work.following())
        end = time.monotonic() + random.uniform(0.05, 1.0)
        while time.monotonic() < end:
            loop.turn(0.01)
        work.signal_s = time.monotonic()
        server.process.terminate()
        late_s = 0
        while (server.process.poll() is None or loop.connections) and time.monotonic() < work.signal_s + 2 * ENDING_S:
            if server.process.returncode is None and time.monotonic() > late_s:
                late_s = time.monotonic() + 0.02
                loop.start(work.following())
            loop.turn(0.01)
        total.ending_s.append(time.monotonic() - work.signal_s)
        if server.process.poll() != 0:
            total.fault("exit code", f"{server.process.returncode}: {server.said()[-500:]}")
        if loop.connections:
            total.fault("no end", f"{len(loop.connections)} connections are still open")
        for words in ("cut off", "are left"):
            if words in server.said():
                total.fault(words, server.said()[-500:])


def drains(flags):
    total = load.DrainTotal()
    for _ in range(flags.drains):
        one_drain(flags, total)
    result = {"phase": "drains", "drains": flags.drains, "outcomes": dict(total.outcomes), "ending_s_median": percentile(total.ending_s, 0.5),
              "ending_s_max": percentile(total.ending_s, 1), "faults": dict(total.faults), "examples": total.examples}
    return result, f"{flags.drains} drains, {dict(total.outcomes)}, the longest {result['ending_s_max']:.2f} s"


def cancels(flags):
    with serve(flags, "--max-sequences", 8) as server:
        work = load.Leaving(flags.cancels, flags.chat_share)
        loop = client.Loop(server.port)
        for _ in range(min(flags.clients, flags.cancels)):
            loop.start(work.following())
        end = time.monotonic() + flags.timeout_s
        with Watch(server) as watch:
            while loop.connections and time.monotonic() < end:
                loop.turn(0.005)
                now = time.monotonic()
                for connection in [c for c in loop.connections.values() if c.connected and now > c.exchange.leaves_s]:
                    connection.leave()
        begin = time.monotonic()
        faults = work.faults
        try:
            server.wait_idle(timeout_s=QUIET_S)
            server.wait(lambda now: now["bolide_connections"] <= 1, "all connections are closed", timeout_s=QUIET_S)
        except AssertionError as failure:
            faults["not quiet"] += 1
            work.examples.append(str(failure)[:1000])
        quiet_s = time.monotonic() - begin
        after = load.Generated(8, stream=False)
        loop.start(after)
        if not loop.run(QUIET_S) or after.fault():
            faults["no answer afterwards"] += 1
        ended = {name: value for name, value in server.metrics().items() if name.startswith("bolide_requests_total{")}
    result = {"phase": "cancels", "cancels": flags.cancels, "outcomes": dict(work.outcomes), "quiet_after_s": round(quiet_s, 3),
              "running_max": watch.highest.get("bolide_num_requests_running"), "waiting_max": watch.highest.get("bolide_num_requests_waiting"),
              "ended": ended, "faults": dict(faults), "examples": work.examples}
    return result, f"{flags.cancels} clients, {dict(work.outcomes)}; nothing runs {quiet_s:.2f} s after the last"


def load_seconds(flags):
    """What loading alone takes, as `bolide run` says."""
    done = subprocess.run([flags.bolide, "run", flags.model, "-p", "x", "--max-tokens", "1", "--json", "--threads", str(flags.threads)],
                          stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True)
    return json.loads(done.stdout)["load_ms"] / 1000


def kills(flags):
    loads = [load_seconds(flags) for _ in range(3)]
    faults, ready, port = load.Counter(), [], 0
    for _ in range(flags.kills + 1):
        try:
            server = serve(flags, port=port)
        except RuntimeError as failure:
            faults[str(failure)[:1000]] += 1
            break
        with server:
            if server.get("/health/ready")[0] != 200:
                faults["not ready"] += 1
            ready.append(server.ready_s)
            port = server.port
            loop = client.Loop(port)
            after = load.Generated(8, stream=False)
            loop.start(after)
            if not loop.run(QUIET_S) or after.fault():
                faults["no answer after the start"] += 1
            for _ in range(flags.clients):
                loop.start(load.Generated(1000, stream=True))
            end = time.monotonic() + random.uniform(0.05, 0.5)
            while time.monotonic() < end:
                loop.turn(0.01)
            server.kill()
            loop.run(QUIET_S)
    again = ready[1:]
    result = {"phase": "kills", "kills": flags.kills, "load_s_median": percentile(loads, 0.5), "first_ready_s": round(ready[0], 4) if ready else None,
              "ready_s_median": percentile(again, 0.5), "ready_s_max": percentile(again, 1), "faults": dict(faults), "examples": []}
    if again and statistics.median(again) > 2 * statistics.median(loads) + 1:
        result["faults"]["slow to be ready"] = 1
    return result, f"{len(again)} starts after a kill, ready in {result['ready_s_median']} s, load alone {result['load_s_median']} s"


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bolide", type=pathlib.Path, default=ROOT / "build/release/bolide")
    parser.add_argument("--fake", type=pathlib.Path, default=ROOT / "build/release/bolide_fake_serve_bench")
    parser.add_argument("--model", default=str(ROOT / "tests/golden/models/qwen2"), help="of all phases but --streams")
    parser.add_argument("--threads", type=int, default=1, help="of the model")
    parser.add_argument("--context", type=int, default=2048, help="of the model: room for 1500 tokens and a prompt")
    for name, what in (("streams", "at once"), ("requests", "short ones"), ("drains", "servers"), ("cancels", "clients"), ("kills", "servers")):
        parser.add_argument(f"--{name}", type=int, default=0, help=f"{what}; 0: leave this phase out")
    parser.add_argument("--tokens", type=int, default=60, help="of each of --streams")
    parser.add_argument("--step-ms", type=int, default=500, help="of the scripted model: all streams must have begun before the first ends")
    parser.add_argument("--workers", type=int, default=1, help="processes that read --streams")
    parser.add_argument("--clients", type=int, default=32, help="connections of the other phases")
    parser.add_argument("--chat-share", type=float, default=0.5, help="of requests that are chats; 0 for a model without a template")
    parser.add_argument("--growth-bytes", type=int, default=MiB, help="of memory that still count as flat, and so does 1 percent")
    parser.add_argument("--timeout-s", type=float, default=3600, help="of --requests and --cancels")
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    parser.add_argument("serve_flags", nargs="*", help="more for `bolide serve`, after --")
    flags = parser.parse_args()
    phases = [phase for phase in (streams, requests, drains, cancels, kills) if getattr(flags, phase.__name__) > 0]
    if not phases:
        parser.error("no phase has a count")
    return flags, phases


def main():
    flags, phases = parse_flags()
    random.seed(flags.seed)
    print(f"seed {flags.seed}", file=sys.stderr)
    files = client.allow_connections()
    if flags.streams > files - 100:
        print(f"serve_soak: {flags.streams} streams need as many descriptors, {files} are allowed (ulimit -Hn)", file=sys.stderr)
        return 2
    failed = False
    for phase in phases:
        result, line = phase(flags)
        print(json.dumps({"seed": flags.seed, **result}), flush=True)
        failed = failed or bool(result["faults"])
        print(f"{phase.__name__}: {line}" + (f"; FAULTS {result['faults']} {result['examples'][:3]}" if result["faults"] else ""), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
