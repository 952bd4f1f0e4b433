// Protobuf's wire format: fields of a message in the order in which they lie there.
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace bolide {

struct ProtoField {
  enum class Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint32_t number = 0;
  Wire wire = Wire::kVarint;
  uint64_t value = 0;  // varint, fixed
  Bytes bytes;         // kBytes

  std::string_view text() const { return as_text(bytes); }
  int64_t integer() const { return static_cast<int64_t>(value); }
  float number32() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }
};

class ProtoReader {
 public:
  explicit ProtoReader(Bytes message) : rest_(message) {}
  bool done() const { return rest_.empty(); }
  // kInvalid: the message ends amid the field, or has a wire type that there is not.
  Result<ProtoField> next();

 private:
  Bytes rest_;
};

// Numbers of a repeated field, packed or one by one, after those that are there. kInvalid: bytes that are no numbers.
Result<> append_integers(const ProtoField& field, std::vector<int64_t>& to);
Result<> append_floats(const ProtoField& field, std::vector<float>& to);
Result<> append_doubles(const ProtoField& field, std::vector<double>& to);

}  // namespace bolide
