#include "kernels/linear/float_strips.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "kernels/linear/strips.h"
#include "tensor/half.h"

namespace bolide {
namespace {

template <class T>
T load(const std::byte* p, int64_t i) {
  return load_unaligned<T>(p + static_cast<size_t>(i) * sizeof(T));
}
template <class T>
void store(std::byte* p, int64_t i, T value) {
  std::memcpy(p + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
}

size_t bytes(const ValueType& weight) {
  FloatShape shape;
  if (weight.quant != nullptr || weight.dims.size() < 2 || !weight.is_static()) return 0;
  if (!float_shape(weight.dtype, weight.dims.back().factor, &shape)) return 0;
  return static_cast<size_t>(Extent(weight).strips()) * shape.bytes;
}

// Codes of 8 bits as bf16 bits and back; exact.
uint16_t widen_code(DType dtype, uint8_t v) {
  if (dtype == DType::kI8) return f32_to_bf16(static_cast<float>(static_cast<int8_t>(v)));
  return f32_to_bf16(dtype == DType::kF8E4M3 ? f8e4m3_to_f32(v) : f8e5m2_to_f32(v));
}
uint8_t narrow_code(DType dtype, uint16_t v) {
  const float f = bf16_to_f32(v);
  if (dtype == DType::kI8) return static_cast<uint8_t>(static_cast<int8_t>(f));
  return dtype == DType::kF8E4M3 ? f32_to_f8e4m3(f) : static_cast<uint8_t>(f32_to_f16(f) >> 8);
}

int64_t pair_index(int64_t k, int row) { return (k / 2 * kStripRows + row) * 2 + k % 2; }

// One row to its place; false if it holds a NaN or an infinity.
bool pack_row(DType dtype, const std::byte* row, int64_t k, int r, std::byte* strip) {
  bool finite = true;
  for (int64_t j = 0; j < k; ++j) {
    switch (dtype) {
      case DType::kF32: {
        const auto v = load<float>(row, j);
        finite = finite && std::isfinite(v);
        store(strip, j * kStripRows + r, v);
        break;
      }
      case DType::kF16: {
        const auto v = load<uint16_t>(row, j);
        finite = finite && (v & 0x7c00u) != 0x7c00u;
        store(strip, j * kStripRows + r, v);
        break;
      }
      case DType::kBF16: {
        const auto v = load<uint16_t>(row, j);
        finite = finite && (v & 0x7f80u) != 0x7f80u;
        store(strip, pair_index(j, r), v);
        break;
      }
      default: {
        const uint16_t v = widen_code(dtype, load<uint8_t>(row, j));
        finite = finite && (v & 0x7f80u) != 0x7f80u;
        store(strip, pair_index(j, r), v);
      }
    }
  }
  return finite;
}

void unpack_row(DType dtype, const std::byte* strip, int64_t k, int r, std::byte* row) {
  for (int64_t j = 0; j < k; ++j) {
    switch (dtype) {
      case DType::kF32: store(row, j, load<float>(strip, j * kStripRows + r)); break;
      case DType::kF16: store(row, j, load<uint16_t>(strip, j * kStripRows + r)); break;
      case DType::kBF16: store(row, j, load<uint16_t>(strip, pair_index(j, r))); break;
      default: store(row, j, narrow_code(dtype, load<uint16_t>(strip, pair_index(j, r))));
    }
  }
}

Result<> pack(const ValueType& weight, const WeightRows& source, MutableBytes dst, Workers& workers) {
  const Extent extent(weight);
  FloatShape shape;
  if (!float_shape(weight.dtype, extent.k, &shape))
    return error(Code::kUnsupported, fmt::format("no strips of {}", to_string(weight)));
  FirstBadRow bad;
  for_strip_rows(extent, workers, [&](int64_t strip, int r, int64_t row) {
    if (!pack_row(weight.dtype, source.row(row), extent.k, r, dst.data() + static_cast<size_t>(strip) * shape.bytes))
      bad.report(row);
  });
  return bad.result(fmt::format("{} weight", to_string(weight.dtype)));
}

Result<> unpack(const ValueType& weight, Bytes packed, MutableBytes rows, Workers& workers) {
  const Extent extent(weight);
  FloatShape shape;
  if (!float_shape(weight.dtype, extent.k, &shape))
    return error(Code::kUnsupported, fmt::format("no strips of {}", to_string(weight)));
  const size_t bytes_per_row = row_bytes(weight.dtype, nullptr, extent.k);
  for_strip_rows(extent, workers, [&](int64_t strip, int r, int64_t row) {
    unpack_row(weight.dtype, packed.data() + static_cast<size_t>(strip) * shape.bytes, extent.k, r,
               rows.data() + static_cast<size_t>(row) * bytes_per_row);
  });
  return {};
}

}  // namespace

bool float_shape(DType dtype, int64_t k, FloatShape* shape) {
  switch (dtype) {
    case DType::kF32: *shape = {FloatStorage::kF32, k, static_cast<size_t>(k) * 64}; return true;
    case DType::kF16: *shape = {FloatStorage::kF16, k, round_up(static_cast<size_t>(k) * 32, 64)}; return true;
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kI8: {
      const int64_t even = (k + 1) / 2 * 2;
      *shape = {FloatStorage::kBF16, even, static_cast<size_t>(even) * 32};
      return true;
    }
    default: return false;
  }
}

constexpr Packing kFloatPacking{
    .name = "float_strips", .bytes = bytes, .pack = pack, .unpack = unpack, .piece_rows = kStripRows};

}  // namespace bolide
