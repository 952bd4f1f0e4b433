#!/usr/bin/env python3
"""Bolide beside torch.compile with CUDA graphs on one GPU: time of a run, taking turns, and what f16 does to outputs.

usage: bench/peers/networks_beside_torch.py BOLIDE [--batch 1,32] [--rounds 5] [--dtype f16] [--only resnet-50,...] > FILE

The networks are `bolide zoo`'s ResNet-50, BERT-base (128 tokens) and ViT-B/16; PyTorch runs the same architectures
(torchvision, transformers) with random weights of its own, since time does not depend on them: half precision,
torch.compile(mode="reduce-overhead"), channels last for the convolutions. Both times are of the GPU alone, inputs and
outputs on it. The ratio is PyTorch's time over Bolide's (above 1: Bolide is faster), the median of rounds that alternate
which goes first. Outputs of `--dtype` are compared with Bolide's own in f32 on the same inputs: largest difference over
the largest value. JSON on standard output, a table on standard error. Needs numpy, torch, torchvision and transformers.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

NETWORKS = {"resnet-50": ["--dim", "batch={n}"], "bert-base": ["--dim", "batch={n}", "--dim", "sequence=128"],
            "vit-b-16": ["--dim", "batch={n}"]}
WARM, RUNS = 12, 100


def peer(name, batch):
    """The network in PyTorch, and its inputs."""
    if name == "bert-base":
        import transformers
        config = transformers.BertConfig(attn_implementation="sdpa")
        net = transformers.BertModel(config, add_pooling_layer=True)
        ids = torch.randint(0, config.vocab_size, (batch, 128))
        values = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        return net.half().cuda().eval(), {k: v.cuda() for k, v in values.items()}
    import torchvision
    net = torchvision.models.resnet50() if name == "resnet-50" else torchvision.models.vit_b_16()
    pixels = torch.randn(batch, 3, 224, 224).half().cuda()
    net = net.half().cuda().eval()
    if name == "resnet-50":
        net, pixels = net.to(memory_format=torch.channels_last), pixels.to(memory_format=torch.channels_last)
    return net, {"x": pixels}


class Peer:
    def __init__(self, name, batch):
        torch._dynamo.reset()
        self.net, self.inputs = peer(name, batch)
        self.run = torch.compile(self.net, mode="reduce-overhead")

    @torch.inference_mode()
    def milliseconds(self):
        for _ in range(WARM):
            self.run(**self.inputs)
        times = []
        for _ in range(RUNS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            self.run(**self.inputs)
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)


def call(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def difference(bolide, file, dtype, dims, folder, random):
    """Largest relative difference over all outputs, of `dtype` from f32."""
    listed = json.loads(call(bolide, "bench", file, "--device", "cuda", "--repeat", 1, *dims, "--json"))["inputs"]
    words = []
    for name, text in listed.items():
        dtype_name, shape = text.split("[")
        shape = [int(n) for n in shape.rstrip("]").split(",")]
        values = random.standard_normal(shape).astype(np.float32) if dtype_name == "f32" else \
            (np.ones(shape) if "mask" in name else random.integers(0, 2 if "type" in name else 1000, shape)).astype(np.int64)
        np.save(folder / f"{name}.npy", values)
        words += ["--input", f"{name}={folder / name}.npy"]
    outputs = []
    for kind in (dtype, "f32"):
        call(bolide, "run", file, "--device", "cuda", "--dtype", kind, *words, "--output", folder / f"{kind}.npz")
        outputs.append(np.load(folder / f"{kind}.npz"))
    return max(float(np.abs(outputs[0][k] - outputs[1][k]).max() / np.abs(outputs[1][k]).max()) for k in outputs[1].files)


def measure(bolide, name, batch, arguments, folder):
    file = folder / f"{name}.onnx"
    if not file.exists():
        call(bolide, "zoo", name, "-o", file)
    dims = [word.format(n=batch) for word in NETWORKS[name]]
    row = {"network": name, "batch": batch, "dtype": arguments.dtype}
    row["difference_from_f32"] = difference(bolide, file, arguments.dtype, dims, folder, np.random.default_rng())
    for kind in ("f32", arguments.dtype):
        bench = json.loads(call(bolide, "bench", file, "--device", "cuda", "--dtype", kind, "--repeat", 20, *dims, "--json"))
        row[f"bolide_ms_{kind}"] = bench["gpu"]["device_ms"]["median"]
        row[f"memory_{kind}"] = {k: bench["gpu"][k] for k in ("constant_bytes", "activation_bytes")}
    torch_side, mine, theirs, ratios = Peer(name, batch), [], [], []

    def ours():
        bench = json.loads(call(bolide, "bench", file, "--device", "cuda", "--dtype", arguments.dtype, "--repeat", RUNS, *dims, "--json"))
        mine.append(bench["gpu"]["device_ms"]["median"])

    for i in range(arguments.rounds):
        turns = [ours, lambda: theirs.append(torch_side.milliseconds())]
        for turn in turns if i % 2 == 0 else reversed(turns):
            turn()
        ratios.append(theirs[-1] / mine[-1])
    row |= {"bolide_ms": mine, "torch_ms": theirs, "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
            "bolide_items_per_s": batch * 1000 / statistics.median(mine), "torch_items_per_s": batch * 1000 / statistics.median(theirs)}
    print(f"{name:10} batch {batch:3}: {statistics.median(mine):.3f} ms, PyTorch {statistics.median(theirs):.3f} ms, ratio "
          f"{row['ratio']['median']:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {arguments.dtype} differs by "
          f"{row['difference_from_f32']:.1e}", file=sys.stderr, flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bolide")
    parser.add_argument("--batch", default="1,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="f16")
    parser.add_argument("--only", default=",".join(NETWORKS))
    arguments = parser.parse_args()
    result = {"command": sys.argv[1:], "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
              "driver": call("nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem", "--format=csv,noheader").strip(),
              "bolide": call(arguments.bolide, "--version").strip(), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(","):
            for batch in map(int, arguments.batch.split(",")):
                result["rows"].append(measure(arguments.bolide, name, batch, arguments, Path(folder)))
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
