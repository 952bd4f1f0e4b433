// WeightKind: what the rows of a weight are made of, for code that knows CUDA and nothing of QuantScheme.
#pragma once

#include <cstdint>

namespace bolide {

enum class WeightKind : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kBlockQ4_0,
  kBlockQ4_1,
  kBlockQ5_0,
  kBlockQ5_1,
  kBlockQ8_0,
  kBlockIQ4_NL,
  kBlockQ2_K,
  kBlockQ3_K,
  kBlockQ4_K,
  kBlockQ5_K,
  kBlockQ6_K,
  kBlockIQ4_XS,
  kBlockW4_G32,
  kBlockW4_G64,
  kBlockW4_G128,
  kNone,  // nothing that a kernel reads
};

// Rows as the checkpoint has them, one behind the other, on the device.
struct CudaWeight {
  const void* data = nullptr;
  WeightKind kind = WeightKind::kNone;
  int64_t rows = 0, k = 0;
  int64_t row_bytes = 0;
};

}  // namespace bolide
