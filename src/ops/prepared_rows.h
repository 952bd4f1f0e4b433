// What prepared ops share: row functions by name, and rows cut into chunks.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "kernels/rows/rows.h"
#include "ops/prepared_op.h"

namespace bolide {

using FinishRow = void (*)(float* piece, int64_t count);
// The function of an activation as fused ops name it ("Relu", "Gelu"); `name` empty: none, and null in `to`. False: it
// has no row function, or needs parameters.
bool finish_of(std::string_view name, const isa::RowFunctions& rows, FinishRow& to);

// f(begin, end) for ranges of [0, rows), on several threads if they have many elements.
void for_row_ranges(Workers& workers, int64_t rows, int64_t elements_per_row,
                    FunctionRef<void(int64_t begin, int64_t end)> f);

// A tensor of f32 at input i, else null.
inline const Tensor* f32_at(const RunContext& c, size_t i) {
  const Tensor* tensor = c.has(i) ? c.value(i)->tensor() : nullptr;
  return tensor != nullptr && tensor->dtype() == DType::kF32 ? tensor : nullptr;
}

using Prepared = Result<std::unique_ptr<PreparedOp>>;
// matrix_prepared.cc
Prepared prepare_matmul(const PrepareContext& c);  // MatMul, FusedMatMul, bolide.Dense
Prepared prepare_gemm(const PrepareContext& c);    // Gemm, FusedGemm
// attention_prepared.cc
Prepared prepare_attention(const PrepareContext& c);
Prepared prepare_microsoft_attention(const PrepareContext& c);
Prepared prepare_multi_head_attention(const PrepareContext& c);
// group_attention_prepared.cc
Prepared prepare_group_query_attention(const PrepareContext& c);
// rotary_prepared.cc
Prepared prepare_rotary(const PrepareContext& c);
Prepared prepare_microsoft_rotary(const PrepareContext& c);
// blocks_prepared.cc
Prepared prepare_matmul_nbits(const PrepareContext& c);

// layout_prepared.cc
enum class RowFold : uint8_t { kSum, kMean, kMax };
Prepared prepare_transpose(const PrepareContext& c);
Prepared prepare_reduce(const PrepareContext& c, RowFold fold);
template <RowFold kFold>
Prepared prepare_reduce(const PrepareContext& c) {
  return prepare_reduce(c, kFold);
}
// recurrent_prepared.cc
Prepared prepare_lstm(const PrepareContext& c);
Prepared prepare_gru(const PrepareContext& c);
// An LSTM with these W and R that rounds its state to u8 at every step (run_lstm). X is rounded before it.
Prepared prepare_rounded_lstm(const PrepareContext& c, const Tensor& w, const Tensor& r);
// rows_prepared.cc. Kinds are isa::RowUnary and isa::RowBinary; `biased`: input 1 is added first, along the last axis.
Prepared prepare_unary(const PrepareContext& c, int kind, std::array<float, 2> p = {}, bool biased = false);
Prepared prepare_binary(const PrepareContext& c, int kind);
template <int kKind, bool kBiased = false>
Prepared prepare_unary(const PrepareContext& c) {
  return prepare_unary(c, kKind, {}, kBiased);
}
// From version 7 on: before, what is broadcast is said by attributes.
template <int kKind>
Prepared prepare_binary(const PrepareContext& c) {
  if (c.version < 7) return nullptr;
  return prepare_binary(c, kKind);
}
Prepared prepare_leaky_relu(const PrepareContext& c);
Prepared prepare_hard_sigmoid(const PrepareContext& c);
Prepared prepare_gelu(const PrepareContext& c);
Prepared prepare_swish(const PrepareContext& c);
Prepared prepare_clip(const PrepareContext& c);
Prepared prepare_softmax(const PrepareContext& c);
Prepared prepare_log_softmax(const PrepareContext& c);
Prepared prepare_layer_norm(const PrepareContext& c);
Prepared prepare_rms_norm(const PrepareContext& c);
Prepared prepare_skip_layer_norm(const PrepareContext& c);
Prepared prepare_skip_rms_norm(const PrepareContext& c);

}  // namespace bolide
