#!/usr/bin/env python3
"""Writes golden.json and golden.safetensors for a checkpoint: what transformers gives for it, and what to allow.

usage: make_golden.py FOLDER [--seed N] [--about TEXT] [--text TEXT] [--tokenizer TOKENIZER_JSON]

FOLDER is a Hugging Face checkpoint (plain, GPTQ, AWQ or compressed-tensors fp8) or holds one GGUF file. The reference is
float32 on the CPU, eager attention, no cache. `bolide eval golden FOLDER` then checks an engine against it. README.md
beside this file describes both files and the rules of the tolerances.
"""
import argparse
import importlib.metadata
import json
import pathlib
import warnings

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

import checkpoint

PROMPTS = {"p1": 1, "p7": 7, "p33": 33, "p80": 80}
GREEDY = 24
NLL = 96
VARIED = 8  # different tokens that a greedy continuation should have
MARGIN = 0.02  # prompts are drawn again until no greedy step is closer than this


def significant(x, digits=3):
    return float(f"{x:.{digits}g}")


class Reference:
    """One model in one dtype, with what is done to the inputs of its Linears."""

    def __init__(self, model, change=None):
        self.model, self.change = model, change
        self.dynamic = checkpoint.uses_dynamic_rope(model.config)

    def reset(self):
        # A dynamic rotary embedding keeps the longest length it saw: each run starts from none.
        for rotary in [m for m in self.model.modules() if hasattr(m, "max_seq_len_cached")]:
            rotary.max_seq_len_cached = getattr(rotary, "original_max_seq_len", rotary.max_seq_len_cached)
            if hasattr(rotary, "original_inv_freq"):
                rotary.register_buffer("inv_freq", rotary.original_inv_freq.clone(), persistent=False)

    @torch.no_grad()
    def run(self, ids, **options):
        self.reset()
        if self.change is None:
            return self.model(torch.tensor([ids]), use_cache=False, **options)
        with checkpoint.inputs_changed(self.model, self.change):
            return self.model(torch.tensor([ids]), use_cache=False, **options)

    def logits(self, ids):
        return self.run(ids).logits[0]

    @torch.no_grad()
    def greedy(self, ids):
        """(ids, margins): the whole sequence anew for each token, but for dynamic rope, whose keys stay as they were
        cached."""
        ids, out, margins = list(ids), [], []
        cache, fresh = None, list(ids)
        self.reset()
        for _ in range(GREEDY):
            if self.dynamic:
                with warnings.catch_warnings():  # the argument's name changes between versions
                    warnings.simplefilter("ignore")
                    result = self.model(torch.tensor([fresh]), use_cache=True, past_key_values=cache)
                cache, last = result.past_key_values, result.logits[0, -1]
            else:
                last = self.logits(ids)[-1]
            best = last.to(torch.float64).topk(2)
            out.append(int(best.indices[0]))
            margins.append(round(float(best.values[0] - best.values[1]), 6))
            ids.append(out[-1])
            fresh = [out[-1]]
        return out, margins

    def logprobs(self, ids):
        scores = self.logits(ids).to(torch.float64).log_softmax(-1)
        return torch.stack([scores[t - 1, ids[t]] for t in range(1, len(ids))])

    def trace(self, ids):
        with checkpoint.states_seen(self.model) as seen:
            self.run(ids)
        return seen


def draw_prompts(reference, seed, forbidden, vocab, rounds_to_fp8, far_draws=0):
    """Ids of each prompt: drawn until no greedy step is a near tie and none gives a stop token; with fp8 inputs the short
    ones also until no input is near a rounding boundary. A wide model has so many inputs that one of them always is:
    there the short ones are tried in the order of that distance, out of `far_draws`."""
    random = torch.Generator().manual_seed(seed)
    allowed = torch.tensor([i for i in range(vocab) if i not in forbidden])
    prompts = []
    for name, length in PROMPTS.items():
        best = None
        rounded = rounds_to_fp8 and length <= 7
        draw = lambda: allowed[torch.randint(len(allowed), (length,), generator=random)].tolist()
        far = [draw() for _ in range(far_draws if rounded else 0)]
        far.sort(key=lambda ids: -clearance(reference, ids))
        for attempt in range(40):
            ids = far[attempt] if far else draw()
            entry = {"name": name, "ids": ids}
            if rounded and not far:
                entry["clearance"] = clearance(reference, ids)
                if attempt < 39 and entry["clearance"] < (1e-5 if length == 1 else 1e-6):
                    continue
            greedy, margins = reference.greedy(ids)
            entry |= {"last_argmax": greedy[0], "greedy": greedy, "greedy_margins": margins}
            if forbidden & set(greedy):
                continue
            # A near tie or a text that only repeats itself shows little.
            entry["worth"] = min(min(margins) / MARGIN, len(set(greedy)) / VARIED, 1)
            if best is None or entry["worth"] > best["worth"]:
                best = entry
            if best["worth"] == 1:
                break
        assert best is not None, f"{name}: every prompt drawn leads to a special token"
        prompts.append(best)
    return prompts, [allowed[i] for i in torch.randint(len(allowed), (NLL,), generator=random).tolist()]


