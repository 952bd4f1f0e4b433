#!/usr/bin/env python3
"""What `bolide serve` promises, measured on this machine (Linux, Python 3, standard library only).

    python3 bench/serve_claims.py --model models/SmolLM2-135M-Instruct.Q4_1.gguf --engine --prefix > result.jsonl
    python3 bench/serve_claims.py --model FILE.gguf --peer ~/.cache/bolide/peers/llama_cpp/build/bin/llama-server
    python3 bench/serve_claims.py --model synth:long-1b:q4_0 --long

Each phase alternates which side goes first, says a line on standard error a round, and writes a line of JSON with every
sample to standard output. Server and load run in processes of their own on the same cores.
  --engine  16 streams: the server's tokens/s over those of the engine in process (bolide_engine_bench); and the
            processor time of all of the server, its model included, a token
  --peer    llama-server with the same file and load: ratios of tokens/s and of P99 time to first token
  --prefix  a system prompt of 1,000 tokens: time to first token of a second question over that of the first; and with
            --deterministic the texts, with the cache and without
  --long    8 streams while a prompt of 8,192 tokens comes every 30 s: P99 time between their tokens over that without,
            and the long prompt's time to first token over that alone
"""
import argparse
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "serve"))
from bolide_serve import Serve  # noqa: E402 (it lies with the tests)

STREAMS, ANSWER_TOKENS = 16, 128
LONG_TOKENS, LONG_EVERY_S, SHORT_STREAMS = 8192, 30, 8


def say(text):
    print(text, file=sys.stderr, flush=True)


def summary(ratios):
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "rounds": len(ratios)}


def output_of(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()[-1000:]}")
    return done.stdout


def serve(flags, *more):
    return Serve(flags.bolide, "serve", f"m={flags.model}", "--port", 0, "--threads", flags.threads, *more)


def load(flags, url, *more):
    """One point of `bolide bench serve`."""
    report = json.loads(output_of(flags.bolide, "bench", "serve", url, "--concurrency", STREAMS, "--duration", flags.seconds,
                                  "--output-tokens", ANSWER_TOKENS, "--json", *more))
    return report["points"][0]


def p99(point, name):
    return point[name]["p99"]["value"] if isinstance(point[name].get("p99"), dict) else point[name]["p99"]


def alternate(rounds, first, second):
    for i in range(rounds):
        sides = [first, second]
        for side in sides if i % 2 == 0 else reversed(sides):
            side()
        yield i


def measure_engine(flags):
    served, bare = [], []

    def server():
        with serve(flags) as child:
            before = child.metrics()["process_cpu_seconds_total"]
            point = load(flags, child.url)
            tokens = child.metrics()["bolide_generation_tokens_total"]
            cpu = child.metrics()["process_cpu_seconds_total"] - before
            served.append({"tokens_per_s": point["output_tokens_per_s"], "cpu_us_a_token": 1e6 * cpu / tokens,
                           "prompt_tokens": point["prompt_tokens_per_request"], "steady": point["steady_state"]["found"]})

    def engine():
        file = pathlib.Path(flags.scratch) / "engine.json"
        prompt = round(served[-1]["prompt_tokens"]) if served else 158
        output_of(flags.engine_bench, flags.model, "--device", "cpu", "--prompt", prompt, "--generate", ANSWER_TOKENS,
                  "--sequences", STREAMS, "--requests", flags.requests, "--json", file)
        result = json.loads(file.read_text())["result"]
        bare.append({"tokens_per_s": result["middle_half_tokens_per_s"]})

    for i in alternate(flags.rounds, server, engine):
        say(f"engine {i}: server {served[-1]['tokens_per_s']:.1f}, engine {bare[-1]['tokens_per_s']:.1f} tokens/s")
    return {"server": served, "engine": bare,
            "ratio": summary([s["tokens_per_s"] / e["tokens_per_s"] for s, e in zip(served, bare)])}


