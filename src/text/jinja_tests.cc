// Tests: what stands behind `is`.
#include <fmt/core.h>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

using R = Result<bool>;

// A test of the value alone.
template <bool (*holds)(const Value&)>
R plain(Interpreter&, const Value& value, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this test"));
  return holds(value);
}

bool is_defined(const Value& v) { return !v.is(Kind::kUndefined); }
bool is_undefined(const Value& v) { return v.is(Kind::kUndefined); }
bool is_none(const Value& v) { return v.is(Kind::kNone); }
bool is_boolean(const Value& v) { return v.is(Kind::kBool); }
bool is_true(const Value& v) { return v.is(Kind::kBool) && v.boolean; }
bool is_false(const Value& v) { return v.is(Kind::kBool) && !v.boolean; }
bool is_integer(const Value& v) { return v.is(Kind::kInt); }
bool is_float(const Value& v) { return v.is(Kind::kFloat); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_text(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is(Kind::kDict); }
bool is_sequence(const Value& v) {
  return v.is_string() || v.is(Kind::kDict) || v.is(Kind::kUndefined) ||
         (v.is(Kind::kList) && v.list->flavour <= Flavour::kRange);
}
bool is_iterable(const Value& v) {
  return v.is_string() || v.is(Kind::kDict) || v.is(Kind::kUndefined) || v.is(Kind::kList) || v.is(Kind::kLoop);
}
bool is_callable(const Value& v) {
  return v.is(Kind::kFunction) || v.is(Kind::kMacro) || v.is(Kind::kUndefined) || v.is(Kind::kLoop) ||
         (v.is(Kind::kCycle) && v.cycle->joiner);
}
bool is_escaped(const Value&) { return false; }

template <Operator op>
R compared(Interpreter& in, const Value& value, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "this test", {"other"}, 1));
  return compare(in.heap(), op, value, a[0]);
}

template <int64_t rest>
R parity(Interpreter& in, const Value& value, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this test"));
  BOLIDE_TRY(const Value left, arithmetic(in.heap(), Operator::kModulo, value, Value::integer_of(2)));
  return equal(in.heap(), left, Value::integer_of(rest));
}

R divisible(Interpreter& in, const Value& value, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "divisibleby", {"num"}, 1));
  BOLIDE_TRY(const Value left, arithmetic(in.heap(), Operator::kModulo, value, a[0]));
  return equal(in.heap(), left, Value::integer_of(0));
}

R same_as(Interpreter&, const Value& value, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "sameas", {"other"}, 1));
  return value.kind == a[0].kind && equal_scalars(value, a[0]);
}

template <CharacterClass which>
R cased(Interpreter& in, const Value& value, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this test"));
  BOLIDE_TRY(const Value text, to_text(in.heap(), value));
  BOLIDE_TRY(in.heap().step(text.string().size() * 4));
  return is_all(text.string(), which);
}

R is_filter(Interpreter&, const Value& value, Args& args) {
  BOLIDE_TRY(no_arguments(args, "filter"));
  return value.is_string() && find_filter(value.string()) != nullptr;
}

R is_test(Interpreter&, const Value& value, Args& args) {
  BOLIDE_TRY(no_arguments(args, "test"));
  return value.is_string() && find_test(value.string()) != nullptr;
}

constexpr Named<Test> kTests[] = {
    {"defined", plain<is_defined>},
    {"undefined", plain<is_undefined>},
    {"none", plain<is_none>},
    {"boolean", plain<is_boolean>},
    {"true", plain<is_true>},
    {"false", plain<is_false>},
    {"integer", plain<is_integer>},
    {"float", plain<is_float>},
    {"number", plain<is_number>},
    {"string", plain<is_text>},
    {"mapping", plain<is_mapping>},
    {"sequence", plain<is_sequence>},
    {"iterable", plain<is_iterable>},
    {"callable", plain<is_callable>},
    {"escaped", plain<is_escaped>},
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", divisible},
    {"sameas", same_as},
    {"lower", cased<CharacterClass::kLower>},
    {"upper", cased<CharacterClass::kUpper>},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compared<Operator::kIn>},
    {"==", compared<Operator::kEqual>},
    {"eq", compared<Operator::kEqual>},
    {"equalto", compared<Operator::kEqual>},
    {"!=", compared<Operator::kNotEqual>},
    {"ne", compared<Operator::kNotEqual>},
    {">", compared<Operator::kGreater>},
    {"gt", compared<Operator::kGreater>},
    {"greaterthan", compared<Operator::kGreater>},
    {">=", compared<Operator::kGreaterEqual>},
    {"ge", compared<Operator::kGreaterEqual>},
    {"<", compared<Operator::kLess>},
    {"lt", compared<Operator::kLess>},
    {"lessthan", compared<Operator::kLess>},
    {"<=", compared<Operator::kLessEqual>},
    {"le", compared<Operator::kLessEqual>},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const auto& entry : kTests)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace bolide::jinja
