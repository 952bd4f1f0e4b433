#!/usr/bin/env python3
"""Drives the playground page in headless Chromium, by keyboard alone (Python 3, standard library only).

usage: playground_test.py [URL] [--pictures FOLDER]
URL: the page of a running server, without keys (http://127.0.0.1:8000/playground); then what only scripted answers can
show is left out. Without it the page of this tree is served by scripted_server.py.
Exit code 77 (skipped) if there is no Chromium.
"""
import argparse
import json
import math
import pathlib
import random
import sys
import time
import traceback
import urllib.request

import chromium
import scripted_server

ANSWER = "(document.querySelector('#log article:last-child.assistant .text')?.textContent ?? '')"
FAULT = "document.getElementById('fault').textContent"
BUSY = "document.getElementById('log').ariaBusy === 'true'"
FOCUS = "(document.activeElement.dataset.field ?? document.activeElement.id)"
TIP = "(document.getElementById('tip').hidden ? '' : document.getElementById('tip').innerText)"


class Test:
    """The steps are the methods whose names begin with `step_`, in order; `scripted` ones need the scripted server."""

    def __init__(self, browser, url, server):
        self.page, self.url, self.server = browser, url, server
        self.expected_errors = 0  # of responses: the browser itself logs each

    # What the steps share.

    def go_to(self, name):
        """Presses Tab until the element of that id or field has the focus."""
        for _ in range(60):
            if self.page.run(FOCUS) == name:
                return
            self.page.press("Tab")
        raise AssertionError(f"{name} cannot be reached with the Tab key")

    def fill(self, name, text):
        self.go_to(name)
        self.page.run("document.activeElement.select()")
        self.page.type(text)

    def send(self, text):
        self.go_to("prompt")
        self.page.type(text)
        self.page.press("Enter")

    def ask(self, text):
        """Sends it and waits for the end of the answer."""
        self.send(text)
        self.page.wait(f"!({BUSY})", f"the answer to {text[:40]!r} ends")
        return self.page.run(ANSWER)

    def clear(self):
        self.go_to("clear")
        self.page.press("Enter")
        assert self.page.run("document.querySelectorAll('#log article').length") == 0
        assert self.page.run(FOCUS) == "prompt"

    def set_box(self, name, on):
        self.go_to(name)
        if self.page.run("document.activeElement.checked") != on:
            self.page.press(" ")
        assert self.page.run("document.activeElement.checked") == on

    def pick_model(self, name):
        self.go_to("model")
        for _ in range(8):
            if self.page.run("document.activeElement.value") == name:
                return
            self.page.press("ArrowDown")
        raise AssertionError(f"no model {name}")

    def seen(self):
        return self.server.requests[-1]["body"]

    def check_quiet(self):
        """No error in the console, no request to anybody else, so far."""
        problems = [e["entry"]["text"] for e in self.page.seen("Log.entryAdded") if e["entry"]["level"] == "error"]
        refused = [text for text in problems if text.startswith("Failed to load resource: ")]
        others = [text for text in problems if text not in refused]
        others += [json.dumps(e["args"]) for e in self.page.seen("Runtime.consoleAPICalled") if e["type"] in ("error", "warning", "assert")]
        others += [e["exceptionDetails"]["text"] for e in self.page.seen("Runtime.exceptionThrown")]
        assert others == [], others
        assert len(refused) == self.expected_errors, refused
        origin = self.url[:self.url.rindex(":")]  # any port: a page that was left may still ask its own server
        urls = {e["request"]["url"] for e in self.page.seen("Network.requestWillBeSent")}
        assert all(url.startswith(origin + ":") or url.startswith(("data:", "about:")) for url in urls), urls

    # Steps that hold for every server.

    def step_loads(self):
        self.page.open(self.url)
        self.page.wait("document.getElementById('model').value !== ''", "models are listed")
        assert self.page.run(FOCUS) == "prompt", "the message's field has the focus at first"
        self.check_quiet()

    def step_policy(self):
        """The page comes as HTML, under a policy that lets its own script and style run and nothing else."""
        with urllib.request.urlopen(self.url, timeout=10) as response:
            page = response.read().decode()
            assert response.headers["Content-Type"].replace(" ", "").lower() == "text/html;charset=utf-8", response.headers
            assert response.headers["Content-Security-Policy"] == scripted_server.policy(page), response.headers

    def step_everything_by_keyboard(self):
        """The Tab key reaches each control; each has a name, and shows that it has the focus."""
        wanted = set(self.page.run(
            "[...document.querySelectorAll('button, input, select, textarea, summary, [tabindex]')]"
            ".filter((e) => !e.disabled && e.tabIndex >= 0).map((e) => e.dataset.field ?? e.id)"))
        reached, hidden = set(), []
        for _ in range(len(wanted) + 8):
            name = self.page.run(FOCUS)
            reached.add(name)
            if name and self.page.run("getComputedStyle(document.activeElement).outlineStyle") == "none":
                hidden.append(name)
            self.page.press("Tab")
        assert wanted <= reached, f"not reached: {wanted - reached}"
        assert hidden == [], f"no visible focus: {hidden}"
        nodes = self.page.call("Accessibility.getFullAXTree")["nodes"]
        properties = lambda node: {p["name"]: p["value"].get("value") for p in node.get("properties", [])}
        nameless = [n["role"]["value"] for n in nodes if not n["ignored"] and properties(n).get("focusable")
                    and not n.get("name", {}).get("value") and n["role"]["value"] != "RootWebArea"]
        assert nameless == [], f"without a name for screen readers: {nameless}"
        live = self.page.run("(() => { const log = document.getElementById('log'); return [log.role, log.ariaLive]; })()")
        assert live == ["log", "polite"], live

    def step_answers(self):
        self.fill("max_tokens", "24")
        text = self.ask("Name three colours.")
        assert text != "" and self.page.run(FAULT) == "", self.page.run(FAULT)
        stats = self.page.wait("document.getElementById('stats').textContent.includes('prompt of') && "
                               "document.getElementById('stats').textContent", "the answer's figures are shown")
        assert "first token after" in stats, stats

    def step_tokens_on_focus(self):
        self.clear()
        self.set_box("logprobs", True)
        self.go_to("prompt")
        text = self.ask("Name three colours, please." if self.server is None else "say red, green and blue")
        count = self.page.run("document.querySelectorAll('#log .token').length")
        assert count > 1 and self.page.run(TIP) == ""
        assert text == self.page.run("[...document.querySelectorAll('#log .token')].map((t) => t.textContent).join('')")
        for _ in range(60):
            self.page.press("Tab")
            if self.page.run("document.activeElement.classList.contains('token')"):
                break
        first = self.page.run(TIP)
        assert "%" in first and "(chosen)" in first, first
        assert self.page.run("document.activeElement.getAttribute('aria-describedby')") == "tip"
        rows = self.page.run("document.querySelectorAll('#tip table:first-child tr').length")
        if self.page.run("document.querySelector('#log article:last-child .note').textContent").startswith("the server does not tell"):
            self.expected_errors += 1  # it refused top_logprobs, and answered without
        else:
            assert rows >= 5, f"{rows} alternatives"
        self.page.press("ArrowRight")
        second = self.page.run("[...document.querySelectorAll('#log .token')].indexOf(document.activeElement)")
        assert second == 1, second
        assert self.page.run(TIP) != ""
        self.page.press("End")
        assert self.page.run("[...document.querySelectorAll('#log .token')].indexOf(document.activeElement)") == count - 1
        self.page.press("Home")
        self.page.press("Escape")
        assert self.page.run(TIP) == "", "Escape hides the tooltip"

    def step_tokens_under_the_pointer(self):
        x, y = self.page.run("(() => { const r = document.querySelector('#log .token').getBoundingClientRect();"
                             " return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        self.page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.page.wait(f"{TIP}.includes('%')", "the tooltip under the pointer")
        inside = self.page.run("(() => { const r = document.getElementById('tip').getBoundingClientRect();"
                               " return r.left >= 0 && r.top >= 0 && r.right <= innerWidth && r.bottom <= innerHeight; })()")
        assert inside, "the tooltip is within the window"
        self.picture("tokens")
        self.page.call("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
        self.page.wait(f"{TIP} === ''", "the tooltip goes away")

    def step_stops(self):
        self.set_box("logprobs", False)
        self.fill("max_tokens", "2000")
        for by_button in (False, True):
            self.clear()
            before = self.server and self.server.gone
            self.send("Write a long story about a river." if self.server is None else "forever")
            self.page.wait(f"{ANSWER} !== ''", "the answer begins")
            if by_button:
                self.go_to("stop")
                self.page.press("Enter")
            else:
                self.page.press("Escape")
            self.page.wait(f"!({BUSY})", "the answer ends", 2)
            assert self.page.run(FOCUS) == "prompt", "the focus is where the next message goes"
            assert self.page.run("document.querySelector('#log article:last-child .note').textContent") == "stopped"
            length = len(self.page.run(ANSWER))
            time.sleep(0.3)
            assert len(self.page.run(ANSWER)) == length, "text came after the stop"
            self.page.wait("document.getElementById('load-value').textContent.startsWith('0 running')", "the server has stopped, too", 5)
            if self.server:
                assert self.server.gone == before + 1, "the server saw the client go"

    def step_charts(self):
        self.page.wait("[...document.querySelectorAll('.chart polyline')].filter((l) => l.points.length >= 2).length === 3",
                       "three lines in two charts", 6)
        assert "%" in self.page.run("document.getElementById('kv').getAttribute('aria-label')")
        self.page.run("document.querySelector('aside').scrollTop = 0")
        self.picture("charts")

    def step_light_and_dark(self):
        light = "(() => { const c = getComputedStyle(document.body); const sum = (s) => s.match(/\\d+/g).slice(0, 3)" \
                ".reduce((a, b) => a + Number(b), 0); return sum(c.backgroundColor) > sum(c.color); })()"
        for scheme in ("light", "dark"):
            self.page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            assert self.page.run(light) == (scheme == "light"), scheme
            self.page.wait(f"document.getElementById('theme').ariaPressed === '{str(scheme == 'dark').lower()}'", "the button knows")
            self.picture(scheme)
        self.go_to("theme")
        self.page.press("Enter")
        assert self.page.run(light), "the button overrules what the system prefers"
        self.page.press(" ")
        assert not self.page.run(light)

    def step_narrow(self):
        self.page.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=False)
        self.page.run("document.getElementById('settings').open = true")
        width = self.page.run("document.scrollingElement.scrollWidth")
        assert width <= 360, f"{width} pixels wide"
        beyond = self.page.run("[...document.querySelectorAll('button, input, select, textarea, .chart')].filter((e) => {"
                               " const r = e.getBoundingClientRect(); return r.right > 360 || r.left < 0; }).map((e) => e.id)")
        assert beyond == [], beyond
        self.picture("narrow")
        self.page.call("Emulation.clearDeviceMetricsOverride")

    # Steps that need scripted answers.

    def step_scripted_text_in_order(self):
        """Random text of many scripts, in tokens and pieces that end within characters, arrives as it was sent."""
        ranges = [(0x21, 0x7e), (0xa1, 0x17f), (0x3b1, 0x3c9), (0x5d0, 0x5ea), (0x4e00, 0x4fff), (0x1f600, 0x1f64f), (0x20000, 0x200ff)]
        for told in (False, True):
            self.clear()
            self.set_box("logprobs", told)
            text = "".join(" " if random.random() < 0.15 else chr(random.randint(*random.choice(ranges))) for _ in range(300)).strip()
            self.go_to("prompt")
            # A paste, as far as the page sees: what is tested here is the answer.
            self.page.call("Input.insertText", text="say " + text)
            self.page.press("Enter")
            self.page.wait(f"!({BUSY}) && {ANSWER} !== ''", "the answer ends")
            shown = self.page.run(ANSWER)
            assert shown == text, f"with logprobs {told}:\n{text!r}\n{shown!r}"
        self.set_box("logprobs", False)
        numbers = self.ask("count 2000")
        assert numbers == "".join(f" {i + 1}" for i in range(2000)), numbers[:200]
        stats = self.page.run("document.getElementById('stats').textContent")
        assert "2000 tokens, prompt of 11 tokens (4 cached)" in stats and "tokens/s" in stats, stats

    def step_scripted_html_is_text(self):
        self.clear()
        html = "<img src=x onerror=\"window.broken=1\"><b>bold</b><script>window.broken=1</script>&amp;<a href='//elsewhere'>"
        for told in (True, False):
            self.set_box("logprobs", told)
            assert self.ask("say " + html) == html
        assert self.page.run("document.querySelectorAll('#log img, #log b, #log script, #log a').length") == 0
        assert self.page.run("window.broken") is None

    def step_scripted_fields(self):
        """What is set is sent, and what is empty is not."""
        self.clear()
        values = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "max_tokens": 77, "seed": 1234567890123}
        self.fill("max_tokens", "")
        self.page.run("document.querySelectorAll('[data-field]').forEach((e) => { e.value = ''; })")
        self.ask("say hello")
        assert not set(values) & set(self.seen()), self.seen()
        for name, value in values.items():
            self.fill(name, repr(value))
        self.fill("system", "Be brief.\nBe kind.")
        self.fill("stops", "END\n\\n\\n")
        self.set_box("logprobs", True)
        self.ask("say good\nbye")
        body = self.seen()
        messages = [{"role": "system", "content": "Be brief.\nBe kind."}, {"role": "user", "content": "say hello"},
                    {"role": "assistant", "content": "hello"}, {"role": "user", "content": "say good\nbye"}]
        expected = {**values, "model": "scripted", "messages": messages, "stream": True, "stream_options": {"include_usage": True},
                    "stop": ["END", "\n\n"], "logprobs": True, "top_logprobs": 5}
        assert body == expected, (body, expected)
        # Regenerate: the same again, in place of the answer.
        count = self.page.run("document.querySelectorAll('#log article').length")
        self.go_to("again")
        self.page.press("Enter")
        self.page.wait(f"!({BUSY}) && {ANSWER} === 'good\\nbye'", "the answer comes again")
        assert self.seen() == expected and len(self.server.requests) > 1
        assert self.page.run("document.querySelectorAll('#log article').length") == count
        # A value that cannot be sent is not: the page says which, and the message stays.
        asked = len(self.server.requests)
        self.fill("top_p", "7")
        self.send("say no")
        assert self.page.run(FAULT).startswith("Top p: "), self.page.run(FAULT)
        assert self.page.run(FOCUS) == "top_p" and len(self.server.requests) == asked
        assert self.page.run("document.getElementById('prompt').value") == "say no"
        self.page.run("document.querySelectorAll('[data-field], #system, #stops, #prompt').forEach((e) => { e.value = ''; })")

    def step_scripted_chances(self):
        """The tooltip tells what the server told."""
        self.set_box("logprobs", True)
        self.clear()
        self.ask("say abc")
        told = self.page.run("[...document.querySelectorAll('#log .token')].map((e) => e.tokens).flat()")
        for _ in range(60):
            if self.page.run("document.activeElement.classList.contains('token')"):
                break
            self.page.press("Tab")
        tip = self.page.run(TIP)
        for one in [told[0], *told[0]["top_logprobs"]]:
            percent = 100 * math.exp(one["logprob"])
            words = f"{percent:.1f}%" if percent >= 0.1 else "%"
            assert one["token"] in tip and words in tip, (one, tip)
        level = self.page.run("document.activeElement.dataset.level")
        lowest = math.exp(min(t["logprob"] for t in self.page.run("document.activeElement.tokens")))
        assert int(level) == sum(lowest < edge for edge in (0.8, 0.5, 0.2, 0.05)), (level, lowest)

    def step_scripted_without_logprobs(self):
        """A server that refuses the fields of logprobs by name is asked again without them."""
        self.clear()
        self.set_box("logprobs", True)
        for model, refusals, kept in (("plain", 1, {"logprobs"}), ("bare", 2, set())):
            self.pick_model(model)
            asked = len(self.server.requests)
            assert self.ask("say hello") == "hello", self.page.run(FAULT)
            self.expected_errors += refusals
            assert len(self.server.requests) == asked + refusals + 1
            assert {"logprobs", "top_logprobs"} & set(self.seen()) == kept, self.seen()
            note = self.page.run("document.querySelector('#log article:last-child .note').textContent")
            assert "does not tell" in note, note
        self.pick_model_back()

    def pick_model_back(self):
        self.go_to("model")
        self.page.press("Home")
        assert self.page.run("document.activeElement.value") == "scripted"

    def step_scripted_errors(self):
        self.clear()
        self.send("error 429")
        self.page.wait(f"{FAULT} !== ''", "the error is shown")
        self.expected_errors += 1
        fault = self.page.run(FAULT)
        assert fault == f"{scripted_server.ERROR_TEXT} (status 429; try again in {scripted_server.RETRY_AFTER} s)", fault
        assert self.page.run("document.getElementById('fault').getAttribute('role')") == "alert"
        assert self.page.run("document.querySelectorAll('#fault *').length") == 0, "the error is text, too"
        assert self.page.run("document.getElementById('prompt').value") == "error 429", "the message can be sent again"
        self.picture("error")
        self.page.run("document.getElementById('prompt').value = ''")
        assert self.ask("break") == "so far"
        assert "the engine has failed" in self.page.run(FAULT)
        self.send("cut")
        self.page.wait(f"{FAULT} !== '' && !({BUSY})", "the cut stream is noticed")
        self.expected_errors += 1
        assert self.page.run(ANSWER) == "so far"
        assert "connection broke" in self.page.run(FAULT), self.page.run(FAULT)
        fine = self.ask("say fine")
        assert fine == "fine" and self.page.run(FAULT) == "", f"the next answer clears the error: {fine}"

    def step_scripted_copy(self):
        self.page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.page.press("Tab")
        for _ in range(60):
            if self.page.run("document.activeElement.matches('#log article:last-child button')"):
                break
            self.page.press("Tab")
        self.page.press("Enter")
        self.page.wait("document.getElementById('status').textContent === 'Copied'", "the answer is copied")
        assert self.page.run("navigator.clipboard.readText()") == "fine"

    def step_scripted_chart_values(self):
        self.page.wait("document.getElementById('kv-value').textContent === '37.5%'", "the KV use", 5)
        self.page.wait("document.getElementById('load-value').textContent === '0 running, 2 waiting'", "the requests", 5)

    def step_scripted_key(self):
        """A server with a key: the page asks for it, sends it, and keeps it nowhere."""
        self.check_quiet()
        locked = scripted_server.Server(key="sesame-1").start()
        url, self.url = self.url, locked.url
        self.page.events.clear()
        self.expected_errors = 1
        self.page.open(locked.url)
        self.page.wait(f"{FAULT}.includes('API key')", "the page says that a key is needed")
        self.fill("key", "sesame-1")
        self.page.press("Tab")
        self.page.wait("document.getElementById('model').value === 'scripted'", "the models, with the key")
        assert self.page.run(FAULT) == ""
        assert self.ask("say open") == "open"
        assert locked.requests[-1]["authorization"] == "Bearer sesame-1"
        kept = self.page.run("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
        assert "sesame" not in kept, kept
        self.check_quiet()
        locked.shutdown()
        self.url = url

    def step_quiet(self):
        if self.server is None:  # else the step before has looked
            self.check_quiet()

    pictures = None

    def picture(self, name):
        if self.pictures:
            self.page.save_picture(self.pictures / f"{name}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--pictures", type=pathlib.Path)
    arguments = parser.parse_args()
    program = chromium.find()
    if program is None:
        print("playground: skipped, since there is no Chromium (Debian's package: chromium)")
        return 77
    server = None if arguments.url else scripted_server.Server().start()
    with chromium.Browser(program) as browser:
        test = Test(browser, arguments.url or server.url, server)
        test.pictures = arguments.pictures
        steps = [name for name in vars(Test) if name.startswith("step_") and (server or not name.startswith("step_scripted"))]
        for name in steps:
            begin = time.monotonic()
            try:
                getattr(test, name)()
            except (AssertionError, RuntimeError) as failure:
                test.picture("failure")
                line = next(f.lineno for f in reversed(traceback.extract_tb(failure.__traceback__)) if f.filename == __file__)
                print(f"FAIL {name}, line {line}: {failure}\nthe page says: {browser.run(FAULT)!r}")
                return 1
            print(f"ok   {name[5:]} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
