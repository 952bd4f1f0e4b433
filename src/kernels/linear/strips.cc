#include "kernels/linear/strips.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernels/linear/block_fields.h"
#include "kernels/linear/packed_blocks.h"

namespace bolide {
namespace {

constexpr StripScheme kSchemes[] = {
    {&kQ4_0, kStrip4Half, 8},       {&kQ4_1, kStrip4HalfMin, 0},      {&kQ5_0, kStrip6Half, 16},
    {&kQ5_1, kStrip6HalfMin, 0},    {&kQ8_0, kStrip8Half, 128},       {&kQ2_K, kStrip4SuperMinBy16, 0},
    {&kQ3_K, kStrip4SuperBy16, 4},  {&kQ4_K, kStrip4Super, 0},        {&kQ5_K, kStrip6Super, 0},
    {&kQ6_K, kStrip6SuperBy16, 32}, {&kIQ4_NL, kStripTableHalf, 128}, {&kIQ4_XS, kStripTableSuper, 128},
    {&kW4_G32, kStrip4HalfZero, 0}, {&kW4_G64, kStrip4HalfZero, 0},   {&kW4_G128, kStrip4HalfZero, 0},
};

// Where the fields of one block lie in a strip: the same walk reads and writes.
class BlockPlace {
 public:
  BlockPlace(const StripScheme& scheme, const StripShape& shape, std::byte* strip, int row)
      : format_(strip_format(scheme.kind)), shape_(shape), strip_(reinterpret_cast<uint8_t*>(strip)), row_(row) {}

  void store(int64_t first_group, int64_t groups, const BlockFields& f) {
    for (int64_t g = 0; g < groups; ++g) {
      store_codes(first_group + g, f.codes + g * 32);
      if (strip_scale_half(format_)) continue;
      for (int p = 0; p < format_.parts; ++p) {
        *small(shape_.scales, first_group + g, p) = f.scales[g * format_.parts + p];
        if (format_.minimum) *small(shape_.minima, first_group + g, p) = f.minima[g * format_.parts + p];
      }
    }
    std::memcpy(half(first_group, false), &f.scale, 2);
    if (format_.scale == StripScale::kHalfZero)
      *zero(first_group) = static_cast<uint8_t>(f.minimum);
    else if (format_.minimum)
      std::memcpy(half(first_group, true), &f.minimum, 2);
  }

  void load(int64_t first_group, int64_t groups, BlockFields* f) {
    for (int64_t g = 0; g < groups; ++g) {
      for (int j = 0; j < 32; ++j) f->codes[g * 32 + j] = load_code(first_group + g, j);
      if (strip_scale_half(format_)) continue;
      for (int p = 0; p < format_.parts; ++p) {
        f->scales[g * format_.parts + p] = *small(shape_.scales, first_group + g, p);
        if (format_.minimum) f->minima[g * format_.parts + p] = *small(shape_.minima, first_group + g, p);
      }
    }
    std::memcpy(&f->scale, half(first_group, false), 2);
    if (format_.scale == StripScale::kHalfZero)
      f->minimum = *zero(first_group);
    else if (format_.minimum)
      std::memcpy(&f->minimum, half(first_group, true), 2);
  }

 private:
  uint8_t* group(int64_t g) const { return strip_ + g * strip_group_bytes(format_) + row_ * 4; }

  // Four consecutive codes of a row are one 32-bit lane.
  void store_codes(int64_t g, const uint8_t* codes) {
    uint8_t* lanes = group(g);
    if (format_.code_bits == 8) {
      for (int j = 0; j < 8; ++j) std::memcpy(lanes + j * 64, codes + j * 4, 4);
      return;
    }
    uint32_t top[2] = {0, 0};
    for (int j = 0; j < 4; ++j) {
      uint32_t four[2];
      std::memcpy(&four[0], codes + j * 4, 4);
      std::memcpy(&four[1], codes + 16 + j * 4, 4);
      const uint32_t nibbles = (four[0] & 0x0f0f0f0fu) | (four[1] & 0x0f0f0f0fu) << 4;
      std::memcpy(lanes + j * 64, &nibbles, 4);
      for (int h = 0; h < 2; ++h) top[h] |= ((four[h] >> 4) & 0x03030303u) << (2 * j);
    }
    if (format_.code_bits == 6)
      for (int h = 0; h < 2; ++h) std::memcpy(lanes + 256 + h * 64, &top[h], 4);
  }

  uint8_t load_code(int64_t g, int i) const {
    const uint8_t* lanes = group(g);
    if (format_.code_bits == 8) return lanes[i / 4 * 64 + i % 4];
    const int half = i / 16, j = i % 16 / 4;
    int code = (lanes[j * 64 + i % 4] >> (4 * half)) & 15;
    if (format_.code_bits == 6) code |= ((lanes[256 + half * 64 + i % 4] >> (2 * j)) & 3) << 4;
    return static_cast<uint8_t>(code);
  }
  uint8_t* small(size_t region, int64_t group, int part) const {
    return strip_ + region + (group * format_.parts + part) * kStripRows + row_;
  }
  uint8_t* zero(int64_t group) const { return strip_ + shape_.minima + (group >> shape_.shift) * kStripRows + row_; }
  uint8_t* half(int64_t group, bool minimum) const {
    if (strip_scale_half(format_))
      return strip_ + (minimum ? shape_.minima : shape_.scales) + ((group >> shape_.shift) * kStripRows + row_) * 2;
    const int64_t halves = format_.minimum ? 2 : 1;
    return strip_ + shape_.super + ((group / 8 * halves + (minimum ? 1 : 0)) * kStripRows + row_) * 2;
  }

