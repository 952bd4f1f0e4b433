// Shape and Strides: up to kRankMax numbers, no allocation, trivially copyable.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"

namespace bolide {

inline constexpr int kRankMax = 8;

struct Shape {
  std::array<int64_t, kRankMax> dims{};
  int32_t rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) : Shape(std::span<const int64_t>(list.begin(), list.size())) {}
  explicit Shape(std::span<const int64_t> list) {
    BOLIDE_CHECK(list.size() <= kRankMax, "rank {}", list.size());
    for (const int64_t dim : list) dims[static_cast<size_t>(rank++)] = dim;
  }

  int64_t operator[](int axis) const { return dims[static_cast<size_t>(axis < 0 ? axis + rank : axis)]; }
  int64_t& operator[](int axis) { return dims[static_cast<size_t>(axis < 0 ? axis + rank : axis)]; }
  // Product of all dims; 1 for a scalar. The dims were checked where they were read.
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= (*this)[i];
    return n;
  }
  std::span<const int64_t> span() const { return {dims.data(), static_cast<size_t>(rank)}; }
  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank != b.rank) return false;
    for (int i = 0; i < a.rank; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
};

std::string to_string(const Shape& shape);  // "[512, 576]"

}  // namespace bolide
