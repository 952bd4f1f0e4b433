#!/usr/bin/env python3
"""Drives `bolide serve` with OpenAI's own client (Python 3, standard library and PyPI's `openai`).

usage: openai_client_test.py BOLIDE
BOLIDE: the program. The client is that of this Python, or of the one that BOLIDE_CLIENT_PYTHON names.
Exit code 77 (skipped) if there is none.
"""
import asyncio
import json
import random
import sys
import threading
import time

import bolide_serve
from bolide_serve import KEY, raises, serve

openai = bolide_serve.import_client("openai")

ASK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name three colours."}]
TOKENS = 24
FULL = {"ignore_eos": True}  # the whole of max_tokens, whatever the model draws
FOREVER = 30000              # tokens: no test waits for so many
RETRIES = 60                 # a second each, as the server asks: more than any test takes


class Test:
    """The steps are the methods whose names begin with `step_`, in order."""

    def __init__(self, server):
        self.server = server
        self.client = self.client_of(server)
        self.seed = random.getrandbits(31)
        print(f"seed {self.seed}")

    @staticmethod
    def client_of(server, key=KEY, retries=0, kind=None):
        return (kind or openai.OpenAI)(base_url=server.url + "/v1", api_key=key, max_retries=retries, timeout=bolide_serve.PATIENCE_S)

    def chat(self, client=None, **more):
        fields = {"model": "small", "messages": ASK, "max_completion_tokens": TOKENS, "seed": self.seed, "extra_body": FULL, **more}
        return (client or self.client).chat.completions.create(**fields)

    def complete(self, client=None, **more):
        fields = {"model": "small", "prompt": "Once upon a time", "max_tokens": TOKENS, "seed": self.seed, "extra_body": FULL, **more}
        return (client or self.client).completions.create(**fields)

    @staticmethod
    def parts(stream, text_of):
        """Of a stream: texts and reasons by choice, and the usage that came last."""
        texts, reasons, usage = {}, {}, None
        for chunk in stream:
            assert usage is None, f"after the usage came {chunk}"
            usage = chunk.usage
            assert (usage is None) == (len(chunk.choices) > 0), chunk
            for choice in chunk.choices:
                assert choice.index not in reasons, f"after its end came {choice}"
                texts[choice.index] = texts.get(choice.index, "") + (text_of(choice) or "")
                if choice.finish_reason:
                    reasons[choice.index] = choice.finish_reason
        return texts, reasons, usage

    def streamed_chat(self, **more):
        stream = self.chat(stream=True, stream_options={"include_usage": True}, **more)
        return self.parts(stream, lambda choice: choice.delta.content)

    def streamed_completion(self, **more):
        stream = self.complete(stream=True, stream_options={"include_usage": True}, **more)
        return self.parts(stream, lambda choice: choice.text)

    def is_running(self, count):
        self.server.wait(lambda now: now["bolide_num_requests_running"] == count, f"{count} run", KEY)

    # What is asked, and what comes.

    def step_models(self):
        assert [model.id for model in self.client.models.list()] == ["small"]
        assert self.client.models.retrieve("small").owned_by == "bolide"
        raises(openai.NotFoundError, lambda: self.client.models.retrieve("large"))

    def step_chat(self):
        whole = self.chat()
        choice, = whole.choices
        assert choice.message.role == "assistant" and choice.message.content != "" and choice.finish_reason == "length", whole
        assert whole.model == "small" and whole.object == "chat.completion" and whole.id.startswith("chatcmpl-"), whole
        assert whole.usage.completion_tokens == TOKENS and whole.usage.prompt_tokens > 20, whole.usage
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + TOKENS, whole.usage
        texts, reasons, usage = self.streamed_chat()
        assert texts == {0: choice.message.content} and reasons == {0: "length"}, (texts, reasons, whole)
        assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, TOKENS), usage
        assert usage.prompt_tokens_details.cached_tokens > 0, "the prompt was asked before"
        assert self.parts(self.chat(stream=True), lambda c: c.delta.content)[2] is None, "a usage that nobody wanted"

    def step_completion(self):
        whole = self.complete()
        assert whole.usage.completion_tokens == TOKENS and whole.choices[0].finish_reason == "length", whole
        texts, reasons, usage = self.streamed_completion()
        assert texts == {0: whole.choices[0].text} and reasons == {0: "length"}, (texts, reasons, whole)
        assert usage.total_tokens == whole.usage.total_tokens, (usage, whole)
        assert self.complete(echo=True).choices[0].text == "Once upon a time" + whole.choices[0].text
        both = self.complete(prompt=["Once upon a time", "In the end"])
        assert [choice.index for choice in both.choices] == [0, 1], both
        assert both.usage.completion_tokens == 2 * TOKENS, both.usage

    def step_choices(self):
        for whole, streamed in ((self.chat(n=3), self.streamed_chat(n=3)), (self.complete(n=3), self.streamed_completion(n=3))):
            texts = [getattr(choice, "text", None) or choice.message.content for choice in whole.choices]
            assert [choice.index for choice in whole.choices] == [0, 1, 2] and len(set(texts)) > 1, whole
            assert streamed[0] == dict(enumerate(texts)), (streamed, whole)
            assert whole.usage.completion_tokens == streamed[2].completion_tokens == 3 * TOKENS, whole.usage

    def step_seed(self):
        texts = [self.chat(seed=seed).choices[0].message.content for seed in (1, 2, 1)]
        assert texts[0] == texts[2] != texts[1], texts

    def step_stop(self):
        text = self.complete(temperature=0, max_tokens=100).choices[0].text
        # A piece of whole characters from the middle. What a stop before it would cut is known, too.
        stop = next(text[i:i + 2] for i in range(len(text) // 3, len(text)) if "\ufffd" not in text[i:i + 2])
        before = text[:text.index(stop)]
        for fields in ({"stop": stop}, {"stop": ["never written", stop]}):
            whole = self.complete(temperature=0, max_tokens=100, **fields)
            assert whole.choices[0].text == before and whole.choices[0].finish_reason == "stop", (text, stop, whole)
            texts, reasons, usage = self.streamed_completion(temperature=0, max_tokens=100, **fields)
            assert texts.get(0, "") == before and reasons == {0: "stop"} and usage.completion_tokens < 100, (text, stop, texts, reasons)

    def token(self, text):
        """The one that stands for this text."""
        body = {"model": "small", "prompt": text, "add_special_tokens": False}
        token, = self.client.post(self.server.url + "/tokenize", cast_to=object, body=body)["tokens"]
        return token

    def step_logit_bias(self):
        a, b = self.token("A"), self.token("B")
        for temperature in (0, 1):
            text = self.complete(temperature=temperature, logit_bias={a: 100}).choices[0].text
            assert text == "A" * TOKENS, text
            text = self.complete(temperature=temperature, logit_bias={a: 100, b: 100}).choices[0].text
            assert set(text) <= {"A", "B"} and len(text) == TOKENS, text
            text = self.chat(temperature=temperature, logit_bias={a: -100, b: 100}).choices[0].message.content
            assert text == "B" * TOKENS, text

    def step_min_tokens(self):
        token = self.token("A")
        for least in (0, 5):
            more = {"ignore_eos": True, "stop_token_ids": [token], "min_tokens": least}
            whole = self.complete(logit_bias={token: 100}, extra_body=more)
            assert whole.choices[0].finish_reason == "stop" and whole.usage.completion_tokens == least + 1, whole
        whole = self.complete(logit_bias={token: 100}, stop="AA", extra_body={**FULL, "min_tokens": 5})
        assert whole.choices[0].text == "A" * 5 and whole.choices[0].finish_reason == "stop", whole
        error = raises(openai.BadRequestError, lambda: self.complete(extra_body={"min_tokens": TOKENS + 1}))
        assert error.param == "min_tokens", error

    def step_logprobs(self):
        whole = self.chat(logprobs=True, top_logprobs=3, temperature=0)
        tokens = whole.choices[0].logprobs.content
        assert len(tokens) == TOKENS, len(tokens)
        for token in tokens:
            values = [other.logprob for other in token.top_logprobs]
            assert len(values) == 3 and values == sorted(values, reverse=True) and values[0] <= 0, token
            assert token.bytes == token.top_logprobs[0].bytes and token.logprob == values[0], "without chance the likeliest is drawn"
        assert bytes(b for token in tokens for b in token.bytes).decode(errors="replace") == whole.choices[0].message.content
        streamed = [token for chunk in self.chat(logprobs=True, top_logprobs=3, temperature=0, stream=True)
                    for choice in chunk.choices if choice.logprobs for token in choice.logprobs.content]
        assert [token.bytes for token in streamed] == [token.bytes for token in tokens]
        lists = self.complete(logprobs=2).choices[0].logprobs
        assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.text_offset) == len(lists.top_logprobs) == TOKENS, lists
        assert all(value <= 0 for value in lists.token_logprobs) and lists.text_offset == sorted(lists.text_offset), lists

    def step_prompt_logprobs(self):
        fields = {"echo": True, "logprobs": 2, "temperature": 0, "prompt": "The cat sat on the mat. The cat sat"}
        whole = self.complete(max_tokens=4, logit_bias={self.token("A"): 100}, **fields).choices[0]
        lists = whole.logprobs
        prompt = len(lists.tokens) - 4
        assert prompt > 1 and lists.token_logprobs[0] is None and lists.top_logprobs[0] is None, lists
        assert all(value <= 0 for value in lists.token_logprobs[1:]), lists
        assert len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset) == prompt + 4, lists
        # The same as a prompt: what was drawn is scored as it was drawn, and biases do not show.
        alone = self.complete(max_tokens=0, **{**fields, "prompt": whole.text})
        scored = alone.choices[0]
        assert scored.text == whole.text and scored.finish_reason == "length" and alone.usage.completion_tokens == 0, alone
        pairs = zip(scored.logprobs.tokens, lists.tokens)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), prompt + 4)  # text may be cut into other tokens
        assert same > prompt and scored.logprobs.token_logprobs[:same] == lists.token_logprobs[:same], (scored.logprobs, lists)
        both = self.complete(max_tokens=1, **{**fields, "prompt": [fields["prompt"], "In the end"]})
        assert both.choices[0].logprobs.token_logprobs[:prompt] == lists.token_logprobs[:prompt], both

    # What is refused, and how.

    def step_tools(self):
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
        error = raises(openai.BadRequestError, lambda: self.chat(tools=[tool]))
        assert error.param == "tools" and "template of small knows none" in str(error), error

    def step_unknown_model(self):
        error = raises(openai.NotFoundError, lambda: self.chat(model="large"))
        assert error.code == "model_not_found" and error.param == "model" and "small" in str(error), error

    def step_unsupported(self):
        for field, more in (("frobnicate", {"extra_body": {"frobnicate": 1}}), ("store", {"store": True}),
                            ("temperature", {"temperature": -1})):
            error = raises(openai.BadRequestError, lambda: self.chat(**more))
            assert error.param == field and field in str(error), (field, error)

    def step_wrong_key(self):
        error = raises(openai.AuthenticationError, lambda: self.chat(self.client_of(self.server, "sesame")))
        assert error.code == "invalid_api_key" and KEY not in str(error), error

    def step_context(self):
        error = raises(openai.BadRequestError, lambda: self.complete(prompt="x" * 40000))
        assert error.code == "context_length_exceeded", error

    # Clients that leave, wait or come in numbers.

    def step_abort(self):
        for _ in range(3):
            stream = self.chat(stream=True, max_completion_tokens=FOREVER)
            for _ in range(random.randint(0, 8)):
                next(stream)
            self.is_running(1)
            stream.close()
            self.is_running(0)
        self.server.wait_idle(KEY)

    def step_async_abort(self):
        async def begin_and_leave():
            async with self.client_of(self.server, kind=openai.AsyncOpenAI) as client:
                task = asyncio.create_task(self.chat(client, max_completion_tokens=FOREVER))
                await asyncio.to_thread(self.is_running, 1)
                task.cancel()
                assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError)
        asyncio.run(begin_and_leave())
        self.server.wait_idle(KEY)

    def step_many_at_once(self):
        alone = {seed: self.chat(seed=seed).choices[0].message.content for seed in range(4)}

        async def ask_all():
            async with self.client_of(self.server, kind=openai.AsyncOpenAI) as client:
                return await asyncio.gather(*[self.chat(client, seed=i % 4) for i in range(24)])
        for i, whole in enumerate(asyncio.run(ask_all())):
            assert whole.choices[0].message.content == alone[i % 4], (i, whole, alone)

    def step_queue_full(self):
        """With one running and one waiting the next is refused; a client that tries again gets its answer."""
        with serve("--max-sequences", "1", "--queue-requests", "1") as server:
            self.server, main = server, self.server
            streams = []
            for running, waiting in ((1, 0), (1, 1)):
                streams.append(self.chat(self.client_of(server), stream=True, max_completion_tokens=FOREVER))
                server.wait(lambda now: (now["bolide_num_requests_running"], now["bolide_num_requests_waiting"]) == (running, waiting),
                            f"{running} running, {waiting} waiting", KEY)
            error = raises(openai.RateLimitError, lambda: self.chat(self.client_of(server)))
            assert error.code == "queue_full" and error.response.headers["retry-after"] == "1", error
            answers = []
            patient = self.client_of(server, retries=RETRIES).chat.completions.with_raw_response
            asking = threading.Thread(target=lambda: answers.append(patient.create(
                model="small", messages=ASK, max_completion_tokens=TOKENS, extra_body=FULL)), daemon=True)
            asking.start()
            server.wait(lambda now: now.get('bolide_requests_total{finished_reason="error",model_name="small"}', 0) >= 2,
                        "the patient client is refused, too", KEY)
            for stream in streams:
                stream.close()
            asking.join(bolide_serve.PATIENCE_S)
            assert answers and answers[0].retries_taken >= 1, answers
            assert answers[0].parse().usage.completion_tokens == TOKENS
            self.server = main

    def step_client_timeout(self):
        begin = time.monotonic()
        raises(openai.APITimeoutError, lambda: self.chat(max_completion_tokens=FOREVER, timeout=0.5))
        assert time.monotonic() - begin >= 0.5
        self.server.wait_idle(KEY)

    def step_server_timeout(self):
        """Beyond --request-seconds: an error of its own, which no client tries again."""
        with serve("--request-seconds", "0.3") as server:
            self.server, main = server, self.server
            client = self.client_of(server, retries=RETRIES)
            error = raises(openai.InternalServerError, lambda: self.chat(client, max_completion_tokens=FOREVER))
            assert error.status_code == 504 and error.code == "deadline", error
            failed = server.metrics(KEY)['bolide_requests_total{finished_reason="error",model_name="small"}']
            assert failed == 1, f"{failed} requests where one was to be sent"
            stream = self.chat(client, max_completion_tokens=FOREVER, stream=True)
            error = raises(openai.APIError, lambda: list(stream))
            assert "longer than this server allows" in str(error), error
            self.server = main

    def step_stays_whole(self):
        assert self.server.get("/health/ready")[0] == 200
        assert json.loads(self.server.get("/v1/models", KEY)[1])["data"][0]["id"] == "small"


if __name__ == "__main__":
    sys.exit(bolide_serve.main(__doc__, Test))
