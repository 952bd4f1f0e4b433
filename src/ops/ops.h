// The rows of all general ops, by group: one file each, one function and one line an op. A row holds from its version
// of the operator set on, until the next row of its name.
#pragma once

#include <span>
#include <string_view>

#include "ir/op_def.h"

namespace bolide {

std::span<const OpDef> elementwise_ops();  // elementwise.cc: arithmetic, comparison, logic, unary functions, Clip ...
std::span<const OpDef> activation_ops();   // activation.cc: Relu, Gelu, Softmax and its kin, losses
std::span<const OpDef> cast_ops();         // cast.cc: Cast, CastLike, BitCast
std::span<const OpDef> quantise_ops();     // quantise.cc: QuantizeLinear, DequantizeLinear, QLinear*, *Integer
std::span<const OpDef> layout_ops();       // layout.cc: Reshape, Transpose, Concat, Split, Slice, Pad, Expand, Tile ...
std::span<const OpDef> gather_ops();  // gather.cc: Gather*, Scatter*, NonZero, Compress, OneHot, Where, Unique, TopK
std::span<const OpDef> reduce_ops();  // reduce.cc: Reduce*, ArgMax, ArgMin, CumSum, CumProd
std::span<const OpDef> matrix_ops();  // matrix.cc: MatMul, Gemm, Einsum, Det
std::span<const OpDef> convolution_ops();  // convolution.cc: Conv, ConvTranspose, DeformConv, Col2Im
std::span<const OpDef> pool_ops();         // pool.cc: *Pool, LpPool, MaxUnpool, MaxRoiPool, RoiAlign
std::span<const OpDef>
normalisation_ops();  // normalisation.cc: Batch-, Instance-, Group-, Layer-, RMSNormalization, LRN ...
std::span<const OpDef> recurrent_ops();  // recurrent.cc: RNN, LSTM, GRU
std::span<const OpDef> attention_ops();  // attention.cc: Attention, RotaryEmbedding, TensorScatter, LinearAttention ...
std::span<const OpDef> image_ops();      // image.cc: Resize, Upsample, GridSample, AffineGrid, NMS, ImageDecoder
std::span<const OpDef> signal_ops();     // signal.cc: DFT, STFT, windows, MelWeightMatrix
std::span<const OpDef> random_ops();     // random.cc: Random*, Bernoulli, Multinomial, Dropout
std::span<const OpDef> sequence_ops();   // sequence.cc: Sequence*, SplitToSequence, ConcatFromSequence, Optional*
std::span<const OpDef> control_ops();    // control.cc: If, Loop, Scan, SequenceMap
std::span<const OpDef> string_ops();     // string.cc: String*, RegexFullMatch, TfIdfVectorizer, ai.onnx.ml's labels
std::span<const OpDef> ml_ops();         // ml.cc: ai.onnx.ml
std::span<const OpDef> training_ops();   // training.cc: ai.onnx.preview.training
std::span<const OpDef> microsoft_ops();  // microsoft.cc: com.microsoft
std::span<const OpDef> channels_last_ops();  // channels_last.cc: what passes make of images' ops

// The row of an op in a version of its domain's operator set; null: unknown.
const OpDef* find_op(std::string_view domain, std::string_view name, int64_t version);

}  // namespace bolide
