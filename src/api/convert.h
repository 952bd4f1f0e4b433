// Internal results as public ones.
#pragma once

#include <utility>

#include "base/result.h"
#include "bolide/bolide.h"

namespace bolide {

inline Status to_status(Error failure) {
  return {static_cast<StatusCode>(static_cast<int>(failure.code) + 1), std::move(failure.text)};
}
static_assert(static_cast<int>(StatusCode::kInvalid) == static_cast<int>(Code::kInvalid) + 1);
static_assert(static_cast<int>(StatusCode::kInternal) == static_cast<int>(Code::kInternal) + 1);

// Not of an ok status.
inline Error to_error(Status status) {
  return error(static_cast<Code>(static_cast<int>(status.code) - 1), std::move(status.message));
}

template <class T>
Expected<T> to_expected(Result<T> result) {
  if (!result) return to_status(std::move(result).error());
  return *std::move(result);
}

}  // namespace bolide
