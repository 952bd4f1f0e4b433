"""`bolide serve` as a child process, and what tests of its clients share (Python 3, standard library only)."""
import importlib
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.error
import urllib.request

MODELS = pathlib.Path(__file__).parents[1] / "golden" / "models"
PATIENCE_S = 120  # a sanitizer's build on a busy machine


class Serve:
    """A server in a process of its own, ready when the constructor is through. Use as a context: it ends with it."""

    def __init__(self, *words):
        """words: the program and its arguments, with `--port 0` if any port will do."""
        # A file, which never makes the server wait for its reader.
        self.log = tempfile.TemporaryFile()
        begin = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=self.log)
        self.pid, self.port = self.process.pid, None
        while not (found := re.search(r"serving on http://127\.0\.0\.1:(\d+)", self.said())):
            if self.process.poll() is not None or time.monotonic() - begin > PATIENCE_S:
                self.kill()
                raise RuntimeError(f"{' '.join(map(str, words))} does not serve, exit code {self.process.returncode}:\n{self.said()}")
            time.sleep(0.002)
        self.port = int(found[1])
        self.ready_s = time.monotonic() - begin
        self.url = f"http://127.0.0.1:{self.port}"

    def said(self):
        # Not by seek and read: the place in the file is the child's, too.
        return os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0).decode(errors="replace")

    def get(self, path, key=None):
        """Status and text."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {key}"} if key else {})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()

    def metrics(self, key=None):
        """Values by name, and by name and labels; those of one name are added up."""
        values = {}
        for line in self.get("/metrics", key)[1].splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                values[series] = float(value)
                name = series.partition("{")[0]
                if name != series:
                    values[name] = values.get(name, 0) + float(value)
        return values

    def wait(self, holds, what, key=None, timeout_s=PATIENCE_S):
        """Until the metrics are so."""
        end = time.monotonic() + timeout_s
        while not holds(now := self.metrics(key)):
            assert time.monotonic() < end, f"{what}: not within {timeout_s} s; {({k: v for k, v in now.items() if '_bucket' not in k})}"
            time.sleep(0.02)

    def wait_idle(self, key=None, timeout_s=PATIENCE_S):
        names = ("bolide_num_requests_running", "bolide_num_requests_waiting", "bolide_kv_cache_usage_ratio")
        self.wait(lambda now: all(now[name] == 0 for name in names), "nothing runs or waits, and no cache is held", key, timeout_s)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.log.close()


def import_client(package):
    """The package from this Python or the one that BOLIDE_CLIENT_PYTHON names. Without it the program ends as skipped."""
    python = os.environ.pop("BOLIDE_CLIENT_PYTHON", None)
    if python:
        os.execv(python, [python, *sys.argv])
    try:
        return importlib.import_module(package)
    except (ImportError, RuntimeError) as absent:
        print(f"skipped: PyPI's package {package} is not there ({absent}); install it, or let BOLIDE_CLIENT_PYTHON name a Python that has it")
        sys.exit(77)


def raises(kind, call):
    """The error of that kind that the call ends with."""
    try:
        result = call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}, but {result!r:.300}")


def run_steps(test):
    """Methods `step_*` of the test, in order; exit code 1 if one fails, with what the test's server said."""
    for name in [name for name in vars(type(test)) if name.startswith("step_")]:
        begin = time.monotonic()
        try:
            getattr(test, name)()
        except Exception:  # a client's own errors are failures, too
            traceback.print_exc(file=sys.stdout)
            print(f"FAIL {name}\nthe server said:\n{test.server.said()[-4000:]}")
            return 1
        print(f"ok   {name[5:]} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 0


KEY = "sesame-%032x" % random.getrandbits(128)
_keys = None  # the file that has it


def serve(*more):
    """A server with a small model that knows KEY."""
    return Serve(sys.argv[1], "serve", f"small={MODELS / 'qwen2'}", "--device", "cpu", "--port", 0, "--threads", 1, "--deterministic",
                 "--context", 32768, "--cache-tokens", 131072, "--api-key-file", _keys, *more)


def main(usage, test):
    """Runs the steps of `test`, a class, against one server; the exit code."""
    global _keys
    if len(sys.argv) != 2:
        print(usage)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        _keys = pathlib.Path(folder) / "keys"
        _keys.write_text(f"tests {KEY}\n")
        with serve() as server:
            return run_steps(test(server))
