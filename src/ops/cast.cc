#include "ops/cast.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "ops/attribute.h"
#include "ops/number.h"
#include "ops/ops.h"
#include "ops/small_float.h"

namespace bolide {
namespace {

constexpr int64_t kBlock = 512;

constexpr auto kAllNumbers =
    kNumbers + Types<Bool, I4, U4, I2, U2, F8E4M3, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ, F8E8M0, F4E2M1>{};

template <class T>
constexpr SmallFloat kFormat{};  // of no such float: no bits
template <>
constexpr SmallFloat kFormat<F8E4M3> = kE4M3;
template <>
constexpr SmallFloat kFormat<F8E5M2> = kE5M2;
template <>
constexpr SmallFloat kFormat<F8E4M3FNUZ> = kE4M3FNUZ;
template <>
constexpr SmallFloat kFormat<F8E5M2FNUZ> = kE5M2FNUZ;
template <>
constexpr SmallFloat kFormat<F4E2M1> = kE2M1;

template <class T>
constexpr bool kIsFloat = requires(T t) { t.bits; } || std::floating_point<T>;

template <class T>
double real_of(T v) {
  if constexpr (kFormat<T>.exponent_bits != 0)
    return decode_small(v.bits, kFormat<T>);
  else if constexpr (std::same_as<T, F8E8M0>)
    return decode_power(v.bits);
  else
    return static_cast<double>(widen(v));
}

// v: double, int64_t or uint64_t.
template <class T, class V>
T to_element(V v, const CastRules& rules) {
  if constexpr (std::same_as<T, Bool>) {
    return {v != V(0) ? uint8_t{1} : uint8_t{0}};
  } else if constexpr (std::floating_point<T>) {
    return static_cast<T>(v);
  } else if constexpr (std::same_as<T, F16> || std::same_as<T, BF16>) {
    return narrow<T>(round_to_odd(static_cast<double>(v)));
  } else if constexpr (std::same_as<T, F8E8M0>) {
    return {encode_power(static_cast<double>(v), static_cast<PowerRound>(rules.powers), rules.saturate)};
  } else if constexpr (kFormat<T>.exponent_bits != 0) {
    return {encode_small(static_cast<double>(v), kFormat<T>, rules.saturate)};
  } else {
    int64_t whole;
    if constexpr (std::floating_point<V>) {
      if constexpr (std::same_as<T, uint64_t>)
        if (v >= 0x1p63) return v >= 0x1p64 ? std::numeric_limits<uint64_t>::max() : static_cast<uint64_t>(v);
      whole = saturate_to_i64(v);
      if constexpr (std::same_as<T, int32_t>)
        whole = std::clamp<int64_t>(whole, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
    } else {
      whole = static_cast<int64_t>(v);
    }
    const auto low = static_cast<uint8_t>(whole);
    if constexpr (std::same_as<T, I4>)
      return {static_cast<int8_t>(static_cast<int8_t>(low << 4) >> 4)};
    else if constexpr (std::same_as<T, U4>)
      return {static_cast<uint8_t>(low & 0xf)};
    else if constexpr (std::same_as<T, I2>)
      return {static_cast<int8_t>(static_cast<int8_t>(low << 6) >> 6)};
    else if constexpr (std::same_as<T, U2>)
      return {static_cast<uint8_t>(low & 0x3)};
    else
      return static_cast<T>(whole);
  }
}

template <class V>
void load_wide(const Tensor& from, int64_t first, int64_t n, V* to) {
  const auto done = dispatch(kAllNumbers, from.dtype(), "a tensor", [&]<class T>() -> Result<> {
    const T* const x = from.as<T>().data() + first;
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::floating_point<V>)
        to[i] = real_of(x[i]);
      else if constexpr (kIsFloat<T>)
        to[i] = static_cast<V>(saturate_to_i64(real_of(x[i])));
      else
        to[i] = static_cast<V>(widen(x[i]));  // NOLINT(bugprone-signed-char-misuse): i8 are numbers
    }
    return {};
  });
  BOLIDE_CHECK(done.has_value(), "{}", done.error().text);
}

template <class V>
void store_wide(Tensor& to, int64_t first, int64_t n, const V* from, const CastRules& rules) {
  const auto done = dispatch(kAllNumbers, to.dtype(), "a tensor", [&]<class T>() -> Result<> {
    T* const y = to.mutate<T>().data() + first;
    for (int64_t i = 0; i < n; ++i) y[i] = to_element<T>(from[i], rules);
    return {};
  });
  BOLIDE_CHECK(done.has_value(), "{}", done.error().text);
}

template <class V>
void cast_through(const Tensor& from, Tensor& to, const CastRules& rules) {
  std::array<V, kBlock> block;
  for (int64_t begin = 0; begin < from.elements(); begin += kBlock) {
    const int64_t n = std::min(kBlock, from.elements() - begin);
    load_wide(from, begin, n, block.data());
    store_wide(to, begin, n, block.data(), rules);
  }
}

Result<double> parse_real(const std::string& text) {
  size_t begin = text.find_first_not_of(" \t\r\n");
  size_t end = text.find_last_not_of(" \t\r\n") + 1;
  if (begin == std::string::npos) begin = end = 0;
  if (begin < end && text[begin] == '+') ++begin;
  double value = 0;
  const auto [stop, fault] = std::from_chars(text.data() + begin, text.data() + end, value);
  if (stop == text.data() + end && begin < end) {
    if (fault == std::errc{}) return value;
    if (fault == std::errc::result_out_of_range) return std::strtod(text.c_str() + begin, nullptr);
  }
  return error(Code::kInvalid, fmt::format("'{:.60}' is no number", text));
}

Result<> cast_texts(const Tensor& from, Tensor& to, const CastRules& rules) {
  const auto texts = from.as<std::string>();
  for (int64_t i = 0; i < from.elements(); ++i) {
    const std::string& text = texts[static_cast<size_t>(i)];
    const char* const end = text.data() + text.size();
    int64_t whole = 0;
    uint64_t large = 0;
    if (auto r = std::from_chars(text.data(), end, whole); r.ec == std::errc{} && r.ptr == end) {
      store(to, i, 1, &whole, rules);
    } else if (auto u = std::from_chars(text.data(), end, large); u.ec == std::errc{} && u.ptr == end) {
      store(to, i, 1, &large, rules);
    } else {
      BOLIDE_TRY(const double real, parse_real(text));
      store(to, i, 1, &real, rules);
    }
  }
  return {};
}

// The fewest digits that come back as the same number.
std::string text_of(double value, bool is_double) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "INF" : "-INF";
  std::string text = is_double ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void make_texts(const Tensor& from, Tensor& to) {
  const auto texts = to.mutate<std::string>();
  for (int64_t i = 0; i < from.elements(); ++i) {
    std::string& text = texts[static_cast<size_t>(i)];
    if (wider_of(from.dtype()) == Wider::kReal) {
      double value = 0;
      load(from, i, 1, &value);
      text = text_of(value, from.dtype() == DType::kF64);
    } else if (from.dtype() == DType::kU64) {
      text = fmt::format("{}", from.as<uint64_t>()[static_cast<size_t>(i)]);
    } else {
      int64_t value = 0;
      load(from, i, 1, &value);
      text = fmt::format("{}", value);
    }
  }
}

Result<CastRules> rules_of(const RunContext& c) {
  CastRules rules;
  BOLIDE_TRY(const int64_t saturate, c.attributes().integer("saturate", 1));
  BOLIDE_TRY(const size_t round, choice_of(c, "round_mode", "up", {"up", "down", "nearest"}));
  rules.saturate = saturate != 0;
  rules.powers = static_cast<CastRules::Round>(round);
  return rules;
}

// `to` is a number of ONNX; in the oldest set a name.
Result<DType> target_of(const RunContext& c) {
  const Attributes::Any* to = c.attributes().find("to");
  if (to == nullptr) return error(Code::kInvalid, "attribute to is missing");
  if (const auto* name = std::get_if<std::string>(to)) {
    constexpr std::pair<std::string_view, int64_t> kNames[] = {
        {"FLOAT", 1},  {"UINT8", 2}, {"INT8", 3},     {"UINT16", 4},  {"INT16", 5},   {"INT32", 6},  {"INT64", 7},
        {"STRING", 8}, {"BOOL", 9},  {"FLOAT16", 10}, {"DOUBLE", 11}, {"UINT32", 12}, {"UINT64", 13}};
    for (const auto& [known, number] : kNames)
      if (*name == known) return dtype_of_number(number);
    return error(Code::kInvalid, fmt::format("attribute to is '{:.60}', which is no type", *name));
  }
  BOLIDE_TRY(const int64_t number, c.attributes().integer("to", 0));
  return dtype_of_number(number).context("attribute to");
}

Result<> run_cast(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const DType to, target_of(c));
  BOLIDE_TRY(const CastRules rules, rules_of(c));
  BOLIDE_TRY(Tensor y, cast(*x, to, c.pool(), rules));
  c.set(0, std::move(y));
  return {};
}

