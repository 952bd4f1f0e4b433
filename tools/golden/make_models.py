#!/usr/bin/env python3
"""Makes the project's own tiny checkpoints with random weights, and their goldens: tests/golden/models/<name>/.

usage: make_models.py [OUT] [--only NAME]

Weights are large enough that attention is far from uniform and the logits' deviation is near 2; norms and biases are
random too, so that each of them matters. Everything comes from the seed of each entry.
"""
import argparse
import hashlib
import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM

import checkpoint
import gguf_writer
import make_golden

SPECIAL = ["<|pad|>", "<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>"]
TEXT = ["the light of the candle bends in the glass and the other light is blue", "one or two more than the others there"]
TEMPLATE = ("{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] | trim + '<|eos|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}")
VOCAB = 272  # 5 special, 256 bytes, 11 merges
LOGIT_STD = 2.0

# Of every model; families with other names for sizes begin from this.
COMMON = {"bos_token_id": 1, "eos_token_id": 2, "vocab_size": VOCAB, "use_cache": True, "torch_dtype": "bfloat16"}
BASE = {"attention_dropout": 0.0, "hidden_act": "silu", "max_position_embeddings": 256, "num_hidden_layers": 2,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "rope_theta": 10000.0} | COMMON
SMALL = {"hidden_size": 32, "intermediate_size": 56, "num_attention_heads": 4, "num_key_value_heads": 2}
WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}


def llama(**more):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": False, "mlp_bias": False,
            "rope_scaling": None} | BASE | more


