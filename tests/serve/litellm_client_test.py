#!/usr/bin/env python3
"""Drives `bolide serve` through LiteLLM, as many programs do (Python 3, standard library and PyPI's `litellm`).

usage: litellm_client_test.py BOLIDE
BOLIDE: the program. The client is that of this Python, or of the one that BOLIDE_CLIENT_PYTHON names.
Exit code 77 (skipped) if there is none.
"""
import asyncio
import os
import random
import sys
import threading

import bolide_serve
from bolide_serve import KEY, raises, serve

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask the internet when it is imported
litellm = bolide_serve.import_client("litellm")
litellm.telemetry = False
litellm.suppress_debug_info = True

ASK = [{"role": "user", "content": "Name three colours."}]
TOKENS = 24
FOREVER = 30000  # tokens: no test waits for so many
RETRIES = 60     # a second each, as the server asks: more than any test takes


class Test:
    """The steps are the methods whose names begin with `step_`, in order; each provider of LiteLLM's is one way here."""

    PROVIDERS = ("openai", "hosted_vllm")

    def __init__(self, server):
        self.server = server
        self.seed = random.getrandbits(31)
        print(f"seed {self.seed}")

    def fields(self, more):
        return {"api_base": self.server.url + "/v1", "api_key": KEY, "max_tokens": TOKENS, "seed": self.seed, "max_retries": 0,
                "timeout": bolide_serve.PATIENCE_S, "extra_body": {"ignore_eos": True}, **more}

    def chat(self, provider="openai", call=litellm.completion, **more):
        return call(model=f"{provider}/small", messages=ASK, **self.fields(more))

    def complete(self, **more):
        return litellm.text_completion(model="text-completion-openai/small", prompt="Once upon a time", **self.fields(more))

    @staticmethod
    def content(whole):
        return whole.choices[0].message.content

    @staticmethod
    def parts(stream):
        text, reasons, usage = "", [], None
        for chunk in stream:
            usage = getattr(chunk, "usage", None) or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reasons += [choice.finish_reason] if choice.finish_reason else []
        return text, reasons, usage

    def step_chat(self):
        for provider in self.PROVIDERS:
            whole = self.chat(provider)
            assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == TOKENS, whole
            text, reasons, usage = self.parts(self.chat(provider, stream=True, stream_options={"include_usage": True}))
            assert text == self.content(whole) and reasons == ["length"], (text, reasons, whole)
            assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, TOKENS), usage

    def step_completion(self):
        whole = self.complete()
        assert whole.usage.completion_tokens == TOKENS and whole.choices[0].finish_reason == "length", whole
        text = "".join(chunk.choices[0].text or "" for chunk in self.complete(stream=True) if chunk.choices)
        assert text == whole.choices[0].text, (text, whole)

    def step_fields(self):
        assert self.content(self.chat()) == self.content(self.chat()) != self.content(self.chat(seed=self.seed + 1)), "seeds"
        several = self.chat(n=3)
        assert [choice.index for choice in several.choices] == [0, 1, 2], several
        tokens = self.chat(logprobs=True, top_logprobs=2, temperature=0).choices[0].logprobs.content
        assert len(tokens) == TOKENS and all(len(token.top_logprobs) == 2 for token in tokens), tokens
        text = self.content(self.chat(temperature=0))
        stop = next(text[i:i + 2] for i in range(len(text) // 3, len(text)) if "\ufffd" not in text[i:i + 2])
        cut = self.chat(temperature=0, stop=[stop])
        assert (self.content(cut) or "") == text[:text.index(stop)] and cut.choices[0].finish_reason == "stop", (text, stop, cut)

    def step_refusals(self):
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
        for provider in self.PROVIDERS:
            for kind, word, more in ((litellm.BadRequestError, "template of small knows none", {"tools": [tool]}),
                                     (litellm.BadRequestError, "frobnicate", {"extra_body": {"frobnicate": 1}}),
                                     (litellm.AuthenticationError, "API key", {"api_key": "sesame"})):
                error = raises(kind, lambda: self.chat(provider, **more))
                assert word in str(error), (provider, error)
            error = raises(litellm.NotFoundError,
                           lambda: litellm.completion(model=f"{provider}/large", messages=ASK, **self.fields({})))
            assert "small" in str(error), error

    def step_abort(self):
        for provider in self.PROVIDERS:
            stream = self.chat(provider, stream=True, max_tokens=FOREVER)
            next(iter(stream))
            self.server.wait(lambda now: now["bolide_num_requests_running"] == 1, "one runs", KEY)
            stream.completion_stream.close()
            self.server.wait_idle(KEY)
        raises(litellm.Timeout, lambda: self.chat(max_tokens=FOREVER, timeout=0.5))
        self.server.wait_idle(KEY)

    def step_many_at_once(self):
        alone = {seed: self.content(self.chat(seed=seed)) for seed in range(4)}

        async def ask_all():
            return await asyncio.gather(*[self.chat(call=litellm.acompletion, seed=i % 4) for i in range(24)])
        for i, whole in enumerate(asyncio.run(ask_all())):
            assert self.content(whole) == alone[i % 4], (i, whole, alone)

    def step_queue_full(self):
        """With one running and one waiting the next is refused; a client that tries again gets its answer."""
        with serve("--max-sequences", "1", "--queue-requests", "1") as server:
            self.server, main = server, self.server
            streams = []
            for running, waiting in ((1, 0), (1, 1)):
                streams.append(self.chat(stream=True, max_tokens=FOREVER))
                server.wait(lambda now: (now["bolide_num_requests_running"], now["bolide_num_requests_waiting"]) == (running, waiting),
                            f"{running} running, {waiting} waiting", KEY)
            raises(litellm.RateLimitError, self.chat)
            answers = []
            asking = threading.Thread(target=lambda: answers.append(self.chat(max_retries=RETRIES)), daemon=True)
            asking.start()
            server.wait(lambda now: now.get('bolide_requests_total{finished_reason="error",model_name="small"}', 0) >= 2,
                        "the patient client is refused, too", KEY)
            for stream in streams:
                stream.completion_stream.close()
            asking.join(bolide_serve.PATIENCE_S)
            assert answers and answers[0].usage.completion_tokens == TOKENS, answers
            self.server = main


if __name__ == "__main__":
    sys.exit(bolide_serve.main(__doc__, Test))
