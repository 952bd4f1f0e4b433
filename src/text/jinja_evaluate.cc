// Expressions. Each kind has a small function of its own, which keeps the stack of nested evaluations small.
#include <fmt/core.h>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace bolide::jinja {

struct Interpreter::Nest {
  explicit Nest(int& depth) : depth_(++depth) {}
  ~Nest() { --depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;
  int& depth_;
};

Result<Value> Interpreter::evaluate(const Expression& node) {
  if (node.kind == ExpressionKind::kConstant) return node.constant;
  const Nest nest(depth_);
  line_ = node.line;
  BOLIDE_TRY(heap_.step());
  if (depth_ > heap_.limits().depth_max) return template_error("the template calls itself too deeply");
  switch (node.kind) {
    case ExpressionKind::kConstant: return node.constant;
    case ExpressionKind::kName: return lookup(node.symbol, node.constant.text);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: return evaluate_sequence(node);
    case ExpressionKind::kDict: return evaluate_dict(node);
    case ExpressionKind::kAttribute:
    case ExpressionKind::kItem: return evaluate_item(node);
    case ExpressionKind::kCall: return evaluate_call(node);
    case ExpressionKind::kFilter: return evaluate_filter(node);
    case ExpressionKind::kTest: return evaluate_test(node);
    case ExpressionKind::kNot:
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive: return evaluate_unary(node);
    case ExpressionKind::kArithmetic: return evaluate_arithmetic(node);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: return evaluate_logic(node);
    case ExpressionKind::kCompare: return evaluate_compare(node);
    case ExpressionKind::kConcatenate: return evaluate_concatenation(node);
    case ExpressionKind::kConditional: return evaluate_conditional(node);
    case ExpressionKind::kSlice: break;  // part of kItem
  }
  return error(Code::kInternal, "a slice outside of an index");
}

Result<Value> Interpreter::evaluate_sequence(const Expression& node) {
  std::vector<Value> items;
  items.reserve(node.children.size());
  for (const ExpressionPtr& child : node.children) {
    BOLIDE_TRY(Value item, evaluate(*child));
    items.push_back(std::move(item));
  }
  return heap_.list(std::move(items), node.kind == ExpressionKind::kList ? Flavour::kList : Flavour::kTuple);
}

Result<Value> Interpreter::evaluate_dict(const Expression& node) {
  Value dict = heap_.dict();
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    BOLIDE_TRY(Value key, evaluate(*node.children[i]));
    BOLIDE_TRY(Value value, evaluate(*node.children[i + 1]));
    if (!is_hashable(key)) return template_error(fmt::format("a '{}' cannot be a key", type_name(key)));
    heap_.set(*dict.dict, std::move(key), std::move(value));
  }
  return dict;
}

Result<Value> Interpreter::evaluate_item(const Expression& node) {
  BOLIDE_TRY(const Value object, evaluate(*node.children[0]));
  if (node.kind == ExpressionKind::kAttribute) return attribute(heap_, object, node.constant);
  const Expression& index = *node.children[1];
  if (index.kind != ExpressionKind::kSlice) {
    BOLIDE_TRY(const Value key, evaluate(index));
    return item(heap_, object, key);
  }
  Value parts[3];
  for (size_t i = 0; i < 3; ++i)
    if (index.children[i] != nullptr) {
      BOLIDE_TRY(parts[i], evaluate(*index.children[i]));
    }
  return slice(heap_, object, parts[0], parts[1], parts[2]);
}

Result<> Interpreter::arguments(const Expression& node, Args& args) {
  for (size_t i = 1; i < node.children.size(); ++i) {
    BOLIDE_TRY(Value value, evaluate(*node.children[i]));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, child] : node.named) {
    BOLIDE_TRY(Value value, evaluate(*child));
    args.named.emplace_back(name, std::move(value));
  }
  if (node.star != nullptr) {
    BOLIDE_TRY(const Value more, evaluate(*node.star));
    BOLIDE_TRY(const std::vector<Value> items, iterate(heap_, more));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  if (node.star_star != nullptr) {
    BOLIDE_TRY(const Value more, evaluate(*node.star_star));
    if (!more.is(Kind::kDict)) return template_error("'**' needs a dict");
    for (const Dict::Entry& entry : more.dict->entries) {
      if (!entry.key.is_string()) return template_error("names of arguments must be strings");
      for (const auto& [name, value] : args.named)
        if (name->bytes == entry.key.string())
          return template_error(fmt::format("the argument '{}' is given twice", name->bytes));
      args.named.emplace_back(entry.key.text, entry.value);
    }
  }
  return {};
}

