// Packs rows of GGUF's block schemes as gemv_block_layout.h says.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "kernels/linear/block_fields.h"
#include "kernels/linear/gemv_block_layout.h"
#include "kernels/linear/gemv_layout.h"

namespace bolide {
namespace {

namespace pieces = block_pieces;

struct Cut {
  const QuantScheme* quant;
  int window;     // columns
  int constants;  // bytes of eight windows
};
constexpr Cut kCuts[] = {{&kQ4_0, 128, pieces::kQ4_0}, {&kQ4_1, 128, pieces::kQ4_1}, {&kQ4_K, 128, pieces::kQ4_K},
                         {&kQ5_K, 128, pieces::kQ5_K}, {&kQ6_K, 128, pieces::kQ6_K}, {&kQ8_0, 64, pieces::kQ8_0}};
const Cut* cut_of(const QuantScheme* quant) {
  for (const Cut& cut : kCuts)
    if (cut.quant == quant) return &cut;
  return nullptr;
}

PieceRow row_of(const Cut& cut, int64_t k) {
  const int64_t windows = (k + cut.window - 1) / cut.window;
  const int64_t together = (windows + pieces::kWindowsTogether - 1) / pieces::kWindowsTogether;
  return {windows * pieces::kWindowBytes, windows * pieces::kWindowBytes + together * cut.constants};
}

int64_t rows_of(const ValueType& weight) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < weight.dims.size(); ++i) rows *= weight.dims[i].factor;
  return rows;
}

size_t bytes(const ValueType& weight) {
  const Cut* cut = cut_of(weight.quant);
  return cut == nullptr ? 0 : static_cast<size_t>(rows_of(weight) * row_of(*cut, weight.last().factor).row_bytes);
}

// One row, packed.
struct Row {
  const Cut& cut;
  std::byte *codes, *constants;

  // Constants of the eight windows that have a column, and the column's window among them.
  std::byte* together(int64_t column) const {
    return constants + column / cut.window / pieces::kWindowsTogether * cut.constants;
  }
  int window(int64_t column) const { return static_cast<int>(column / cut.window % pieces::kWindowsTogether); }
  int group(int64_t column) const { return static_cast<int>(column % cut.window / 32); }

  // Calls move(place, field, bytes) for all that stands beside the codes of a block, which begins at `column`.
  template <class Move>
  void for_each_constant(int64_t column, BlockFields& fields, Move move) const {
    std::byte* const all = together(column);
    const int w = window(column), g = group(column);
    const auto factors = [&](std::byte* at) {
      move(at, &fields.scale, 2);
      move(at + 2, &fields.minimum, 2);
    };
    const auto heads = [&](std::byte* at) {
      for (int half = 0; half < 2; ++half) {
        move(at + (w + half) * 8, fields.scales + half * 4, 4);
        move(at + (w + half) * 8 + 4, fields.minima + half * 4, 4);
      }
      factors(at + pieces::kKFactors + w / 2 * 4);
    };
    if (cut.quant == &kQ4_0) {
      move(all + w * 8 + g * 2, &fields.scale, 2);
    } else if (cut.quant == &kQ4_1) {
      factors(all + w * 16 + g * 4);
    } else if (cut.quant == &kQ8_0) {
      move(all + w * 4 + g * 2, &fields.scale, 2);
    } else if (cut.quant == &kQ4_K) {
      heads(all);
    } else if (cut.quant == &kQ5_K) {
      heads(all + pieces::kQ5_KHeads);
    } else {
      move(all + pieces::kQ6_KScales + w * 8, fields.scales, 16);
      move(all + pieces::kQ6_KFactors + w / 2 * 2, &fields.scale, 2);
    }
  }

  // Calls each(word, plane, bits from, of the plane) for every word of codes: eight, or four of q8_0, from `column` on.
  template <class Each>
  void for_each_word(int64_t columns, Each each) const {
    for (int64_t from = 0; from < columns; from += cut.window) {
      std::byte* const words = codes + from / cut.window * pieces::kWindowBytes;
      std::byte* const all = together(from);
      const int w = window(from);
      for (int t = 0; t < 4; ++t)
        for (int word = 0; word < 4; ++word) {
          std::byte* const at = words + t * 16 + word * 4;
          std::byte* plane = nullptr;
          if (cut.quant == &kQ5_K) plane = all + w * 16 + t * 4;
          if (cut.quant == &kQ6_K) plane = all + w * 32 + t * 8 + word / 2 * 4;
          each(at, plane, word,
               cut.window == 64 ? from + word / 2 * 32 + t * 8 + word % 2 * 4 : from + word * 32 + t * 8);
        }
    }
  }

