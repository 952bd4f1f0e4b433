// ValueType: element type, quantisation and dims of a value of the graph; dims are numbers, symbols or multiples of
// one.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/quant.h"
#include "tensor/shape.h"

namespace bolide {

// The symbols of a language model's graph. Topology depends on their bucket only; everything else of a batch (ids,
// positions, block tables, lengths) is contents of buffers.
enum class Symbol : int8_t {
  kNone = -1,
  kTokens,     // T: tokens of all sequences in this step
  kSequences,  // S: sequences in this step
  kRows,       // R: tokens whose logits are wanted
};
inline constexpr int kSymbols = 3;
std::string_view to_string(Symbol symbol);  // "T", "S", "R"

// Sizes of the symbols in one step.
struct SymbolValues {
  std::array<int64_t, kSymbols> value{};
  int64_t operator[](Symbol s) const { return value[static_cast<size_t>(s)]; }
  int64_t& operator[](Symbol s) { return value[static_cast<size_t>(s)]; }
  friend bool operator==(const SymbolValues&, const SymbolValues&) = default;
};

// factor, or factor * symbol.
struct Dim {
  Symbol symbol = Symbol::kNone;
  int64_t factor = 0;

  Dim() = default;
  Dim(int64_t number) : factor(number) {}                 // NOLINT(google-explicit-constructor)
  Dim(Symbol s, int64_t f = 1) : symbol(s), factor(f) {}  // NOLINT(google-explicit-constructor)
  bool is_number() const { return symbol == Symbol::kNone; }
  int64_t at(const SymbolValues& values) const { return is_number() ? factor : factor * values[symbol]; }
  friend bool operator==(Dim, Dim) = default;
};

struct ValueType {
  DType dtype = DType::kNone;          // kNone: an ordering edge without storage, or a value of a general op
  const QuantScheme* quant = nullptr;  // block-quantised weights; dtype is then the scheme's code type
  std::vector<Dim> dims;

  Dim last() const { return dims.empty() ? Dim(1) : dims.back(); }
  Shape at(const SymbolValues& values) const;
  // Bytes of a contiguous value.
  size_t bytes(const SymbolValues& values) const;
  bool is_static() const;
  friend bool operator==(const ValueType&, const ValueType&) = default;
};

std::string to_string(const ValueType& type);  // "f32[T,576]", "q4_1[576,576]", "none"
Result<ValueType> parse_value_type(std::string_view text);

inline ValueType f32(std::vector<Dim> dims) { return {DType::kF32, nullptr, std::move(dims)}; }
inline ValueType i32(std::vector<Dim> dims) { return {DType::kI32, nullptr, std::move(dims)}; }
inline ValueType order_edge() { return {}; }

}  // namespace bolide
