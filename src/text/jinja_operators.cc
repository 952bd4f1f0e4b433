#include "text/jinja_operators.h"

#include <fmt/core.h>

#include <cmath>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

constexpr int kCompareDepthMax = 120;

std::string_view operator_text(Operator op) {
  constexpr std::string_view kTexts[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kTexts[static_cast<size_t>(op)];
}

Error wrong_operands(Operator op, const Value& left, const Value& right) {
  if (left.is(Kind::kUndefined)) return undefined_error(left);
  if (right.is(Kind::kUndefined)) return undefined_error(right);
  return template_error(
      fmt::format("'{}' is not possible between '{}' and '{}'", operator_text(op), type_name(left), type_name(right)));
}

Error overflow() { return template_error("a number does not fit 64 bits"); }
Error zero_division() { return template_error("division by zero"); }

Result<Value> power_of(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return overflow();
  }
  return Value::integer_of(result);
}

Result<Value> integers(Operator op, int64_t a, int64_t b) {
  int64_t out = 0;
  switch (op) {
    case Operator::kAdd: return __builtin_add_overflow(a, b, &out) ? Result<Value>(overflow()) : Value::integer_of(out);
    case Operator::kSubtract:
      return __builtin_sub_overflow(a, b, &out) ? Result<Value>(overflow()) : Value::integer_of(out);
    case Operator::kMultiply:
      return __builtin_mul_overflow(a, b, &out) ? Result<Value>(overflow()) : Value::integer_of(out);
    case Operator::kDivide:
      if (b == 0) return zero_division();
      return Value::real_of(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == 0) return zero_division();
      if (b == -1) {
        if (op == Operator::kModulo) return Value::integer_of(0);
        return a == INT64_MIN ? Result<Value>(overflow()) : Value::integer_of(-a);
      }
      int64_t quotient = a / b, rest = a % b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        --quotient;
        rest += b;
      }
      return Value::integer_of(op == Operator::kModulo ? rest : quotient);
    }
    default:
      if (b >= 0) return power_of(a, b);
      if (a == 0) return zero_division();
      return Value::real_of(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

Result<Value> reals(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd: return Value::real_of(a + b);
    case Operator::kSubtract: return Value::real_of(a - b);
    case Operator::kMultiply: return Value::real_of(a * b);
    case Operator::kDivide: return b == 0 ? Result<Value>(zero_division()) : Value::real_of(a / b);
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      if (b == 0) return zero_division();
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
      } else if (rest == 0) {
        rest = std::copysign(0.0, b);
      }
      if (op == Operator::kModulo) return Value::real_of(rest);
      double floored = std::floor(quotient);
      if (quotient - floored > 0.5) floored += 1;
      return Value::real_of(quotient == 0 ? std::copysign(0.0, a / b) : floored);
    }
    default: {
      if (a == 0 && b < 0) return zero_division();
      if (a < 0 && b != std::floor(b) && std::isfinite(b)) return template_error("this power is not a real number");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return template_error("this power is too large");
      return Value::real_of(result);
    }
  }
}

Result<Value> repeat(Heap& heap, const Value& what, int64_t times) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  if (what.is_string()) {
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, what.string().size(), &bytes)) bytes = UINT64_MAX;
    BOLIDE_TRY(heap.room(bytes));
    BOLIDE_TRY(heap.step(bytes));
    std::string out;
    out.reserve(bytes);
    if (bytes != 0)
      for (uint64_t i = 0; i < count; ++i) out += what.string();
    return heap.string(std::move(out));
  }
  const List& list = *what.list;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(count, list.items.size() * sizeof(Value), &bytes)) bytes = UINT64_MAX;
  BOLIDE_TRY(heap.room(bytes));
  BOLIDE_TRY(heap.step(bytes));
  std::vector<Value> items;
  if (bytes != 0)
    for (uint64_t i = 0; i < count; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  return heap.list(std::move(items), list.flavour == Flavour::kList ? Flavour::kList : Flavour::kTuple);
}

bool is_tuple(const Value& value) {
  return value.is(Kind::kList) && (value.list->flavour == Flavour::kTuple || value.list->flavour == Flavour::kGroup);
}
bool is_list(const Value& value) { return value.is(Kind::kList) && value.list->flavour == Flavour::kList; }

