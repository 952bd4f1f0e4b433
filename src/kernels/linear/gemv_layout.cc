#include "kernels/linear/gemv_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace bolide {
namespace {

// Where the code of a column lies in its row: a byte, and the shift in it.
struct Place {
  int64_t byte;
  int shift;
};
Place place_of(int64_t column) {
  const int64_t window = column / 128, in_window = column % 128;
  const int64_t word = in_window / 32, thread = in_window % 32 / 8, code = in_window % 8;
  const int64_t nibble = code / 2 + code % 2 * 4;
  return {window * 64 + thread * 16 + word * 4 + nibble / 2, static_cast<int>(nibble % 2 * 4)};
}

bool fits(const ValueType& weight, bool wide) {
  return wide ? weight.quant == &kW4_G128 : weight.quant == &kW4_G32 || weight.quant == &kW4_G64;
}
int64_t rows_of(const ValueType& weight) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < weight.dims.size(); ++i) rows *= weight.dims[i].factor;
  return rows;
}

template <bool kWide>
size_t bytes(const ValueType& weight) {
  if (!fits(weight, kWide)) return 0;
  return static_cast<size_t>(rows_of(weight) * w4_piece_row(weight.last().factor, kWide ? 128 : 32).row_bytes);
}

// Calls each(packed row, source row or its copy) for every row.
template <bool kWide, class Each>
void for_each_row(const ValueType& weight, Workers& workers, Each each) {
  constexpr int64_t kRowsPerChunk = 16;
  const int64_t rows = rows_of(weight);
  workers.run((rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk, int) {
    for (int64_t i = chunk * kRowsPerChunk; i < std::min(rows, (chunk + 1) * kRowsPerChunk); ++i) each(i);
  });
}

// A block of a w4_* scheme: scale, zero point, a byte of 0, then groups of 32 codes as q4_0 has them.
constexpr int64_t kHead = 4;

template <bool kWide>
Result<> pack(const ValueType& weight, const WeightRows& source, MutableBytes dst, Workers& workers) {
  const int64_t k = weight.last().factor, group = kWide ? 128 : 32, block = weight.quant->block_elements;
  const PieceRow row = w4_piece_row(k, group);
  std::atomic<int64_t> broken{-1};
  for_each_row<kWide>(weight, workers, [&](int64_t i) {
    const std::byte* from = source.row(i);
    std::byte* to = dst.data() + i * row.row_bytes;
    for (int64_t b = 0; b * block < k; ++b) {
      const std::byte* stored = from + b * weight.quant->block_bytes;
      uint16_t scale;
      std::memcpy(&scale, stored, sizeof(scale));
      if ((scale & 0x7c00u) == 0x7c00u) broken = i;
      for (int64_t g = 0; g < block / group; ++g)
        std::memcpy(to + row.groups_from + (b * (block / group) + g) * 4, stored, kHead);
      for (int64_t j = 0; j < block; ++j) {
        const auto byte = static_cast<unsigned>(stored[kHead + j / 32 * 16 + j % 16]);
        const unsigned code = j % 32 < 16 ? byte & 15u : byte >> 4;
        const Place place = place_of(b * block + j);
        to[place.byte] |= static_cast<std::byte>(code << place.shift);
      }
    }
  });
  if (broken >= 0) return error(Code::kInvalid, fmt::format("row {} has a scale that is no number", broken.load()));
  return {};
}

template <bool kWide>
Result<> unpack(const ValueType& weight, Bytes packed, MutableBytes rows, Workers& workers) {
  const int64_t k = weight.last().factor, group = kWide ? 128 : 32, block = weight.quant->block_elements;
  const PieceRow row = w4_piece_row(k, group);
  for_each_row<kWide>(weight, workers, [&](int64_t i) {
    const std::byte* from = packed.data() + i * row.row_bytes;
    std::byte* to = rows.data() + i * (k / block * weight.quant->block_bytes);
    for (int64_t b = 0; b * block < k; ++b) {
      std::byte* stored = to + b * weight.quant->block_bytes;
      std::memcpy(stored, from + row.groups_from + b * (block / group) * 4, kHead);
      std::memset(stored + kHead, 0, static_cast<size_t>(block / 2));
      for (int64_t j = 0; j < block; ++j) {
        const Place place = place_of(b * block + j);
        const unsigned code = (static_cast<unsigned>(from[place.byte]) >> place.shift) & 15u;
        stored[kHead + j / 32 * 16 + j % 16] |= static_cast<std::byte>(j % 32 < 16 ? code : code << 4);
      }
    }
  });
  return {};
}

template <bool kWide>
constexpr Packing packing(std::string_view name) {
  return {.name = name, .bytes = bytes<kWide>, .pack = pack<kWide>, .unpack = unpack<kWide>, .piece_rows = 1};
}

}  // namespace

constexpr Packing kW4PiecesG128 = packing<true>("w4_pieces_g128");
constexpr Packing kW4PiecesG32 = packing<false>("w4_pieces_g32");

}  // namespace bolide
