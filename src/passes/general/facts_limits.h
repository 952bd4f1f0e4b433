// How much facts.h's table keeps of a value.
#pragma once

#include <cstdint>

namespace bolide {

constexpr int64_t kValuesMax = 64;             // contents of integers
constexpr int64_t kDimMax = int64_t{1} << 40;  // a dim beyond is not computed with

}  // namespace bolide
