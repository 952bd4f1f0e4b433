// Filters that make numbers.
#include <fmt/core.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

using R = Result<Value>;

// The text of a number without its underscores, or nothing if one is not between digits.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto alnum = [&](size_t at) {
      return at < text.size() && text[at] != '_' && is_word(static_cast<unsigned char>(text[at]));
    };
    if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) return std::nullopt;
  }
  return out;
}

// int("...", base). Nothing: not a number; an error: too large for us.
Result<std::optional<int64_t>> parse_integer(std::string_view text, int64_t base) {
  const std::optional<std::string> clean = without_underscores(strip(text));
  if (!clean) return std::optional<int64_t>();
  std::string_view digits = *clean;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  const auto prefix = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  if ((base == 16 || base == 0) && prefix('x')) {
    digits.remove_prefix(2);
    base = 16;
  } else if ((base == 8 || base == 0) && prefix('o')) {
    digits.remove_prefix(2);
    base = 8;
  } else if ((base == 2 || base == 0) && prefix('b')) {
    digits.remove_prefix(2);
    base = 2;
  } else if (base == 0) {
    base = 10;
  }
  std::string signed_digits(negative ? 1 : 0, '-');
  signed_digits.append(digits);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::optional<int64_t>();
  int64_t number = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto read = std::from_chars(signed_digits.data(), end, number, static_cast<int>(base));
  if (read.ptr != end) return std::optional<int64_t>();
  if (read.ec == std::errc::result_out_of_range) return template_error("a number does not fit 64 bits");
  if (read.ec != std::errc()) return std::optional<int64_t>();
  return std::optional<int64_t>(number);
}

// float("...")
std::optional<double> parse_real(std::string_view text) {
  const std::optional<std::string> clean = without_underscores(strip(text));
  if (!clean || clean->empty()) return std::nullopt;
  std::string word = lower(*clean);
  const bool sign = word[0] == '+' || word[0] == '-';
  const std::string bare = sign ? word.substr(1) : word;
  if (bare == "inf" || bare == "infinity") return word[0] == '-' ? -INFINITY : INFINITY;
  if (bare == "nan") return std::nan("");
  // Only decimal notation: strtod would take hexadecimal too.
  if (bare.find_first_not_of("0123456789.e+-") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(clean->c_str(), &end);
  if (end != clean->c_str() + clean->size()) return std::nullopt;
  return number;
}

R to_int(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "int", {"default", "base"}, 0));
  BOLIDE_TRY(const int64_t base, integer_argument(a[1], "base", 10));
  const Value otherwise = a[0].is(Kind::kMissing) ? Value::integer_of(0) : a[0];
  if (input.is(Kind::kUndefined)) return undefined_error(input);
  if (input.is_integral()) return Value::integer_of(input.as_integer());
  double real = 0;
  if (input.is(Kind::kFloat)) {
    if (std::isinf(input.real)) return template_error("infinity is not an integer");
    real = input.real;
  } else if (input.is_string()) {
    BOLIDE_TRY(in.heap().step(input.string().size()));
    if (base == 0 || (base >= 2 && base <= 36)) {
      BOLIDE_TRY(const std::optional<int64_t> number, parse_integer(input.string(), base));
      if (number) return Value::integer_of(*number);
    }
    const std::optional<double> parsed = parse_real(input.string());
    if (!parsed) return otherwise;
    real = *parsed;
  } else {
    return otherwise;
  }
  if (!std::isfinite(real)) return otherwise;
  if (std::fabs(real) >= 9.2e18) return template_error("a number does not fit 64 bits");
  return Value::integer_of(static_cast<int64_t>(real));
}

R to_float(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "float", {"default"}, 0));
  if (input.is(Kind::kUndefined)) return undefined_error(input);
  if (input.is_number()) return Value::real_of(input.as_real());
  if (input.is_string()) {
    BOLIDE_TRY(in.heap().step(input.string().size()));
    if (const std::optional<double> number = parse_real(input.string())) return Value::real_of(*number);
  }
  return a[0].is(Kind::kMissing) ? Value::real_of(0) : a[0];
}

R round(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "round", {"precision", "method"}, 0));
  BOLIDE_TRY(const int64_t precision, integer_argument(a[0], "precision", 0));
  std::string_view method = "common";
  if (!a[1].is(Kind::kMissing)) {
    BOLIDE_TRY(method, string_argument(a[1], "method"));
  }
  if (method != "common" && method != "ceil" && method != "floor")
    return template_error("the method of round is 'common', 'ceil' or 'floor'");
  if (input.is(Kind::kUndefined)) return undefined_error(input);
  if (!input.is_number()) return template_error(fmt::format("'{}' cannot be rounded", type_name(input)));
  if (precision < -300 || precision > 300) return template_error("round: the precision is out of range");
  if (method != "common") {
    BOLIDE_TRY(const Value scale,
               arithmetic(in.heap(), Operator::kPower, Value::integer_of(10), Value::integer_of(precision)));
    BOLIDE_TRY(const Value scaled, arithmetic(in.heap(), Operator::kMultiply, input, scale));
    const double whole = method == "ceil" ? std::ceil(scaled.as_real()) : std::floor(scaled.as_real());
    if (!(std::fabs(whole) < 9.2e18)) return template_error("a number does not fit 64 bits");
    return arithmetic(in.heap(), Operator::kDivide, Value::integer_of(static_cast<int64_t>(whole)), scale);
  }
  if (input.is_integral()) {
    if (precision >= 0) return Value::integer_of(input.as_integer());
    if (precision < -18) return Value::integer_of(0);
    int64_t unit = 1;
    for (int64_t i = precision; i < 0; ++i) unit *= 10;
    const int64_t number = input.as_integer();
    int64_t quotient = number / unit, rest = number % unit;
    const int64_t half = unit / 2, size = rest < 0 ? -rest : rest;
    if (size > half || (size == half && quotient % 2 != 0)) quotient += number < 0 ? -1 : 1;
    return arithmetic(in.heap(), Operator::kMultiply, Value::integer_of(quotient), Value::integer_of(unit));
  }
  if (!std::isfinite(input.real)) return input;
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return Value::real_of(std::nearbyint(input.real / unit) * unit);
  }
  // printf rounds the exact binary value, halves to even, as Python does.
  char buffer[1024];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(precision), input.real);
  return Value::real_of(std::strtod(buffer, nullptr));
}

R absolute(Interpreter&, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "abs"));
  if (input.is(Kind::kFloat)) return Value::real_of(std::fabs(input.real));
  if (input.is_integral() && input.as_integer() >= 0) return Value::integer_of(input.as_integer());
  return negate(input);
}

constexpr Named<Filter> kNumberFilters[] = {{"int", to_int}, {"float", to_float}, {"round", round}, {"abs", absolute}};

}  // namespace

std::span<const Named<Filter>> number_filters() { return kNumberFilters; }

}  // namespace bolide::jinja
