// Numbers that nobody can guess from those before, and that do not repeat after a restart: names of requests, seeds.
//
// Thread rules: any thread.
#pragma once

#include <fmt/format.h>
#include <sys/random.h>

#include <cstdint>
#include <string>

#include "base/check.h"

namespace bolide::server {

inline uint64_t random_number() {
  uint64_t number = 0;
  // The kernel has given up to 256 bytes without fail since 3.17.
  BOLIDE_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number, "the system has no random numbers");
  return number;
}

// 128 bits in hexadecimal.
inline std::string random_id() { return fmt::format("{:016x}{:016x}", random_number(), random_number()); }

}  // namespace bolide::server
