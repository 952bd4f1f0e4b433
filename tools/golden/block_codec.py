#!/usr/bin/env python3
"""Makes tests/golden/block_codec/<scheme>.bin: random blocks and the float32 values that the `gguf` package gives them.

Each file is little-endian: uint32 bytes of blocks, uint32 count of values, the blocks, the float32 values.
Needs: pip install gguf numpy (made with gguf 0.19.0). Usage: block_codec.py OUTPUT_FOLDER
"""
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import dequantize

# Scheme: type, elements and bytes of a block, blocks to make, offsets of the float16 fields in a block.
SCHEMES = {
    "q4_0": (T.Q4_0, 32, 18, 16, [0]),
    "q4_1": (T.Q4_1, 32, 20, 16, [0, 2]),
    "q5_0": (T.Q5_0, 32, 22, 16, [0]),
    "q5_1": (T.Q5_1, 32, 24, 16, [0, 2]),
    "q8_0": (T.Q8_0, 32, 34, 16, [0]),
    "q2_k": (T.Q2_K, 256, 84, 4, [80, 82]),
    "q3_k": (T.Q3_K, 256, 110, 4, [108]),
    "q4_k": (T.Q4_K, 256, 144, 4, [0, 2]),
    "q5_k": (T.Q5_K, 256, 176, 4, [0, 2]),
    "q6_k": (T.Q6_K, 256, 210, 4, [208]),
    "iq4_nl": (T.IQ4_NL, 32, 18, 16, [0]),
    "iq4_xs": (T.IQ4_XS, 256, 136, 4, [0]),
}


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(20240229)
    for name, (kind, elements, size, count, halves) in SCHEMES.items():
        blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
        for at in halves:
            scales = (random.standard_normal(count) * 2.0 ** random.integers(-18, 3, count)).astype(np.float16)
            blocks[:, at : at + 2] = scales.view(np.uint8).reshape(count, 2)
        values = dequantize(blocks, kind).astype(np.float32)
        assert values.size == count * elements and np.isfinite(values).all()
        data = struct.pack("<II", blocks.size, values.size) + blocks.tobytes() + values.astype("<f4").tobytes()
        (out / f"{name}.bin").write_bytes(data)


main()
