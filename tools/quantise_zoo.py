#!/usr/bin/env python3
"""Makes quantised variants of `bolide zoo` networks with ONNX Runtime's quantiser, calibrated on random inputs.

usage: tools/quantise_zoo.py FOLDER [--names A,B] [--variants A,B] [--seed N]

FOLDER has the float networks, NAME.onnx, and gets NAME.VARIANT.onnx:
  qdq        QuantizeLinear/DequantizeLinear pairs, u8 activations, i8 weights per channel
  qdq-s8     the same with symmetric i8 activations
  qdq-tensor u8 activations, i8 weights per tensor
  qlinear    QLinear operators (QOperator format), u8 activations, weights per channel
  dynamic    DynamicQuantizeLinear and MatMulInteger, weights per channel
  nbits      MatMulNBits: weights of 4 bits in blocks of 32
Needs numpy, onnx and onnxruntime.
"""
import argparse
import pathlib
import tempfile

import numpy
import onnxruntime
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static)
from onnxruntime.quantization.shape_inference import quant_pre_process

TEXT = ("minilm-l6", "bert-base", "bert-large")
SAMPLES = 2


class RandomInputs(CalibrationDataReader):
    def __init__(self, name, seed):
        random = numpy.random.default_rng(seed)
        self.items = iter([self.draw(name, random) for _ in range(SAMPLES)])

    @staticmethod
    def draw(name, random):
        if name in TEXT:
            return {"input_ids": random.integers(0, 30522, (1, 128), dtype=numpy.int64),
                    "attention_mask": numpy.ones((1, 128), numpy.int64),
                    "token_type_ids": numpy.zeros((1, 128), numpy.int64)}
        if name == "yolov8n":
            return {"images": random.random((1, 3, 640, 640), dtype=numpy.float32)}
        return {"input": random.standard_normal((1, 3, 224, 224), dtype=numpy.float32)}

    def get_next(self):
        return next(self.items, None)


def prepare(source, target):
    """Normalisations folded into the convolutions before them, constants folded."""
    with tempfile.TemporaryDirectory() as folder:
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)
        del folder


def make(name, variant, source, target, seed):
    common = dict(per_channel=variant != "qdq-tensor", weight_type=QuantType.QInt8)
    text = name in TEXT
    if variant == "dynamic":
        quantize_dynamic(str(source), str(target), op_types_to_quantize=["MatMul", "Gemm"], **common)
    elif variant == "nbits":
        import onnx
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
        quantiser = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=False)
        quantiser.process()
        quantiser.model.save_model_to_file(str(target), False)
    else:
        quantize_static(str(source), str(target), RandomInputs(name, seed),
                        quant_format=QuantFormat.QOperator if variant == "qlinear" else QuantFormat.QDQ,
                        activation_type=QuantType.QInt8 if variant == "qdq-s8" else QuantType.QUInt8,
                        op_types_to_quantize=["MatMul", "Gemm", "Add"] if text else None,
                        extra_options={"ActivationSymmetric": variant == "qdq-s8"}, **common)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--names", default="resnet-50,mobilenet-v2,minilm-l6,bert-base")
    parser.add_argument("--variants", default="")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    onnxruntime.set_default_logger_severity(3)
    for name in arguments.names.split(","):
        source = arguments.folder / f"{name}.onnx"
        folded = arguments.folder / f"{name}.folded"
        prepare(source, folded)
        standard = "qdq,dynamic,nbits" if name in TEXT else "qdq,qdq-s8,qdq-tensor,qlinear"
        for variant in (arguments.variants or standard).split(","):
            target = arguments.folder / f"{name}.{variant}.onnx"
            make(name, variant, folded, target, arguments.seed)
            print(f"{target.name}: {target.stat().st_size / 1e6:.1f} MB", flush=True)
        folded.unlink()


if __name__ == "__main__":
    main()