Result<Value> add_sequences(Heap& heap, const Value& left, const Value& right) {
  BOLIDE_TRY(heap.room((left.list->items.size() + right.list->items.size()) * sizeof(Value)));
  BOLIDE_TRY(heap.step((left.list->items.size() + right.list->items.size()) * sizeof(Value)));
  std::vector<Value> items = left.list->items;
  items.insert(items.end(), right.list->items.begin(), right.list->items.end());
  return heap.list(std::move(items), is_list(left) ? Flavour::kList : Flavour::kTuple);
}

Result<bool> ordered(Operator op, const Value& left, const Value& right) {
  const auto decide = [op](const auto& a, const auto& b) {
    switch (op) {
      case Operator::kLess: return a < b;
      case Operator::kLessEqual: return a <= b;
      case Operator::kGreater: return a > b;
      default: return a >= b;
    }
  };
  if (left.is_integral() && right.is_integral()) return decide(left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number()) return decide(left.as_real(), right.as_real());
  if (left.is_string() && right.is_string()) return decide(left.string(), right.string());
  return wrong_operands(op, left, right);
}

Result<bool> ordered_lists(Heap& heap, Operator op, const Value& left, const Value& right, int depth);

Result<bool> ordered_any(Heap& heap, Operator op, const Value& left, const Value& right, int depth) {
  BOLIDE_TRY(heap.step(left.is_string() ? left.string().size() : 0));
  if (depth > kCompareDepthMax) return template_error("values are nested too deeply to be compared");
  if ((is_list(left) && is_list(right)) || (is_tuple(left) && is_tuple(right)))
    return ordered_lists(heap, op, left, right, depth);
  return ordered(op, left, right);
}

// The first items that differ decide; if none do, the lengths.
Result<bool> ordered_lists(Heap& heap, Operator op, const Value& left, const Value& right, int depth) {
  const std::vector<Value>&a = left.list->items, &b = right.list->items;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    BOLIDE_TRY(const bool same, equal(heap, a[i], b[i], depth + 1));
    if (!same) return ordered_any(heap, op, a[i], b[i], depth + 1);
  }
  return ordered(op, Value::integer_of(static_cast<int64_t>(a.size())),
                 Value::integer_of(static_cast<int64_t>(b.size())));
}

}  // namespace

Error undefined_error(const Value& value) {
  if (value.text == nullptr) return template_error("an undefined value was used");
  return template_error(fmt::format("'{}' is undefined", value.text->bytes));
}

Result<Value> negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value::real_of(-value.real);
  if (value.is_integral()) return integers(Operator::kSubtract, 0, value.as_integer());
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  return template_error(fmt::format("'{}' has no sign", type_name(value)));
}

Result<Value> arithmetic(Heap& heap, Operator op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return integers(op, left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number()) return reals(op, left.as_real(), right.as_real());
  if (op == Operator::kAdd) {
    if (left.is_string() && right.is_string()) {
      const size_t bytes = left.string().size() + right.string().size();
      BOLIDE_TRY(heap.room(bytes));
      BOLIDE_TRY(heap.step(bytes));
      std::string out;
      out.reserve(bytes);
      out.append(left.string()).append(right.string());
      return heap.string(std::move(out));
    }
    if ((is_list(left) && is_list(right)) || (is_tuple(left) && is_tuple(right)))
      return add_sequences(heap, left, right);
  }
  if (op == Operator::kMultiply) {
    const auto repeatable = [](const Value& v) { return v.is_string() || is_list(v) || is_tuple(v); };
    if (repeatable(left) && right.is_integral()) return repeat(heap, left, right.as_integer());
    if (repeatable(right) && left.is_integral()) return repeat(heap, right, left.as_integer());
  }
  if (op == Operator::kModulo && left.is_string()) return percent_format(heap, left, right);
  return wrong_operands(op, left, right);
}

