"""What the clients of bench/serve_soak.py ask and how they judge the answers (Python 3, standard library only)."""
import json
import multiprocessing
import random
import time
from collections import Counter

from serve_soak_client import Exchange, Loop, allow_connections, get, post

NUMBERS = 1000      # of the scripted model
OPENING_MAX = 500   # connections of a process that wait for their answer's head
EXAMPLES = 10
STALL_S = 120       # without any byte: no more will come
NEVER = float("inf")


# --- streams of the scripted model (bench/fake_serve_bench.cc) ---

class NumberStream(Exchange):
    """Token k must be A + k * B; A and B differ from those of every other stream."""

    def __init__(self, part, index, tokens):
        spot = index * 7919 % (NUMBERS * (NUMBERS - 1))  # 7919 is prime: all of the first 999,000 differ
        self.first, self.step = spot % NUMBERS, spot // NUMBERS + 1
        self.part, self.index, self.tokens = part, index, tokens
        self.at, self.usage, self.reason, self.done, self.broken = 0, None, None, False, False
        super().__init__(post("/v1/completions", {
            "model": "script", "prompt": [self.first, self.step, index % NUMBERS, index // NUMBERS], "max_tokens": tokens,
            "stream": True, "stream_options": {"include_usage": True}}))

    def number(self, at):
        return (self.first + at * self.step) % NUMBERS

    def fault(self, kind, what):
        self.broken = True
        self.part["faults"][kind] += 1
        if len(self.part["examples"]) < EXAMPLES:
            self.part["examples"].append(f"stream {self.index}, token {self.at}: {kind}: {what}")

    def on_data(self, data):
        if self.done:
            return self.fault("after the end", data.decode())
        if data == b"[DONE]":
            self.done = True
            return None
        event = json.loads(data)
        if "error" in event:
            return self.fault("error", event["error"]["message"])
        if event["usage"] is not None:
            self.usage = event["usage"]["completion_tokens"]
        for choice in event["choices"]:
            if self.at == 0:
                self.part["first_s"].append(time.monotonic() - self.sent_s)
            for word in choice["text"].split():
                self.take(int(word))
            self.reason = choice["finish_reason"] or self.reason
        return None

    def take(self, number):
        if number != self.number(self.at) and not self.broken:
            near = {self.number(self.at - 1): "doubled", self.number(self.at + 1): "lost"}
            self.fault(near.get(number, "foreign or reordered"), f"{number} in place of {self.number(self.at)}")
        self.at += 1
        self.part["tokens"] += 1

    def on_end(self):
        if self.status != 200:
            self.fault(f"status {self.status}", self.why)
        elif not self.whole or not self.done:
            self.fault("cut", self.why or "no [DONE]")
        elif (self.at, self.usage, self.reason) != (self.tokens, self.tokens, "length"):
            self.fault("count", f"{self.at} tokens came, {self.usage} were told, {self.tokens} asked for; {self.reason}")
        self.part["whole"] += 0 if self.broken else 1


def run_part(job):
    port, first, count, tokens = job
    allow_connections()
    part = {"faults": Counter(), "examples": [], "first_s": [], "tokens": 0, "whole": 0}
    loop, started, progress = Loop(port), 0, (-1, 0.0)
    opening = []  # those that wait for their answer's head
    while started < count or loop.connections:
        opening = [exchange for exchange in opening if exchange.status == 0 and not exchange.end_s]
        while started < count and len(opening) < OPENING_MAX:
            exchange = NumberStream(part, first + started, tokens)
            opening.append(exchange)
            loop.start(exchange, first + started)
            started += 1
        loop.turn()
        if part["tokens"] + started != progress[0]:
            progress = (part["tokens"] + started, time.monotonic())
        elif time.monotonic() - progress[1] > STALL_S:
            part["faults"]["stalled"] += len(loop.connections)
            break
    return part


def run_streams(port, count, tokens, workers):
    edges = [count * i // workers for i in range(workers + 1)]
    jobs = [(port, begin, end - begin, tokens) for begin, end in zip(edges, edges[1:])]
    if workers == 1:
        return [run_part(jobs[0])]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return pool.map(run_part, jobs, chunksize=1)


# --- requests to a real model ---

class Generated(Exchange):
    """An answer of exactly so many tokens, streamed or not."""

    def __init__(self, tokens, stream, chat=False, prompt_tokens=8, choices=1, owner=None, **more):
        self.tokens, self.stream, self.owner = tokens * choices, stream, owner
        self.events, self.usage, self.reasons, self.done, self.error = 0, None, 0, not stream, ""
        self.choices = choices
        body = {"max_tokens": tokens, "ignore_eos": True, "stream": stream, "n": choices, **more}
        if stream:
            body["stream_options"] = {"include_usage": True}
        if chat:
            body["messages"] = [{"role": "user", "content": "".join(random.choices("abcdefgh ", k=prompt_tokens))}]
        else:
            body["prompt"] = [random.randrange(3, 250) for _ in range(prompt_tokens)]
        super().__init__(post("/v1/chat/completions" if chat else "/v1/completions", body))

    def on_data(self, data):
        self.events += 1
        if data == b"[DONE]":
            self.done = True
            return
        self.take(json.loads(data))

    def on_body(self, body):
        self.take(json.loads(body))

    def take(self, answer):
        if "error" in answer:
            self.error = answer["error"]["message"]
            return
        self.usage = answer.get("usage") or self.usage
        self.reasons += sum(choice["finish_reason"] is not None for choice in answer["choices"])

    def fault(self):
        """What is wrong with the answer; empty: nothing."""
        if self.status != 200 or self.error:
            return f"status {self.status} {self.error}{self.why}"
        if not self.whole or not self.done or self.usage is None:
            return f"cut: {self.why}"
        if self.usage["completion_tokens"] != self.tokens or self.reasons != self.choices:
            return f"{self.usage} for {self.tokens} tokens, {self.reasons} of {self.choices} choices ended"
        return ""

    def on_end(self):
        return self.owner.ended_one(self) if self.owner else None


class Plain(Exchange):
    """A request whose answer's status is known."""

    def __init__(self, owner, expected, request):
        super().__init__(request)
        self.owner, self.expected = owner, expected

    def fault(self):
        return "" if self.whole and self.status == self.expected else f"status {self.status}, {self.why}"

    def on_end(self):
        return self.owner.ended_one(self)


class Mixed:
    """So many short requests of all kinds."""

    def __init__(self, count, chat_share):
        self.left, self.ended, self.chat_share = count, 0, chat_share
        self.statuses, self.faults, self.examples = Counter(), Counter(), []

    def following(self):
        if self.left == 0:
            return None
        self.left -= 1
        kind = random.random()
        if kind < 0.08:
            return Plain(self, 200, get(random.choice(("/metrics", "/health/ready", "/v1/models"))))
        if kind < 0.12:
            return Plain(self, 404, get("/nowhere"))
        if kind < 0.18:
            return Plain(self, 400, post("/v1/completions", {"prompt": "x", "frobnicate": random.random()}))
        if kind < 0.24:
            return Plain(self, 200, post("/tokenize", {"prompt": "abc " * random.randrange(1, 50)}))
        more = {"logprobs": random.randrange(1, 4)} if kind < 0.4 else {}
        return Generated(random.randint(1, 8), stream=random.random() < 0.5, chat=not more and random.random() < self.chat_share,
                         prompt_tokens=random.randint(1, 60), choices=random.choice((1, 1, 1, 2)), owner=self, **more)

    def ended_one(self, exchange):
        self.ended += 1
        self.statuses[str(exchange.status)] += 1
        if wrong := exchange.fault():
            self.faults[wrong] += 1
        return self.following() if exchange.status != 0 else None


class DrainTotal:
    """Of all drains."""

    def __init__(self):
        self.outcomes, self.faults, self.examples, self.ending_s = Counter(), Counter(), [], []

    def fault(self, kind, what):
        self.faults[kind] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{kind}: {what}")


class Draining:
    """Clients that ask without end, until they are refused."""

    ARRIVED_S = 0.25  # what was sent so long before the signal has been read by then

    def __init__(self, total, chat_share):
        self.total, self.chat_share, self.signal_s = total, chat_share, NEVER

    def following(self):
        return Generated(random.randint(1, 200), stream=random.random() < 0.6, chat=random.random() < self.chat_share,
                         prompt_tokens=random.randint(1, 100), owner=self)

    def ended_one(self, exchange):
        after = time.monotonic() > self.signal_s
        if exchange.status == 200 and not exchange.fault():
            self.total.outcomes["whole after the signal" if after else "whole before"] += 1
            return self.following()
        if exchange.status == 503 and exchange.whole and after:
            self.total.outcomes["refused with 503"] += 1
        elif exchange.status == 0 and after and exchange.why == "ECONNREFUSED":
            self.total.outcomes["not connected"] += 1
        elif exchange.status == 0 and after and (not exchange.sent_s or exchange.sent_s > self.signal_s - self.ARRIVED_S):
            self.total.outcomes["closed without an answer"] += 1
        else:
            sent = exchange.sent_s - self.signal_s
            self.total.fault("accepted and not whole", f"sent {sent:+.3f} s from the signal, stream {exchange.stream}: {exchange.fault()}")
        return None


class Leaver(Generated):
    """Leaves after so many events, or at a time."""

    def __init__(self, owner):
        self.leaves_after = random.choice((0, 1, 2, 10, 100, NEVER))
        self.leaves_s = time.monotonic() + random.choice((0.0, random.uniform(0, 0.05), random.expovariate(3)))
        super().__init__(1500, stream=random.random() < 0.7, chat=random.random() < owner.chat_share,
                         prompt_tokens=random.randint(1, 300), choices=random.choice((1, 1, 3)), owner=owner)

    def leaves(self):
        return self.stream and self.events >= self.leaves_after


class Leaving:
    """So many clients, one after the other on each connection."""

    def __init__(self, count, chat_share):
        self.left, self.chat_share = count, chat_share
        self.outcomes, self.faults, self.examples = Counter(), Counter(), []

    def following(self):
        if self.left == 0:
            return None
        self.left -= 1
        return Leaver(self)

    def ended_one(self, exchange):
        if exchange.why == "left":
            self.outcomes["left before the answer" if exchange.status == 0 else "left during it"] += 1
        elif not exchange.fault():
            self.outcomes["whole"] += 1
        else:
            self.faults[exchange.fault()] += 1
            if exchange.why == "ECONNREFUSED":
                return None
        return self.following()
