"""Reads any checkpoint into a float32 transformers model: Hugging Face folders (plain, GPTQ, AWQ, compressed-tensors
fp8) and GGUF files. Quantised weights are expanded here, by the definitions in README.md, so that no quantisation
library's own rounding enters a golden.
"""
import contextlib
import json
import pathlib
import shutil
import tempfile

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.pytorch_utils import Conv1D

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # column of the i-th nibble within its eight
SIDE_FILES = ["generation_config.json", "tokenizer.json", "tokenizer_config.json"]


def read_tensors(folder):
    tensors = {}
    for file in sorted(pathlib.Path(folder).glob("model*.safetensors")):
        with safe_open(file, "pt") as stored:
            for name in stored.keys():
                tensors[name] = stored.get_tensor(name)
    return tensors


def nibbles(words, axis):
    """int32 words > their eight 4-bit codes, lowest first, along `axis`."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int64)
    codes = (words.to(torch.int64).unsqueeze(-1) >> shifts) & 15
    if axis == 0:
        return codes.permute(0, 2, 1).reshape(words.shape[0] * 8, words.shape[1])
    return codes.reshape(words.shape[0], words.shape[1] * 8)


def expand_gptq(t, module, config):
    assert config["bits"] == 4, "only 4 bits"
    codes = nibbles(t[module + ".qweight"], 0)  # [K, N]
    offset = 0 if config.get("checkpoint_format") == "gptq_v2" else 1
    zeros = nibbles(t[module + ".qzeros"], 1) + offset  # [groups, N]
    group = t[module + ".g_idx"].to(torch.int64)  # [K]
    scales = t[module + ".scales"].to(torch.float32)
    return (scales[group] * (codes - zeros[group]).to(torch.float32)).T.contiguous()


def expand_awq(t, module, config):
    def ordered(words):
        codes = nibbles(words, 1).reshape(words.shape[0], -1, 8)
        out = torch.empty_like(codes)
        out[:, :, AWQ_ORDER] = codes
        return out.reshape(words.shape[0], -1)

    codes, zeros = ordered(t[module + ".qweight"]), ordered(t[module + ".qzeros"])
    size = config["group_size"] if config["group_size"] > 0 else codes.shape[0]
    group = torch.arange(codes.shape[0]) // size
    scales = t[module + ".scales"].to(torch.float32)
    return (scales[group] * (codes - zeros[group]).to(torch.float32)).T.contiguous()


def expand(tensors, config):
    """Tensors with every quantised module's parts replaced by its float32 weight. Returns (tensors, expanded names)."""
    method = config["quant_method"]
    out, names = {}, []
    for name, tensor in tensors.items():
        module = name.rsplit(".", 1)[0]
        if method in ("gptq", "awq") and module + ".qweight" in tensors:
            if name.endswith(".qweight"):
                make = expand_gptq if method == "gptq" else expand_awq
                out[module + ".weight"] = make(tensors, module, config)
                names.append(module + ".weight")
            elif name.endswith(".bias"):
                out[name] = tensor
        elif method == "compressed-tensors" and module + ".weight_scale" in tensors:
            if name.endswith(".weight"):
                scale = tensors[module + ".weight_scale"].to(torch.float32).reshape(-1, 1)
                out[name] = tensor.to(torch.float32) * scale
                names.append(name)
            elif name.endswith(".bias"):
                out[name] = tensor
        else:
            out[name] = tensor
    return out, sorted(names)


def load(folder, dtype=torch.float32):
    """(model, names of the expanded weights, whether Linears round their inputs to fp8)."""
    folder = pathlib.Path(folder)
    files = sorted(folder.glob("*.gguf"))
    options = {"dtype": dtype, "attn_implementation": "eager", "experts_implementation": "eager"}
    if files and not list(folder.glob("*.safetensors")):
        # Always widened in float32 first: GGUF's blocks are exact in it.
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=files[0].name, **(options | {"dtype": torch.float32}))
        return model.to(dtype).eval(), [], False
    config = json.loads((folder / "config.json").read_text())
    quantization = config.pop("quantization_config", None)
    if quantization is None:
        return AutoModelForCausalLM.from_pretrained(folder, **options).eval(), [], False
    tensors, names = expand(read_tensors(folder), quantization)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "config.json").write_text(json.dumps(config))
        for name in SIDE_FILES:
            if (folder / name).exists():
                shutil.copy(folder / name, scratch / name)
        save_file({k: v.to(torch.float32).contiguous() for k, v in tensors.items()}, scratch / "model.safetensors",
                  {"format": "pt"})
        model = AutoModelForCausalLM.from_pretrained(scratch, **options).eval()
    rounds = False
    if quantization["quant_method"] == "compressed-tensors":
        inputs = quantization["config_groups"]["group_0"].get("input_activations")
        rounds = inputs is not None and inputs.get("dynamic", False)
    return model, names, rounds


