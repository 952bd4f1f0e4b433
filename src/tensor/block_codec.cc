#include "tensor/block_codec.h"

#include <array>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/half.h"

namespace bolide {
namespace {

// The 16 values of the iq4 schemes' codes, from ggml's definition of the format.
constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

uint8_t byte_at(const std::byte* p, int i) { return static_cast<uint8_t>(p[i]); }
int8_t signed_at(const std::byte* p, int i) { return static_cast<int8_t>(p[i]); }
float half_at(const std::byte* p) { return f16_to_f32(load_unaligned<uint16_t>(p)); }

// Each decode_* expands one block at `b`. Low nibbles hold the first half of a group of 32, high nibbles the second.

void decode_q4_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(b, 2 + j);
    out[j] = static_cast<float>((q & 15) - 8) * d;
    out[j + 16] = static_cast<float>((q >> 4) - 8) * d;
  }
}

void decode_q4_1(const std::byte* b, float* out) {
  const float d = half_at(b);
  const float m = half_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(b, 4 + j);
    out[j] = static_cast<float>(q & 15) * d + m;
    out[j + 16] = static_cast<float>(q >> 4) * d + m;
  }
}

void decode_q5_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  const auto high = load_unaligned<uint32_t>(b + 2);  // fifth bit of element j at bit j
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(b, 6 + j);
    const int h0 = static_cast<int>((high >> j) & 1) << 4;
    const int h1 = static_cast<int>((high >> (j + 16)) & 1) << 4;
    out[j] = static_cast<float>(((q & 15) | h0) - 16) * d;
    out[j + 16] = static_cast<float>(((q >> 4) | h1) - 16) * d;
  }
}

void decode_q5_1(const std::byte* b, float* out) {
  const float d = half_at(b);
  const float m = half_at(b + 2);
  const auto high = load_unaligned<uint32_t>(b + 4);
  for (int j = 0; j < 16; ++j) {
    const int q = byte_at(b, 8 + j);
    const int h0 = static_cast<int>((high >> j) & 1) << 4;
    const int h1 = static_cast<int>((high >> (j + 16)) & 1) << 4;
    out[j] = static_cast<float>((q & 15) | h0) * d + m;
    out[j + 16] = static_cast<float>((q >> 4) | h1) * d + m;
  }
}

void decode_q8_0(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(signed_at(b, 2 + j)) * d;
}

// scales[16] (low nibble scale, high nibble minimum), codes[64], d, dmin. Two halves of 128: 32 bytes hold four groups
// of 32 elements, two bits each.
void decode_q2_k(const std::byte* b, float* out) {
  const std::byte* codes = b + 16;
  const float d = half_at(b + 80);
  const float dmin = half_at(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int scale = byte_at(b, i / 16);
    const int q = (byte_at(codes, i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32))) & 3;
    out[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) - dmin * static_cast<float>(scale >> 4);
  }
}

// high bits[32], codes[64], scales[12] of 6 bits, d. A clear high bit subtracts 4.
void decode_q3_k(const std::byte* b, float* out) {
  const std::byte* codes = b + 32;
  const std::byte* scales = b + 96;
  const float d = half_at(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int low = group < 8 ? byte_at(scales, group) & 15 : byte_at(scales, group - 8) >> 4;
    const int high = (byte_at(scales, 8 + group % 4) >> (2 * (group / 4))) & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const int q = (byte_at(codes, i / 128 * 32 + i % 32) >> (2 * (i % 128 / 32))) & 3;
    const bool set = ((byte_at(b, i % 32) >> (i / 32)) & 1) != 0;
    out[i] = scale * static_cast<float>(q - (set ? 0 : 4));
  }
}

struct ScaleAndMinimum {
  float scale, minimum;
};

// The 6-bit scale and minimum of group 0..7 from the 12 bytes that q4_k and q5_k pack them into.
ScaleAndMinimum k_scale(const std::byte* packed, int group) {
  if (group < 4)
    return {static_cast<float>(byte_at(packed, group) & 63), static_cast<float>(byte_at(packed, group + 4) & 63)};
  const int both = byte_at(packed, group + 4);
  return {static_cast<float>((both & 15) | (byte_at(packed, group - 4) >> 6) << 4),
          static_cast<float>((both >> 4) | (byte_at(packed, group) >> 6) << 4)};
}

// d, dmin, scales[12], codes[128]: 32 bytes hold two groups of 32, low nibbles first.
void decode_q4_k(const std::byte* b, float* out) {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  const std::byte* codes = b + 16;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, minimum] = k_scale(b + 4, group);
    for (int l = 0; l < 32; ++l) {
      const int q = (byte_at(codes, group / 2 * 32 + l) >> (4 * (group % 2))) & 15;
      out[group * 32 + l] = d * scale * static_cast<float>(q) - dmin * minimum;
    }
  }
}

// d, dmin, scales[12], fifth bits[32], codes[128].
void decode_q5_k(const std::byte* b, float* out) {
  const float d = half_at(b);
  const float dmin = half_at(b + 2);
  const std::byte* high = b + 16;
  const std::byte* codes = b + 48;
  for (int group = 0; group < 8; ++group) {
    const auto [scale, minimum] = k_scale(b + 4, group);
    for (int l = 0; l < 32; ++l) {
      const int q = ((byte_at(codes, group / 2 * 32 + l) >> (4 * (group % 2))) & 15) | ((byte_at(high, l) >> group) & 1)
                                                                                           << 4;
      out[group * 32 + l] = d * scale * static_cast<float>(q) - dmin * minimum;
    }
  }
}

