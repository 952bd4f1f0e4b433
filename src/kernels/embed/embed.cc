#include "kernels/embed/embed.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>

#include "kernels/common/launch.h"
#include "tensor/block_codec.h"

namespace bolide {
namespace {

bool supports(const Problem& problem) {
  if (attributes<Embed>(problem) == nullptr) return false;
  const ValueType& table = problem.in[1];
  return problem.in[0].dtype == DType::kI32 &&
         (table.quant != nullptr ? table.quant->layout == BlockLayout::kBlock : is_float(table.dtype));
}

// The table is read where the file has it, so this is the first that anybody sees of its rows.
bool all_finite(const float* row, int64_t width) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t special = 0;
  for (int64_t i = 0; i < width; ++i) {
    uint32_t bits;
    std::memcpy(&bits, row + i, sizeof bits);
    special |= static_cast<uint32_t>((bits & kExponent) == kExponent);
  }
  return special == 0;
}

// (ids i32 [T], table [V, E]) -> [T, E].
Result<> launch(const Launch& launch, Stream& stream) {
  const TensorView &table = launch.in[1], &out = launch.out[0];
  const int32_t* ids = launch.in[0].as<int32_t>();
  const int64_t tokens = launch.in[0].cols(), width = table.cols();
  for (int64_t t = 0; t < tokens; ++t)
    if (ids[t] < 0 || ids[t] >= table.rows())
      return error(Code::kInvalid, fmt::format("token {} has id {}, the table has {} rows", t, ids[t], table.rows()));
  std::atomic<int32_t> damaged{-1};
  const size_t stride = row_bytes(table.dtype, table.quant, table.quant != nullptr ? width : table.row_stride);
  for_rows(stream.workers(), tokens, width, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      decode_row(table.dtype, table.quant, table.data + static_cast<size_t>(ids[t]) * stride, width, out.row<float>(t));
      if (!all_finite(out.row<float>(t), width)) damaged.store(ids[t], std::memory_order_relaxed);
    }
  });
  if (const int32_t row = damaged.load(); row >= 0)
    return error(
        Code::kInvalid,
        fmt::format("row {} has a NaN or infinite element: the checkpoint is damaged; download it again", row));
  return {};
}

constexpr Kernel kKernels[] = {
    {.name = "embed_ref", .supports = supports, .launch = launch},
};

}  // namespace

std::span<const Kernel> embed_kernels() { return kKernels; }

}  // namespace bolide