def clearance(reference, ids):
    least = []

    def watch(x):
        least.append(checkpoint.fp8_clearance(x))
        return checkpoint.round_fp8(x)

    with torch.no_grad(), checkpoint.inputs_changed(reference.model, watch):
        reference.model(torch.tensor([ids]), use_cache=False)
    return min(least)


def compare(want, got):
    """`noise`: how far another computation lands. Both: {prompt: [rows, V]} in float64 and "nll"."""
    vectors = [(want["p33"][i], got["p33"][i]) for i in range(len(want["p33"]))]
    vectors += [(want[p][-1], got[p][-1]) for p in PROMPTS if p != "p33"]
    rel = lambda pair: float((pair[0] - pair[1]).norm() / pair[0].norm())
    rels = torch.tensor([rel(v) for v in vectors], dtype=torch.float64)
    p, q = want["p33"].log_softmax(-1), got["p33"].log_softmax(-1)
    agree = sum(int(a.argmax() == b.argmax()) for a, b in vectors) / len(vectors)
    return {"max_abs": significant(max(float((a - b).abs().max()) for a, b in vectors)),
            "rel_l2": significant(float(rels.max())), "rel_l2_median": significant(float(rels.median())),
            "rel_l2_last": {n: significant(rel((want[n][-1], got[n][-1]))) for n in PROMPTS},
            "kl_mean": significant(float((p.exp() * (p - q)).sum(-1).mean())),
            "nll_mean_diff": significant(abs(float(want["nll"].mean() - got["nll"].mean()))),
            "argmax_agreement": significant(agree)}


def outputs(reference, prompts, nll_ids):
    out = {p["name"]: reference.logits(p["ids"]).to(torch.float64) for p in prompts}
    out["nll"] = reference.logprobs(nll_ids)
    return out


def tolerances(noise, logit_std, rounds_to_fp8, wide):
    """The rules of README.md: a multiple of what transformers itself shows, never below a floor."""
    exact = {"rel_l2": significant(max(5e-5, 20 * noise["float64 cpu"]["rel_l2"]), 2),
             "max_abs": significant(max(2e-4 * logit_std, 20 * noise["float64 cpu"]["max_abs"]), 2)}
    lines = {"float32": exact}
    floors = {"float16": (0.01, 0.005, 1e-3), "bfloat16": (0.06, 0.025, 2e-3), "int8": (0.01, 0.005, 1e-3)}
    floors["weight_only bfloat16"] = floors["bfloat16"]
    for name, (rel, median, kl) in floors.items():
        shown = noise.get(name + " cpu") or noise.get(name + " inputs cpu")
        if shown is None:
            continue
        lines[name] = {"rel_l2": significant(max(rel, 2.5 * shown["rel_l2"]), 2),
                       "rel_l2_median": significant(max(median, 2 * shown["rel_l2_median"]), 2),
                       "kl_mean": significant(max(kl, 4 * shown["kl_mean"]), 2),
                       "nll_mean_diff": significant(max(0.02, 4 * shown["nll_mean_diff"]), 2)}
    if rounds_to_fp8:
        sharp = {"rel_l2": 5e-5, "max_abs": significant(2e-4 * logit_std, 2)}
        if not wide:  # of so many inputs some is within 1e-6 of a boundary, whatever the prompt
            lines["float32, p1 and p7"] = sharp
        lines["float32"] = {"rel_l2": 0.4, "kl_mean": 0.05, "nll_mean_diff": 0.1 if wide else 0.05}
        lines["weight_only float32"] = sharp
    return lines


def stored_dtype(folder):
    file = folder / "config.json"
    config = json.loads(file.read_text()) if file.exists() else {}
    return config.get("dtype") or config.get("torch_dtype")


def text_golden(reference, tokenizer, texts, forbidden):
    for text in texts:
        ids = tokenizer.encode(text).ids
        greedy, margins = reference.greedy(ids)
        if not forbidden & set(greedy) and (min(margins) >= MARGIN / 4 or text == texts[-1]):
            break
    return {"text": text, "ids": ids, "greedy": greedy, "greedy_margins": margins,
            "greedy_text": tokenizer.decode(greedy, skip_special_tokens=True)}


def compact(value, indent=0):
    """JSON whose lists of numbers take one line."""
    pad = "  " * (indent + 1)
    if isinstance(value, dict) and value:
        rows = ",\n".join(f"{pad}{json.dumps(k)}: {compact(v, indent + 1)}" for k, v in value.items())
        return "{\n" + rows + "\n" + pad[2:] + "}"
    if isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        return "[\n" + ",\n".join(pad + compact(v, indent + 1) for v in value) + "\n" + pad[2:] + "]"
    return json.dumps(value, ensure_ascii=False)


TEXTS = ["The blue light of a candle.", "Der Himmel ist blau.", "Two and two are 4.", "\u5929\u7a7a\u662f\u84dd\u8272\u7684\u3002", "Quite so?", "Light bends.", "A", "of glass"]