Result<> run_cast_like(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const Tensor* like, c.tensor(1));
  BOLIDE_TRY(const CastRules rules, rules_of(c));
  BOLIDE_TRY(Tensor y, cast(*x, like->dtype(), c.pool(), rules));
  c.set(0, std::move(y));
  return {};
}

Result<> run_bit_cast(RunContext& c) {
  BOLIDE_TRY(const Tensor* x, c.tensor(0));
  BOLIDE_TRY(const DType to, target_of(c));
  // A bool is a byte here, as in memory.
  const auto bits = [](DType dtype) { return dtype == DType::kBool ? 8 : bits_of(dtype); };
  if (x->is_string() || to == DType::kString || bits(x->dtype()) != bits(to))
    return error(Code::kInvalid, fmt::format("{} has other bits than {}", to_string(x->dtype()), to_string(to)));
  BOLIDE_TRY(Tensor * y, c.make(0, to, x->shape()));
  if (bits(to) >= 8) {
    if (x->bytes() != 0) std::memcpy(y->mutable_data(), x->data(), x->bytes());
    return {};
  }
  const bool is_signed = to == DType::kI4 || to == DType::kI2;
  const unsigned mask = (1u << bits(to)) - 1, sign = 1u << (bits(to) - 1);
  for (size_t i = 0; i < x->bytes(); ++i) {
    const unsigned code = static_cast<unsigned>(x->data()[i]) & mask;
    y->mutable_data()[i] = static_cast<std::byte>(is_signed && (code & sign) != 0 ? code | ~mask : code);
  }
  return {};
}