Result<Value> Interpreter::evaluate_call(const Expression& node) {
  const Expression& callee = *node.children[0];
  Args args;
  if (callee.kind == ExpressionKind::kAttribute) {
    // object.method(...) without making a value of the bound method.
    BOLIDE_TRY(const Value object, evaluate(*callee.children[0]));
    if (const BuiltIn method = find_method(object, callee.constant.string()); method != nullptr) {
      BOLIDE_TRY(arguments(node, args));
      return method(*this, object, args);
    }
    BOLIDE_TRY(const Value function, attribute(heap_, object, callee.constant));
    BOLIDE_TRY(arguments(node, args));
    return call(function, args);
  }
  BOLIDE_TRY(const Value function, evaluate(callee));
  BOLIDE_TRY(arguments(node, args));
  return call(function, args);
}

Result<Value> Interpreter::evaluate_filter(const Expression& node) {
  if (node.filter == nullptr) return template_error(fmt::format("there is no filter named '{}'", node.name));
  Value input;
  if (node.children[0] == nullptr) {
    input = std::move(block_input_);
  } else {
    BOLIDE_TRY(input, evaluate(*node.children[0]));
  }
  Args args;
  BOLIDE_TRY(arguments(node, args));
  return node.filter(*this, input, args);
}

Result<Value> Interpreter::evaluate_test(const Expression& node) {
  if (node.test == nullptr) return template_error(fmt::format("there is no test named '{}'", node.name));
  BOLIDE_TRY(const Value input, evaluate(*node.children[0]));
  Args args;
  BOLIDE_TRY(arguments(node, args));
  BOLIDE_TRY(const bool passed, node.test(*this, input, args));
  return Value::boolean_of(passed);
}

Result<Value> Interpreter::evaluate_unary(const Expression& node) {
  BOLIDE_TRY(const Value operand, evaluate(*node.children[0]));
  if (node.kind == ExpressionKind::kNot) return Value::boolean_of(!truthy(operand));
  if (node.kind == ExpressionKind::kNegative) return negate(operand);
  if (operand.is(Kind::kFloat)) return operand;
  if (operand.is_integral()) return Value::integer_of(operand.as_integer());
  return negate(operand);  // its error
}

Result<Value> Interpreter::evaluate_arithmetic(const Expression& node) {
  BOLIDE_TRY(const Value left, evaluate(*node.children[0]));
  BOLIDE_TRY(const Value right, evaluate(*node.children[1]));
  line_ = node.line;
  return arithmetic(heap_, node.operators[0], left, right);
}

Result<Value> Interpreter::evaluate_logic(const Expression& node) {
  BOLIDE_TRY(Value left, evaluate(*node.children[0]));
  if (truthy(left) == (node.kind == ExpressionKind::kOr)) return left;
  return evaluate(*node.children[1]);
}

Result<Value> Interpreter::evaluate_compare(const Expression& node) {
  BOLIDE_TRY(Value left, evaluate(*node.children[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    BOLIDE_TRY(Value right, evaluate(*node.children[i + 1]));
    BOLIDE_TRY(const bool holds, compare(heap_, node.operators[i], left, right));
    if (!holds) return Value::boolean_of(false);
    left = std::move(right);
  }
  return Value::boolean_of(true);
}

Result<Value> Interpreter::evaluate_concatenation(const Expression& node) {
  std::string text;
  for (const ExpressionPtr& child : node.children) {
    BOLIDE_TRY(const Value part, evaluate(*child));
    BOLIDE_TRY(append_text(heap_, text, part));
  }
  return heap_.string(std::move(text));
}

Result<Value> Interpreter::evaluate_conditional(const Expression& node) {
  BOLIDE_TRY(const Value condition, evaluate(*node.children[0]));
  if (truthy(condition)) return evaluate(*node.children[1]);
  if (node.children[2] != nullptr) return evaluate(*node.children[2]);
  return Value::undefined();
}

}  // namespace bolide::jinja
