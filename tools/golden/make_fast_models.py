#!/usr/bin/env python3
"""Makes checkpoints that are large enough for the fast kernels, with their goldens: 2 layers of a llama, head sizes 64,
96 and 128, 8 query heads over 2 key-value heads, in every kind of weight that has fast kernels.

usage: make_fast_models.py OUT [--only NAME]           # plain Python: no package is needed
       make_fast_models.py OUT [--only NAME] --golden  # anew from PyTorch into tests/golden/fast_models (README.md)

A checkpoint has 3 to 30 MB, too much to commit; its golden has 0.1 MB. So the goldens are committed and the checkpoints
are made where they are needed: by this script alone, which CI and a GPU machine can run, since it takes nothing but
Python's own library. There is one implementation, so nothing must agree with anything bit by bit but this script with
itself; tests/golden/fast_models/sha256.json holds what each checkpoint must be, and another one is refused.

Weights come from SHAKE-128 over the tensor's name. A random byte picks sign and exponent from the quantiles of a normal
distribution, others give the mantissa; codes of 4 to 8 bits are the random bytes themselves, and scales make up for it.
"""
import argparse
import hashlib
import json
import pathlib
import shutil
import statistics
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDENS = ROOT / "tests/golden/fast_models"
TOKENIZER_BASE = ROOT / "tests/golden/models/qwen2"
VOCAB = 512
LAYERS = 2
EPS = 1e-5
# Head size: hidden size, MLP.
SIZES = {64: (512, 768), 96: (768, 1280), 128: (1024, 1536)}
HEADS, KV_HEADS = 8, 2
GROUP = 128
# Deviation of x W^T for inputs of deviation 1: q and k are larger, so that attention is far from uniform.
GAIN = {"q_proj": 1.7, "k_proj": 1.7, "lm_head": 1.8}
EMBEDDING = 0.3

FP8 = {"format": "float-quantized", "ignore": ["lm_head"], "quant_method": "compressed-tensors", "quantization_status": "compressed"}
DYNAMIC = {"dynamic": True, "num_bits": 8, "strategy": "token", "symmetric": True, "type": "float"}


def fp8(strategy):
    return FP8 | {"config_groups": {"group_0": {"input_activations": DYNAMIC, "targets": ["Linear"], "weights": {
        "dynamic": False, "num_bits": 8, "strategy": strategy, "symmetric": True, "type": "float"}}}}