LONG = {"type": "longrope", "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 2.4, 5.0]}
INT4 = {"bits": 4, "group_size": 32}
FP8 = {"config_groups": {"group_0": {
    "input_activations": {"dynamic": True, "num_bits": 8, "strategy": "token", "symmetric": True, "type": "float"},
    "weights": {"dynamic": False, "num_bits": 8, "strategy": "channel", "symmetric": True, "type": "float"},
    "targets": ["Linear"]}}, "format": "float-quantized", "ignore": ["lm_head"], "quant_method": "compressed-tensors",
    "quantization_status": "compressed"}

MODELS = {
    "llama-bias": ("biases on q, k, v, o and in the MLP; tied head; an odd MLP of 53", llama(
        **SMALL | {"intermediate_size": 53}, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama-rope-llama3": ("llama3 rope, original context 32, four of twelve frequencies blended; one key-value head", llama(
        **SMALL | {"num_key_value_heads": 1}, head_dim=24, rope_theta=100.0, tie_word_embeddings=True, rope_scaling={
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32})),
    "llama-rope-linear": ("linear rope, factor 2.5", llama(
        **SMALL, rope_scaling={"type": "linear", "factor": 2.5}, tie_word_embeddings=True)),
    "llama-rope-dynamic": ("dynamic rope: 40 positions, prompts on both sides; greedy tokens with transformers' cache", llama(
        **SMALL | {"max_position_embeddings": 40}, rope_scaling={"type": "dynamic", "factor": 2.0})),
    "llama-rope-yarn": ("yarn rope, factor 4 over 64 positions, its ramp over frequencies 2 to 8 of 12", llama(
        **SMALL, head_dim=24, rope_theta=100.0, tie_word_embeddings=True, rope_scaling={
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 4.0, "beta_slow": 0.5})),
    "mistral-window": ("a sliding window of 13", {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "head_dim": 16,
                                                  "sliding_window": 13} | BASE | SMALL | {"tie_word_embeddings": True}),
    "qwen2": ("biases on q, k and v; tied head; rms_norm_eps 1e-3", {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "sliding_window": 16, "use_sliding_window": False,
        "max_window_layers": 2} | BASE | SMALL | {"tie_word_embeddings": True, "rms_norm_eps": 1e-3}),
    "qwen3": ("q and k normalised per head; head_dim 24 where hidden size / heads is 8; config.json in the version 5 style", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "head_dim": 24,
        "use_sliding_window": False} | BASE | SMALL),
    "phi3-longrope": ("fused weights, partial rotary (6 of 8 dims), longrope: 48 positions, prompts on both sides", {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "original_max_position_embeddings": 48,
        "partial_rotary_factor": 0.75, "rope_scaling": LONG, "sliding_window": None, "pad_token_id": 0} | BASE | SMALL),
    "mixtral": ("5 experts, the best 2, renormalised", {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 2,
        "sliding_window": None, "output_router_logits": False} | BASE | SMALL | {"intermediate_size": 24}),
    "llama-gptq": ("GPTQ, 4 bits, group 32, with zero points", llama(
        **WIDE, torch_dtype="float16", quantization_config=INT4 | {
            "quant_method": "gptq", "desc_act": False, "sym": False, "checkpoint_format": "gptq"})),
    "llama-gptq-actorder": ("GPTQ, 4 bits, group 32, act-order: rows of K belong to groups out of order", llama(
        **WIDE, torch_dtype="float16", tie_word_embeddings=True, quantization_config=INT4 | {
            "quant_method": "gptq", "desc_act": True, "sym": True, "checkpoint_format": "gptq"})),
    "llama-awq": ("AWQ gemm, 4 bits, group 32, zero points", llama(
        **WIDE, torch_dtype="float16", tie_word_embeddings=True, quantization_config=INT4 | {"quant_method": "awq", "version": "gemm", "zero_point": True})),
    "llama-fp8-channel": ("compressed-tensors float-quantized, one scale per output channel, inputs rounded per token", llama(
        **WIDE | {"intermediate_size": 72}, tie_word_embeddings=True, quantization_config=FP8)),
    "llama-gguf-mixed": ("GGUF with every block type: Q2_K to Q6_K, IQ4_XS, IQ4_NL, Q4_0 to Q8_0, F16, BF16, F32", llama(
        hidden_size=256, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        torch_dtype="float32")),
    "llama-gguf-q4_0": ("GGUF, Q4_0 throughout, Q8_0 embedding, tied head", llama(
        **WIDE, torch_dtype="float32", tie_word_embeddings=True)),
    "gpt2": ("LayerNorm, learned positions, biases, weights [in, out], q, k and v fused, no gate; tied head; an odd MLP of 53", {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 36, "n_head": 3, "n_inner": 53, "n_layer": 2,
        "n_positions": 131, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-3, "tie_word_embeddings": True} | COMMON),
}
V5_ONLY = {"qwen3"}


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[AddedToken(t, special=True, normalized=False) for t in SPECIAL],
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    assert tokenizer.get_vocab_size() == VOCAB
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A <|bos|> $B:1", special_tokens=[("<|bos|>", 1)])
    return tokenizer


# Modules whose weights are drawn larger, so that attention is far from uniform.
ATTENTION = ("q_proj", "k_proj", "qkv_proj", "c_attn", "Wqkv", "query_key_value")


