// QuantScheme: how codes, scales and zero points are grouped. One constant per scheme; identity is the address.
//
// Block schemes (layout kBlock) interleave scales and codes in fixed-size blocks along K, as GGUF files do; the bit
// layouts are those of ggml's block_* structs, but for w4_*, which are ours. A row of K elements takes K /
// block_elements * block_bytes bytes and K must be a multiple of block_elements.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace bolide {

enum class BlockLayout : uint8_t {
  kPlanar,  // codes, scales and zero points are separate tensors
  kBlock,   // interleaved blocks along K
};

struct QuantScheme {
  std::string_view name;  // "q4_1"
  DType code;       // what a code is before scaling (kU4 for q4_1; k-quants with 3, 5, 6 bits name the next wider)
  DType scale;      // type of the innermost stored scale
  DType zero;       // type of the stored minimum or zero point; kNone if symmetric
  int32_t group_k;  // elements of K that share one innermost scale
  int32_t group_n;  // rows that share a scale; 1 for every block scheme
  BlockLayout layout;
  int32_t block_elements;
  int32_t block_bytes;
};

inline constexpr QuantScheme kQ4_0{"q4_0", DType::kU4, DType::kF16, DType::kNone, 32, 1, BlockLayout::kBlock, 32, 18};
inline constexpr QuantScheme kQ4_1{"q4_1", DType::kU4, DType::kF16, DType::kF16, 32, 1, BlockLayout::kBlock, 32, 20};
inline constexpr QuantScheme kQ5_0{"q5_0", DType::kU8, DType::kF16, DType::kNone, 32, 1, BlockLayout::kBlock, 32, 22};
inline constexpr QuantScheme kQ5_1{"q5_1", DType::kU8, DType::kF16, DType::kF16, 32, 1, BlockLayout::kBlock, 32, 24};
inline constexpr QuantScheme kQ8_0{"q8_0", DType::kI8, DType::kF16, DType::kNone, 32, 1, BlockLayout::kBlock, 32, 34};
inline constexpr QuantScheme kQ2_K{"q2_k", DType::kU4, DType::kU4, DType::kU4, 16, 1, BlockLayout::kBlock, 256, 84};
inline constexpr QuantScheme kQ3_K{"q3_k", DType::kI4, DType::kI8, DType::kNone, 16, 1, BlockLayout::kBlock, 256, 110};
inline constexpr QuantScheme kQ4_K{"q4_k", DType::kU4, DType::kU8, DType::kU8, 32, 1, BlockLayout::kBlock, 256, 144};
inline constexpr QuantScheme kQ5_K{"q5_k", DType::kU8, DType::kU8, DType::kU8, 32, 1, BlockLayout::kBlock, 256, 176};
inline constexpr QuantScheme kQ6_K{"q6_k", DType::kI8, DType::kI8, DType::kNone, 16, 1, BlockLayout::kBlock, 256, 210};
inline constexpr QuantScheme kIQ4_NL{"iq4_nl", DType::kI8, DType::kF16, DType::kNone, 32, 1, BlockLayout::kBlock,
                                     32,       18};
inline constexpr QuantScheme kIQ4_XS{"iq4_xs", DType::kI8,          DType::kI8, DType::kNone, 32,
                                     1,        BlockLayout::kBlock, 256,        136};

// What GPTQ and AWQ checkpoints of 4 bits hold, a block for each of their groups: f16 scale, u8 zero point (0 to 15), a
// zero byte, then 16 bytes for each 32 elements, of which byte j has element j in its low nibble and element 16 + j in
// its high one, as in q4_0 and q4_1. value = scale * (code - zero), which float32 holds exactly.
inline constexpr QuantScheme kW4_G32{"w4_g32", DType::kU4, DType::kF16, DType::kU8, 32, 1, BlockLayout::kBlock, 32, 20};
inline constexpr QuantScheme kW4_G64{"w4_g64", DType::kU4, DType::kF16, DType::kU8, 64, 1, BlockLayout::kBlock, 64, 36};
inline constexpr QuantScheme kW4_G128{"w4_g128", DType::kU4,          DType::kF16, DType::kU8, 128,
                                      1,         BlockLayout::kBlock, 128,         68};

// Every block scheme above.
std::span<const QuantScheme* const> block_schemes();
// nullptr if no scheme has that name.
const QuantScheme* quant_from_string(std::string_view name);

}  // namespace bolide
