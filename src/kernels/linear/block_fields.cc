#include "kernels/linear/block_fields.h"

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace bolide {
namespace {

uint8_t byte_at(const std::byte* p, int i) { return static_cast<uint8_t>(p[i]); }
uint8_t bits(const std::byte* p, int i, int shift, int width) {
  return static_cast<uint8_t>((byte_at(p, i) >> shift) & ((1 << width) - 1));
}
void put(std::byte* p, int i, int shift, int value) { p[i] |= static_cast<std::byte>(value << shift); }

uint16_t half_at(const std::byte* p) { return load_unaligned<uint16_t>(p); }
void put_half(std::byte* p, uint16_t h) { std::memcpy(p, &h, sizeof h); }

// Where the two bits (q2_k, q3_k: kQuarter), nibbles (q4_k, q5_k) and six-bit halves (q6_k) of element i lie.
int quarter_byte(int i) { return i / 128 * 32 + i % 32; }
int quarter_shift(int i) { return 2 * (i % 128 / 32); }
int nibble_byte(int i) { return i / 64 * 32 + i % 32; }
int nibble_shift(int i) { return 4 * (i % 64 / 32); }
int q6_byte(int i) { return i / 128 * 64 + i % 64; }
int q6_shift(int i) { return 4 * (i % 128 / 64); }

// Nibbles of a group of 32: low ones first.
void read_group32(const std::byte* p, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) codes[j] = byte_at(p, j) & 15;
  for (int j = 0; j < 16; ++j) codes[16 + j] = static_cast<uint8_t>(byte_at(p, j) >> 4);
}
void write_group32(const uint8_t* codes, std::byte* p) {
  for (int j = 0; j < 32; ++j) put(p, j % 16, j / 16 * 4, codes[j] & 15);
}

// Loops over 32 consecutive bytes, which vectorise; the write side walks element by element through the tables above.
void read_quarters(const std::byte* p, uint8_t* codes, int shift_to, bool add) {
  for (int half = 0; half < 2; ++half)
    for (int quarter = 0; quarter < 4; ++quarter)
      for (int l = 0; l < 32; ++l) {
        const int value = ((byte_at(p, half * 32 + l) >> (2 * quarter)) & 3) << shift_to;
        uint8_t& code = codes[half * 128 + quarter * 32 + l];
        code = static_cast<uint8_t>(add ? code | value : value);
      }
}
void read_nibbles(const std::byte* p, uint8_t* codes) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int l = 0; l < 32; ++l) codes[pair * 64 + l] = byte_at(p, pair * 32 + l) & 15;
    for (int l = 0; l < 32; ++l) codes[pair * 64 + 32 + l] = static_cast<uint8_t>(byte_at(p, pair * 32 + l) >> 4);
  }
}
// One more bit a code from 32 bytes: bit g of byte l belongs to element l of group g.
void read_bits(const std::byte* p, uint8_t* codes, int shift_to) {
  for (int g = 0; g < 8; ++g)
    for (int l = 0; l < 32; ++l) codes[g * 32 + l] |= static_cast<uint8_t>(((byte_at(p, l) >> g) & 1) << shift_to);
}

void read_k_scales(const std::byte* p, BlockFields* f) {
  for (int g = 0; g < 4; ++g) {
    f->scales[g] = bits(p, g, 0, 6);
    f->minima[g] = bits(p, g + 4, 0, 6);
    f->scales[g + 4] = static_cast<uint8_t>(bits(p, g + 8, 0, 4) | bits(p, g, 6, 2) << 4);
    f->minima[g + 4] = static_cast<uint8_t>(bits(p, g + 8, 4, 4) | bits(p, g + 4, 6, 2) << 4);
  }
}
void write_k_scales(const BlockFields& f, std::byte* p) {
  for (int g = 0; g < 4; ++g) {
    put(p, g, 0, f.scales[g]);
    put(p, g + 4, 0, f.minima[g]);
    put(p, g + 8, 0, f.scales[g + 4] & 15);
    put(p, g, 6, f.scales[g + 4] >> 4);
    put(p, g + 8, 4, f.minima[g + 4] & 15);
    put(p, g + 4, 6, f.minima[g + 4] >> 4);
  }
}

