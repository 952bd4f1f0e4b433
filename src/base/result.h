// Result<T>: a value or an Error. The subset of std::expected that Bolide needs, with the error type fixed and the
// same names, so that it can become an alias once every compiler in use has <expected>.
//
// Bytes, files, requests and memory fail with a Result; programmer errors fail with BOLIDE_CHECK (base/check.h).
// Thread rules: plain values, no shared state.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/check.h"

namespace bolide {

enum class Code : uint8_t {
  kInvalid,      // the input is wrong: a file, a flag, a request
  kNotFound,     // a file, tensor or name does not exist
  kUnsupported,  // well-formed, but Bolide cannot do it
  kOutOfMemory,
  kCancelled,
  kDeadline,
  kUnavailable,  // a device, library or service is not there
  kOverloaded,   // too much is asked at once; later it can be answered
  kInternal,     // a fault of Bolide's own
};

std::string_view to_string(Code code);

// What went wrong, in a sentence for the user: which file, what and where, and the remedy if there is one.
struct [[nodiscard]] Error {
  Code code = Code::kInternal;
  std::string text;
  std::source_location where;

  // Puts one layer's context in front: Error{"offset past the end"}.context("model.gguf: tensor blk.0.attn_q.weight").
  Error context(std::string_view what) &&;
};

// error(Code::kInvalid, "...") with the caller's source location.
inline Error error(Code code, std::string text, std::source_location where = std::source_location::current()) {
  return Error{code, std::move(text), where};
}

template <class T = void>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  template <class U>
    requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, T> &&
             !std::is_same_v<std::remove_cvref_t<U>, Error> && !std::is_same_v<std::remove_cvref_t<U>, Result>)
  Result(U&& value)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<0>, T(std::forward<U>(value))) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & {
    BOLIDE_CHECK(has_value(), "value() of an error: {}", std::get<1>(state_).text);
    return std::get<0>(state_);
  }
  const T& value() const& { return const_cast<Result*>(this)->value(); }
  T&& value() && { return std::move(value()); }
  T value_or(T other) && { return has_value() ? std::move(std::get<0>(state_)) : std::move(other); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & {
    BOLIDE_CHECK(!has_value(), "error() of a value");
    return std::get<1>(state_);
  }
  const Error& error() const& { return const_cast<Result*>(this)->error(); }
  Error&& error() && { return std::move(error()); }

  // A value passes through; an error gets one layer of context.
  Result context(std::string_view what) && {
    if (has_value()) return std::move(*this);
    return std::move(error()).context(what);
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return !failed_; }
  explicit operator bool() const { return has_value(); }
  void value() const { BOLIDE_CHECK(!failed_, "value() of an error: {}", error_.text); }

  Error& error() & {
    BOLIDE_CHECK(failed_, "error() of a value");
    return error_;
  }
  const Error& error() const& { return const_cast<Result*>(this)->error(); }
  Error&& error() && { return std::move(error()); }

  Result context(std::string_view what) && {
    if (has_value()) return std::move(*this);
    return std::move(error_).context(what);
  }

 private:
  Error error_;
  bool failed_ = false;
};

inline Result<> ok() { return {}; }

// BOLIDE_TRY(auto x, f()): x is f's value, or the function returns f's error.
// BOLIDE_TRY(f()): for Result<void>.
#define BOLIDE_TRY(...) BOLIDE_TRY_PICK_(__VA_ARGS__, BOLIDE_TRY_ASSIGN_, BOLIDE_TRY_VOID_)(__VA_ARGS__)
#define BOLIDE_TRY_PICK_(a, b, name, ...) name
#define BOLIDE_TRY_CAT2_(a, b) a##b
#define BOLIDE_TRY_CAT_(a, b) BOLIDE_TRY_CAT2_(a, b)
#define BOLIDE_TRY_ASSIGN_(declaration, expression) \
  BOLIDE_TRY_ASSIGN_NAMED_(declaration, BOLIDE_TRY_CAT_(bolide_try_, __LINE__), expression)
#define BOLIDE_TRY_ASSIGN_NAMED_(declaration, name, expression) \
  auto name = (expression);                                     \
  if (!name.has_value()) return std::move(name).error();        \
  declaration = *std::move(name)
#define BOLIDE_TRY_VOID_(expression)                                           \
  do {                                                                         \
    if (auto bolide_try_result = (expression); !bolide_try_result.has_value()) \
      return std::move(bolide_try_result).error();                             \
  } while (false)

}  // namespace bolide
