#!/usr/bin/env python3
"""Writes inputs that no golden gives, to choose seeds from: models small enough to be read hundreds of times a second.

usage: tools/fuzz_seeds.py FOLDER     (tools/fuzz_minimise.py chooses what goes from there to fuzz/corpus)

model_files_fuzz: one file a model, each of its files as u8 name bytes, name, u32 bytes, contents (src/app/fuzz_parts.h).
xz_fuzz: a text packed in several ways.
"""
import json
import lzma
import random
import struct
import sys
from pathlib import Path

HIDDEN, HEADS, KV_HEADS, FFN, VOCABULARY = 16, 2, 1, 16, 8
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u2581", "c"]
ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "F8_E4M3": 1}
TEMPLATE = "{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}"
rng = random.Random(7)


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def values(dtype, shape):
    count = 1
    for dim in shape:
        count *= dim
    numbers = [rng.uniform(-0.5, 0.5) for _ in range(count)]
    if dtype == "BF16":
        return b"".join(struct.pack("<f", x)[2:] for x in numbers)
    if dtype == "F16":
        return struct.pack(f"<{count}e", *numbers)
    if dtype == "F32":
        return struct.pack(f"<{count}f", *numbers)
    if dtype == "F8_E4M3":
        return bytes(rng.choice((0x30, 0x38, 0xB0, 0x28)) for _ in range(count))
    return struct.pack(f"<{count}I", *(rng.getrandbits(32) for _ in range(count)))


def safetensors(tensors):
    header, data = {}, b""
    for name, (dtype, shape, contents) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(contents)]}
        data += contents
    text = compact(header)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def plain(dtype):
    return lambda name, n, k: {name + ".weight": (dtype, [n, k], values(dtype, [n, k]))}


