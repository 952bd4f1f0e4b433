// Protobuf's wire format, written: a message is the text of its fields, one behind another.
// Thread rules: plain values.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace bolide {

class ProtoWriter {
 public:
  void integer(uint32_t field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  // A repeated field, an element a field: what readers of both syntaxes of protobuf take.
  void integers(uint32_t field, std::span<const int64_t> values) {
    for (const int64_t value : values) integer(field, value);
  }
  void number32(uint32_t field, float value) {
    key(field, 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(bits >> (8 * i));
  }
  void text(uint32_t field, std::string_view value) {
    begin(field, value.size());
    bytes_ += value;
  }
  void message(uint32_t field, const ProtoWriter& value) { text(field, value.bytes_); }
  // The key and the length of a field of bytes; the bytes themselves are written behind it by someone else.
  void begin(uint32_t field, uint64_t size) {
    key(field, 2);
    varint(size);
  }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }

 private:
  void key(uint32_t field, uint32_t wire) { varint(uint64_t{field} << 3 | wire); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

}  // namespace bolide
