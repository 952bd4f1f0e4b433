"""Writes a llama model as a GGUF file with a chosen type for each tensor.

Types that the gguf package cannot quantise to (K-quants, IQ4) get random blocks whose scales give the wanted deviation:
a random model needs no more, and every bit of the format is used.
"""
import json

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type

import checkpoint

# (bytes of a block, elements, offset of d, offset of dmin or None)
RANDOM_BLOCKS = {Type.Q2_K: (84, 256, 80, 82), Type.Q3_K: (110, 256, 108, None), Type.Q4_K: (144, 256, 0, 2),
                 Type.Q5_K: (176, 256, 0, 2), Type.Q6_K: (210, 256, 208, None), Type.IQ4_XS: (136, 256, 0, None),
                 Type.IQ4_NL: (18, 32, 0, None)}
MIXED = [
    {"attn_q": Type.Q4_K, "attn_k": Type.Q5_K, "attn_v": Type.Q6_K, "attn_output": Type.Q4_1, "ffn_gate": Type.Q2_K,
     "ffn_up": Type.Q3_K, "ffn_down": Type.Q5_0},
    {"attn_q": Type.IQ4_XS, "attn_k": Type.IQ4_NL, "attn_v": Type.F16, "attn_output": Type.BF16, "ffn_gate": Type.Q5_K,
     "ffn_up": Type.Q5_K, "ffn_down": Type.Q5_1},
]
MIXED_TOP = {"token_embd": Type.Q4_K, "output": Type.Q6_K}
UNIFORM = {"attn_output": Type.F32}
HF_LAYER = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
            "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
LAYER_NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def random_rows(shape, kind, deviation, random):
    size, elements, d_at, dmin_at = RANDOM_BLOCKS[kind]
    blocks = shape[0] * shape[1] // elements
    data = torch.randint(0, 256, (blocks, size), generator=random, dtype=torch.uint8).numpy()

    def decode(d, dmin=None):
        data[:, d_at:d_at + 2] = np.asarray(d, dtype=np.float16).reshape(-1, 1).view(np.uint8)
        if dmin_at is not None:
            data[:, dmin_at:dmin_at + 2] = np.asarray(dmin, dtype=np.float16).reshape(-1, 1).view(np.uint8)
        return gguf.dequantize(data.reshape(shape[0], -1), kind)

    one, none = np.ones(blocks), np.zeros(blocks)
    ratio = -decode(one, none).mean() / decode(none, one).mean() if dmin_at is not None else 0
    spread = 0.7 + 0.6 * torch.rand(blocks, generator=random).numpy()
    # A first try at a scale that float16 holds well, then the scale that gives the deviation.
    first = decode(spread * 2.0 ** -8, spread * ratio * 2.0 ** -8).std()
    scale = 2.0 ** -8 * deviation / first
    decode(spread * scale, spread * ratio * scale)
    return data.reshape(shape[0], -1)


def interleave(w, heads):
    """Hugging Face's rows of q or k (halves of each head) > GGUF's (pairs side by side)."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def encode(w, kind, random):
    if kind in RANDOM_BLOCKS:
        return random_rows(w.shape, kind, float(w.std()), random)
    return gguf.quantize(np.ascontiguousarray(w, dtype=np.float32), kind)


def write(folder, name, model, config, tokenizer, random, logit_std):
    state = {k: v.float().numpy() for k, v in model.state_dict().items()}
    tensors = []  # (name, data, type)

    def matrix(ours, theirs, kind, heads=0):
        w = state[theirs + ".weight"]
        tensors.append((ours + ".weight", encode(interleave(w, heads) if heads else w, kind, random), kind))

    mixed = name.endswith("mixed")
    matrix("token_embd", "model.embed_tokens", MIXED_TOP["token_embd"] if mixed else Type.Q8_0)
    for l in range(config.num_hidden_layers):
        kinds = MIXED[l % 2] if mixed else {k: UNIFORM.get(k, Type.Q4_0) for k in HF_LAYER}
        for ours, theirs in HF_LAYER.items():
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(ours, 0)
            matrix(f"blk.{l}.{ours}", f"model.layers.{l}.{theirs}", kinds[ours], heads)
        for ours, theirs in LAYER_NORMS.items():
            tensors.append((f"blk.{l}.{ours}.weight", state[f"model.layers.{l}.{theirs}.weight"], None))
    if not config.tie_word_embeddings:
        matrix("output", "lm_head", MIXED_TOP["output"] if mixed else Type.Q6_K)

    path = folder / "model.gguf"
    write_file(path, name, config, tokenizer, tensors, state["model.norm.weight"])
    whole = checkpoint.load(folder)[0]
    ids = torch.randint(5, config.vocab_size, (1, 33), generator=random)
    with torch.no_grad():
        std = float(whole(ids, use_cache=False).logits.std())
    write_file(path, name, config, tokenizer, tensors, state["model.norm.weight"] * np.float32(logit_std / std))


def add_tokenizer(writer, tokenizer):
    """The tokenizer of make_models.py."""
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda entry: entry[1])
    special = set(tokenizer.get_added_tokens_decoder())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([gguf.TokenType.CONTROL if i in special else gguf.TokenType.NORMAL for _, i in vocab])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)


def write_file(path, name, config, tokenizer, tensors, norm):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    add_tokenizer(writer, tokenizer)
    for tensor, data, kind in tensors:
        writer.add_tensor(tensor, data, raw_dtype=kind)
    writer.add_tensor("output_norm.weight", norm.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
