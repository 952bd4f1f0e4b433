"""What an ONNX model says, in double precision: the third opinion where two programs in single precision differ.

evaluate(path, inputs) runs the file in onnx's reference evaluator with every float made a double. Integers stay, and so
does what is rounded to them: a dynamically quantised model is evaluated with its codes. Slow: minutes for large models.
Needs numpy and onnx.
"""
import copy

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

WIDENED = (TensorProto.FLOAT, TensorProto.FLOAT16)


def widen_tensor(tensor):
    if tensor.data_type in WIDENED:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def widen_graph(graph):
    for tensor in graph.initializer:
        widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in WIDENED:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                widen_graph(attribute.g)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                widen_tensor(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i in WIDENED:
                attribute.i = TensorProto.DOUBLE
        if node.op_type == "Constant" and node.attribute[0].name in ("value_float", "value_floats"):
            given = node.attribute[0]
            value = np.array(given.f if given.name == "value_float" else list(given.floats), np.float64)
            node.attribute[0].CopyFrom(helper.make_attribute("value", numpy_helper.from_array(value)))
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))


def codes_of(x):
    """Scale, zero point and codes of u8 over the range of x, as DynamicQuantizeLinear has them."""
    least, most = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    scale = (most - least) / 255 if most > least else 1.0
    zero = np.rint(np.clip(-least / scale, 0, 255))
    return scale, zero, np.clip(np.rint(x / scale) + zero, 0, 255)


def rounded(x):
    scale, zero, codes = codes_of(x)
    return (codes - zero) * scale


class DynamicQuantizeLinear(OpRun):
    def _run(self, x):
        scale, zero, codes = codes_of(x)
        return codes.astype(np.uint8), np.float64(scale), np.uint8(zero)


class DequantizeLinear(OpRun):
    op_domain = ""

    def _run(self, x, scale, zero=None, axis=None, **_):
        shape = [1] * x.ndim
        if scale.ndim == 1 and scale.size > 1:
            shape[1 if axis is None else axis] = scale.size
        zero = np.float64(0) if zero is None else zero.astype(np.float64).reshape(shape if zero.size > 1 else ())
        return ((x.astype(np.float64) - zero) * scale.astype(np.float64).reshape(shape if scale.size > 1 else ()),)


class BatchNormalization(OpRun):  # onnx's own takes a momentum for training
    op_domain = ""

    def _run(self, x, scale, bias, mean, variance, epsilon=None, **_):
        scale, bias, mean, variance = (t.reshape(-1, *[1] * (x.ndim - 2)) for t in (scale, bias, mean, variance))
        return ((x - mean) / np.sqrt(variance + (1e-5 if epsilon is None else epsilon)) * scale + bias,)


class Lstm:
    """Of the standard's own activations, layout 0 and whole sequences: X [T, S, I], W [D, 4H, I], R [D, 4H, H]."""

    def __init__(self, around_state):
        self.around_state = around_state  # what R multiplies the state through

    def __call__(self, x, w, r, b, h0, c0, direction):
        steps, batch, directions, width = x.shape[0], x.shape[1], w.shape[0], r.shape[2]
        y = np.zeros((steps, directions, batch, width))
        last_h, last_c = np.zeros((directions, batch, width)), np.zeros((directions, batch, width))
        for d in range(directions):
            h = np.zeros((batch, width)) if h0 is None else h0[d]
            c = np.zeros((batch, width)) if c0 is None else c0[d]
            bias = 0 if b is None else b[d, :4 * width] + b[d, 4 * width:]
            times = range(steps)
            for t in reversed(times) if d == 1 or direction == "reverse" else times:
                gates = x[t] @ w[d].T + self.around_state(h) @ r[d].T + bias
                i, o, f = (1 / (1 + np.exp(-gates[:, k * width:(k + 1) * width])) for k in range(3))
                c = f * c + i * np.tanh(gates[:, 3 * width:])
                h = o * np.tanh(c)
                y[t, d] = h
            last_h[d], last_c[d] = h, c
        return y, last_h, last_c


class LSTM(OpRun):  # onnx's own has one direction
    op_domain = ""

    def _run(self, x, w, r, b=None, lengths=None, h0=None, c0=None, p=None, hidden_size=None, direction=None, **_):
        return Lstm(lambda h: h)(x, w, r, b, h0, c0, direction)


class DynamicQuantizeLSTM(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x, w, r, b, lengths, h0, c0, p, w_scale, w_zero, r_scale, r_zero, hidden_size=None, direction=None,
             **_):
        def plain(codes, scale, zero):  # [D, rows, columns] of integers
            wide = [np.asarray(t, np.float64).reshape(codes.shape[0], 1, -1) for t in (scale, zero)]
            return np.swapaxes((codes.astype(np.float64) - wide[1]) * wide[0], 1, 2)
        return Lstm(rounded)(rounded(x), plain(w, w_scale, w_zero), plain(r, r_scale, r_zero), b, h0, c0, direction)


class ConvInteger(OpRun):
    op_domain = ""

    def _run(self, x, w, x_zero=None, w_zero=None, auto_pad=None, dilations=None, group=None, kernel_shape=None,
             pads=None, strides=None):
        node = helper.make_node("Conv", ["x", "w"], ["y"], dilations=dilations or [1, 1], group=group or 1,
                                kernel_shape=list(w.shape[2:]), pads=pads or [0] * 4, strides=strides or [1, 1],
                                auto_pad=auto_pad or "NOTSET")
        value = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in "xwy"]
        model = helper.make_model(helper.make_graph([node], "g", value[:2], value[2:]),
                                  opset_imports=[helper.make_opsetid("", 11)])
        x = x.astype(np.float64) - (0 if x_zero is None else np.asarray(x_zero, np.float64))
        zero = 0 if w_zero is None else np.asarray(w_zero, np.float64).reshape(-1, *[1] * (w.ndim - 1))
        y = ReferenceEvaluator(model).run(None, {"x": x, "w": w.astype(np.float64) - zero})[0]
        return (np.rint(y).astype(np.int32),)


def evaluate(path, inputs):
    """The outputs by name; f32 and f16 inputs are taken as doubles."""
    model = copy.deepcopy(onnx.load(path))
    names = [output.name for output in model.graph.output]
    widen_graph(model.graph)
    doubles = {name: value.astype(np.float64) if value.dtype in (np.float32, np.float16) else value
               for name, value in inputs.items()}
    runner = ReferenceEvaluator(model, new_ops=[BatchNormalization, DynamicQuantizeLinear, DequantizeLinear, LSTM, DynamicQuantizeLSTM, ConvInteger])
    return dict(zip(names, runner.run(None, doubles)))