  // `values` has a code for every column of every window.
  void put(const uint8_t* values, int64_t columns) const {
    for_each_word(columns, [&](std::byte* at, std::byte* plane, int word, int64_t column) {
      uint32_t bits = 0, above = 0;
      const uint8_t* const of = values + column;
      if (cut.window == 64) {
        for (int e = 0; e < 4; ++e) bits |= uint32_t{of[e]} << (8 * e);
      } else {
        for (int e = 0; e < 8; ++e) bits |= (of[e] & 15u) << (4 * pieces::nibble_of(e));
      }
      std::memcpy(at, &bits, sizeof bits);
      if (plane == nullptr) return;
      std::memcpy(&above, plane, sizeof above);
      for (int e = 0; e < 8; ++e)
        above |= (of[e] >> 4u & 3u) << (cut.quant == &kQ5_K ? pieces::q5_bit(word, e) : pieces::q6_bit(word, e));
      std::memcpy(plane, &above, sizeof above);
    });
  }
  void get(uint8_t* values, int64_t columns) const {
    for_each_word(columns, [&](const std::byte* at, const std::byte* plane, int word, int64_t column) {
      uint8_t* const of = values + column;
      const auto bits = load_unaligned<uint32_t>(at);
      if (cut.window == 64) {
        for (int e = 0; e < 4; ++e) of[e] = static_cast<uint8_t>(bits >> (8 * e));
        return;
      }
      for (int e = 0; e < 8; ++e) of[e] = static_cast<uint8_t>(bits >> (4 * pieces::nibble_of(e)) & 15u);
      if (plane == nullptr) return;
      const auto above = load_unaligned<uint32_t>(plane);
      for (int e = 0; e < 8; ++e)
        of[e] |= static_cast<uint8_t>(cut.quant == &kQ5_K ? (above >> pieces::q5_bit(word, e) & 1u) << 4u
                                                          : (above >> pieces::q6_bit(word, e) & 3u) << 4u);
    });
  }
};

// Calls each(row, its number, a code for every column of its windows) for every row.
template <class Each>
void for_each_row(const Cut& cut, const ValueType& weight, std::byte* packed, Workers& workers, Each each) {
  constexpr int64_t kRowsPerChunk = 16;
  const int64_t rows = rows_of(weight), k = weight.last().factor;
  const PieceRow row = row_of(cut, k);
  workers.run((rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](int64_t chunk, int) {
    std::vector<uint8_t> codes(static_cast<size_t>(row.groups_from / pieces::kWindowBytes * cut.window));
    for (int64_t i = chunk * kRowsPerChunk; i < std::min(rows, (chunk + 1) * kRowsPerChunk); ++i) {
      std::byte* const at = packed + i * row.row_bytes;
      each(Row{cut, at, at + row.groups_from}, i, codes);
    }
  });
}

bool is_number(uint16_t half) { return (half & 0x7c00u) != 0x7c00u; }

Result<> pack(const ValueType& weight, const WeightRows& source, MutableBytes dst, Workers& workers) {
  const Cut& cut = *cut_of(weight.quant);
  const QuantScheme& quant = *weight.quant;
  const int64_t k = weight.last().factor;
  std::atomic<int64_t> broken{-1};
  for_each_row(cut, weight, dst.data(), workers, [&](const Row& row, int64_t i, std::vector<uint8_t>& codes) {
    const std::byte* block = source.row(i);
    for (int64_t column = 0; column < k; column += quant.block_elements, block += quant.block_bytes) {
      BlockFields fields;
      fields.minimum = 0;
      read_block(quant, block, &fields);
      if (!is_number(fields.scale) || !is_number(fields.minimum)) broken = i;
      std::memcpy(codes.data() + column, fields.codes, static_cast<size_t>(quant.block_elements));
      row.for_each_constant(column, fields,
                            [](std::byte* at, const void* field, size_t size) { std::memcpy(at, field, size); });
    }
    row.put(codes.data(), static_cast<int64_t>(codes.size()));
  });
  if (broken >= 0) return error(Code::kInvalid, fmt::format("row {} has a scale that is no number", broken.load()));
  return {};
}

Result<> unpack(const ValueType& weight, Bytes packed, MutableBytes rows, Workers& workers) {
  const Cut& cut = *cut_of(weight.quant);
  const QuantScheme& quant = *weight.quant;
  const int64_t k = weight.last().factor, row_bytes = k / quant.block_elements * quant.block_bytes;
  // Rows of a Row can be written, and are not here.
  auto* const from = const_cast<std::byte*>(packed.data());
  for_each_row(cut, weight, from, workers, [&](const Row& row, int64_t i, std::vector<uint8_t>& codes) {
    row.get(codes.data(), static_cast<int64_t>(codes.size()));
    std::byte* block = rows.data() + i * row_bytes;
    for (int64_t column = 0; column < k; column += quant.block_elements, block += quant.block_bytes) {
      BlockFields fields{};
      std::memcpy(fields.codes, codes.data() + column, static_cast<size_t>(quant.block_elements));
      row.for_each_constant(column, fields,
                            [](const std::byte* at, void* field, size_t size) { std::memcpy(field, at, size); });
      write_block(quant, fields, block);
    }
  });
  return {};
}

}  // namespace

constexpr Packing kBlockPieces = {
    .name = "block_pieces", .bytes = bytes, .pack = pack, .unpack = unpack, .piece_rows = 1};

const Packing* gemv_packing(const QuantScheme* quant) {
  return cut_of(quant) != nullptr ? &kBlockPieces : w4_pieces(quant);
}

PieceRow gemv_row(const QuantScheme* quant, int64_t k) {
  if (const Cut* cut = cut_of(quant); cut != nullptr) return row_of(*cut, k);
  BOLIDE_CHECK(w4_pieces(quant) != nullptr, "a weight without pieces");
  return w4_piece_row(k, w4_pieces_group(quant));
}

}  // namespace bolide
