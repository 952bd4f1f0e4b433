// BOLIDE_CHECK(condition, "text {}", values...): for programmer errors only, active in release; prints and aborts.
// What a file, a flag or a client can cause is a Result (base/result.h), never a check.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace bolide::detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view text);
}  // namespace bolide::detail

#define BOLIDE_CHECK(condition, ...)                                                                 \
  do {                                                                                               \
    if (!(condition)) [[unlikely]]                                                                   \
      ::bolide::detail::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
