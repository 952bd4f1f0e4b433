#!/usr/bin/env python3
"""Writes a checkpoint of make_models.py as a GGUF file with float32 weights, as llama.cpp's converter names things.

usage: gguf_copy.py FOLDER FILE.gguf

For `bolide eval golden FOLDER --model FILE.gguf` of a new family. Names come from the gguf package, so it must know the
family. Sizes, the epsilon, the base of rotary embeddings and a window are written; a key that only one family has is not:
add it here, or take llama.cpp's convert_hf_to_gguf.py, which knows published tokenizers alone.
"""
import argparse
import pathlib

import gguf
from tokenizers import Tokenizer

import checkpoint
import gguf_writer


def write(folder, file):
    model = checkpoint.load(folder)[0]
    config = model.config
    arch = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}.get(config.model_type)
    if arch is None:
        raise SystemExit(f"{folder}: the gguf package has no architecture {config.model_type}")
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    stored_in_out = {id(m.weight) for m in model.modules() if isinstance(m, checkpoint.Conv1D)}
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    tied = checkpoint.head_name(model) if config.tie_word_embeddings else None

    tensors = {}
    for theirs, p in model.named_parameters(remove_duplicate=False):
        if theirs == tied:
            continue
        ours = names.get_name(theirs, (".weight", ".bias"))
        if ours is None:
            raise SystemExit(f"{folder}: the gguf package has no name for {theirs}")
        data = checkpoint.plain_numpy(p.T if id(p) in stored_in_out else p)
        part = ours.split(".")[-2]
        if config.model_type == "llama" and part in ("attn_q", "attn_k"):
            rows = data.reshape(data.shape[0], -1)
            data = gguf_writer.interleave(rows, heads if part == "attn_q" else kv_heads).reshape(data.shape)
        tensors[ours] = data

    writer = gguf.GGUFWriter(file, gguf.MODEL_ARCH_NAMES[arch])
    writer.add_name(pathlib.Path(folder).name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(tensors["blk.0.ffn_up.weight"].shape[0])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    norms = [m for m in model.modules() if hasattr(m, "eps") or hasattr(m, "variance_epsilon")]
    eps = getattr(norms[-1], "eps", None) or norms[-1].variance_epsilon
    if "output_norm.bias" in tensors:
        writer.add_layer_norm_eps(eps)
    else:
        writer.add_layer_norm_rms_eps(eps)
    rope = getattr(config, "rope_parameters", None) or {}
    if "rope_theta" in rope:
        writer.add_rope_freq_base(rope["rope_theta"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    gguf_writer.add_tokenizer(writer, Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json")))
    for name, data in tensors.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("file")
    args = parser.parse_args()
    write(args.folder, args.file)