# Kind: what it is, quantization_config, type of everything else. A GGUF has its types per layer in `gguf_types`.
KINDS = {
    "bf16": ("bfloat16", None, "bfloat16"),
    "fp8-channel": ("fp8, one scale per output channel, inputs rounded per token", fp8("channel"), "bfloat16"),
    "fp8-tensor": ("fp8, one scale per tensor, inputs rounded per token", fp8("tensor"), "bfloat16"),
    "gptq": ("GPTQ, 4 bits, group 128, symmetric", {
        "quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True, "checkpoint_format": "gptq"}, "float16"),
    "awq": ("AWQ gemm, 4 bits, group 128, zero points", {
        "quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}, "float16"),
    "q4_k": ("GGUF: Q4_K, and Q6_K for v, down and the head", None, "float32"),
    "q4_0": ("GGUF: Q4_0 in one layer, Q4_1 in the other, Q6_K head", None, "float32"),
    "q8_0": ("GGUF: Q8_0 in one layer, Q5_K in the other, Q8_0 head", None, "float32"),
}
GGUF_KINDS = {"q4_k", "q4_0", "q8_0"}
ONE_SIZE = {"q4_0": 64, "q8_0": 128}
MODELS = {f"llama-d{d}-{kind}": (d, kind) for d in SIZES for kind in KINDS if ONE_SIZE.get(kind, d) == d}


def gguf_types(kind, layer, part):
    if kind == "q4_k":
        return "Q6_K" if part in ("attn_v", "ffn_down", "output") else "Q4_K"
    if part in ("output", "token_embd"):
        return {"output": {"q4_0": "Q6_K", "q8_0": "Q8_0"}, "token_embd": {"q4_0": "Q4_0", "q8_0": "Q8_0"}}[part][kind]
    return {"q4_0": ("Q4_0", "Q4_1"), "q8_0": ("Q8_0", "Q5_K")}[kind][layer]


class Random:
    """Bytes of one tensor: each call gives others."""

    def __init__(self, name):
        self.name, self.calls = name, 0

    def bytes(self, count):
        self.calls += 1
        return hashlib.shake_128(f"{self.name}/{self.calls}".encode()).digest(count)

    def pick(self, count, values, form, jitter=0):
        """`count` items of 256 values, stored as the `form` of struct; the bits of `jitter` are random on top."""
        size = struct.calcsize(form)
        stored = [struct.pack("<" + form, v) for v in values]
        chosen, out = self.bytes(count), bytearray(count * size)
        for at in range(size):
            out[at::size] = chosen.translate(bytes(s[at] for s in stored))
        if jitter:
            mask = jitter.to_bytes(size, "little")
            noise = bytearray(self.bytes(count * size))
            for at in range(size):
                noise[at::size] = noise[at::size].translate(bytes(b & mask[at] for b in range(256)))
            out = (int.from_bytes(out, "little") ^ int.from_bytes(noise, "little")).to_bytes(count * size, "little")
        return bytes(out)


NORMAL = [statistics.NormalDist().inv_cdf((i + 0.5) / 256) for i in range(256)]
SPREAD = [0.7 + 0.6 * i / 255 for i in range(256)]  # of scales
NORMS = [0.5 + i / 255 for i in range(256)]


def bfloat16(x):
    """The bits of x cut to bfloat16: enough for tables."""
    return struct.unpack("<I", struct.pack("<f", x))[0] >> 16


def floats(random, count, dtype, deviation):
    """Near a normal distribution: sign and exponent of its quantiles, a random mantissa."""
    if dtype == "bfloat16":
        return random.pick(count, [bfloat16(deviation * x) & 0xFF80 for x in NORMAL], "H", 0x007F)
    halves = [struct.unpack("<H", struct.pack("<e", deviation * x))[0] & 0xFC00 for x in NORMAL]
    return random.pick(count, halves, "H", 0x03FF)


def values(random, count, dtype, table):
    if dtype == "bfloat16":
        return random.pick(count, [bfloat16(x) for x in table], "H")
    return random.pick(count, table, {"float16": "e", "float32": "f"}[dtype])


FP8_DEVIATION = 60  # of codes, so that the largest exponent stays below the one that has a NaN


def fp8_codes(random, count):
    """As `floats`: exponents of the quantiles of a normal distribution, and all codes below the smallest normal one."""
    def code(x):
        exponent = min(14, max(0, (struct.unpack("<I", struct.pack("<f", abs(x)))[0] >> 23) - 127 + 7))
        return (0x80 if x < 0 else 0) | exponent << 3

    table = [code(FP8_DEVIATION * x) for x in NORMAL]
    table[127], table[128] = 0x80, 0x00
    return random.pick(count, table, "B", 0x07)


# [bytes of a block, elements, bytes of the block that hold scales as half floats, deviation of a weight when d is 1].
BLOCKS = {"Q4_0": (18, 32, 4.61), "Q4_1": (20, 32, 4.61), "Q8_0": (34, 32, 73.9), "Q4_K": (144, 256, 243.0),
          "Q5_K": (176, 256, 483.0), "Q6_K": (210, 256, 895.0)}
GGML_TYPES = {"F32": 0, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}


def blocks(random, count, kind, deviation):
    """Blocks of random codes; d spreads, and minima are such that a weight's mean is near 0."""
    size, elements, unit = BLOCKS[kind]
    n = count // elements
    out = bytearray(random.bytes(n * size))
    d = [deviation / unit * x for x in SPREAD]

    def place(at, table):
        half = chosen_items(table)
        out[at::size], out[at + 1::size] = half[0::2], half[1::2]

    chosen = random.bytes(n)  # the same for d and for the minimum

    def chosen_items(table):
        stored, items = [struct.pack("<e", v) for v in table], bytearray(2 * n)
        items[0::2], items[1::2] = (chosen.translate(bytes(s[at] for s in stored)) for at in (0, 1))
        return items

    def rewrite(at, table):
        out[at::size] = out[at::size].translate(bytes(table))

    if kind in ("Q4_0", "Q8_0"):
        # Codes are -8 to 7: d of either sign, or all weights would have a common part that grows from layer to layer.
        place(0, [x if i % 2 else -x for i, x in enumerate(d)])
    elif kind == "Q4_1":
        place(0, d), place(2, [-7.5 * x for x in d])
    elif kind in ("Q4_K", "Q5_K"):
        # w = d scale q - dmin minimum; the 6 bits of scale and minimum are kept in their upper half.
        middle = 7.5 if kind == "Q4_K" else 15.5
        place(0, d), place(2, [middle * x for x in d])
        for at in range(4, 12):
            rewrite(at, [b | 0xA0 for b in range(256)])
    else:
        # w = d scale (q - 32); scales of either sign, 32 to 63.
        place(208, d)
        for at in range(192, 208):
            rewrite(at, [(b & 31) + 32 if b < 128 else 256 - (b & 31) - 32 for b in range(256)])
    return bytes(out)


def linear(name, module, n, k, kind):
    """The stored tensors of one quantised Linear [N, K]: (suffix, dtype, shape, bytes)."""
    random = Random(f"{name}/{module}")
    deviation = GAIN.get(module.rsplit(".", 1)[-1], 1.2) / k ** 0.5
    if kind == "bf16":
        return [(".weight", "BF16", [n, k], floats(random, n * k, "bfloat16", deviation))]
    if kind.startswith("fp8"):
        scale = deviation / FP8_DEVIATION
        codes = (".weight", "F8_E4M3", [n, k], fp8_codes(random, n * k))
        if kind == "fp8-tensor":
            return [codes, (".weight_scale", "BF16", [1], struct.pack("<H", bfloat16(scale)))]
        return [codes, (".weight_scale", "BF16", [n, 1], values(random, n, "bfloat16", [scale * x for x in SPREAD]))]
    groups = k // GROUP
    scales = (".scales", "F16", [groups, n], values(random, groups * n, "float16", [deviation / 4.61 * x for x in SPREAD]))
    if kind == "gptq":
        # Codes around the zero point 8, for the same reason as in blocks(): 0 is rare.
        codes = bytes(b if b == 0 else (b & 15 or 8) | (b >> 4 or 8) << 4 for b in range(256))
        g_idx = struct.pack(f"<{k}i", *(i // GROUP for i in range(k)))
        return [(".qweight", "I32", [k // 8, n], random.bytes(k * n // 2).translate(codes)), (".qzeros", "I32", [groups, n // 8], b"\x77" * (groups * n // 2)),
                scales, (".g_idx", "I32", [k], g_idx)]
    near_middle = bytes((b & 3) + 6 | ((b >> 4 & 3) + 6) << 4 for b in range(256))
    return [(".qweight", "I32", [k, n // 8], random.bytes(k * n // 2)),
            (".qzeros", "I32", [groups, n // 8], random.bytes(groups * n // 2).translate(near_middle)), scales]


def shapes(head):
    """Module of one layer: [N, K]."""
    e, f = SIZES[head]
    return {"self_attn.q_proj": (HEADS * head, e), "self_attn.k_proj": (KV_HEADS * head, e), "self_attn.v_proj": (KV_HEADS * head, e),
            "self_attn.o_proj": (e, HEADS * head), "mlp.gate_proj": (f, e), "mlp.up_proj": (f, e), "mlp.down_proj": (e, f)}


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, data in tensors:
            file.write(data)


def make_tokenizer():
    """The committed byte-level one with a merge for each pair of frequent letters, so that every row has a token."""
    tokenizer = json.loads((TOKENIZER_BASE / "tokenizer.json").read_text(encoding="utf-8"))
    model = tokenizer["model"]
    singles = [t for t, i in sorted(model["vocab"].items(), key=lambda entry: entry[1])][:261]
    pairs = [(a, b) for a in "etaoinshrdlucmwf" for b in "etaoinshrdlucmwf"][:VOCAB - len(singles)]
    listed = isinstance(model["merges"][0], list)
    model["merges"] = [list(p) if listed else " ".join(p) for p in pairs]
    model["vocab"] = {t: i for i, t in enumerate(singles + [a + b for a, b in pairs])}
    assert len(model["vocab"]) == VOCAB
    return tokenizer


def write_folder(folder, name, head, kind):
    """A Hugging Face folder."""
    e, f = SIZES[head]
    _, quantization, dtype = KINDS[kind]
    short = {"bfloat16": "BF16", "float16": "F16"}[dtype]
    tensors = []

    def table(tensor, rows, deviation):
        tensors.append((tensor, short, [rows, e], floats(Random(f"{name}/{tensor}"), rows * e, dtype, deviation)))

    def norm(tensor):
        tensors.append((tensor, short, [e], values(Random(f"{name}/{tensor}"), e, dtype, NORMS)))

    table("model.embed_tokens.weight", VOCAB, EMBEDDING)
    for l in range(LAYERS):
        layer = f"model.layers.{l}."
        norm(layer + "input_layernorm.weight"), norm(layer + "post_attention_layernorm.weight")
        for module, (n, k) in shapes(head).items():
            tensors += [(layer + module + suffix, *rest) for suffix, *rest in linear(name, layer + module, n, k, kind)]
    norm("model.norm.weight")
    table("lm_head.weight", VOCAB, GAIN["lm_head"] / e ** 0.5)
    write_safetensors(folder / "model.safetensors", tensors)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
              "attention_dropout": 0.0, "hidden_act": "silu", "max_position_embeddings": 2048, "num_hidden_layers": LAYERS,
              "rms_norm_eps": EPS, "tie_word_embeddings": False, "rope_theta": 10000.0, "rope_scaling": None, "bos_token_id": 1,
              "eos_token_id": 2, "vocab_size": VOCAB, "use_cache": True, "torch_dtype": dtype, "hidden_size": e,
              "intermediate_size": f, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    if quantization is not None:
        config["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(make_tokenizer(), ensure_ascii=False), encoding="utf-8")
    shutil.copy(TOKENIZER_BASE / "tokenizer_config.json", folder)


GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_field(key, value):
    """Integers are uint32; lists are of strings or int32."""
    def typed(v):
        if isinstance(v, bool):
            return 7, struct.pack("<?", v)
        if isinstance(v, int):
            return 4, struct.pack("<I", v)
        if isinstance(v, float):
            return 6, struct.pack("<f", v)
        if isinstance(v, str):
            return 8, gguf_string(v)
        strings = isinstance(v[0], str)
        items = b"".join(gguf_string(x) if strings else struct.pack("<i", x) for x in v)
        return 9, struct.pack("<IQ", 8 if strings else 5, len(v)) + items

    kind, data = typed(value)
    return gguf_string(key) + struct.pack("<I", kind) + data


def write_gguf(folder, name, head, kind):
    e, f = SIZES[head]
    tensors = []

    def matrix(tensor, n, k, layer, gain, deviation=None):
        stored = gguf_types(kind, layer, tensor.rsplit(".", 1)[-1])
        data = blocks(Random(f"{name}/{tensor}"), n * k, stored, deviation or gain / k ** 0.5)
        tensors.append((tensor + ".weight", stored, [n, k], data))

    def norm(tensor):
        tensors.append((tensor + ".weight", "F32", [e], values(Random(f"{name}/{tensor}"), e, "float32", NORMS)))

    matrix("token_embd", VOCAB, e, 0, 0, EMBEDDING)
    for l in range(LAYERS):
        norm(f"blk.{l}.attn_norm"), norm(f"blk.{l}.ffn_norm")
        for module, (n, k) in shapes(head).items():
            matrix(f"blk.{l}.{GGUF_NAMES[module]}", n, k, l, GAIN.get(module.rsplit(".", 1)[-1], 1.2))
    norm("output_norm")
    matrix("output", VOCAB, e, 0, GAIN["lm_head"])

    tokenizer = make_tokenizer()
    vocab = list(tokenizer["model"]["vocab"])
    merges = [" ".join(m) if isinstance(m, list) else m for m in tokenizer["model"]["merges"]]
    special = {t["id"] for t in tokenizer["added_tokens"]}
    fields = {"general.architecture": "llama", "general.name": name, "general.alignment": 32, "llama.context_length": 2048,
              "llama.embedding_length": e, "llama.block_count": LAYERS, "llama.feed_forward_length": f,
              "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS, "llama.attention.key_length": head,
              "llama.attention.value_length": head, "llama.rope.dimension_count": head, "llama.rope.freq_base": 10000.0,
              "llama.attention.layer_norm_rms_epsilon": EPS, "llama.vocab_size": VOCAB, "tokenizer.ggml.model": "gpt2",
              "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": vocab,
              "tokenizer.ggml.token_type": [3 if i in special else 1 for i in range(VOCAB)], "tokenizer.ggml.merges": merges,
              "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.padding_token_id": 0,
              "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": False}
    text = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + b"".join(gguf_field(*entry) for entry in fields.items())
    at = 0
    for tensor, stored, shape, data in tensors:
        text += gguf_string(tensor) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", s) for s in reversed(shape))
        text += struct.pack("<IQ", GGML_TYPES[stored], at)
        at += len(data) + -len(data) % 32
    text += b"\0" * (-len(text) % 32)
    with open(folder / "model.gguf", "wb") as file:
        file.write(text)
        for _, _, _, data in tensors:
            file.write(data + b"\0" * (-len(data) % 32))


def write_model(folder, name):
    head, kind = MODELS[name]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (write_gguf if kind in GGUF_KINDS else write_folder)(folder, name, head, kind)
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def make_golden_of(folder, name, number):
    """With PyTorch; the two files go to GOLDENS too."""
    import make_golden
    scratch = folder.parent / ".tokenizer.json"
    scratch.write_text(json.dumps(make_tokenizer(), ensure_ascii=False), encoding="utf-8")
    head, kind = MODELS[name]
    golden = make_golden.make(folder, 2000 + number, f"head size {head}; {KINDS[kind][0]}", None, scratch, small=True)
    scratch.unlink()
    (GOLDENS / name).mkdir(parents=True, exist_ok=True)
    for file in ("golden.json", "golden.safetensors"):
        shutil.copy(folder / file, GOLDENS / name)
    return make_golden.summary(golden)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", action="append", choices=list(MODELS), metavar="NAME")
    parser.add_argument("--golden", action="store_true")
    args = parser.parse_args()
    listed = GOLDENS / "sha256.json"
    digests = json.loads(listed.read_text()) if listed.exists() else {}
    for number, name in enumerate(MODELS):
        if args.only and name not in args.only:
            continue
        folder = args.out / name
        digest = write_model(folder, name)
        if args.golden:
            print(make_golden_of(folder, name, number), flush=True)
            digests[name] = digest
            listed.write_text(json.dumps(dict(sorted(digests.items())), indent=2) + "\n")
            continue
        if digests.get(name) != digest:
            sys.exit(f"{folder}: its SHA-256 is {digest}, {listed} has {digests.get(name)}: the goldens belong to other weights; "
                     f"make them anew with --golden")
        for file in ("golden.json", "golden.safetensors"):
            shutil.copy(GOLDENS / name / file, folder)
        print(f"{name}: {sum(f.stat().st_size for f in folder.iterdir()) >> 10} KiB", flush=True)


if __name__ == "__main__":
    main()