def gptq(name, n, k):
    index = struct.pack(f"<{k}i", *(i * 2 // k for i in range(k)))
    return {name + ".qweight": ("I32", [k // 8, n], values("I32", [k // 8, n])),
            name + ".qzeros": ("I32", [2, n // 8], values("I32", [2, n // 8])),
            name + ".scales": ("F16", [2, n], values("F16", [2, n])), name + ".g_idx": ("I32", [k], index)}


def awq(name, n, k):
    return {name + ".qweight": ("I32", [k, n // 8], values("I32", [k, n // 8])),
            name + ".qzeros": ("I32", [k // 8, n // 8], values("I32", [k // 8, n // 8])),
            name + ".scales": ("F16", [k // 8, n], values("F16", [k // 8, n]))}


def fp8(scale, shape):
    def linear(name, n, k):
        scales = shape(n, k)
        return {name + ".weight": ("F8_E4M3", [n, k], values("F8_E4M3", [n, k])),
                name + scale: ("BF16", scales, values("BF16", scales))}
    return linear


def layer_tensors(family, linear):
    head = HIDDEN // HEADS
    q, kv = HEADS * head, KV_HEADS * head
    attention, mlp = "model.layers.0.self_attn.", "model.layers.0.mlp."
    out = {}
    if family == "phi3":
        out |= linear(attention + "qkv_proj", q + 2 * kv, HIDDEN) | linear(mlp + "gate_up_proj", 2 * FFN, HIDDEN)
    else:
        for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
            out |= linear(attention + name, rows, HIDDEN)
            if family == "qwen2":
                out[f"{attention}{name}.bias"] = ("BF16", [rows], values("BF16", [rows]))
    if family == "qwen3":
        for name in ("q_norm", "k_norm"):
            out[f"{attention}{name}.weight"] = ("BF16", [head], values("BF16", [head]))
    out |= linear(attention + "o_proj", HIDDEN, q)
    if family == "mixtral":
        moe = "model.layers.0.block_sparse_moe."
        out |= linear(moe + "gate", 2, HIDDEN)
        for expert in range(2):
            for name in ("w1", "w2", "w3"):
                out |= linear(f"{moe}experts.{expert}.{name}", FFN, HIDDEN)
        return out
    for name in () if family == "phi3" else ("gate_proj", "up_proj"):
        out |= linear(mlp + name, FFN, HIDDEN)
    return out | linear(mlp + "down_proj", HIDDEN, FFN)


def tensors_of(family, linear):
    out = plain("BF16")("model.embed_tokens", VOCABULARY, HIDDEN)
    for norm in ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"):
        out[f"model.{norm}.weight"] = ("BF16", [HIDDEN], values("BF16", [HIDDEN]))
    return out | layer_tensors(family, linear)


def config_of(family, architecture, **more):
    return {"architectures": [architecture], "model_type": family, "hidden_size": HIDDEN, "intermediate_size": FFN,
            "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_hidden_layers": 1,
            "rms_norm_eps": 1e-5, "max_position_embeddings": 32, "vocab_size": VOCABULARY, "torch_dtype": "bfloat16",
            "hidden_act": "silu", "tie_word_embeddings": True, "eos_token_id": 2, **more}


TOKENIZER = {"version": "1.0", "added_tokens": [{"id": 2, "content": "</s>", "special": True}],
             "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {t: i for i, t in enumerate(TOKENS)},
                       "merges": ["a b"]}}


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, contents):  # of a protobuf message, with a length
    return varint(number << 3 | 2) + varint(len(contents)) + contents


def sentencepiece():
    out = b""
    for i, token in enumerate(TOKENS):
        kind = 2 if i == 0 else 3 if i < 3 else 1
        out += field(1, field(1, token.encode()) + b"\x15" + struct.pack("<f", -i) + b"\x18" + bytes([kind]))
    return out + field(2, b"\x18\x02")  # trainer_spec.model_type: BPE


def gguf_value(value):
    if isinstance(value, str):
        return struct.pack("<IQ", 8, len(value.encode())) + value.encode()
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, list):
        of = gguf_value(value[0])[:4]
        return struct.pack("<I", 9) + of + struct.pack("<Q", len(value)) + b"".join(gguf_value(v)[4:] for v in value)
    return struct.pack("<II", 4, value)


def gguf(entries, tensors):
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    for key, value in entries.items():
        out += struct.pack("<Q", len(key)) + key.encode() + gguf_value(value)
    offset = 0
    for name, shape in tensors.items():
        out += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        out += b"".join(struct.pack("<Q", dim) for dim in reversed(shape)) + struct.pack("<IQ", 0, offset)
        offset += len(values("F32", shape)) + 31 & ~31
    out += b"\0" * (-len(out) % 32)
    for shape in tensors.values():
        contents = values("F32", shape)
        out += contents + b"\0" * (-len(contents) % 32)
    return out


def split_gguf():
    head = HIDDEN // HEADS
    metadata = {"general.architecture": "llama", "general.name": "split", "llama.block_count": 1,
                "llama.context_length": 32, "llama.embedding_length": HIDDEN, "llama.feed_forward_length": FFN,
                "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV_HEADS,
                "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "llama",
                "tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.scores": [-float(i) for i in range(VOCABULARY)],
                "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1, 1, 1], "tokenizer.ggml.eos_token_id": 2,
                "tokenizer.chat_template": TEMPLATE}
    first = {"token_embd.weight": [VOCABULARY, HIDDEN], "output_norm.weight": [HIDDEN],
             "blk.0.attn_norm.weight": [HIDDEN], "blk.0.ffn_norm.weight": [HIDDEN],
             "blk.0.attn_q.weight": [HEADS * head, HIDDEN], "blk.0.attn_k.weight": [KV_HEADS * head, HIDDEN]}
    second = {"blk.0.attn_v.weight": [KV_HEADS * head, HIDDEN], "blk.0.attn_output.weight": [HIDDEN, HEADS * head],
              "blk.0.ffn_gate.weight": [FFN, HIDDEN], "blk.0.ffn_up.weight": [FFN, HIDDEN],
              "blk.0.ffn_down.weight": [HIDDEN, FFN]}
    total = len(first) + len(second)
    shard = lambda i: {"split.no": i, "split.count": 2, "split.tensors.count": total}
    return {"m-00001-of-00002.gguf": gguf(metadata | shard(0), first),
            "m-00002-of-00002.gguf": gguf(shard(1), second)}


def folder(config, tensors, **files):
    out = {"config.json": compact(config), "tokenizer.json": compact(TOKENIZER),
           "model.safetensors": safetensors(tensors)}
    out.update({name.replace("__", "."): contents for name, contents in files.items()})
    return {name: contents for name, contents in out.items() if contents is not None}


def sharded(config, tensors):
    names = list(tensors)
    halves = {"x1.safetensors": names[: len(names) // 2], "x2.safetensors": names[len(names) // 2:]}
    index = {"metadata": {"total_size": 1}, "weight_map": {n: file for file, part in halves.items() for n in part}}
    files = folder(config, {})
    del files["model.safetensors"]
    files["model.safetensors.index.json"] = compact(index)
    return files | {file: safetensors({n: tensors[n] for n in part}) for file, part in halves.items()}


def models():
    llama = config_of("llama", "LlamaForCausalLM")
    bf16 = plain("BF16")
    quantised = lambda **fields: llama | {"quantization_config": fields}
    generation = compact({"eos_token_id": [2, 1], "temperature": 0.6, "top_k": 4, "top_p": 0.9, "do_sample": True})
    tokenizer_config = compact({"bos_token": "<s>", "add_bos_token": True,
                                "chat_template": [{"name": "default", "template": TEMPLATE}]})
    activations = {"dynamic": True, "num_bits": 8, "strategy": "token", "type": "float"}
    channel = {"group_0": {"input_activations": activations, "targets": ["Linear"],
                           "weights": {"num_bits": 8, "strategy": "channel", "type": "float"}}}
    longrope = {"type": "longrope", "short_factor": [1, 1.1, 1.2], "long_factor": [1, 2, 4]}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 1e4}
    return {
        "llama": folder(llama, tensors_of("llama", bf16), generation_config__json=generation,
                        tokenizer_config__json=tokenizer_config),
        "llama_sentencepiece": folder(llama, tensors_of("llama", plain("F32")), tokenizer__json=None,
                                      tokenizer__model=sentencepiece(), chat_template__jinja=TEMPLATE.encode()),
        "llama_sharded": sharded(llama, tensors_of("llama", plain("F16"))),
        "gptq": folder(quantised(quant_method="gptq", bits=4, group_size=8, desc_act=True, sym=True),
                       tensors_of("llama", gptq)),
        "awq": folder(quantised(quant_method="awq", bits=4, group_size=8, version="gemm", zero_point=True),
                      tensors_of("llama", awq)),
        "fp8_channel": folder(quantised(quant_method="compressed-tensors", format="float-quantized",
                                        config_groups=channel, ignore=["lm_head"]),
                              tensors_of("llama", fp8(".weight_scale", lambda n, k: [n, 1]))),
        "fp8_block": folder(quantised(quant_method="fp8", weight_block_size=[8, 8], activation_scheme="dynamic"),
                            tensors_of("llama", fp8(".weight_scale_inv", lambda n, k: [-(-n // 8), -(-k // 8)]))),
        "mistral": folder(config_of("mistral", "MistralForCausalLM", sliding_window=3), tensors_of("mistral", bf16)),
        "qwen2": folder(config_of("qwen2", "Qwen2ForCausalLM", rope_scaling=yarn), tensors_of("qwen2", bf16)),
        "qwen3": folder(config_of("qwen3", "Qwen3ForCausalLM", head_dim=8, rope_parameters={"rope_theta": 1e4}),
                        tensors_of("qwen3", bf16)),
        "phi3": folder(config_of("phi3", "Phi3ForCausalLM", partial_rotary_factor=0.75, rope_scaling=longrope,
                                 original_max_position_embeddings=4), tensors_of("phi3", bf16)),
        "mixtral": folder(config_of("mixtral", "MixtralForCausalLM", num_local_experts=2, num_experts_per_tok=1),
                          tensors_of("mixtral", bf16)),
        "gguf_split": split_gguf(),
    }


def packed_texts():
    text = b"Bolide reads goldens. " * 40
    filters = [{"id": lzma.FILTER_DELTA, "dist": 3}, {"id": lzma.FILTER_LZMA2, "preset": 0}]
    return {"crc64": lzma.compress(text), "sha256": lzma.compress(text, check=lzma.CHECK_SHA256),
            "no_check_delta": lzma.compress(text, check=lzma.CHECK_NONE, filters=filters),
            "two": lzma.compress(text[:30]) + b"\0" * 8 + lzma.compress(b""),
            "large": lzma.compress(b"\0" * 300000, preset=0)}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1])
    seeds = {"model_files_fuzz": {}, "xz_fuzz": packed_texts()}
    for name, files in models().items():
        seeds["model_files_fuzz"][name] = b"".join(
            bytes([len(file)]) + file.encode() + struct.pack("<I", len(contents)) + contents
            for file, contents in files.items())
    for fuzzer, inputs in seeds.items():
        (target / fuzzer).mkdir(parents=True, exist_ok=True)
        for name, contents in inputs.items():
            (target / fuzzer / name).write_bytes(contents)


if __name__ == "__main__":
    main()
