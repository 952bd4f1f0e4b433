// The parsed template. Immutable after parsing and shared by all renders of it, on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace bolide::jinja {

using Symbol = uint32_t;  // index into Template::names

enum class ExpressionKind : uint8_t {
  kConstant,     // constant
  kName,         // symbol
  kList,         // children: items
  kTuple,        // children: items
  kDict,         // children: key, value, key, value, ...
  kAttribute,    // children: object; constant: the name
  kItem,         // children: object, index
  kSlice,        // children: start, stop, step, each may be null; only as the index of kItem
  kCall,         // children: callee, positional arguments
  kFilter,       // children: input (null: the text of a filter block), positional arguments; name
  kTest,         // children: input, positional arguments; name
  kNot,          // children: operand
  kNegative,     // children: operand
  kPositive,     // children: operand
  kArithmetic,   // children: left, right; operators[0]
  kAnd,          // children: left, right
  kOr,           // children: left, right
  kCompare,      // children: first, then one per operator
  kConcatenate,  // children: parts
  kConditional,  // children: condition, value, other (may be null)
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

using Filter = Result<Value> (*)(Interpreter&, const Value& input, Args& args);
using Test = Result<bool> (*)(Interpreter&, const Value& input, Args& args);

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  uint16_t height = 1;  // bounds the recursion that evaluation needs
  Symbol symbol = 0;
  int line = 0;
  Value constant;
  std::string name;
  Filter filter = nullptr;  // null: there is no filter (or test) of that name, an error once it is used
  Test test = nullptr;
  std::vector<Operator> operators;
  std::vector<ExpressionPtr> children;
  std::vector<std::pair<TextRef, ExpressionPtr>> named;  // keyword arguments
  ExpressionPtr star, star_star;                         // *args and **kwargs of a call
};

enum class StatementKind : uint8_t {
  kText,      // text
  kOutput,    // value
  kIf,        // branches, otherwise
  kFor,       // target, value, condition (may be null), body, otherwise
  kSet,       // target, value
  kSetBlock,  // target, value: a chain of filters or null, body
  kFilter,    // value: a chain of filters, body
  kMacro,     // macro
  kCall,      // value: the call, macro: the body as `caller`
  kWith,      // targets, values, body
  kScope,     // body: a generation block
  kBreak,
  kContinue,
};

struct Statement;
using Block = std::vector<Statement>;

struct Branch {
  ExpressionPtr condition;
  Block body;
};

struct MacroDefinition {
  Symbol symbol = 0;
  TextRef name;
  std::vector<std::pair<Symbol, TextRef>> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Block body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  ExpressionPtr target;  // kName, kTuple of targets, or kAttribute of a kName
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Branch> branches;
  std::vector<ExpressionPtr> targets, values;
  Block body, otherwise;
  std::unique_ptr<MacroDefinition> macro;
};

struct Template {
  std::vector<std::string> names;  // by Symbol
  Block body;
  // Symbols that the interpreter itself sets.
  Symbol loop = 0, caller = 0, varargs = 0, kwargs = 0;
};

}  // namespace bolide::jinja