  StripFormat format_;
  StripShape shape_;
  uint8_t* strip_;
  int row_;
};

bool finite_half(uint16_t h) { return (h & 0x7c00u) != 0x7c00u; }

size_t bytes(const ValueType& weight) {
  const StripScheme* scheme = strip_scheme(weight.quant);
  if (scheme == nullptr || !weight.is_static() || weight.dims.size() < 2) return 0;
  const Extent extent(weight);
  if (extent.k % scheme->quant->block_elements != 0) return 0;
  return static_cast<size_t>(extent.strips()) * strip_shape(*scheme, extent.k).bytes;
}

Result<> pack(const ValueType& weight, const WeightRows& source, MutableBytes dst, Workers& workers) {
  const StripScheme& scheme = *strip_scheme(weight.quant);
  const Extent extent(weight);
  const StripShape shape = strip_shape(scheme, extent.k);
  const int64_t block = scheme.quant->block_elements;
  FirstBadRow bad;
  for_strip_rows(extent, workers, [&](int64_t strip, int r, int64_t row) {
    BlockPlace place(scheme, shape, dst.data() + static_cast<size_t>(strip) * shape.bytes, r);
    const std::byte* from = source.row(row);
    BlockFields fields{};
    for (int64_t i = 0; i < extent.k / block; ++i) {
      read_block(*scheme.quant, from + i * scheme.quant->block_bytes, &fields);
      if (!finite_half(fields.scale) || !finite_half(fields.minimum)) bad.report(row);
      place.store(i * block / 32, block / 32, fields);
    }
  });
  return bad.result(fmt::format("{} scale", scheme.quant->name));
}

Result<> unpack(const ValueType& weight, Bytes packed, MutableBytes rows, Workers& workers) {
  const StripScheme& scheme = *strip_scheme(weight.quant);
  const Extent extent(weight);
  const StripShape shape = strip_shape(scheme, extent.k);
  const int64_t block = scheme.quant->block_elements;
  const size_t bytes_per_row = row_bytes(weight.dtype, weight.quant, extent.k);
  for_strip_rows(extent, workers, [&](int64_t strip, int r, int64_t row) {
    auto* base = const_cast<std::byte*>(packed.data()) + static_cast<size_t>(strip) * shape.bytes;  // only read
    BlockPlace place(scheme, shape, base, r);
    BlockFields fields{};
    for (int64_t i = 0; i < extent.k / block; ++i) {
      place.load(i * block / 32, block / 32, &fields);
      write_block(*scheme.quant, fields,
                  rows.data() + static_cast<size_t>(row) * bytes_per_row + i * scheme.quant->block_bytes);
    }
  });
  return {};
}

}  // namespace

Extent::Extent(const ValueType& weight) {
  const size_t rank = weight.dims.size();
  if (rank > 1) n = weight.dims[rank - 2].factor;
  k = weight.last().factor;
  for (size_t i = 0; i + 2 < rank; ++i) matrices *= weight.dims[i].factor;
}

Result<> FirstBadRow::result(std::string_view what) const {
  const int64_t row = row_.load();
  if (row == INT64_MAX) return {};
  return error(Code::kInvalid, fmt::format("row {} has a NaN or infinite {}: the checkpoint is damaged", row, what));
}

const StripScheme* strip_scheme(const QuantScheme* quant) {
  for (const StripScheme& scheme : kSchemes)
    if (scheme.quant == quant) return &scheme;
  for (const StripScheme& scheme : block_strip_schemes())
    if (scheme.quant == quant) return &scheme;
  return nullptr;
}

StripShape strip_shape(const StripScheme& scheme, int64_t k) {
  const StripFormat format = strip_format(scheme.kind);
  const auto groups = static_cast<size_t>(k) / 32;
  const bool half = strip_scale_half(format);
  StripShape shape{};
  // Codes of these schemes lie in blocks of a scale each, which need not be the 32 of a group.
  const bool plain = half || strip_scale_float(format);
  if (strip_has_zeros(format) || strip_scale_float(format))
    shape.shift = std::countr_zero(static_cast<unsigned>(scheme.quant->block_elements / 32));
  const size_t scales = (groups >> shape.shift) * static_cast<size_t>(format.parts);
  const size_t scale_bytes = round_up(scales * static_cast<size_t>(strip_scale_bytes(format)), 64);
  const size_t minimum_bytes = round_up(scales * static_cast<size_t>(strip_minimum_bytes(format)), 64);
  shape.groups = static_cast<int64_t>(groups);
  shape.scales = groups * static_cast<size_t>(strip_group_bytes(format));
  shape.minima = shape.scales + scale_bytes;
  shape.super = shape.minima + minimum_bytes;
  shape.bytes = shape.super + (plain ? 0 : round_up(groups / 8 * kStripRows * (format.minimum ? 4 : 2), 64));
  return shape;
}

constexpr Packing kStripPacking{
    .name = "strips", .bytes = bytes, .pack = pack, .unpack = unpack, .piece_rows = kStripRows};

}  // namespace bolide