bool is_w4(const QuantScheme& scheme) { return &scheme == &kW4_G32 || &scheme == &kW4_G64 || &scheme == &kW4_G128; }

}  // namespace

void read_block(const QuantScheme& scheme, const std::byte* b, BlockFields* f) {
  if (&scheme == &kQ4_0 || &scheme == &kIQ4_NL) {
    f->scale = half_at(b);
    read_group32(b + 2, f->codes);
  } else if (&scheme == &kQ4_1) {
    f->scale = half_at(b), f->minimum = half_at(b + 2);
    read_group32(b + 4, f->codes);
  } else if (&scheme == &kQ5_0 || &scheme == &kQ5_1) {
    const int at = &scheme == &kQ5_0 ? 2 : 4;
    f->scale = half_at(b);
    if (&scheme == &kQ5_1) f->minimum = half_at(b + 2);
    read_group32(b + at + 4, f->codes);
    for (int j = 0; j < 32; ++j) f->codes[j] |= static_cast<uint8_t>(bits(b, at + j / 8, j % 8, 1) << 4);
  } else if (&scheme == &kQ8_0) {
    f->scale = half_at(b);
    for (int j = 0; j < 32; ++j) f->codes[j] = byte_at(b, 2 + j) ^ 0x80;
  } else if (&scheme == &kQ2_K) {
    read_quarters(b + 16, f->codes, 0, false);
    for (int g = 0; g < 16; ++g) f->scales[g] = bits(b, g, 0, 4), f->minima[g] = bits(b, g, 4, 4);
    f->scale = half_at(b + 80), f->minimum = half_at(b + 82);
  } else if (&scheme == &kQ3_K) {
    read_quarters(b + 32, f->codes, 0, false);
    read_bits(b, f->codes, 2);
    for (int g = 0; g < 16; ++g) {
      const int low = bits(b, 96 + g % 8, g / 8 * 4, 4);
      const int high = bits(b, 104 + g % 4, g / 4 * 2, 2);
      f->scales[g] = static_cast<uint8_t>((low | high << 4) - 32);
    }
    f->scale = half_at(b + 108);
  } else if (&scheme == &kQ4_K || &scheme == &kQ5_K) {
    f->scale = half_at(b), f->minimum = half_at(b + 2);
    read_k_scales(b + 4, f);
    const int at = &scheme == &kQ4_K ? 16 : 48;
    read_nibbles(b + at, f->codes);
    if (&scheme == &kQ5_K) read_bits(b + 16, f->codes, 4);
  } else if (&scheme == &kQ6_K) {
    for (int half = 0; half < 2; ++half) {
      uint8_t* codes = f->codes + half * 128;
      for (int l = 0; l < 64; ++l) codes[l] = byte_at(b, half * 64 + l) & 15;
      for (int l = 0; l < 64; ++l) codes[64 + l] = static_cast<uint8_t>(byte_at(b, half * 64 + l) >> 4);
    }
    read_quarters(b + 128, f->codes, 4, true);
    for (int g = 0; g < 16; ++g) f->scales[g] = byte_at(b, 192 + g);
    f->scale = half_at(b + 208);
  } else if (&scheme == &kIQ4_XS) {
    f->scale = half_at(b);
    for (int g = 0; g < 8; ++g) {
      const int low = bits(b, 4 + g / 2, g % 2 * 4, 4);
      const int high = bits(b, 2 + g / 4, g % 4 * 2, 2);
      f->scales[g] = static_cast<uint8_t>((low | high << 4) - 32);
      read_group32(b + 8 + g * 16, f->codes + g * 32);
    }
  } else if (is_w4(scheme)) {
    f->scale = half_at(b), f->minimum = byte_at(b, 2);
    for (int g = 0; g < scheme.block_elements; g += 32) read_group32(b + 4 + g / 2, f->codes + g);
  } else {
    BOLIDE_CHECK(false, "no fields of {}", scheme.name);
  }
}

