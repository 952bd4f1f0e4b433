#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/generated.json.xz: small tokenizers of every kind with the ids and texts that the
`tokenizers` library gives for them. The C++ side must match every one.

Normalisers and pre-tokenisers are tested with a model that shows exactly what they produced: every character is
written as its bytes (<0xHH>), and each piece ends with the bytes of "</w>".

    pip install tokenizers
    tools/golden/make_tokenizers.py                       # the committed file
    tools/golden/make_tokenizers.py --characters OUT.xz   # every character of Unicode through every step (not committed)
"""
import argparse
import base64
import json
import lzma
import pathlib
import random
import struct
import sys

from tokenizers import Tokenizer, __version__

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "golden" / "tokenizers" / "generated.json.xz"

TEXTS = [
    "", " ", "  ", "a", "Hello, world!", " Hello", "Hello ", "  two  spaces  ", "tab\tand\nnewline\r\n\r\n  x",
    "I'm you're we've they'll he'd it's DON'T", "can't, won't; shan't.", "3.14159 1,000,000 12345678 ½ ٣٤ Ⅷ ²",
    "naïve café résumé ÀÉÎ", "cafe\u0301 A\u030a ḱṷṓn", "Straße ẞ ŒUVRE ﬁ ﬂ ﷺ", "İstanbul ıI ŞĞ",
    "你好，世界！这是一个测试。", "日本語のテキスト、カタカナ。", "한국어 텍스트 ᄒ ᅡ ᆫ", "Привет, мир! Ёлка", "Γειά σου Κόσμε ΣΑΣ ς",
    "مرحبا بالعالم", "שלום עולם", "हिन्दी में पाठ क्षि", "ภาษาไทยไม่มีช่องว่าง", "🙂🙃 👩‍👩‍👧‍👦 🇩🇪 👍🏽 ☕️", "x\u200by\u200dz\u00adw\ufeffv",
    "\u00a0nbsp\u3000wide\u2003em\u2028line\u2029par\u0085nel\u180emvs", "a\u0000b\u0001c\u007fd\u009fe\ufffdf",
    "snake_case camelCase kebab-case foo.bar(baz)[qux]{x}", "x = y + z * 2 / (3 - 4) % 5 == 6 && !7 || ~8 ^ 9", "<s>tag</s> <unk> [UNK] [CLS] <pad>",
    "http://example.com/a?b=c&d=e#f user@example.org", "...!!!???---___***", "‘quotes’ “double” «guill» – — …", "$100 €200 £300 ¥400 ₿5",
    "∑∏∫√∞≈≠≤≥ ←→↑↓ ■□●○ ①②③ⒶⒷ", "ａｂｃ ＡＢＣ １２３ ｱｲｳ", "ǅ ǆ Ǆ ŉ ΐ", "The quick brown fox jumps over the lazy dog. " * 2,
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\n\n\n", " \n \n ", "▁a ▁▁b▁", "<0x41><0x0A>", "##ing un##able", "low lower lowest newer wider</w>",
    "tok1 TOK1 xtok1 tok1x <a>  <a>\n <b> <b><c>x<c> <d>", " <a> ", "tok1", "é<n>É e\u0301", "mixed: 漢字kana12ab가나",
    "I do not like it . Is it 's ? ' n't 've", "deadbeef 0xCAFE \\n \\t", "a b  c   d    e", "Ünïcödé ÜNÏCÖDÉ", "\u0301leading mark", "ﬀﬃ①㍿㌀",
    "𝒜𝓫𝔠 𝟘𝟙 𐐀𐐨 𝄞", "\ud7ff\ue000\ufffe\U0010ffff", "don\u2019t \u02bcn", "K\u212a k ſs 'ſ 'S", "100% 50%off #hash @at", "e\u0301\u0323 e\u0323\u0301 \u1ec7", "ำ ຳ ༀ",
]

WORDS = ("the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which "
         "one you were her all she there would their we him been has when who will more no if out so said what up its about "
         "into than them can only other new some could time these two may then do first any my now such like our over man me "
         "even most made after also did many before must through back years where much your way well down should because each "
         "low lower lowest newer wider hello world token tokenizer testing jumps quick brown fox lazy dog").split()


def byte_tokens():
    return [f"<0x{b:02X}>" for b in range(256)]


def show_model():
    """Writes each character as bytes and marks the end of each piece."""
    return {"type": "BPE", "vocab": {t: i for i, t in enumerate(byte_tokens())}, "merges": [], "byte_fallback": True,
            "end_of_word_suffix": "</w>"}


def spec(model, normalizer=None, pre=None, post=None, decoder=None, added=()):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(added), "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": post, "decoder": decoder, "model": model}


def added(i, content, special=False, single_word=False, lstrip=False, rstrip=False, normalized=None):
    return {"id": i, "content": content, "special": special, "single_word": single_word, "lstrip": lstrip,
            "rstrip": rstrip, "normalized": (not special) if normalized is None else normalized}


def charsmap(pairs):
    """A darts-clone double array for {bytes: bytes}, built the simple way: one free block of 256 units per node."""
    blob, where = b"", {}
    for key, value in pairs.items():
        where[key.encode()] = len(blob)
        blob += value.encode() + b"\0"
    units = [0] * 256
    def node(prefix, position):
        children = sorted({k[len(prefix)] for k in where if k.startswith(prefix) and len(k) > len(prefix)})
        base = len(units)
        units.extend([0] * 256)
        # A large offset is stored in units of 256 (bit 9), so base ^ position must have a zero low byte: the page is
        # addressed as position's low byte, and children at low ^ label.
        low = position & 0xFF
        offset = (base | low) ^ position
        assert offset & 0xFF == 0
        units[position] = (units[position] & 0xFF) | (offset >> 8) << 10 | 1 << 9
        start = base | low
        if prefix in where:
            units[position] |= 1 << 8
            units[start] = where[prefix] | 1 << 31
        for label in children:
            child = start ^ label
            units[child] = label
            node(prefix + bytes([label]), child)
    node(b"", 0)
    trie = b"".join(struct.pack("<I", u) for u in units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + blob).decode()


NORMALIZERS = {
    "nfc": {"type": "NFC"}, "nfd": {"type": "NFD"}, "nfkc": {"type": "NFKC"}, "nfkd": {"type": "NFKD"},
    "lowercase": {"type": "Lowercase"}, "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
    "strip_left": {"type": "Strip", "strip_left": True, "strip_right": False},
    "strip_right": {"type": "Strip", "strip_left": False, "strip_right": True},
    "strip_accents": {"type": "StripAccents"},
    "nfd_strip_lower": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]},
    "replace_string": {"type": "Replace", "pattern": {"String": "a"}, "content": "<A>"},
    "replace_empty_string": {"type": "Replace", "pattern": {"String": ""}, "content": "-"},
    "replace_regex": {"type": "Replace", "pattern": {"Regex": "[aeiou]+|\\s{2,}"}, "content": "_"},
    "replace_empty_regex": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "-"},
    "prepend": {"type": "Prepend", "prepend": "▁"},
    "bert": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    "bert_cased": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": False, "strip_accents": None, "lowercase": False},
    "bert_accents": {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True, "strip_accents": True, "lowercase": False},
    "nmt": {"type": "Nmt"}, "byte_level": {"type": "ByteLevel"},
    "precompiled": {"type": "Precompiled", "precompiled_charsmap": charsmap(
        {"ａ": "a", "ｂ": "b", "½": "1⁄2", "①": "1", "ﬁ": "fi", "é": "e", "e\u0301": "é", "\t": " ", "你": "ni", "好": "", "x": "ks", "xy": "never",
         "A\u030a": "Å", "\u00a0": " ", "👍": "+1"})},
}

LLAMA3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
REGEXES = {
    "llama3": LLAMA3,
    "cl100k": "(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
    "gpt4o": "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "kimi": "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "deepseek3": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "cjk": "[一-龥\u3040-ゟ゠-ヿ]+", "bloom": " ?[^(\\s|[.,!?…。，、।۔،])]+", "words": "\\w+|[^\\w\\s]+", "not_words": "\\W+", "space": "\\s+", "not_space": "\\S+",
    "class_not_space": "[\\S\\n]+", "class_not_word": "[\\W\\d]+", "hex": "\\h{2,}", "not_hex": "\\H+", "line_ends": "^.|.$", "dot_all": "(?m:o.*?x)", "unicode_escape": "\\u0065\\u0301|\\x{4F60}|\\u597D",
    "nested_class": "[a-c[x-z][0-9]]+", "intersection": "[a-z&&[^aeiou]]+", "negated_intersection": "[^a-z&&[^aeiou]]+", "boundaries": "\\b\\d+\\b", "lookbehind": "(?<=a)b|(?<!a)c", "lookahead": "(?=(\\d{3})+(?!\\d))", "alternatives": "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+",
    "long_names": "\\p{Letter}+|\\p{Punctuation}", "negated_property": "\\P{L}+", "caret_property": "\\p{^L}+", "interval_plus": "a{1,2}+b?", "lower_bound": "o{,2}", "atomic": "(?>a+)b?", "case": "(?i)the|HELLO", "posix": "[[:alpha:]]+", "posix_space": "[[:space:]]+", "empty": "", "star": "x*",
}

PRETOKENIZERS = {
    "byte_level": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    "byte_level_prefix": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "byte_level_plain": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
    "whitespace": {"type": "Whitespace"}, "whitespace_split": {"type": "WhitespaceSplit"}, "bert": {"type": "BertPreTokenizer"},
    "metaspace_always": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    "metaspace_first": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
    "metaspace_never": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
    "metaspace_whole": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
    "metaspace_old": {"type": "Metaspace", "replacement": "_", "add_prefix_space": True},
    "split_then_first": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}]},
    "digits": {"type": "Digits", "individual_digits": False}, "digits_individual": {"type": "Digits", "individual_digits": True},
    "char_delimiter": {"type": "CharDelimiterSplit", "delimiter": "e"},
    "split_string": {"type": "Split", "pattern": {"String": "a"}, "behavior": "MergedWithNext", "invert": False},
    "falcon": {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, {"type": "Digits", "individual_digits": False}, {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]},
}
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
for b in BEHAVIORS:
    PRETOKENIZERS["punctuation_" + b] = {"type": "Punctuation", "behavior": b}
    for invert in (False, True):
        PRETOKENIZERS[f"split_{b}{'_invert' if invert else ''}"] = {"type": "Split", "pattern": {"Regex": "[aeiou]|\\s"}, "behavior": b, "invert": invert}
for name, regex in REGEXES.items():
    PRETOKENIZERS["regex_" + name] = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}

DECODERS = {
    "none": None, "byte_level": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "fallback": {"type": "ByteFallback"}, "fuse": {"type": "Fuse"},
    "llama": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    "metaspace_never": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": True},
    "word_piece": {"type": "WordPiece", "prefix": "##", "cleanup": True}, "word_piece_plain": {"type": "WordPiece", "prefix": "##", "cleanup": False},
    "bpe": {"type": "BPEDecoder", "suffix": "</w>"},
    "replace_regex": {"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": "*"},
    "fuse_replace": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "aab"}, "content": "<X>"}]},
    "fuse_replace_regex": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "a+b"}, "content": "<X>"}]},
    "strip_stop": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 2, "stop": 2}]},
    "bytes_then_fallback": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]},
}


def train(kind, **options):
    from tokenizers import models, pre_tokenizers, trainers
    rng = random.Random(7)
    corpus = [" ".join(rng.choices(WORDS, k=12)) for _ in range(200)]
    corpus += [text for text in TEXTS if kind != "unigram" or text.isascii()]
    if kind == "byte_level":
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    elif kind == "bpe":
        t = Tokenizer(models.BPE(**options))
        t.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.BpeTrainer(vocab_size=300, limit_alphabet=60, special_tokens=["<unk>"], show_progress=False,
                                      **{k: v for k, v in options.items() if k in ("continuing_subword_prefix", "end_of_word_suffix")})
    elif kind == "metaspace_bpe":
        t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=560, limit_alphabet=60, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens(), show_progress=False)
    elif kind == "unigram":
        t = Tokenizer(models.Unigram())
        t.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=options.get("size", 300), special_tokens=options["special"], unk_token="<unk>", show_progress=False)
    elif kind == "word_piece":
        t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=400, limit_alphabet=120, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False)
    else:
        t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
        t.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(vocab_size=120, special_tokens=["[UNK]"], show_progress=False)
    t.train_from_iterator(corpus, trainer)
    return json.loads(t.to_str())["model"]


def template(before, after=()):
    token = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [token(n) for n, _ in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [token(n) for n, _ in after],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for n, i in list(before) + list(after)}}


def tokenizers():
    show = show_model()
    for name, n in NORMALIZERS.items():
        yield "normalizer." + name, spec(show, normalizer=n, decoder={"type": "ByteFallback"})
    for name, p in PRETOKENIZERS.items():
        yield "pre_tokenizer." + name, spec(show, pre=p)
    strip_first = {"type": "Strip", "strip_left": True, "strip_right": False}
    yield "metaspace_after_strip", spec(show, normalizer=strip_first, pre=PRETOKENIZERS["metaspace_first"], added=[added(256, "<a>"), added(257, "<b>", special=True)])
    flags = [dict(special=s, single_word=w, lstrip=l, rstrip=r) for s in (False, True) for w in (False, True) for l in (False, True) for r in (False, True)]
    for k, f in enumerate(flags):
        tokens = [added(256, "<a>", **f), added(257, "tok1", **f), added(258, "<b>", special=True), added(259, "  ", normalized=False), added(260, "é<n>", normalized=True), added(261, "\n", special=True)]
        yield f"added.{k}", spec(show, normalizer={"type": "Lowercase"} if k % 3 == 1 else {"type": "NFD"} if k % 3 == 2 else None, pre=PRETOKENIZERS["metaspace_first"], added=tokens, decoder={"type": "ByteFallback"})
    wide = byte_tokens() + ["▁", "▁a", "a", "aa", "aab", "b", "ab", "a▁b", "##a", "##ing", "</w>", "low</w>", " .", " ?", "'s", " 's", "n't", " ' ", "do", " do not", "Ġ", "Ġthe", "Ã", "©", "ä", "½", "ł", "<0x+F>", "<0xfF>", "<0xZZ>", "é", "你好", "🙂", "<0x", "x", " ", "  ", "", "e", "i▁i"]
    level = {"type": "WordLevel", "vocab": {t: i for i, t in enumerate(wide)}, "unk_token": "x"}
    for name, d in DECODERS.items():
        yield "decoder." + name, spec(level, decoder=d, added=[added(len(wide), "<sp>", special=True), added(len(wide) + 1, "plain é")])
    byte_level = train("byte_level")
    yield "byte_level", spec(byte_level, pre=PRETOKENIZERS["byte_level"], decoder=DECODERS["byte_level"], post={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True})
    yield "byte_level.ignore_merges", spec({**byte_level, "ignore_merges": True, "merges": byte_level["merges"][:60]}, pre=PRETOKENIZERS["byte_level_prefix"], decoder=DECODERS["byte_level"])
    yield "byte_level.pairs_as_text", spec({**byte_level, "merges": [" ".join(m) for m in byte_level["merges"]]}, normalizer={"type": "NFC"}, pre=PRETOKENIZERS["regex_llama3"], decoder=DECODERS["byte_level"])
    yield "roberta", spec(byte_level, pre=PRETOKENIZERS["byte_level"], decoder=DECODERS["byte_level"], post={"type": "RobertaProcessing", "sep": ["b", 5], "cls": ["a", 6], "trim_offsets": True, "add_prefix_space": False})
    plain = train("bpe", unk_token="<unk>")
    for fuse in (False, True):
        yield f"bpe.fuse_{fuse}", spec({**plain, "fuse_unk": fuse}, pre=PRETOKENIZERS["whitespace_split"])
    yield "bpe.no_unk", spec({**plain, "unk_token": None}, pre=PRETOKENIZERS["whitespace_split"])
    yield "bpe.whole_text", spec({**plain, "fuse_unk": True})
    yield "bpe.suffix", spec(train("bpe", unk_token="<unk>", end_of_word_suffix="</w>"), normalizer={"type": "Lowercase"}, pre=PRETOKENIZERS["bert"], decoder=DECODERS["bpe"])
    yield "bpe.prefix", spec(train("bpe", unk_token="<unk>", continuing_subword_prefix="##"), pre=PRETOKENIZERS["whitespace"], decoder=DECODERS["word_piece"])
    fallback = train("metaspace_bpe")
    bos = [added(0, "<unk>", special=True), added(1, "<s>", special=True), added(2, "</s>", special=True)]
    llama_normalizer = {"type": "Sequence", "normalizers": [NORMALIZERS["prepend"], {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    yield "llama", spec(fallback, normalizer=llama_normalizer, decoder=DECODERS["llama"], post=template([("<s>", 1)], [("</s>", 2)]), added=bos)
    yield "llama.metaspace", spec(fallback, pre=PRETOKENIZERS["metaspace_first"] | {"split": False}, decoder=DECODERS["llama"], post={"type": "Sequence", "processors": [template([("<s>", 1)])]}, added=bos)
    unigram = train("unigram", special=["<unk>", "<s>", "</s>"])
    yield "unigram", spec(unigram, pre=PRETOKENIZERS["metaspace_always"], decoder=DECODERS["metaspace"], post=template([], [("</s>", 2)]), added=bos)
    yield "unigram.nmt_nfkc", spec(unigram, normalizer={"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}, pre={"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, PRETOKENIZERS["metaspace_always"]]}, decoder=DECODERS["metaspace"])
    yield "unigram.no_unk", spec({**unigram, "unk_id": None}, pre=PRETOKENIZERS["metaspace_always"], decoder=DECODERS["metaspace"])
    bytes_unigram = train("unigram", special=["<unk>"] + byte_tokens(), size=560)
    yield "unigram.byte_fallback", spec({**bytes_unigram, "byte_fallback": True}, pre=PRETOKENIZERS["metaspace_first"], decoder=DECODERS["bytes_then_fallback"])
    word_piece = train("word_piece")
    marks = [added(i, t, special=True) for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])]
    bert_post = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    yield "bert", spec(word_piece, normalizer=NORMALIZERS["bert"], pre=PRETOKENIZERS["bert"], post=bert_post, decoder=DECODERS["word_piece"], added=marks)
    yield "bert.short_words", spec({**word_piece, "max_input_chars_per_word": 6}, normalizer=NORMALIZERS["bert_cased"], pre=PRETOKENIZERS["bert"], post=template([("[CLS]", 2)], [("[SEP]", 3)]), decoder=DECODERS["word_piece_plain"], added=marks)
    yield "word_level", spec(train("word_level"), pre=PRETOKENIZERS["whitespace"])
    yield "word_level.no_unk", spec({"type": "WordLevel", "vocab": {"a": 0, "the": 1}, "unk_token": "[UNK]"}, pre=PRETOKENIZERS["whitespace_split"])


def attempt(call):
    """The result, or None where the library refuses (or, for broken expressions, panics)."""
    try:
        return call()
    except BaseException as e:  # pyo3's PanicException is no Exception
        if isinstance(e, KeyboardInterrupt):
            raise
        return None


def golden(name, description, texts, lists, rng):
    t = attempt(lambda: Tokenizer.from_str(json.dumps(description)))
    if t is None:
        print(f"{name}: refused by the library", file=sys.stderr)
        return None
    entries = []
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            continue
        entry = {"text": text}
        for key, special in (("ids", False), ("ids_special", True)):
            encoded = attempt(lambda: t.encode(text, add_special_tokens=special).ids)
            if encoded is None:
                entry["error"] = True
                break
            entry[key] = encoded
        else:
            for prefix, ids in (("", entry["ids"]), ("special_", entry["ids_special"])):
                entry[prefix + "decoded"] = attempt(lambda: t.decode(ids, skip_special_tokens=False))
                entry[prefix + "decoded_skip"] = attempt(lambda: t.decode(ids, skip_special_tokens=True))
            if None in entry.values():
                continue
            if entry["ids_special"] == entry["ids"]:
                for key in ("ids_special", "special_decoded", "special_decoded_skip"):
                    del entry[key]
        entries.append(entry)
    out_lists = []
    size = t.get_vocab_size()
    for _ in range(lists):
        low = max(0, size - 46) if rng.random() < 0.6 else 0
        ids = [rng.randrange(low, size + 2) for _ in range(rng.randrange(1, 14))]
        decoded = attempt(lambda: t.decode(ids, skip_special_tokens=False))
        skipped = attempt(lambda: t.decode(ids, skip_special_tokens=True))
        if decoded is not None and skipped is not None:
            out_lists.append({"ids": ids, "decoded": decoded, "decoded_skip": skipped})
    return {"name": name, "tokenizer": description, "golden": {"texts": entries, "id_lists": out_lists}}


def write(path, results):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"library": f"tokenizers {__version__}", "tokenizers": results}, ensure_ascii=False, separators=(",", ":"))
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{path}: {len(results)} tokenizers, {path.stat().st_size} bytes")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--characters", type=pathlib.Path)
    options = arguments.parse_args()
    rng = random.Random(11)
    if options.characters:
        ranges = [(0, 0x3400), (0x4DC0, 0x4E40), (0xA000, 0xAC40), (0xD7A0, 0xD800), (0xE000, 0xE040), (0xF8F0, 0x12000), (0x16000, 0x17000), (0x1B000, 0x20040), (0xE0000, 0xE0200)]
        texts = ["".join(f"{chr(c)}a" for c in range(i, min(i + 64, end))) for begin, end in ranges for i in range(begin, end, 64)]
        steps = {"whitespace", "whitespace_split", "bert", "digits_individual", "punctuation_Isolated", "byte_level", "regex_words", "regex_llama3"}
        chosen = [(n, d) for n, d in tokenizers() if n.startswith("normalizer.") or n.removeprefix("pre_tokenizer.") in steps]
        results = [golden(n, d, texts, 0, rng) for n, d in chosen]
        write(options.characters, [r for r in results if r])
        return
    results = []
    for name, description in tokenizers():
        small = name.startswith(("normalizer.", "pre_tokenizer.", "decoder."))
        texts = TEXTS if not name.startswith("decoder.") else TEXTS[:3]
        result = golden(name, description, texts, 60 if name.startswith("decoder.") else 4 if small else 12, rng)
        if result:
            results.append(result)
    write(OUT, results)


if __name__ == "__main__":
    main()
