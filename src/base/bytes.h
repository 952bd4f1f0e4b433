// Spans of raw bytes, and little-endian reads from them that are checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace bolide {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes as_bytes(std::string_view text) { return {reinterpret_cast<const std::byte*>(text.data()), text.size()}; }
inline std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Copies a T out of unaligned memory; the caller has checked the size.
template <class T>
  requires std::is_trivially_copyable_v<T>
T load_unaligned(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

// a * b and a + b, or false if the result does not fit: sizes in files are hostile until they pass these.
inline bool mul_overflows(uint64_t a, uint64_t b, uint64_t* out) { return __builtin_mul_overflow(a, b, out); }
inline bool add_overflows(uint64_t a, uint64_t b, uint64_t* out) { return __builtin_add_overflow(a, b, out); }

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
constexpr uint64_t ceil_div(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

}  // namespace bolide
