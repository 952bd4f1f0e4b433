#!/usr/bin/env python3
"""A server with Bolide's API and scripted answers, to test the playground page (Python 3, standard library only).

usage: scripted_server.py [--port PORT] [--key KEY]
What the last message says decides the answer:
  say TEXT        TEXT, in random tokens that end anywhere in a character, sent in pieces that end anywhere, too
  count N         the numbers from 1 to N
  forever         a word every 20 ms until the client goes away
  error STATUS    an error with that status
  break           two words, then an error event
  cut             two words, then the connection ends
The model `scripted` has everything; `plain` refuses top_logprobs, and `bare` logprobs as well, by name.
GET /seen tells what the server saw: {"requests": [{"body", "authorization"}], "gone": clients that left a stream}.
"""
import argparse
import base64
import hashlib
import http.server
import json
import pathlib
import random
import re
import select
import threading
import time

PAGE = pathlib.Path(__file__).resolve().parents[2] / "src" / "server" / "playground.html"
MODELS = ["scripted", "plain", "bare"]
KV_USAGE, WAITING = 0.375, 2
RETRY_AFTER = 7
ERROR_TEXT = "too many requests wait: <b>32</b> of 32"
TOP = 5


def policy(page):
    """The Content-Security-Policy of the page, as cmake/BolideServerAssets.cmake writes it."""
    def digest(tag):
        text, = re.findall(rf"^<{tag}>(.*?)^</{tag}>", page, re.S | re.M)
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return (f"default-src 'none'; script-src 'sha256-{digest('script')}'; style-src 'sha256-{digest('style')}'; "
            "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            "require-trusted-types-for 'script'; trusted-types 'none'")


def cut_anywhere(data, longest, rng):
    while data:
        length = rng.randint(1, longest)
        yield data[:length]
        data = data[length:]


def token(data, rng):
    """One token as the API tells it, with alternatives that are less or more likely than itself."""
    logprob = -rng.expovariate(1)
    tell = lambda data, logprob: {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}
    others = [tell(f" other{i}".encode(), -1 - i + rng.random()) for i in range(TOP - 1)]
    top = sorted([tell(data, logprob), *others], key=lambda t: -t["logprob"])
    return {**tell(data, logprob), "top_logprobs": top}


def parts(tokens):
    """(text, tokens): a token comes with the text in which it ends, as soon as that is whole characters."""
    held, data = [], b""
    for one in tokens:
        held.append(one)
        data += bytes(one["bytes"])
        try:
            yield data.decode(), held
        except UnicodeDecodeError:
            continue
        held, data = [], b""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="application/json", headers=()):
        data = body.encode()
        self.send_response(status)
        for name, value in [("Content-Type", kind), ("Content-Length", str(len(data))), *headers]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status, message, code, param=None, headers=()):
        error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
        self.answer(status, json.dumps({"error": error}), headers=headers)

    def is_stranger(self):
        key = self.server.key
        if key is None or self.headers.get("Authorization") == f"Bearer {key}":
            return False
        self.refuse(401, "this server needs an API key", "invalid_api_key")
        return True

    def do_GET(self):
        if self.path in ("/", "/playground"):
            page = PAGE.read_text(encoding="utf-8")
            return self.answer(200, page, "text/html; charset=utf-8", [("Content-Security-Policy", policy(page))])
        if self.path == "/seen":
            return self.answer(200, json.dumps({"requests": self.server.requests, "gone": self.server.gone}))
        if self.is_stranger():
            return None
        if self.path == "/v1/models":
            data = [{"id": m, "object": "model", "created": 0, "owned_by": "bolide"} for m in MODELS]
            return self.answer(200, json.dumps({"object": "list", "data": data}))
        if self.path == "/metrics":
            return self.answer(200, self.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        return self.refuse(404, f"there is nothing at {self.path}", "not_found")

    def metrics(self):
        gauges = {"bolide_kv_cache_usage_ratio": KV_USAGE, "bolide_num_requests_running": self.server.running,
                  "bolide_num_requests_waiting": WAITING, "bolide_num_requests_running_not": 99}
        lines = []
        for name, value in gauges.items():
            lines += [f"# HELP {name} Scripted", f"# TYPE {name} gauge"]
            lines += [f'{name}{{model_name="{model}"}} {value if model == "scripted" else 0}' for model in reversed(MODELS)]
        return "\n".join(lines) + "\n"

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.is_stranger():
            return None
        if self.path != "/v1/chat/completions":
            return self.refuse(404, f"there is nothing at {self.path}", "not_found")
        body = json.loads(raw)
        self.server.requests.append({"body": body, "authorization": self.headers.get("Authorization")})
        for field, models in (("top_logprobs", ("plain", "bare")), ("logprobs", ("bare",))):
            if body.get(field) and body["model"] in models:
                return self.refuse(400, f"{field}: this server does not have it; leave it out", "unsupported_parameter", field)
        word, _, rest = body["messages"][-1]["content"].partition(" ")
        if word == "error":
            return self.refuse(int(rest), ERROR_TEXT, "queue_full", headers=[("Retry-After", str(RETRY_AFTER))])
        return self.stream(body, word, rest)

    def stream(self, body, word, rest):
        self.send_response(200)
        for name, value in [("Content-Type", "text/event-stream; charset=utf-8"), ("Cache-Control", "no-cache"),
                            ("Transfer-Encoding", "chunked")]:
            self.send_header(name, value)
        self.end_headers()
        with self.server.lock:
            self.server.running += 1
        try:
            if self.events(body, word, rest):
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True
        except OSError:
            self.server.gone += 1
            self.close_connection = True
        finally:
            with self.server.lock:
                self.server.running -= 1

    def events(self, body, word, rest):
        """Sends all events. False: the body has no proper end."""
        rng = random.Random()
        told = body.get("logprobs", False)
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}

        def send(delta, logprobs=None, reason=None):
            choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            self.event({**head, "choices": [choice], "usage": None}, rng)

        send({"role": "assistant", "content": ""})
        self.raw(b": ping\n\n")
        words = {"say": cut_anywhere(rest.encode(), 5, rng), "count": (f" {i + 1}".encode() for i in range(int(rest or 0)))
                 if word == "count" else (), "forever": iter(lambda: b" on", b""), "break": [b"so", b" far"], "cut": [b"so", b" far"]}
        count = 0
        for text, tokens in parts(token(data, rng) for data in words.get(word, [b"?"])):
            if not body.get("top_logprobs"):
                tokens = [{**t, "top_logprobs": []} for t in tokens]
            count += len(tokens)
            send({"content": text}, {"content": tokens} if told else None)
            if word == "forever":
                self.rest(0.02)
        if word == "break":
            self.event({"error": {"message": "the engine has failed", "type": "server_error", "param": None, "code": "internal"}}, rng)
            return True
        if word == "cut":
            time.sleep(0.2)  # browsers forget what came together with the end
            return False
        send({}, reason="stop")
        self.event({**head, "choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": count, "total_tokens": 11 + count,
                                                     "prompt_tokens_details": {"cached_tokens": 4}}}, rng)
        self.raw(b"data: [DONE]\n\n")
        return True

    def rest(self, seconds):
        """Sleeps; a client that went away is noticed at once."""
        readable, _, _ = select.select([self.connection], [], [], seconds)
        if readable and self.connection.recv(1) == b"":
            raise ConnectionResetError

    def event(self, value, rng):
        """Characters as they are, not as escapes; some events come in two pieces, the first of which ends within one."""
        data = f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()
        within = [i for i, byte in enumerate(data) if byte & 0xc0 == 0x80]
        if within and rng.random() < 0.3:
            at = rng.choice(within)
            self.raw(data[:at])
            time.sleep(0.02)  # or the network would join them again
            data = data[at:]
        self.raw(data)

    def raw(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port=0, key=None):
        super().__init__(("127.0.0.1", port), Handler)
        self.key, self.requests, self.gone, self.running, self.lock = key, [], 0, 0, threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/playground"

    def start(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--key")
    arguments = parser.parse_args()
    server = Server(arguments.port, arguments.key).start()
    print(server.url, flush=True)
    while True:
        time.sleep(3600)