Result<bool> equal(Heap& heap, const Value& left, const Value& right, int depth) {
  BOLIDE_TRY(heap.step(left.is_string() ? left.string().size() : 0));
  if (depth > kCompareDepthMax) return template_error("values are nested too deeply to be compared");
  if (left.is(Kind::kList) && right.is(Kind::kList)) {
    if (left.list == right.list) return true;
    const auto family = [](const List& list) {
      return list.flavour == Flavour::kGroup ? Flavour::kTuple : list.flavour;
    };
    const std::vector<Value>&a = left.list->items, &b = right.list->items;
    if (family(*left.list) != family(*right.list) || a.size() != b.size()) return false;
    if (left.list->flavour == Flavour::kGenerator) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      BOLIDE_TRY(const bool same, equal(heap, a[i], b[i], depth + 1));
      if (!same) return false;
    }
    return true;
  }
  if (left.is(Kind::kDict) && right.is(Kind::kDict)) {
    if (left.dict == right.dict) return true;
    if (left.dict->entries.size() != right.dict->entries.size()) return false;
    for (const Dict::Entry& entry : left.dict->entries) {
      const Value* other = right.dict->find(entry.key);
      if (other == nullptr) return false;
      BOLIDE_TRY(const bool same, equal(heap, entry.value, *other, depth + 1));
      if (!same) return false;
    }
    return true;
  }
  return equal_scalars(left, right);
}

Result<bool> less(Heap& heap, const Value& left, const Value& right, int depth) {
  return ordered_any(heap, Operator::kLess, left, right, depth);
}

Result<bool> compare(Heap& heap, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual: return equal(heap, left, right);
    case Operator::kNotEqual: {
      BOLIDE_TRY(const bool same, equal(heap, left, right));
      return !same;
    }
    case Operator::kIn: return contains(heap, right, left);
    case Operator::kNotIn: {
      BOLIDE_TRY(const bool inside, contains(heap, right, left));
      return !inside;
    }
    default: return ordered_any(heap, op, left, right, 0);
  }
}

Result<bool> contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kUndefined: return false;
    case Kind::kString:
      if (!item.is_string()) return wrong_operands(Operator::kIn, item, container);
      BOLIDE_TRY(heap.step(container.string().size() * kSearchCost));
      return container.string().find(item.string()) != std::string_view::npos;
    case Kind::kDict:
      if (item.is(Kind::kUndefined)) return false;
      if (!is_hashable(item)) return template_error(fmt::format("a '{}' cannot be a key", type_name(item)));
      BOLIDE_TRY(heap.step());
      return container.dict->find(item) != nullptr;
    case Kind::kList: {
      // Reading a generator uses it up, up to the item found.
      std::vector<Value>& items = container.list->items;
      size_t at = 0;
      bool found = false;
      while (at < items.size() && !found) {
        BOLIDE_TRY(found, equal(heap, items[at], item));
        ++at;
      }
      if (container.list->flavour == Flavour::kGenerator)
        items.erase(items.begin(), items.begin() + static_cast<ptrdiff_t>(at));
      return found;
    }
    default: return template_error(fmt::format("a '{}' contains nothing", type_name(container)));
  }
}

Result<Value> attribute(Heap& heap, const Value& object, const Value& name) {
  const std::string_view text = name.string();
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  if (object.is(Kind::kLoop)) return loop_attribute(heap, object, name);
  if (const BuiltIn method = find_method(object, text); method != nullptr) return heap.function(text, method, object);
  if (object.is(Kind::kDict) || object.is(Kind::kNamespace)) {
    if (const Value* found = object.dict->find(name); found != nullptr) return *found;
  } else if (object.is(Kind::kList) && object.list->flavour == Flavour::kGroup) {
    if (text == "grouper") return object.list->items[0];
    if (text == "list") return object.list->items[1];
  } else if (object.is(Kind::kMacro) && text == "name") {
    return Value::string_of(object.macro->definition->name);
  } else if (object.is(Kind::kCycle) && text == "current" && !object.cycle->joiner) {
    return object.cycle->items[object.cycle->at];
  }
  return Value::undefined(name.text);
}