void write_block(const QuantScheme& scheme, const BlockFields& f, std::byte* b) {
  std::memset(b, 0, static_cast<size_t>(scheme.block_bytes));
  if (&scheme == &kQ4_0 || &scheme == &kIQ4_NL) {
    put_half(b, f.scale);
    write_group32(f.codes, b + 2);
  } else if (&scheme == &kQ4_1) {
    put_half(b, f.scale), put_half(b + 2, f.minimum);
    write_group32(f.codes, b + 4);
  } else if (&scheme == &kQ5_0 || &scheme == &kQ5_1) {
    const int at = &scheme == &kQ5_0 ? 2 : 4;
    put_half(b, f.scale);
    if (&scheme == &kQ5_1) put_half(b + 2, f.minimum);
    write_group32(f.codes, b + at + 4);
    for (int j = 0; j < 32; ++j) put(b, at + j / 8, j % 8, f.codes[j] >> 4);
  } else if (&scheme == &kQ8_0) {
    put_half(b, f.scale);
    for (int j = 0; j < 32; ++j) b[2 + j] = static_cast<std::byte>(f.codes[j] ^ 0x80);
  } else if (&scheme == &kQ2_K) {
    for (int i = 0; i < 256; ++i) put(b, 16 + quarter_byte(i), quarter_shift(i), f.codes[i]);
    for (int g = 0; g < 16; ++g) put(b, g, 0, f.scales[g] | f.minima[g] << 4);
    put_half(b + 80, f.scale), put_half(b + 82, f.minimum);
  } else if (&scheme == &kQ3_K) {
    for (int i = 0; i < 256; ++i) {
      put(b, 32 + quarter_byte(i), quarter_shift(i), f.codes[i] & 3);
      put(b, i % 32, i / 32, f.codes[i] >> 2);
    }
    for (int g = 0; g < 16; ++g) {
      const int scale = static_cast<int8_t>(f.scales[g]) + 32;
      put(b, 96 + g % 8, g / 8 * 4, scale & 15);
      put(b, 104 + g % 4, g / 4 * 2, scale >> 4);
    }
    put_half(b + 108, f.scale);
  } else if (&scheme == &kQ4_K || &scheme == &kQ5_K) {
    put_half(b, f.scale), put_half(b + 2, f.minimum);
    write_k_scales(f, b + 4);
    const int at = &scheme == &kQ4_K ? 16 : 48;
    for (int i = 0; i < 256; ++i) put(b, at + nibble_byte(i), nibble_shift(i), f.codes[i] & 15);
    if (&scheme == &kQ5_K)
      for (int i = 0; i < 256; ++i) put(b, 16 + i % 32, i / 32, f.codes[i] >> 4);
  } else if (&scheme == &kQ6_K) {
    for (int i = 0; i < 256; ++i) {
      put(b, q6_byte(i), q6_shift(i), f.codes[i] & 15);
      put(b, 128 + quarter_byte(i), quarter_shift(i), f.codes[i] >> 4);
    }
    for (int g = 0; g < 16; ++g) b[192 + g] = static_cast<std::byte>(f.scales[g]);
    put_half(b + 208, f.scale);
  } else if (&scheme == &kIQ4_XS) {
    put_half(b, f.scale);
    for (int g = 0; g < 8; ++g) {
      const int scale = static_cast<int8_t>(f.scales[g]) + 32;
      put(b, 4 + g / 2, g % 2 * 4, scale & 15);
      put(b, 2 + g / 4, g % 4 * 2, scale >> 4);
      write_group32(f.codes + g * 32, b + 8 + g * 16);
    }
  } else if (is_w4(scheme)) {
    put_half(b, f.scale), put(b, 2, 0, f.minimum);
    for (int g = 0; g < scheme.block_elements; g += 32) write_group32(f.codes + g, b + 4 + g / 2);
  } else {
    BOLIDE_CHECK(false, "no fields of {}", scheme.name);
  }
}

}  // namespace bolide
