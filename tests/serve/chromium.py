"""Headless Chromium by its DevTools protocol over a pipe (Python 3, standard library only)."""
import base64
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
# Of the keys the tests press: code, virtual key code, text.
KEYS = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, ""), " ": ("Space", 32, " "),
        "ArrowRight": ("ArrowRight", 39, ""), "ArrowLeft": ("ArrowLeft", 37, ""), "ArrowDown": ("ArrowDown", 40, ""),
        "ArrowUp": ("ArrowUp", 38, ""), "Home": ("Home", 36, ""), "End": ("End", 35, "")}
SHIFT = 8


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser process with one page. Use as a context: it ends with it."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        # The browser reads its descriptor 3 and writes 4: out of their way first, so that neither is overwritten.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        move = "import os, sys; a, b, *rest = sys.argv[1:]; os.dup2(int(a), 3); os.dup2(int(b), 4); os.execvp(rest[0], rest)"
        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "--no-first-run", "--disable-gpu",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
                 "--disable-dev-shm-usage", "--mute-audio", "--window-size=1200,800"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # it refuses to start for root without
        self.process = subprocess.Popen(
            [sys.executable, "-c", move, *map(str, ends), program, *flags, "about:blank"], pass_fds=ends,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for end in (to_browser, from_browser, *ends):
            os.close(end)
        self.replies, self.events, self.changed, self.number, self.closed = {}, [], threading.Condition(), 0, False
        self.session = None
        threading.Thread(target=self.read, daemon=True).start()

    def __enter__(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)  # its own group: started with a session of its own
        self.process.wait()
        self.folder.cleanup()

    def read(self):
        rest = b""
        while data := os.read(self.into, 1 << 16):
            *messages, rest = (rest + data).split(b"\0")
            with self.changed:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self.replies[message["id"]] = message
                    else:
                        self.events.append(message)
                self.changed.notify_all()
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def call(self, method, timeout=60, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        with self.changed:
            if not self.changed.wait_for(lambda: number in self.replies or self.closed, timeout) or number not in self.replies:
                raise RuntimeError(f"{method}: no answer from the browser")
            reply = self.replies.pop(number)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def seen(self, method):
        with self.changed:
            return [event["params"] for event in self.events if event["method"] == method]

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'", f"{url} is loaded")

    def run(self, script):
        """The value of an expression of JavaScript; promises are waited for."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails'].get('exception', {}).get('description')}")
        return result["result"].get("value")

    def wait(self, script, what, seconds=20):
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.03)
        return value

    def press(self, key, shift=False):
        code, number, text = KEYS[key]
        key_down = {"type": "keyDown" if text else "rawKeyDown", "key": key, "code": code, "windowsVirtualKeyCode": number,
                    "modifiers": SHIFT if shift else 0}
        if text:
            key_down["text"] = text
        self.call("Input.dispatchKeyEvent", **key_down)
        self.call("Input.dispatchKeyEvent", **{**key_down, "type": "keyUp"})

    def type(self, text):
        """Character by character; a line's end as Shift+Enter."""
        for character in text:
            if character == "\n":
                self.press("Enter", shift=True)
            else:
                self.call("Input.dispatchKeyEvent", type="char", text=character)

    def save_picture(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