def fill(model, random):
    """Random weights: Linears keep the scale of their input, q and k are larger, norms and biases spread."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    stored_in_out = {id(m.weight) for m in model.modules() if isinstance(m, checkpoint.Conv1D)}
    for name, p in model.named_parameters():
        is_table, inputs = id(p) in tables, p.shape[0 if id(p) in stored_in_out else -1]
        draw = torch.randn(p.shape, generator=random)
        uniform = torch.rand(p.shape, generator=random)
        part = name.split(".")[-2] if name.endswith((".weight", ".bias")) else name.split(".")[-1]
        if name.endswith(".bias"):
            p.data = draw * 0.25
        elif part in ("q_norm", "k_norm"):
            p.data = 1.2 + 0.8 * uniform
        elif p.dim() == 1:
            p.data = 0.5 + uniform
        elif is_table:
            p.data = draw * 0.3  # small beside what the layers add: a tied head must not repeat its input
        elif part in ATTENTION:
            p.data = draw * (1.7 / inputs ** 0.5)
        elif part in ("gate", "router"):
            p.data = draw * (2.0 / inputs ** 0.5)
        else:
            p.data = draw * (1.2 / inputs ** 0.5)


def settle_logits(tensors, config, random, dtype):
    """Scales the last norm so that the logits' deviation is near LOGIT_STD: that is the module, or the last one of those,
    whose weight is a vector, beside the layers."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    load_into(model, tensors)
    ids = torch.randint(5, VOCAB, (1, 33), generator=random)
    with torch.no_grad():
        std = float(model(ids, use_cache=False).logits.std())
    layers = checkpoint.decoder_layers(model)[0][0].rsplit(".", 1)[0]
    norm = [n for n, t in tensors.items() if n.endswith(".weight") and t.dim() == 1 and not n.startswith(layers)][-1]
    for name in (norm, norm.removesuffix("weight") + "bias"):
        if name in tensors:
            tensors[name] = (tensors[name].float() * (LOGIT_STD / std)).to(dtype)


def load_into(model, tensors):
    missing = model.load_state_dict({k: v.float() for k, v in tensors.items()}, strict=False)
    assert not missing.unexpected_keys, missing
    assert set(missing.missing_keys) <= {checkpoint.head_name(model)}, missing
    model.tie_weights()


# Quantisers: nearest codes. `w` [N, K] float32; each returns the stored tensors.
def int4_codes(w, group, symmetric):
    grouped = w.reshape(w.shape[0], -1, group)
    if symmetric:
        scale = (grouped.abs().amax(-1) / 7.5).half()
        zero = torch.full_like(scale, 8)
    else:
        low, high = grouped.amin(-1), grouped.amax(-1)
        scale = ((high - low) / 15).half()
        zero = (-low / scale.float()).round().clamp(1, 15)
    codes = (grouped / scale.float().unsqueeze(-1) + zero.float().unsqueeze(-1)).round().clamp(0, 15)
    return codes.reshape(w.shape).to(torch.int64), scale, zero.to(torch.int64)


def pack_words(codes, order=range(8)):
    """[..., 8 * n] 4-bit codes > int32 [..., n]; nibble i holds column order[i] of its eight."""
    eights = codes.reshape(*codes.shape[:-1], -1, 8)
    words = sum(eights[..., column] << (4 * i) for i, column in enumerate(order))
    return torch.from_numpy(words.numpy().astype(np.uint32).view(np.int32))