// low nibbles[128], high two bits[64], int8 scales[16], d.
void decode_q6_k(const std::byte* b, float* out) {
  const std::byte* high = b + 128;
  const std::byte* scales = b + 192;
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int l = i % 32;
    const int low = (byte_at(b, half * 64 + quarter % 2 * 32 + l) >> (4 * (quarter / 2))) & 15;
    const int top = (byte_at(high, half * 32 + l) >> (2 * quarter)) & 3;
    out[i] = d * static_cast<float>(signed_at(scales, i / 16)) * static_cast<float>((low | top << 4) - 32);
  }
}

void decode_iq4_nl(const std::byte* b, float* out) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    const unsigned q = byte_at(b, 2 + j);
    out[j] = d * kIq4Values[q & 15];
    out[j + 16] = d * kIq4Values[q >> 4];
  }
}

// d, high scale bits (2 per group, 16 bits in all), low scale bits (4 per group), codes[128].
void decode_iq4_xs(const std::byte* b, float* out) {
  const float d = half_at(b);
  const int scales_high = load_unaligned<uint16_t>(b + 2);
  for (int group = 0; group < 8; ++group) {
    const int low = (byte_at(b, 4 + group / 2) >> (4 * (group % 2))) & 15;
    const float scale = d * static_cast<float>((low | ((scales_high >> (2 * group)) & 3) << 4) - 32);
    for (int j = 0; j < 16; ++j) {
      const unsigned q = byte_at(b, 8 + group * 16 + j);
      out[group * 32 + j] = scale * kIq4Values[q & 15];
      out[group * 32 + j + 16] = scale * kIq4Values[q >> 4];
    }
  }
}

template <const QuantScheme& S>
void decode_w4(const std::byte* b, float* out) {
  const float d = half_at(b);
  const int zero = byte_at(b, 2);
  for (int g = 0; g < S.block_elements; g += 32)
    for (int j = 0; j < 16; ++j) {
      const int q = byte_at(b, 4 + g / 2 + j);
      out[g + j] = d * static_cast<float>((q & 15) - zero);
      out[g + j + 16] = d * static_cast<float>((q >> 4) - zero);
    }
}

struct Decoder {
  const QuantScheme* scheme;
  void (*decode)(const std::byte*, float*);
};

constexpr std::array kDecoders = {
    Decoder{&kQ4_0, decode_q4_0},
    Decoder{&kQ4_1, decode_q4_1},
    Decoder{&kQ5_0, decode_q5_0},
    Decoder{&kQ5_1, decode_q5_1},
    Decoder{&kQ8_0, decode_q8_0},
    Decoder{&kQ2_K, decode_q2_k},
    Decoder{&kQ3_K, decode_q3_k},
    Decoder{&kQ4_K, decode_q4_k},
    Decoder{&kQ5_K, decode_q5_k},
    Decoder{&kQ6_K, decode_q6_k},
    Decoder{&kIQ4_NL, decode_iq4_nl},
    Decoder{&kIQ4_XS, decode_iq4_xs},
    Decoder{&kW4_G32, decode_w4<kW4_G32>},
    Decoder{&kW4_G64, decode_w4<kW4_G64>},
    Decoder{&kW4_G128, decode_w4<kW4_G128>},
};

}  // namespace

void decode_block_row(const QuantScheme& scheme, const std::byte* row, int64_t k, float* out) {
  BOLIDE_CHECK(k % scheme.block_elements == 0, "k {} with {}", k, scheme.name);
  for (const Decoder& decoder : kDecoders) {
    if (decoder.scheme != &scheme) continue;
    for (int64_t i = 0; i < k / scheme.block_elements; ++i)
      decoder.decode(row + i * scheme.block_bytes, out + i * scheme.block_elements);
    return;
  }
  BOLIDE_CHECK(false, "no decoder for {}", scheme.name);
}

void decode_row(DType dtype, const QuantScheme* quant, const std::byte* row, int64_t k, float* out) {
  if (quant != nullptr) return decode_block_row(*quant, row, k, out);
  const auto each = [&]<class Stored>(auto convert, Stored) {
    for (int64_t i = 0; i < k; ++i)
      out[i] = convert(load_unaligned<Stored>(row + static_cast<size_t>(i) * sizeof(Stored)));
  };
  switch (dtype) {
    case DType::kF64: return each([](double v) { return static_cast<float>(v); }, double());
    case DType::kF32: return each([](float v) { return v; }, float());
    case DType::kF16: return each(f16_to_f32, uint16_t());
    case DType::kBF16: return each(bf16_to_f32, uint16_t());
    case DType::kF8E4M3: return each(f8e4m3_to_f32, uint8_t());
    case DType::kF8E5M2: return each(f8e5m2_to_f32, uint8_t());
    case DType::kI8: return each([](int8_t v) { return static_cast<float>(v); }, int8_t());
    default: BOLIDE_CHECK(false, "{} is no type of weights", to_string(dtype));
  }
}

}  // namespace bolide
