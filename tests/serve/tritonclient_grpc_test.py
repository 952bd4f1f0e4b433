#!/usr/bin/env python3
"""Drives `bolide serve --grpc-port` through Triton's own client, and looks at it through gRPC's reflection and health.

usage: tritonclient_grpc_test.py BOLIDE
Needs numpy and tritonclient[grpc] (PyPI) of this Python, or of the one that BOLIDE_CLIENT_PYTHON names; with PyPI's
grpcio-reflection and grpcio-health-checking more is looked at. Exit code 77 (skipped) without them, or without gRPC.
"""
import asyncio
import pathlib
import queue
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import bolide_serve
from bolide_serve import PATIENCE_S, raises

triton = bolide_serve.import_client("tritonclient.grpc")
import grpc
import numpy
import tritonclient.grpc.aio
from tritonclient.utils import InferenceServerException

from tritonclient_test import TYPES, identities, some

KEY = {"authorization": f"Bearer {bolide_serve.KEY}"}
TOKENS = 24


def text_input(text):
    tensor = triton.InferInput("text_input", [1], "BYTES")
    tensor.set_data_from_numpy(numpy.array([text.encode()], dtype=object))
    return [tensor]


def refused(call, code, *words):
    error = raises(InferenceServerException, call)
    assert code in str(error.status()), error
    for word in words:
        assert word in str(error), f"{error} does not say {word!r}"