def quantise(module, w, config, random):
    method = config["quant_method"]
    if method == "compressed-tensors":
        scale = (w.abs().amax(-1, keepdim=True) / 448).to(torch.bfloat16)
        return {module + ".weight": (w / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn), module + ".weight_scale": scale}
    group = config["group_size"]
    if method == "awq":
        codes, scale, zero = int4_codes(w, group, False)
        return {module + ".qweight": pack_words(codes.T.contiguous(), checkpoint.AWQ_ORDER),
                module + ".qzeros": pack_words(zero.T.contiguous(), checkpoint.AWQ_ORDER), module + ".scales": scale.T.contiguous()}
    k = w.shape[1]
    order = torch.randperm(k, generator=random) if config["desc_act"] else torch.arange(k)
    codes, scale, zero = int4_codes(w[:, order], group, config["sym"])
    g_idx = torch.empty(k, dtype=torch.int32)
    g_idx[order] = (torch.arange(k) // group).to(torch.int32)
    placed = torch.empty_like(codes)
    placed[:, order] = codes
    return {module + ".qweight": pack_words(placed).T.contiguous(), module + ".qzeros": pack_words((zero - 1).T.contiguous()),
            module + ".scales": scale.T.contiguous(), module + ".g_idx": g_idx}


def hugging_face_names(model, config):
    """The state as published checkpoints name it (version 5 fuses Mixtral's experts in memory)."""
    out = {}
    for name, t in model.state_dict().items():
        if name == checkpoint.head_name(model) and config.tie_word_embeddings:
            continue
        if ".mlp.experts." in name:
            block = name.split(".mlp.")[0] + ".block_sparse_moe.experts"
            for e in range(t.shape[0]):
                if name.endswith("gate_up_proj"):
                    out[f"{block}.{e}.w1.weight"], out[f"{block}.{e}.w3.weight"] = t[e].chunk(2, 0)
                else:
                    out[f"{block}.{e}.w2.weight"] = t[e]
        elif name.endswith(".mlp.gate.weight"):
            out[name.replace(".mlp.gate.", ".block_sparse_moe.gate.")] = t
        else:
            out[name] = t
    return out


def write_model(folder, name, settings, tokenizer):
    random = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little"))
    plain = {k: v for k, v in settings.items() if k != "quantization_config"}
    (folder / "config.json").write_text(json.dumps(plain))
    config = AutoConfig.from_pretrained(folder)
    dtype = getattr(torch, settings["torch_dtype"])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    fill(model, random)
    if name.startswith("llama-gguf"):
        tokenizer.save(str(folder / "tokenizer.json"))
        gguf_writer.write(folder, name, model, config, tokenizer, random, LOGIT_STD)
        for file in ("config.json", "tokenizer.json"):
            (folder / file).unlink()
        return
    state = {k: v.to(dtype) for k, v in model.state_dict().items() if not (k == checkpoint.head_name(model) and config.tie_word_embeddings)}
    settle_logits(state, config, random, dtype)
    model.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
    tensors = {k: v.to(dtype) for k, v in hugging_face_names(model, config).items()}
    quantization = settings.get("quantization_config")
    if quantization is not None:
        for key in [k for k in tensors if k.endswith("_proj.weight")]:
            tensors |= quantise(key.removesuffix(".weight"), tensors.pop(key).float(), quantization, random)
    save_file({k: v.contiguous().clone() for k, v in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    config.architectures = settings["architectures"]
    if quantization is not None:
        config.quantization_config = quantization
    config.dtype = dtype
    modern = json.loads(config.to_json_string(use_diff=False))
    modern = {k: v for k, v in modern.items() if v is not None and k in set(plain) | {
        "rope_parameters", "layer_types", "dtype", "quantization_config", "head_dim", "transformers_version"}}
    modern.pop("rope_scaling", None), modern.pop("rope_theta", None), modern.pop("torch_dtype", None)
    published = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    modern = json.dumps(modern, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_text(modern if name in V5_ONLY else published)
    if name not in V5_ONLY:
        (folder / "config.v5.json").write_text(modern)
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}, indent=2) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<|bos|>", "chat_template": TEMPLATE, "clean_up_tokenization_spaces": False, "eos_token": "<|eos|>",
        "model_max_length": 256, "pad_token": "<|pad|>", "tokenizer_class": "PreTrainedTokenizerFast"}, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("out", nargs="?", default=here / "tests/golden/models", type=pathlib.Path)
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = make_tokenizer()
    scratch = args.out / ".tokenizer.json"
    for number, (name, (about, settings)) in enumerate(MODELS.items()):
        if args.only and name not in args.only:
            continue
        folder = args.out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_model(folder, name, settings, tokenizer)
        tokenizer.save(str(scratch), pretty=False)
        golden = make_golden.make(folder, 1000 + number, about, None, scratch)
        scratch.unlink()
        size = sum(f.stat().st_size for f in folder.iterdir())
        margins = min(min(p["greedy_margins"]) for p in golden["prompts"])
        print(f"{name}: {size // 1024} KiB, logits' deviation {golden['logit_std']}, least margin {margins}, "
              f"float64 {golden['noise']['float64 cpu']['rel_l2']}, bfloat16 {golden['noise']['bfloat16 cpu']['rel_l2']}", flush=True)


if __name__ == "__main__":
    main()