Result<Value> item(Heap& heap, const Value& object, const Value& index) {
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  if (object.is(Kind::kDict)) {
    if (is_hashable(index)) {
      BOLIDE_TRY(heap.step());
      if (const Value* found = object.dict->find(index); found != nullptr) return *found;
    }
    if (index.is_string())
      if (const BuiltIn method = find_method(object, index.string()); method != nullptr)
        return heap.function(index.string(), method, object);
    return Value::undefined(index.is_string() ? index.text : nullptr);
  }
  if (index.is_string()) return attribute(heap, object, index);
  if (!index.is_integral()) return Value::undefined();
  int64_t at = index.as_integer();
  if (object.is(Kind::kList) && object.list->flavour <= Flavour::kRange) {
    const auto size = static_cast<int64_t>(object.list->items.size());
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Value::undefined();
    return object.list->items[static_cast<size_t>(at)];
  }
  if (object.is_string()) {
    const std::string_view text = object.string();
    if (!object.text->ascii) BOLIDE_TRY(heap.step(text.size() * 4));
    const auto size = static_cast<int64_t>(object.text->ascii ? text.size() : character_count(text));
    if (at < 0) at += size;
    if (at < 0 || at >= size) return Value::undefined();
    const size_t offset = object.text->ascii ? static_cast<size_t>(at) : offset_of(text, static_cast<size_t>(at));
    return heap.string(std::string(text.substr(offset, character_size(text, offset))));
  }
  return Value::undefined();
}

Result<Value> slice(Heap& heap, const Value& object, const Value& start, const Value& stop, const Value& step) {
  if (object.is(Kind::kUndefined)) return undefined_error(object);
  const bool text = object.is_string();
  if (!text && !(object.is(Kind::kList) && object.list->flavour <= Flavour::kRange))
    return template_error(fmt::format("a '{}' has no slices", type_name(object)));
  BOLIDE_TRY(const int64_t stride, integer_argument(step, "the step of a slice", 1));
  if (stride == 0) return template_error("the step of a slice is zero");
  if (stride == INT64_MIN) return overflow();
  BOLIDE_TRY(heap.step(text ? object.string().size() * (object.text->ascii ? 1 : 4) : 0));
  const auto size = static_cast<int64_t>(!text                ? object.list->items.size()
                                         : object.text->ascii ? object.string().size()
                                                              : character_count(object.string()));
  const int64_t lowest = stride < 0 ? -1 : 0, highest = stride < 0 ? size - 1 : size;
  const auto clamp = [&](int64_t at) {
    if (at < 0) return std::max(at + size, lowest);
    return std::min(at, highest);
  };
  BOLIDE_TRY(const int64_t first_given, integer_argument(start, "the start of a slice", 0));
  BOLIDE_TRY(const int64_t last_given, integer_argument(stop, "the end of a slice", 0));
  const auto absent = [](const Value& v) { return v.is(Kind::kMissing) || v.is(Kind::kNone); };
  const int64_t first = absent(start) ? (stride < 0 ? highest : lowest) : clamp(first_given);
  const int64_t last = absent(stop) ? (stride < 0 ? lowest : highest) : clamp(last_given);
  int64_t count = 0;
  if (stride > 0 && first < last) count = (last - first - 1) / stride + 1;
  if (stride < 0 && last < first) count = (first - last - 1) / -stride + 1;

  if (!text) {
    BOLIDE_TRY(heap.room(static_cast<uint64_t>(count) * sizeof(Value)));
    BOLIDE_TRY(heap.step(static_cast<uint64_t>(count) * sizeof(Value)));
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) items.push_back(object.list->items[static_cast<size_t>(first + i * stride)]);
    return heap.list(std::move(items),
                     object.list->flavour == Flavour::kGroup ? Flavour::kTuple : object.list->flavour);
  }
  const std::string_view bytes = object.string();
  if (object.text->ascii && stride == 1)
    return heap.string(std::string(bytes.substr(static_cast<size_t>(first), static_cast<size_t>(count))));
  if (stride == 1) {
    const size_t from = offset_of(bytes, static_cast<size_t>(first));
    const std::string_view rest = bytes.substr(from);
    return heap.string(std::string(rest.substr(0, offset_of(rest, static_cast<size_t>(count)))));
  }
  std::vector<size_t> offsets;
  BOLIDE_TRY(heap.room(bytes.size() * sizeof(size_t)));
  for (size_t at = 0; at < bytes.size(); at += character_size(bytes, at)) offsets.push_back(at);
  std::string out;
  for (int64_t i = 0; i < count; ++i) {
    const size_t offset = offsets[static_cast<size_t>(first + i * stride)];
    out += bytes.substr(offset, character_size(bytes, offset));
  }
  return heap.string(std::move(out));
}

}  // namespace bolide::jinja