class Test:
    """The steps are the methods whose names begin with `step_`, in order."""

    def __init__(self, server, address):
        self.server, self.address = server, address
        self.seed = time.time_ns()
        print(f"seed {self.seed}")
        self.client = triton.InferenceServerClient(address)

    def step_what_the_server_tells(self):
        client = self.client
        assert client.is_server_live() and client.is_server_ready()
        assert client.get_server_metadata(headers=KEY).name == "bolide"
        metadata = client.get_model_metadata("identities", headers=KEY)
        assert [i.datatype for i in metadata.inputs] == [t[0] for t in TYPES], metadata
        assert client.get_model_metadata("small", "1", headers=KEY, as_json=True)["platform"].startswith("bolide_")
        assert client.get_model_config("small", headers=KEY).config.model_transaction_policy.decoupled
        assert not client.get_model_config("identities", headers=KEY).config.model_transaction_policy.decoupled
        index = {m.name: m.state for m in client.get_model_repository_index(headers=KEY).models}
        assert index == {"identities": "READY", "small": "READY"}, index
        refused(lambda: client.get_server_metadata(), "UNAUTHENTICATED", "needs an API key")
        refused(lambda: client.get_model_metadata("nothing", headers=KEY), "NOT_FOUND", "there is no model nothing")
        refused(lambda: client.get_system_shared_memory_status(headers=KEY), "UNIMPLEMENTED", "no shared memory")
        refused(lambda: client.get_log_settings(headers=KEY), "UNIMPLEMENTED", "LogSettings")

    def step_tensors_of_every_type(self):
        rng = random.Random(self.seed)
        for rows in (1, 0, 7, 20000):
            sent, inputs = {}, []
            for name, _, dtype in TYPES:
                sent[name] = some(name, dtype, rows, rng)
                tensor = triton.InferInput(f"in_{name}", [rows, 2], name)
                inputs.append(tensor.set_data_from_numpy(sent[name]))
            result = self.client.infer("identities", inputs, request_id="r1", headers=KEY)
            assert result.get_response().id == "r1"
            for name, _, _ in TYPES:
                got = result.as_numpy(f"out_{name}")
                assert got.shape == (rows, 2) and (got == sent[name]).all(), f"{name}: {got} for {sent[name]}"
        one = triton.InferRequestedOutput("out_INT8")
        assert [o.name for o in self.client.infer("identities", inputs, outputs=[one], headers=KEY).get_response().outputs] == ["out_INT8"]
        wrong = triton.InferInput("in_FP32", [1, 3], "FP32").set_data_from_numpy(numpy.zeros([1, 3], "f4"))
        refused(lambda: self.client.infer("identities", [wrong], headers=KEY), "INVALID_ARGUMENT", "in_FP32", "FP32[1,3]", "FP32[-1,2]")

    def step_text_is_what_rest_gives(self):
        wishes = {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        whole = self.client.infer("small", text_input("Once upon"), parameters=wishes, headers=KEY)
        self.text = whole.as_numpy("text_output")[0].decode()
        pieces = self.stream("Once upon", wishes)
        assert "".join(pieces) == self.text, (pieces, self.text)
        assert len(pieces) > 2, pieces
        async_answer = queue.Queue()
        self.client.async_infer("small", text_input("Once upon"), lambda result, error: async_answer.put((result, error)),
                                parameters=wishes, headers=KEY)
        result, error = async_answer.get(timeout=PATIENCE_S)
        assert error is None and result.as_numpy("text_output")[0].decode() == self.text

    def stream(self, text, wishes, empty_final=True):
        """The pieces of an answer."""
        answers = queue.Queue()
        with triton.InferenceServerClient(self.address) as client:
            client.start_stream(lambda result, error: answers.put((result, error)), headers=KEY)
            client.async_stream_infer("small", text_input(text), request_id="s", parameters=wishes,
                                      enable_empty_final_response=empty_final)
            pieces = []
            while True:
                result, error = answers.get(timeout=PATIENCE_S)
                if error is not None:
                    raise error
                response = result.get_response()
                assert response.id == "s", response
                if response.outputs:
                    pieces.append(result.as_numpy("text_output")[0].decode())
                if response.parameters["triton_final_response"].bool_param:
                    assert bool(response.outputs) != empty_final, response
                    assert response.parameters["finish_reason"].string_param == "length", response
                    break
            client.stop_stream()
        return pieces

    def step_the_last_response_may_have_text(self):
        assert "".join(self.stream("Once upon", {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}, False)) == self.text

    def step_an_error_of_a_stream_is_an_error_of_the_client(self):
        error = raises(InferenceServerException, lambda: self.stream("a", {"best_of": 3}))
        assert "best_of: this server does not have it" in str(error), error

    def step_streams_of_asyncio(self):
        async def run():
            async with tritonclient.grpc.aio.InferenceServerClient(self.address) as client:
                async def requests():
                    for i in range(10):
                        yield {"model_name": "small", "inputs": text_input("Once upon"), "request_id": str(i),
                               "parameters": {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}}
                texts, finals = {}, 0
                async for result, error in client.stream_infer(requests(), headers=KEY):
                    assert error is None, error
                    response = result.get_response()
                    texts[response.id] = texts.get(response.id, "") + result.as_numpy("text_output")[0].decode()
                    finals += response.parameters["triton_final_response"].bool_param
                assert finals == 10 and texts == {str(i): self.text for i in range(10)}, texts
        asyncio.run(asyncio.wait_for(run(), PATIENCE_S))

    def step_who_leaves_or_waits_no_longer_is_not_computed_for(self):
        with triton.InferenceServerClient(self.address) as client:
            answers = queue.Queue()
            client.start_stream(lambda result, error: answers.put((result, error)), headers=KEY)
            client.async_stream_infer("small", text_input("Once"), parameters={"max_tokens": 30000, "ignore_eos": True})
            assert answers.get(timeout=PATIENCE_S)[1] is None
            client.stop_stream(cancel_requests=True)
        self.server.wait_idle(bolide_serve.KEY)
        refused(lambda: self.client.infer("small", text_input("Once"), parameters={"max_tokens": 30000, "ignore_eos": True},
                                          headers=KEY, client_timeout=0.5), "DEADLINE_EXCEEDED")
        self.server.wait_idle(bolide_serve.KEY)

    def step_what_is_compressed_is_refused(self):
        error = raises(InferenceServerException, lambda: self.client.infer(
            "small", text_input("a"), headers=KEY, compression_algorithm="gzip"))
        assert "UNIMPLEMENTED" in str(error.status()), error

    def step_the_repository(self):
        client = self.client
        client.unload_model("identities", headers=KEY)
        assert not client.is_model_ready("identities", headers=KEY)
        assert client.is_server_ready(), "what is not wanted is not missed"
        refused(lambda: client.get_model_metadata("identities", headers=KEY), "UNAVAILABLE", "identities is UNAVAILABLE: unloaded")
        client.load_model("identities", headers=KEY)
        assert client.is_model_ready("identities", headers=KEY)
        refused(lambda: client.load_model("identities", config="{}", headers=KEY), "UNIMPLEMENTED", "parameters.config")
        stats = client.get_inference_statistics("small", headers=KEY).model_stats[0]
        assert stats.inference_stats.success.count >= 14 and stats.inference_stats.fail.count >= 2, stats

    def step_reflection_and_health(self):
        try:
            from grpc_health.v1 import health_pb2, health_pb2_grpc
            from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
        except ImportError as absent:
            return print(f"     left out: {absent}")
        with grpc.insecure_channel(self.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
            error = raises(grpc.RpcError, lambda: health.Check(health_pb2.HealthCheckRequest(service="nothing")))
            assert error.code() == grpc.StatusCode.NOT_FOUND, error

            class WithKey(grpc.StreamStreamClientInterceptor):
                def intercept_stream_stream(self, continuation, details, requests):
                    return continuation(details._replace(metadata=tuple(KEY.items())), requests)

            database = ProtoReflectionDescriptorDatabase(grpc.intercept_channel(channel, WithKey()))
            assert "inference.GRPCInferenceService" in database.get_services(), database.get_services()
            described = database.FindFileContainingSymbol("inference.ModelInferRequest")
            assert "ModelInferResponse" in [m.name for m in described.message_type]

    def step_the_end(self):
        """What runs when the server is asked to end is answered, and its health says that it ends."""
        pieces, failed = [], []
        begun = threading.Event()
        with triton.InferenceServerClient(self.address) as client:
            done = threading.Event()

            def take(result, error):
                (failed if error else pieces).append(error or result)
                begun.set()
                if error or result.get_response().parameters["triton_final_response"].bool_param:
                    done.set()

            client.start_stream(take, headers=KEY)
            client.async_stream_infer("small", text_input("Once"), parameters={"max_tokens": 1000, "ignore_eos": True})
            assert begun.wait(PATIENCE_S)
            self.server.process.send_signal(signal.SIGTERM)
            assert done.wait(PATIENCE_S) and not failed, failed
            client.stop_stream()
        assert self.server.process.wait(PATIENCE_S) == 0, self.server.said()


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        keys, model = pathlib.Path(folder) / "keys", pathlib.Path(folder) / "identities.onnx"
        keys.write_text(f"test {bolide_serve.KEY}\n")
        model.write_bytes(identities())
        words = [sys.argv[1], "serve", model, f"small={bolide_serve.MODELS / 'qwen2'}", "--port", "0", "--grpc-port", "0"]
        if subprocess.run([*words, "--grpc-host", "0.0.0.0"], capture_output=True, text=True).stderr.find("built without gRPC") >= 0:
            print("skipped: this program was built without gRPC")
            return 77
        with bolide_serve.Serve(*words, "--device", "cpu", "--threads", "1", "--deterministic", "--context", "32768", "--cache-tokens",
                                "65536", "--onnx-sessions", "2", "--api-key-file", keys) as server:
            found = None
            while not found:
                found = re.search(r"over gRPC on (127\.0\.0\.1:\d+)", server.said())
                assert server.process.poll() is None, server.said()
            return bolide_serve.run_steps(Test(server, found[1]))


if __name__ == "__main__":
    sys.exit(main())
