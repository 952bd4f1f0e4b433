// From types of weights to WeightKind: for *_cuda.cc files.
#pragma once

#include "kernels/common/weight_kind.h"
#include "tensor/tensor.h"

namespace bolide {

inline WeightKind weight_kind(DType dtype, const QuantScheme* quant) {
  if (quant != nullptr) {
    constexpr struct {
      const QuantScheme* scheme;
      WeightKind kind;
    } kKinds[] = {{&kQ4_0, WeightKind::kBlockQ4_0},      {&kQ4_1, WeightKind::kBlockQ4_1},
                  {&kQ5_0, WeightKind::kBlockQ5_0},      {&kQ5_1, WeightKind::kBlockQ5_1},
                  {&kQ8_0, WeightKind::kBlockQ8_0},      {&kIQ4_NL, WeightKind::kBlockIQ4_NL},
                  {&kQ2_K, WeightKind::kBlockQ2_K},      {&kQ3_K, WeightKind::kBlockQ3_K},
                  {&kQ4_K, WeightKind::kBlockQ4_K},      {&kQ5_K, WeightKind::kBlockQ5_K},
                  {&kQ6_K, WeightKind::kBlockQ6_K},      {&kIQ4_XS, WeightKind::kBlockIQ4_XS},
                  {&kW4_G32, WeightKind::kBlockW4_G32},  {&kW4_G64, WeightKind::kBlockW4_G64},
                  {&kW4_G128, WeightKind::kBlockW4_G128}};
    for (const auto& row : kKinds)
      if (row.scheme == quant) return row.kind;
    return WeightKind::kNone;
  }
  switch (dtype) {
    case DType::kF64: return WeightKind::kF64;
    case DType::kF32: return WeightKind::kF32;
    case DType::kF16: return WeightKind::kF16;
    case DType::kBF16: return WeightKind::kBF16;
    case DType::kF8E4M3: return WeightKind::kF8E4M3;
    case DType::kF8E5M2: return WeightKind::kF8E5M2;
    case DType::kI8: return WeightKind::kI8;
    default: return WeightKind::kNone;
  }
}

inline CudaWeight weight_of(const TensorView& view) {
  const int64_t k = view.cols();
  return {view.data, weight_kind(view.dtype, view.quant), view.rows(), k,
          static_cast<int64_t>(row_bytes(view.dtype, view.quant, k))};
}

}  // namespace bolide