def make(folder, seed=0, about="", texts=None, tokenizer_file=None, small=False):
    """`small`, for wide models: hidden states of one token alone, and no weight is written out."""
    folder = pathlib.Path(folder)
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model, expanded, rounds = checkpoint.load(folder)
    gguf = bool(list(folder.glob("*.gguf")))
    reference = Reference(model, checkpoint.round_fp8 if rounds else None)
    config = model.config
    vocab = config.vocab_size
    tokenizer_path = pathlib.Path(tokenizer_file) if tokenizer_file else folder / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(tokenizer_path)) if tokenizer_path.exists() else None
    stops = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    forbidden = {i for i in stops if i is not None}
    if tokenizer is not None:
        forbidden |= {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special}
        vocab = min(vocab, tokenizer.get_vocab_size())

    prompts, nll_ids = draw_prompts(reference, seed, forbidden, vocab, rounds, 600 if small else 0)
    nll_ids = [int(i) for i in nll_ids]
    want = outputs(reference, prompts, nll_ids)
    logit_std = float(want["p33"].std())

    noise = {}
    for name, dtype, change in [("float64 cpu", torch.float64, reference.change), ("float16 cpu", torch.float16, None),
                                ("bfloat16 cpu", torch.bfloat16, reference.change)]:
        if name == "float16 cpu" and (rounds or stored_dtype(folder) == "bfloat16"):
            continue
        other = Reference(checkpoint.load(folder, dtype)[0], change)
        noise[name] = compare(want, outputs(other, prompts, nll_ids))
        if rounds and dtype == torch.bfloat16:
            noise["weight_only bfloat16 cpu"] = compare(outputs(Reference(model), prompts, nll_ids),
                                                        outputs(Reference(other.model), prompts, nll_ids))
    if gguf:
        noise["int8 inputs cpu"] = compare(want, outputs(Reference(model, checkpoint.round_int8), prompts, nll_ids))

    golden = {"format": 1, "model": folder.name, "about": about, "architecture": (config.architectures or [type(model).__name__])[0],
              "seed": seed,
              "versions": {n: importlib.metadata.version(n) for n in ["transformers", "torch", "tokenizers", "safetensors", "numpy"]},
              "reference": {"dtype": "float32", "device": "cpu", "attention": "eager", "cache": False},
              "logit_std": round(logit_std, 4)}
    if reference.dynamic:
        golden["reference"]["greedy_cache"] = True
    golden["prompts"] = [{k: v for k, v in p.items() if k not in ("clearance", "worth")} for p in prompts]
    traced = prompts[0 if small else 1]
    golden |= {"full_logits": "p33", "trace": traced["name"], "nll": {"ids": nll_ids, "mean": round(-float(want["nll"].mean()), 8)}}
    if tokenizer is not None:
        golden["text"] = text_golden(reference, tokenizer, texts or TEXTS, forbidden)

    tensors = {}
    for p in prompts:
        tensors[p["name"] + ".last_logits"] = want[p["name"]][-1]
    tensors["p33.logits"] = want["p33"]
    for name, value in reference.trace(traced["ids"]).items():
        tensors[f"{traced['name']}.{name}"] = value
    tensors["nll.logprobs"] = want["nll"]
    shown = [n for n in expanded if n.endswith("k_proj.weight")][:0 if small else 1]
    for name in shown:
        tensors["dequantised." + name] = dict(model.named_parameters())[name]
    if rounds:
        golden["clearance"] = {p["name"]: significant(clearance(reference, p["ids"]), 2) for p in prompts}
        plain = Reference(model)
        entries = []
        for p in prompts:
            greedy, margins = plain.greedy(p["ids"])
            entries.append({"name": p["name"], "last_argmax": greedy[0], "greedy": greedy, "greedy_margins": margins})
            tensors[f"weight_only.{p['name']}.last_logits"] = plain.logits(p["ids"])[-1]
        tensors["weight_only.nll.logprobs"] = plain.logprobs(nll_ids)
        golden["weight_only"] = {"prompts": entries, "nll": {"mean": round(-float(tensors["weight_only.nll.logprobs"].mean()), 8)}}
    golden |= {"noise": noise, "tolerance": tolerances(noise, logit_std, rounds, small)}
    (folder / "golden.json").write_text(compact(golden) + "\n", encoding="utf-8")
    save_file({k: v.detach().to(torch.float32).contiguous().clone() for k, v in tensors.items()}, folder / "golden.safetensors")
    return golden


def summary(golden):
    margins = min(min(p["greedy_margins"]) for p in golden["prompts"])
    return (f"{golden['model']}: logits' deviation {golden['logit_std']}, least greedy margin {margins}, "
            f"float64 {golden['noise']['float64 cpu']['rel_l2']}, bfloat16 {golden['noise']['bfloat16 cpu']['rel_l2']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--about", default="")
    parser.add_argument("--text", action="append", help="the text of the round trip; given again: tried if that ends early")
    parser.add_argument("--tokenizer", help="a tokenizer.json, where the folder has none")
    args = parser.parse_args()
    print(summary(make(args.folder, args.seed, args.about, args.text, args.tokenizer)))


if __name__ == "__main__":
    main()
