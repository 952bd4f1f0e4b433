#include "kernels/linear/code_strips.h"

#include <fmt/format.h>

#include "kernels/linear/strips.h"

namespace bolide {
namespace {

bool is_nan(DType dtype, std::byte code) {
  return dtype == DType::kF8E4M3 && (code & std::byte{0x7f}) == std::byte{0x7f};
}

size_t bytes(const ValueType& weight) {
  FloatShape shape;
  if (weight.quant != nullptr || weight.dims.size() < 2 || !weight.is_static()) return 0;
  if (!code_shape(weight.dtype, weight.dims.back().factor, &shape)) return 0;
  return static_cast<size_t>(Extent(weight).strips()) * shape.bytes;
}

Result<FloatShape> shape_of(const ValueType& weight, int64_t k) {
  FloatShape shape;
  if (code_shape(weight.dtype, k, &shape)) return shape;
  return error(Code::kUnsupported, fmt::format("no strips of codes of {}", to_string(weight)));
}

Result<> pack(const ValueType& weight, const WeightRows& source, MutableBytes dst, Workers& workers) {
  const Extent extent(weight);
  BOLIDE_TRY(const FloatShape shape, shape_of(weight, extent.k));
  FirstBadRow bad;
  for_strip_rows(extent, workers, [&](int64_t strip, int r, int64_t row) {
    const std::byte* from = source.row(row);
    std::byte* to = dst.data() + static_cast<size_t>(strip) * shape.bytes + r;
    bool nan = false;
    for (int64_t j = 0; j < extent.k; ++j) {
      nan = nan || is_nan(weight.dtype, from[j]);
      to[j * kStripRows] = from[j];
    }
    if (nan) bad.report(row);
  });
  return bad.result(fmt::format("{} weight", to_string(weight.dtype)));
}

Result<> unpack(const ValueType& weight, Bytes packed, MutableBytes rows, Workers& workers) {
  const Extent extent(weight);
  BOLIDE_TRY(const FloatShape shape, shape_of(weight, extent.k));
  for_strip_rows(extent, workers, [&](int64_t strip, int r, int64_t row) {
    const std::byte* from = packed.data() + static_cast<size_t>(strip) * shape.bytes + r;
    std::byte* to = rows.data() + row * extent.k;
    for (int64_t j = 0; j < extent.k; ++j) to[j] = from[j * kStripRows];
  });
  return {};
}

}  // namespace

bool code_shape(DType dtype, int64_t k, FloatShape* shape) {
  if (dtype != DType::kF8E4M3 && dtype != DType::kI8) return false;
  const auto storage = dtype == DType::kI8 ? FloatStorage::kI8 : FloatStorage::kF8E4M3;
  *shape = {storage, k, round_up(static_cast<size_t>(k) * kStripRows, 64)};
  return true;
}

constexpr Packing kCodePacking{
    .name = "code_strips", .bytes = bytes, .pack = pack, .unpack = unpack, .piece_rows = kStripRows};

}  // namespace bolide
