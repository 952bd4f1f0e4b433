#!/usr/bin/env python3
"""Writes an ONNX file of a Llama-like decoder as optimisers leave it: MatMulNBits, GroupQueryAttention with rotary
embedding and past and present keys and values, (Skip)SimplifiedLayerNormalization. Weights are random, by seed.

usage: make_decoder_onnx.py OUT [--layers N] [--width E] [--ffn F] [--heads H] [--kv-heads G] [--vocabulary V]
       [--block N] [--bits 4|8] [--zeros] [--accuracy 0|4] [--attention group|multi] [--dynamic] [--seed N]
`--attention multi`: MultiHeadAttention after RotaryEmbedding, in place of GroupQueryAttention (as many heads of keys).
`--dynamic`: DynamicQuantizeMatMul in place of MatMulNBits.
Inputs: input_ids [B, S], attention_mask [B, T] (multi: position_ids [B, S] instead), past_key_values.I.key and .value
[B, G, P, D]; outputs: logits [B, S, V], present.I.key and .value. Needs onnx and numpy.
"""
import argparse

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Writer:
    def __init__(self, options):
        self.options, self.random = options, numpy.random.default_rng(options.seed)
        self.nodes, self.constants = [], []

    def constant(self, name, array):
        self.constants.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def node(self, op, inputs, outputs, domain="com.microsoft", **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"/{outputs[0]}", domain=domain, **attributes))
        return outputs[0]

    def product(self, x, name, k, n):
        o, sigma = self.options, 1 / numpy.sqrt(k)
        if o.dynamic:
            codes = self.random.integers(-127, 128, (k, n)).astype(numpy.int8)
            scales = (self.random.uniform(0.8, 1.2, n) * sigma / 73).astype(numpy.float32)
            return self.node("DynamicQuantizeMatMul", [x, self.constant(f"{name}.codes", codes),
                                                       self.constant(f"{name}.scales", scales)], [name])
        blocks = -(-k // o.block)
        codes = self.random.integers(0, 256, (n, blocks, o.block * o.bits // 8)).astype(numpy.uint8)
        spread = 4.6 if o.bits == 4 else 73
        scales = (self.random.uniform(0.8, 1.2, n * blocks) * sigma / spread).astype(numpy.float32)
        inputs = [x, self.constant(f"{name}.codes", codes), self.constant(f"{name}.scales", scales)]
        if o.zeros:
            zeros = numpy.full(n * -(-blocks * o.bits // 8), 0x87 if o.bits == 4 else 0x81, numpy.uint8)
            inputs.append(self.constant(f"{name}.zeros", zeros))
        return self.node("MatMulNBits", inputs, [name], K=k, N=n, bits=o.bits, block_size=o.block,
                         accuracy_level=o.accuracy)

    def scale(self, name, width):
        return self.constant(name, self.random.uniform(0.8, 1.2, width).astype(numpy.float32))


def rotary_caches(positions, dim):
    angles = numpy.outer(numpy.arange(positions), 10000.0 ** (-numpy.arange(0, dim, 2) / dim))
    return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


def make(options):
    w = Writer(options)
    E, F, H, G, V = options.width, options.ffn, options.heads, options.kv_heads, options.vocabulary
    D = E // H
    multi = options.attention == "multi"
    if multi:
        G = H
    table = w.random.standard_normal((V, E)).astype(numpy.float32)
    cosines, sines = (w.constant(n, a) for n, a in zip(("cosines", "sines"), rotary_caches(4096, D)))
    x = w.node("Gather", [w.constant("embedding", table), "input_ids"], ["embedded"], domain="")
    if not multi:
        one = w.constant("one", numpy.array([1], numpy.int64))
        total = w.node("ReduceSum", ["attention_mask", one], ["lengths"], domain="", keepdims=0)
        w.node("Cast", [w.node("Sub", [total, one], ["lengths_less_one"], domain="")], ["seqlens_k"], domain="",
               to=TensorProto.INT32)
        shape = w.node("Shape", ["attention_mask"], ["mask_shape"], domain="")
        index = w.constant("index", numpy.array(1, numpy.int64))
        w.node("Cast", [w.node("Gather", [shape, index], ["total"], domain="")], ["total_length"], domain="",
               to=TensorProto.INT32)
    skip = None
    for i in range(options.layers):
        p = f"layers.{i}"
        scale = w.scale(f"{p}.norm.scale", E)
        if skip is None:
            normal = w.node("SimplifiedLayerNormalization", [x, scale], [f"{p}.normal"], domain="", axis=-1,
                            epsilon=1e-5, stash_type=1)
        else:
            normal = w.node("SkipSimplifiedLayerNormalization", [x, skip, scale],
                            [f"{p}.normal", "", "", f"{p}.sum"], epsilon=1e-5)
            x = f"{p}.sum"
        past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        outputs = [f"{p}.attended", f"present.{i}.key", f"present.{i}.value"]
        if multi:
            q, k, v = (w.product(normal, f"{p}.{n}", E, E) for n in "qkv")
            q, k = (w.node("RotaryEmbedding", [t, "position_ids", cosines, sines], [f"{t}.turned"], num_heads=H)
                    for t in (q, k))
            attended = w.node("MultiHeadAttention", [q, k, v, "", "", "", *past], outputs, num_heads=H,
                              unidirectional=1)
        else:
            joined = w.product(normal, f"{p}.qkv", E, (H + 2 * G) * D)
            attended = w.node("GroupQueryAttention",
                              [joined, "", "", *past, "seqlens_k", "total_length", cosines, sines], outputs,
                              num_heads=H, kv_num_heads=G, do_rotary=1)
        projected = w.product(attended, f"{p}.o", E, E)
        normal = w.node("SkipSimplifiedLayerNormalization", [x, projected, w.scale(f"{p}.ffn_norm.scale", E)],
                        [f"{p}.ffn_normal", "", "", f"{p}.ffn_sum"], epsilon=1e-5)
        x = f"{p}.ffn_sum"
        gate, up = w.product(normal, f"{p}.gate", E, F), w.product(normal, f"{p}.up", E, F)
        half = w.node("Sigmoid", [gate], [f"{p}.sigmoid"], domain="")
        active = w.node("Mul", [gate, half], [f"{p}.silu"], domain="")
        skip = w.product(w.node("Mul", [active, up], [f"{p}.gated"], domain=""), f"{p}.down", F, E)
    normal = w.node("SkipSimplifiedLayerNormalization", [x, skip, w.scale("norm.scale", E)], ["normal"], epsilon=1e-5)
    w.product(normal, "logits", E, V)

    def tensor(name, shape, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)

    inputs = [tensor("input_ids", ["B", "S"], TensorProto.INT64)]
    inputs.append(tensor("position_ids", ["B", "S"], TensorProto.INT64) if multi else
                  tensor("attention_mask", ["B", "T"], TensorProto.INT64))
    outputs = [tensor("logits", ["B", "S", V])]
    for i in range(options.layers):
        for side in ("key", "value"):
            inputs.append(tensor(f"past_key_values.{i}.{side}", ["B", G, "P", D]))
            outputs.append(tensor(f"present.{i}.{side}", ["B", G, "L", D]))
    graph = helper.make_graph(w.nodes, "decoder", inputs, outputs, w.constants)
    return helper.make_model(graph, ir_version=10, producer_name="make_decoder_onnx",
                             opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name, value in (("layers", 2), ("width", 2048), ("ffn", 8192), ("heads", 32), ("kv-heads", 8),
                        ("vocabulary", 16384), ("block", 32), ("bits", 4), ("accuracy", 4), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--attention", choices=("group", "multi"), default="group")
    options = parser.parse_args()
    onnx.save(make(options), options.out)


if __name__ == "__main__":
    main()
