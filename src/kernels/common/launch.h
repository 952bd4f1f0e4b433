// What launch and supports functions of the CPU kernels share. For normal files only: nothing here may be included by a
// file compiled for an instruction set.
#pragma once

#include <algorithm>
#include <variant>

#include "base/function_ref.h"
#include "kernels/kernel.h"

namespace bolide {

// The attributes of the op that the launch is for; another op is a fault of the plan.
template <class T>
const T& attributes(const Launch& launch) {
  const T* op = std::get_if<T>(launch.op);
  BOLIDE_CHECK(op != nullptr, "launched for {} instead of {}", op_name(*launch.op), T::kName);
  return *op;
}

template <class T>
const T* attributes(const Problem& problem) {
  return std::get_if<T>(problem.op);
}

// All of these values are f32.
inline bool all_f32(std::span<const ValueType> types) {
  return std::all_of(types.begin(), types.end(), [](const ValueType& type) { return type.dtype == DType::kF32; });
}

inline bool has_isa(const Problem& problem, Isa isa) { return problem.device->isa >= isa; }

// Elements of work below which a run of the pool costs more than it saves (a run is about 2 us).
inline constexpr int64_t kInlineElements = 16384;

// Calls body(begin, end) over [0, rows) in pieces; inline if all of it is less than kInlineElements elements of about
// a nanosecond's work each. Rows must not depend on each other: the pieces depend on the number of rows.
inline void for_rows(Workers& workers, int64_t rows, int64_t row_elements, FunctionRef<void(int64_t, int64_t)> body) {
  const int64_t piece = std::max<int64_t>(1, kInlineElements / 2 / std::max<int64_t>(1, row_elements));
  if (rows <= 1 || rows * row_elements < kInlineElements || workers.threads() == 1) {
    if (rows > 0) body(0, rows);
    return;
  }
  workers.run((rows + piece - 1) / piece,
              [&](int64_t chunk, int) { body(chunk * piece, std::min(rows, (chunk + 1) * piece)); });
}

}  // namespace bolide
