#include "formats/proto_wire.h"

#include <fmt/format.h>

namespace bolide {
namespace {

Error broken(std::string_view what) { return error(Code::kInvalid, fmt::format("broken protobuf: {}", what)); }

Result<uint64_t> varint(Bytes& rest) {
  uint64_t value = 0;
  for (size_t i = 0; i < 10; ++i) {
    if (i >= rest.size()) return broken("ends amid a number");
    const auto byte = static_cast<uint8_t>(rest[i]);
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if ((byte & 0x80) == 0) {
      rest = rest.subspan(i + 1);
      return value;
    }
  }
  return broken("a number of more than ten bytes");
}

template <class T, class To>
Result<> append_fixed(const ProtoField& field, ProtoField::Wire wire, std::vector<To>& to) {
  if (field.wire == wire) {
    if constexpr (sizeof(T) == 4)
      to.push_back(field.number32());
    else
      to.push_back(std::bit_cast<T>(field.value));
    return {};
  }
  if (field.wire != ProtoField::Wire::kBytes || field.bytes.size() % sizeof(T) != 0) return broken("packed floats");
  to.reserve(to.size() + field.bytes.size() / sizeof(T));
  for (size_t i = 0; i < field.bytes.size(); i += sizeof(T)) to.push_back(load_unaligned<T>(field.bytes.data() + i));
  return {};
}

}  // namespace

Result<ProtoField> ProtoReader::next() {
  BOLIDE_TRY(const uint64_t tag, varint(rest_));
  ProtoField field;
  field.number = static_cast<uint32_t>(tag >> 3);
  field.wire = static_cast<ProtoField::Wire>(tag & 7);
  if (field.number == 0 || tag >> 3 > 0x1fffffff) return broken("a field of no number");
  const auto fixed = [&](size_t size) -> Result<> {
    if (rest_.size() < size) return broken("ends amid a number");
    field.value = size == 4 ? load_unaligned<uint32_t>(rest_.data()) : load_unaligned<uint64_t>(rest_.data());
    rest_ = rest_.subspan(size);
    return {};
  };
  switch (field.wire) {
    case ProtoField::Wire::kVarint: {
      BOLIDE_TRY(field.value, varint(rest_));
      return field;
    }
    case ProtoField::Wire::kFixed64: BOLIDE_TRY(fixed(8)); return field;
    case ProtoField::Wire::kFixed32: BOLIDE_TRY(fixed(4)); return field;
    case ProtoField::Wire::kBytes: {
      BOLIDE_TRY(const uint64_t size, varint(rest_));
      if (size > rest_.size()) return broken(fmt::format("a field of {} bytes where {} are left", size, rest_.size()));
      field.bytes = rest_.first(size);
      rest_ = rest_.subspan(size);
      return field;
    }
  }
  return broken(fmt::format("wire type {}", tag & 7));
}

Result<> append_integers(const ProtoField& field, std::vector<int64_t>& to) {
  if (field.wire == ProtoField::Wire::kVarint) {
    to.push_back(field.integer());
    return {};
  }
  if (field.wire != ProtoField::Wire::kBytes) return broken("packed integers");
  Bytes rest = field.bytes;
  while (!rest.empty()) {
    BOLIDE_TRY(const uint64_t value, varint(rest));
    to.push_back(static_cast<int64_t>(value));
  }
  return {};
}

Result<> append_floats(const ProtoField& field, std::vector<float>& to) {
  return append_fixed<float>(field, ProtoField::Wire::kFixed32, to);
}
Result<> append_doubles(const ProtoField& field, std::vector<double>& to) {
  return append_fixed<double>(field, ProtoField::Wire::kFixed64, to);
}

}  // namespace bolide