def wait_for(url, child):
    for _ in range(600):
        if child.poll() is not None:
            sys.exit(f"the peer ended with {child.returncode}")
        try:
            with urllib.request.urlopen(url + "/health", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit("the peer is not ready after a minute")


def measure_peer(flags):
    ours, theirs = [], []

    def mine():
        with serve(flags) as child:
            ours.append(load(flags, child.url))

    def peer():
        port = random.randint(20000, 30000)
        words = [flags.peer, "-m", flags.model, "-t", flags.threads, "-np", STREAMS, "-c", STREAMS * 512, "--port", port,
                 "--host", "127.0.0.1", "--no-webui"]
        with subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            try:
                wait_for(f"http://127.0.0.1:{port}", child)
                theirs.append(load(flags, f"http://127.0.0.1:{port}"))
            finally:
                child.kill()

    for i in alternate(flags.rounds, mine, peer):
        say(f"peer {i}: {ours[-1]['output_tokens_per_s']:.1f} against {theirs[-1]['output_tokens_per_s']:.1f} tokens/s, P99 of the "
            f"first token {p99(ours[-1], 'ttft_ms'):.0f} against {p99(theirs[-1], 'ttft_ms'):.0f} ms")
    return {"bolide": ours, "peer": theirs,
            "tokens_ratio": summary([a["output_tokens_per_s"] / b["output_tokens_per_s"] for a, b in zip(ours, theirs)]),
            "ttft_p99_ratio": summary([p99(a, "ttft_ms") / p99(b, "ttft_ms") for a, b in zip(ours, theirs)])}


class Stream:
    """One streamed completion: when each event came, and the text."""

    def __init__(self, url, body, path="/v1/completions"):
        self.times, self.text = [], ""
        host = url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=600)
        self.begin = time.monotonic()
        connection.request("POST", path, json.dumps({"stream": True, **body}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            sys.exit(f"{path}: {answer.status}: {answer.read()[:500]}")
        for line in answer:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            choice = json.loads(line[6:])["choices"][0]
            piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            if piece:
                self.times.append(time.monotonic())
                self.text += piece
        connection.close()

    @property
    def ttft(self):
        return self.times[0] - self.begin


def words(random_, count):
    return " ".join("".join(random_.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(3)) for _ in range(count))


def prompt_of(server, random_, tokens):
    """Random words that are `tokens` tokens."""
    def count(text):
        request = urllib.request.Request(server.url + "/tokenize", json.dumps({"model": "m", "prompt": text}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())["count"]
    text = words(random_, tokens)
    while (have := count(text)) > tokens:
        text = text[:max(1, len(text) * tokens // have)].rsplit(" ", 1)[0]
    return text


def measure_prefix(flags):
    random_ = random.Random(flags.seed)
    ratios, samples = [], []
    with serve(flags) as server:
        for i in range(flags.rounds):
            system = prompt_of(server, random_, 1000)
            first, second = (Stream(server.url, {"model": "m", "prompt": f"{system} {words(random_, 8)}", "max_tokens": 4, "temperature": 0})
                             for _ in range(2))
            samples.append([first.ttft, second.ttft])
            ratios.append(second.ttft / first.ttft)
            say(f"prefix {i}: first token after {first.ttft * 1e3:.1f} ms, then {second.ttft * 1e3:.1f} ms")
    texts = {}
    asked = [words(random_, 400) + " " + tail for tail in (words(random_, 20) for _ in range(4))]
    shared = words(random_, 700)
    asked += [f"{shared} {words(random_, 10)}" for _ in range(4)]
    for name, more in (("cache", []), ("no cache", ["--no-prefix-cache"])):
        with serve(flags, "--deterministic", *more) as server:
            texts[name] = [Stream(server.url, {"model": "m", "prompt": text, "max_tokens": 48, "temperature": 0.8, "seed": 5}).text
                           for text in asked]
    return {"ratio": summary(ratios), "seconds": samples, "equal_texts": texts["cache"] == texts["no cache"], "texts": len(asked)}


def measure_long(flags):
    random_ = random.Random(flags.seed)
    rounds, alone = [], None
    more = ["--context", LONG_TOKENS + 2048, "--cache-tokens", 3 * (LONG_TOKENS + 2048), "--no-prefix-cache"]
    if flags.target_itl_ms:
        more += ["--target-itl-ms", flags.target_itl_ms]
    with serve(flags, *more) as server:
        long_body = {"model": "m", "max_tokens": 1, "temperature": 0}
        alone = Stream(server.url, {**long_body, "prompt": prompt_of(server, random_, LONG_TOKENS)}).ttft
        say(f"long: alone, the first token comes after {alone:.2f} s")

        def streams(with_long):
            gaps, late, stop = [], [], threading.Event()

            def short():
                while not stop.is_set():
                    body = {"model": "m", "prompt": words(random.Random(), 32), "max_tokens": 512, "temperature": 0.8, "ignore_eos": True}
                    stream = Stream(server.url, body)
                    gaps.extend(b - a for a, b in zip(stream.times, stream.times[1:]) if a > begin and b < end)

            threads = [threading.Thread(target=short) for _ in range(SHORT_STREAMS)]
            begin = time.monotonic() + 5
            end = begin + flags.seconds
            for thread in threads:
                thread.start()
            time.sleep(5)
            while time.monotonic() < end:
                if with_long:
                    late.append(Stream(server.url, {**long_body, "prompt": prompt_of(server, random_, LONG_TOKENS)}).ttft)
                time.sleep(max(0, min(end, begin + LONG_EVERY_S * (len(late) + (not with_long))) - time.monotonic()) or 0.1)
            stop.set()
            for thread in threads:
                thread.join()
            return {"p99_s": statistics.quantiles(gaps, n=100)[98], "gaps": len(gaps), "long_ttft_s": late}

        with_, without = [], []
        for i in alternate(flags.rounds, lambda: without.append(streams(False)), lambda: with_.append(streams(True))):
            rounds.append(with_[-1]["p99_s"] / without[-1]["p99_s"])
            say(f"long {i}: P99 between tokens {without[-1]['p99_s'] * 1e3:.1f} ms, with long prompts {with_[-1]['p99_s'] * 1e3:.1f} ms; "
                f"their first tokens after {statistics.median(with_[-1]['long_ttft_s']):.2f} s")
    late = [seconds for one in with_ for seconds in one["long_ttft_s"]]
    return {"alone_s": alone, "with": with_, "without": without, "ratio": summary(rounds),
            "long_ttft_over_alone": summary([seconds / alone for seconds in late])}


PHASES = {"engine": measure_engine, "peer": measure_peer, "prefix": measure_prefix, "long": measure_long}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--bolide", default=ROOT / "build/release/bolide")
    parser.add_argument("--engine-bench", default=ROOT / "build/release/bolide_engine_bench")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--requests", type=int, default=96, help="of the engine in process, a round")
    parser.add_argument("--target-itl-ms", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scratch", default="/tmp")
    parser.add_argument("--peer", metavar="LLAMA_SERVER")
    for name in ("engine", "prefix", "long"):
        parser.add_argument(f"--{name}", action="store_true")
    flags = parser.parse_args()
    chosen = [name for name in PHASES if getattr(flags, name)]
    if not chosen:
        parser.error("say what to measure: --engine, --peer, --prefix or --long")
    version = output_of(flags.bolide, "--version").splitlines()[0]
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    for name in chosen:
        before = pathlib.Path("/proc/loadavg").read_text().split()[0]
        result = PHASES[name](flags)
        print(json.dumps({"phase": name, "command": sys.argv[1:], "bolide": version, "processor": cpu, "threads": flags.threads,
                          "load_before": before, **result}), flush=True)


if __name__ == "__main__":
    main()
