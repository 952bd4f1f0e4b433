#!/usr/bin/env python3
"""Asks a real server by Triton's own client: tensors of every type, what models tell of themselves, the repository.

usage: tritonclient_test.py BOLIDE [LANGUAGE_MODEL]
Needs numpy and tritonclient[http] (PyPI), and for newer clients ml_dtypes. Exit code 77 (skipped) if they are not there.
"""
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

try:
    import numpy
    import tritonclient.http as triton
    from tritonclient.utils import InferenceServerException
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
try:
    from ml_dtypes import bfloat16  # what newer clients take BF16 as
except ImportError:
    bfloat16 = "f4"

# KServe's name, that of onnx.proto, that of numpy.
TYPES = [("FP32", 1, "f4"), ("UINT8", 2, "u1"), ("INT8", 3, "i1"), ("UINT16", 4, "u2"), ("INT16", 5, "i2"),
         ("INT32", 6, "i4"), ("INT64", 7, "i8"), ("BYTES", 8, "O"), ("BOOL", 9, "?"), ("FP16", 10, "f2"),
         ("FP64", 11, "f8"), ("UINT32", 12, "u4"), ("UINT64", 13, "u8"), ("BF16", 16, bfloat16)]
RAW_ALONE = ("FP16", "BF16")


# Protobuf's wire format, as much as a model without weights needs.
def varint(value):
    out = b""
    while value >= 128:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def integer(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def port(name, element):
    shape = message(1, message(2, "N")) + message(1, integer(1, 2))  # [N, 2]
    return message(1, name) + message(2, message(1, integer(1, element) + message(2, shape)))


def identities():
    """A model that gives back a tensor of each type."""
    graph = message(2, "identities")
    for name, element, _ in TYPES:
        graph += message(1, message(1, f"in_{name}") + message(2, f"out_{name}") + message(4, "Identity"))
        graph += message(11, port(f"in_{name}", element)) + message(12, port(f"out_{name}", element))
    return integer(1, 9) + message(7, graph) + message(8, message(1, "") + integer(2, 19))


def some(name, dtype, rows, rng):
    """[rows, 2]"""
    def one():
        if name == "BYTES":
            return bytes(rng.randint(32, 126) for _ in range(rng.randint(0, 20)))
        if name == "BOOL":
            return rng.random() < 0.5
        if name.startswith(("FP", "BF")):  # a bf16 holds these, too
            return rng.randint(-99, 99) / 4
        limits = numpy.iinfo(dtype)
        return rng.randint(int(limits.min), int(limits.max))
    return numpy.array([one() for _ in range(rows * 2)], dtype=dtype).reshape(rows, 2)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def refused(call, *words):
    try:
        call()
    except InferenceServerException as error:
        for word in words:
            check(word in str(error), f"{error} does not say {word!r}")
    else:
        raise AssertionError(f"nothing is wrong where {words} was expected")


def ask(client, rows, rng, raw):
    """One request with all types, or those that JSON has; what comes back is what was sent."""
    types = [t for t in TYPES if raw or t[0] not in RAW_ALONE]
    sent, inputs, outputs = {}, [], []
    for name, _, dtype in TYPES:
        sent[name] = some(name, dtype, rows, rng)
        tensor = triton.InferInput(f"in_{name}", [rows, 2], name)
        tensor.set_data_from_numpy(sent[name], binary_data=raw or name in RAW_ALONE)
        inputs.append(tensor)
    for name, _, _ in types:
        outputs.append(triton.InferRequestedOutput(f"out_{name}", binary_data=raw))
    result = client.infer("identities", inputs, outputs=outputs, request_id="r1")
    check(result.get_response()["id"] == "r1", "id")
    for name, _, _ in types:
        got = result.as_numpy(f"out_{name}")
        if name == "BYTES":  # as JSON has them they are texts
            got = numpy.array([x if isinstance(x, bytes) else x.encode() for x in got.flatten()], dtype=object)
            check(list(got) == list(sent[name].flatten()), name)
        else:
            check(got.shape == (rows, 2) and (got == sent[name]).all(), f"{name}: {got} for {sent[name]}")


def check_network(client, url, rng):
    check(client.is_server_live() and client.is_server_ready(), "live and ready")
    check("binary_tensor_data" in client.get_server_metadata()["extensions"], "extensions")
    metadata = client.get_model_metadata("identities")
    check([i["datatype"] for i in metadata["inputs"]] == [t[0] for t in TYPES], metadata)
    check(metadata["inputs"][0]["shape"] == [-1, 2], metadata)
    check(client.get_model_config("identities")["max_batch_size"] == 0, "config")
    for rows in (1, 0, 7, 20000):
        ask(client, rows, rng, raw=True)
        if 0 < rows < 100:
            ask(client, rows, rng, raw=False)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        def many(seed):
            with triton.InferenceServerClient(url) as own:
                for i in range(10):
                    ask(own, i + 1, random.Random(seed), raw=True)
        list(threads.map(many, [rng.random() for _ in range(4)]))
    wrong = triton.InferInput("in_FP32", [1, 3], "FP32")
    wrong.set_data_from_numpy(numpy.zeros([1, 3], "f4"))
    refused(lambda: client.infer("identities", [wrong]), "in_FP32", "FP32[1,3]", "FP32[-1,2]")
    refused(lambda: client.infer("nothing", [wrong]), "there is no model nothing")
    stats = client.get_inference_statistics("identities")["model_stats"][0]
    check(stats["inference_stats"]["success"]["count"] >= 45, stats)


def check_repository(client):
    check({m["name"]: m["state"] for m in client.get_model_repository_index()}["identities"] == "READY", "index")
    client.unload_model("identities")
    check(not client.is_model_ready("identities"), "unloaded")
    check(client.is_server_ready(), "what is not wanted is not missed")
    refused(lambda: client.get_model_metadata("identities"), "identities is UNAVAILABLE: unloaded")
    client.load_model("identities")
    check(client.is_model_ready("identities"), "loaded")
    refused(lambda: client.load_model("identities", config="{}"), "parameters.config")
    refused(lambda: client.load_model("nothing"), "nothing")


def check_language_model(client, url):
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(numpy.array([b"Hello"], dtype=object))
    output = client.infer("text", [text], parameters={"max_tokens": 5, "temperature": 0}).as_numpy("text_output")[0]
    body = json.dumps({"text_input": "Hello", "max_tokens": 5, "temperature": 0}).encode()
    whole = json.load(urllib.request.urlopen(f"http://{url}/v2/models/text/generate", body))
    check(whole["text_output"].encode() == output, (whole, output))
    events = urllib.request.urlopen(f"http://{url}/v2/models/text/generate_stream", body).read().decode().split("\n\n")
    check(events.pop() == "", events)
    pieces = [json.loads(event.removeprefix("data: "))["text_output"] for event in events]
    check("".join(pieces) == whole["text_output"], (pieces, whole))
    client.unload_model("text")
    client.load_model("text")
    check(client.is_model_ready("text"), "loaded again")


def main():
    bolide = sys.argv[1]
    golden = pathlib.Path(__file__).resolve().parents[1] / "golden" / "models" / "qwen2"
    language_model = sys.argv[2] if len(sys.argv) > 2 else str(golden)
    seed = time.time_ns()
    print("seed", seed)
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "identities.onnx"
        model.write_bytes(identities())
        words = [bolide, "serve", str(model), f"text={language_model}", "--port", "0", "--threads", "1",
                 "--onnx-sessions", "2", "--context", "160", "--device", "cpu"]
        log = pathlib.Path(folder) / "log"
        with open(log, "w") as errors, subprocess.Popen(words, stderr=errors) as server:
            try:
                while not (found := re.search(r"serving on http://([\d.]+:\d+)", log.read_text())):
                    check(server.poll() is None, log.read_text())
                    time.sleep(0.05)
                url = found[1]
                with triton.InferenceServerClient(url) as client:
                    check_network(client, url, random.Random(seed))
                    check_repository(client)
                    check_language_model(client, url)
                server.terminate()
                check(server.wait(60) == 0, f"it ended with {server.returncode}: {log.read_text()[-2000:]}")
            finally:
                server.kill()
    print("ok")


if __name__ == "__main__":
    main()