def head(model):
    """The product that gives the logits."""
    return model.get_output_embeddings()


def head_name(model):
    return next(n for n, m in model.named_modules() if m is head(model)) + ".weight"


def linears(model):
    kinds = (torch.nn.Linear, Conv1D)
    return [m for m in model.modules() if isinstance(m, kinds) and m is not head(model)]


def decoder_layers(model):
    """(name, module) of each layer: the list of modules, as many as the configuration has layers, that lies outermost."""
    count = model.config.num_hidden_layers
    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count]
    assert lists, f"no list of {count} layers in {type(model).__name__}"
    name, layers = min(lists, key=lambda found: found[0].count("."))
    return [(f"{name}.{i}", layer) for i, layer in enumerate(layers)]


@contextlib.contextmanager
def states_seen(model):
    """While inside, runs of the model fill the dictionary: what enters the first layer (embed), leaves each layer
    (layer0, ..), and enters the head (final_norm); of the first sequence."""
    seen = {}

    def keep(name, value):
        seen[name] = (value[0] if isinstance(value, tuple) else value)[0]

    def entering(name):
        return lambda m, args, more: keep(name, args[0] if args else more["hidden_states"])

    layers = [layer for _, layer in decoder_layers(model)]
    handles = [layers[0].register_forward_pre_hook(entering("embed"), with_kwargs=True)]
    for i, layer in enumerate(layers):
        handles.append(layer.register_forward_hook(lambda m, args, out, i=i: keep(f"layer{i}", out)))
    handles.append(head(model).register_forward_pre_hook(lambda m, args: keep("final_norm", args[0])))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def inputs_changed(model, change):
    """While inside, `change` is applied to the input of every Linear but the head."""
    handles = [m.register_forward_pre_hook(lambda _, args: (change(args[0]), *args[1:])) for m in linears(model)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def round_fp8(x):
    """Token by token: s = max(max|x| / 448, 2^-23), s * f8e4m3(clamp(x / s))."""
    wide = x.to(torch.float32)
    s = (wide.abs().amax(-1, keepdim=True) / 448).clamp(min=2.0 ** -23)
    return (s * (wide / s).clamp(-448, 448).to(torch.float8_e4m3fn).to(torch.float32)).to(x.dtype)


def fp8_clearance(x):
    """The least distance of any element from a rounding boundary, in units of its token's root mean square."""
    x = x.to(torch.float64)
    s = (x.abs().amax(-1, keepdim=True) / 448).clamp(min=2.0 ** -23)
    codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float64)
    middles = (codes[1:] + codes[:-1]) / 2
    scaled = (x / s).abs().reshape(-1)
    at = torch.searchsorted(middles, scaled).clamp(1, len(middles) - 1)
    distance = torch.minimum((scaled - middles[at]).abs(), (scaled - middles[at - 1]).abs()).reshape(x.shape) * s
    rms = x.pow(2).mean(-1, keepdim=True).sqrt()
    return float((distance / rms.clamp(min=1e-30)).min())


def round_int8(x):
    """Token by token in groups of 32 along K, symmetric: what Bolide's int8 products do to their inputs."""
    wide = x.to(torch.float32)
    pad = -wide.shape[-1] % 32
    groups = torch.nn.functional.pad(wide, (0, pad)).unflatten(-1, (-1, 32))
    s = groups.abs().amax(-1, keepdim=True) / 127
    rounded = torch.where(s > 0, s * (groups / s.clamp(min=1e-30)).round(), groups)
    return rounded.flatten(-2)[..., : wide.shape[-1]].to(x.dtype)


def uses_dynamic_rope(config):
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    return rope.get("rope_type", rope.get("type")) == "dynamic"


def plain_numpy(tensor):
    return np.ascontiguousarray(tensor.detach().to(torch.float32).cpu().numpy())


__all__ = ["AutoConfig", "Conv1D", "head", "head_name", "decoder_layers", "states_seen", "load", "linears", "inputs_changed", "round_fp8", "round_int8", "fp8_clearance", "uses_dynamic_rope",
           "plain_numpy", "read_tensors", "expand", "AWQ_ORDER"]