constexpr OpDef kRows[] = {
    {.domain = "", .name = "Cast", .run = run_cast},
    {.domain = "", .name = "CastLike", .since = 15, .run = run_cast_like},
    {.domain = "", .name = "BitCast", .since = 26, .run = run_bit_cast},
};

}  // namespace

Wider wider_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2FNUZ:
    case DType::kF8E8M0:
    case DType::kF4E2M1: return Wider::kReal;
    case DType::kU64: return Wider::kUnsigned;
    default: return Wider::kSigned;
  }
}

void load(const Tensor& from, int64_t first, int64_t n, double* to) { load_wide(from, first, n, to); }
void load(const Tensor& from, int64_t first, int64_t n, int64_t* to) { load_wide(from, first, n, to); }
void load(const Tensor& from, int64_t first, int64_t n, uint64_t* to) { load_wide(from, first, n, to); }
void store(Tensor& to, int64_t first, int64_t n, const double* from, const CastRules& rules) {
  store_wide(to, first, n, from, rules);
}
void store(Tensor& to, int64_t first, int64_t n, const int64_t* from, const CastRules& rules) {
  store_wide(to, first, n, from, rules);
}
void store(Tensor& to, int64_t first, int64_t n, const uint64_t* from, const CastRules& rules) {
  store_wide(to, first, n, from, rules);
}

Result<Tensor> cast(const Tensor& from, DType to, TensorPool& pool, const CastRules& rules) {
  if (from.dtype() == to) return from;
  BOLIDE_TRY(Tensor out, Tensor::make(to, from.shape(), pool));
  if (from.is_string()) {
    BOLIDE_TRY(cast_texts(from, out, rules));
    return out;
  }
  if (to == DType::kString) {
    make_texts(from, out);
    return out;
  }
  switch (wider_of(from.dtype())) {
    case Wider::kReal: cast_through<double>(from, out, rules); break;
    case Wider::kSigned: cast_through<int64_t>(from, out, rules); break;
    case Wider::kUnsigned: cast_through<uint64_t>(from, out, rules); break;
  }
  return out;
}

Result<DType> dtype_of_number(int64_t number) {
  constexpr DType kTypes[] = {DType::kNone,       DType::kF32,  DType::kU8,     DType::kI8,         DType::kU16,
                              DType::kI16,        DType::kI32,  DType::kI64,    DType::kString,     DType::kBool,
                              DType::kF16,        DType::kF64,  DType::kU32,    DType::kU64,        DType::kNone,
                              DType::kNone,       DType::kBF16, DType::kF8E4M3, DType::kF8E4M3FNUZ, DType::kF8E5M2,
                              DType::kF8E5M2FNUZ, DType::kU4,   DType::kI4,     DType::kF4E2M1,     DType::kF8E8M0,
                              DType::kU2,         DType::kI2};
  if (number <= 0 || number >= static_cast<int64_t>(std::size(kTypes)))
    return error(Code::kInvalid, fmt::format("type {} is not known", number));
  const DType dtype = kTypes[number];
  if (dtype == DType::kNone)
    return error(Code::kUnsupported, fmt::format("type {} (complex) is not supported", number));
  return dtype;
}

std::span<const OpDef> cast_ops() { return kRows; }

}  // namespace bolide
