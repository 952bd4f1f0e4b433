#include <fmt/core.h>

#include <charconv>
#include <cstdlib>

#include "text/jinja_builtins.h"
#include "text/jinja_parser_internal.h"

namespace bolide::jinja {

ExpressionPtr Parser::make(ExpressionKind kind) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = line();
  return node;
}

ExpressionPtr Parser::constant(Value value) {
  ExpressionPtr node = make(ExpressionKind::kConstant);
  node->constant = std::move(value);
  return node;
}

Parser::Parsed Parser::finish(ExpressionPtr node) {
  int height = 0;
  const auto grow = [&](const ExpressionPtr& child) {
    if (child != nullptr) height = std::max<int>(height, child->height);
  };
  for (const ExpressionPtr& child : node->children) grow(child);
  for (const auto& [name, child] : node->named) grow(child);
  grow(node->star);
  grow(node->star_star);
  if (height >= kTreeHeightMax) return fail("this expression is too long; split it with 'set'");
  node->height = static_cast<uint16_t>(height + 1);
  return node;
}

Parser::Parsed Parser::binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right) {
  ExpressionPtr node = make(kind);
  node->children.push_back(std::move(left));
  node->children.push_back(std::move(right));
  return finish(std::move(node));
}

Parser::Parsed Parser::arithmetic(Operator op, ExpressionPtr left, ExpressionPtr right) {
  BOLIDE_TRY(ExpressionPtr node, binary(ExpressionKind::kArithmetic, std::move(left), std::move(right)));
  node->operators.push_back(op);
  return node;
}

ExpressionPtr Parser::name_node(const std::string& name) {
  ExpressionPtr node = make(ExpressionKind::kName);
  node->symbol = symbol(name);
  node->constant = Value::string_of(literal(name));
  if (!macros_.empty()) {
    MacroDefinition& macro = *macros_.back();
    macro.uses_caller |= node->symbol == template_.caller;
    macro.uses_varargs |= node->symbol == template_.varargs;
    macro.uses_kwargs |= node->symbol == template_.kwargs;
  }
  return node;
}

bool Parser::tuple_ends(std::string_view end_name) const {
  return is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || is_operator(")") ||
         (!end_name.empty() && is_name(end_name));
}

// One expression, or several with commas: a tuple.
Parser::Parsed Parser::tuple(bool conditional, bool parentheses, std::string_view end_name) {
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) BOLIDE_TRY(expect_operator(","));
    if (tuple_ends(end_name)) break;
    BOLIDE_TRY(ExpressionPtr item, expression(conditional));
    items.push_back(std::move(item));
    if (!is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parentheses) return unexpected("an expression");
  }
  ExpressionPtr node = make(ExpressionKind::kTuple);
  node->children = std::move(items);
  return finish(std::move(node));
}

Parser::Parsed Parser::expression(bool conditional) {
  const Nest nest(depth_);
  BOLIDE_TRY(check_depth());
  BOLIDE_TRY(ExpressionPtr value, or_expression());
  while (conditional && skip_name("if")) {
    ExpressionPtr node = make(ExpressionKind::kConditional);
    BOLIDE_TRY(ExpressionPtr condition, or_expression());
    ExpressionPtr other;
    if (skip_name("else")) {
      BOLIDE_TRY(other, expression());
    }
    node->children.push_back(std::move(condition));
    node->children.push_back(std::move(value));
    node->children.push_back(std::move(other));
    BOLIDE_TRY(value, finish(std::move(node)));
  }
  return value;
}

Parser::Parsed Parser::or_expression() {
  BOLIDE_TRY(ExpressionPtr left, and_expression());
  while (skip_name("or")) {
    BOLIDE_TRY(ExpressionPtr right, and_expression());
    BOLIDE_TRY(left, binary(ExpressionKind::kOr, std::move(left), std::move(right)));
  }
  return left;
}

Parser::Parsed Parser::and_expression() {
  BOLIDE_TRY(ExpressionPtr left, not_expression());
  while (skip_name("and")) {
    BOLIDE_TRY(ExpressionPtr right, not_expression());
    BOLIDE_TRY(left, binary(ExpressionKind::kAnd, std::move(left), std::move(right)));
  }
  return left;
}

Parser::Parsed Parser::not_expression() {
  if (!is_name("not")) return comparison();
  const Nest nest(depth_);
  BOLIDE_TRY(check_depth());
  ExpressionPtr node = make(ExpressionKind::kNot);
  advance();
  BOLIDE_TRY(ExpressionPtr operand, not_expression());
  node->children.push_back(std::move(operand));
  return finish(std::move(node));
}

Parser::Parsed Parser::comparison() {
  struct Named {
    std::string_view text;
    Operator op;
  };
  constexpr Named kComparisons[] = {{"==", Operator::kEqual},  {"!=", Operator::kNotEqual},
                                    {"<", Operator::kLess},    {"<=", Operator::kLessEqual},
                                    {">", Operator::kGreater}, {">=", Operator::kGreaterEqual}};
  BOLIDE_TRY(ExpressionPtr first, sum());
  ExpressionPtr node;
  while (true) {
    const Named* found = nullptr;
    for (const Named& candidate : kComparisons)
      if (is_operator(candidate.text)) found = &candidate;
    Operator op = Operator::kIn;
    if (found != nullptr) {
      op = found->op;
      advance();
    } else if (is_name("in")) {
      advance();
    } else if (is_name("not") && token_is(ahead(), TokenKind::kName, "in")) {
      op = Operator::kNotIn;
      advance();
      advance();
    } else {
      break;
    }
    if (node == nullptr) {
      node = make(ExpressionKind::kCompare);
      node->children.push_back(std::move(first));
    }
    BOLIDE_TRY(ExpressionPtr operand, sum());
    node->operators.push_back(op);
    node->children.push_back(std::move(operand));
  }
  if (node == nullptr) return first;
  return finish(std::move(node));
}

Parser::Parsed Parser::sum() {
  BOLIDE_TRY(ExpressionPtr left, concatenation());
  while (is_operator("+") || is_operator("-")) {
    const Operator op = is_operator("+") ? Operator::kAdd : Operator::kSubtract;
    advance();
    BOLIDE_TRY(ExpressionPtr right, concatenation());
    BOLIDE_TRY(left, arithmetic(op, std::move(left), std::move(right)));
  }
  return left;
}

Parser::Parsed Parser::concatenation() {
  BOLIDE_TRY(ExpressionPtr first, product());
  if (!is_operator("~")) return first;
  ExpressionPtr node = make(ExpressionKind::kConcatenate);
  node->children.push_back(std::move(first));
  while (skip_operator("~")) {
    BOLIDE_TRY(ExpressionPtr part, product());
    node->children.push_back(std::move(part));
  }
  return finish(std::move(node));
}

Parser::Parsed Parser::product() {
  BOLIDE_TRY(ExpressionPtr left, power());
  while (true) {
    Operator op = Operator::kMultiply;
    if (is_operator("/"))
      op = Operator::kDivide;
    else if (is_operator("//"))
      op = Operator::kFloorDivide;
    else if (is_operator("%"))
      op = Operator::kModulo;
    else if (!is_operator("*"))
      return left;
    advance();
    BOLIDE_TRY(ExpressionPtr right, power());
    BOLIDE_TRY(left, arithmetic(op, std::move(left), std::move(right)));
  }
}

// Jinja's power groups to the left and binds less than the sign: -2 ** 2 is 4, 2 ** 3 ** 2 is 64.
Parser::Parsed Parser::power() {
  BOLIDE_TRY(ExpressionPtr left, unary(true));
  while (skip_operator("**")) {
    BOLIDE_TRY(ExpressionPtr right, unary(true));
    BOLIDE_TRY(left, arithmetic(Operator::kPower, std::move(left), std::move(right)));
  }
  return left;
}

Parser::Parsed Parser::unary(bool filters) {
  const Nest nest(depth_);
  BOLIDE_TRY(check_depth());
  ExpressionPtr node;
  if (is_operator("-") || is_operator("+")) {
    node = make(is_operator("-") ? ExpressionKind::kNegative : ExpressionKind::kPositive);
    advance();
    BOLIDE_TRY(ExpressionPtr operand, unary(false));
    node->children.push_back(std::move(operand));
    BOLIDE_TRY(node, finish(std::move(node)));
  } else {
    BOLIDE_TRY(node, primary());
  }
  BOLIDE_TRY(node, postfix(std::move(node)));
  if (!filters) return node;
  return filters_and_tests(std::move(node));
}

Parser::Parsed Parser::primary() {
  const Token token = current();
  switch (token.kind) {
    case TokenKind::kName:
      advance();
      if (token.text == "true" || token.text == "True") return constant(Value::boolean_of(true));
      if (token.text == "false" || token.text == "False") return constant(Value::boolean_of(false));
      if (token.text == "none" || token.text == "None") return constant(Value::none());
      return name_node(token.text);
    case TokenKind::kString: {
      std::string text;
      for (; is(TokenKind::kString); advance()) text += current().text;
      return constant(Value::string_of(literal(text)));
    }
    case TokenKind::kInteger: {
      int64_t number = 0;
      const int base = token.text.size() < 3 || token.text[0] != '0' ? 10
                       : (token.text[1] | 0x20) == 'x'               ? 16
                       : (token.text[1] | 0x20) == 'o'               ? 8
                       : (token.text[1] | 0x20) == 'b'               ? 2
                                                                     : 10;
      const char* begin = token.text.data() + (base == 10 ? 0 : 2);
      const auto read = std::from_chars(begin, token.text.data() + token.text.size(), number, base);
      if (read.ec != std::errc()) return fail(fmt::format("the number {} does not fit 64 bits", token.text));
      advance();
      return constant(Value::integer_of(number));
    }
    case TokenKind::kFloat: advance(); return constant(Value::real_of(std::strtod(token.text.c_str(), nullptr)));
    default: break;
  }
  if (skip_operator("(")) {
    BOLIDE_TRY(ExpressionPtr inner, tuple(true, true));
    BOLIDE_TRY(expect_operator(")"));
    return inner;
  }
  if (is_operator("[")) return list_literal();
  if (is_operator("{")) return dict_literal();
  return unexpected("an expression");
}

Parser::Parsed Parser::list_literal() {
  ExpressionPtr node = make(ExpressionKind::kList);
  advance();
  while (!is_operator("]")) {
    if (!node->children.empty()) BOLIDE_TRY(expect_operator(","));
    if (is_operator("]")) break;
    BOLIDE_TRY(ExpressionPtr item, expression());
    node->children.push_back(std::move(item));
  }
  BOLIDE_TRY(expect_operator("]"));
  return finish(std::move(node));
}

Parser::Parsed Parser::dict_literal() {
  ExpressionPtr node = make(ExpressionKind::kDict);
  advance();
  while (!is_operator("}")) {
    if (!node->children.empty()) BOLIDE_TRY(expect_operator(","));
    if (is_operator("}")) break;
    BOLIDE_TRY(ExpressionPtr key, expression());
    BOLIDE_TRY(expect_operator(":"));
    BOLIDE_TRY(ExpressionPtr value, expression());
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
  }
  BOLIDE_TRY(expect_operator("}"));
  return finish(std::move(node));
}

Parser::Parsed Parser::postfix(ExpressionPtr node) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      BOLIDE_TRY(node, subscript(std::move(node)));
    } else if (is_operator("(")) {
      BOLIDE_TRY(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Parser::Parsed Parser::filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (is_operator("|")) {
      BOLIDE_TRY(node, filter(std::move(node), false));
    } else if (is_name("is")) {
      BOLIDE_TRY(node, test(std::move(node)));
    } else if (is_operator("(")) {
      BOLIDE_TRY(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Parser::Parsed Parser::subscript(ExpressionPtr object) {
  if (skip_operator(".")) {
    const Token token = current();
    if (token.kind == TokenKind::kName) {
      ExpressionPtr node = make(ExpressionKind::kAttribute);
      node->constant = Value::string_of(literal(token.text));
      node->children.push_back(std::move(object));
      advance();
      return finish(std::move(node));
    }
    if (token.kind != TokenKind::kInteger) return unexpected("a name or a number");
    BOLIDE_TRY(ExpressionPtr number, primary());
    return binary(ExpressionKind::kItem, std::move(object), std::move(number));
  }
  advance();  // "["
  std::vector<ExpressionPtr> parts;
  bool slices = false;
  while (!is_operator("]")) {
    if (!parts.empty()) BOLIDE_TRY(expect_operator(","));
    BOLIDE_TRY(ExpressionPtr part, index());
    slices |= part->kind == ExpressionKind::kSlice;
    parts.push_back(std::move(part));
  }
  if (parts.empty()) return unexpected("an index");
  BOLIDE_TRY(expect_operator("]"));
  if (parts.size() == 1) return binary(ExpressionKind::kItem, std::move(object), std::move(parts[0]));
  if (slices) return fail("an index may hold only one slice");
  ExpressionPtr key = make(ExpressionKind::kTuple);
  key->children = std::move(parts);
  BOLIDE_TRY(key, finish(std::move(key)));
  return binary(ExpressionKind::kItem, std::move(object), std::move(key));
}

// The inside of [...]: an expression or start:stop:step.
Parser::Parsed Parser::index() {
  ExpressionPtr parts[3];
  if (!is_operator(":")) {
    BOLIDE_TRY(parts[0], expression());
    if (!is_operator(":")) return std::move(parts[0]);
  }
  advance();
  const auto empty = [&] { return is_operator(":") || is_operator("]") || is_operator(","); };
  if (!empty()) {
    BOLIDE_TRY(parts[1], expression());
  }
  if (skip_operator(":") && !empty()) {
    BOLIDE_TRY(parts[2], expression());
  }
  ExpressionPtr node = make(ExpressionKind::kSlice);
  for (ExpressionPtr& part : parts) node->children.push_back(std::move(part));
  return finish(std::move(node));
}

// (a, *list, name=value, **dict)
Result<> Parser::arguments(Expression& to) {
  BOLIDE_TRY(expect_operator("("));
  bool first = true;
  while (!is_operator(")")) {
    if (!first) {
      BOLIDE_TRY(expect_operator(","));
      if (is_operator(")")) break;
    }
    first = false;
    if (is_operator("*") && to.star == nullptr && to.star_star == nullptr) {
      advance();
      BOLIDE_TRY(to.star, expression());
    } else if (is_operator("**") && to.star_star == nullptr) {
      advance();
      BOLIDE_TRY(to.star_star, expression());
    } else if (is(TokenKind::kName) && token_is(ahead(), TokenKind::kOperator, "=") && to.star_star == nullptr) {
      const TextRef name = literal(current().text);
      advance();
      advance();
      BOLIDE_TRY(ExpressionPtr value, expression());
      for (const auto& [known, other] : to.named)
        if (known == name) return fail(fmt::format("the argument '{}' is given twice", name->bytes));
      to.named.emplace_back(name, std::move(value));
    } else {
      if (!to.named.empty() || to.star != nullptr || to.star_star != nullptr)
        return fail("a positional argument follows a named one");
      BOLIDE_TRY(ExpressionPtr value, expression());
      to.children.push_back(std::move(value));
    }
  }
  return expect_operator(")");
}

Parser::Parsed Parser::call(ExpressionPtr callee) {
  ExpressionPtr node = make(ExpressionKind::kCall);
  node->children.push_back(std::move(callee));
  BOLIDE_TRY(arguments(*node));
  return finish(std::move(node));
}

Result<std::string> Parser::dotted_name() {
  BOLIDE_TRY(std::string name, expect_name("the name of a filter or test"));
  while (skip_operator(".")) {
    BOLIDE_TRY(const std::string part, expect_name("a name"));
    name += "." + part;
  }
  return name;
}

// A chain of filters; start_inline: the first one comes without "|".
Parser::Parsed Parser::filter(ExpressionPtr node, bool start_inline) {
  while (start_inline || is_operator("|")) {
    if (!start_inline) advance();
    start_inline = false;
    ExpressionPtr next = make(ExpressionKind::kFilter);
    next->children.push_back(std::move(node));
    BOLIDE_TRY(next->name, dotted_name());
    next->filter = find_filter(next->name);
    if (is_operator("(")) BOLIDE_TRY(arguments(*next));
    BOLIDE_TRY(node, finish(std::move(next)));
  }
  return node;
}

Parser::Parsed Parser::test(ExpressionPtr input) {
  advance();  // "is"
  const bool negated = skip_name("not");
  ExpressionPtr node = make(ExpressionKind::kTest);
  node->children.push_back(std::move(input));
  BOLIDE_TRY(node->name, dotted_name());
  node->test = find_test(node->name);
  const bool argument = is(TokenKind::kName) || is(TokenKind::kString) || is(TokenKind::kInteger) ||
                        is(TokenKind::kFloat) || is_operator("[") || is_operator("{");
  if (is_operator("(")) {
    BOLIDE_TRY(arguments(*node));
  } else if (argument && !is_any_name({"else", "or", "and"})) {
    if (is_name("is")) return fail("tests cannot be chained: use 'and'");
    BOLIDE_TRY(ExpressionPtr value, primary());
    BOLIDE_TRY(value, postfix(std::move(value)));
    node->children.push_back(std::move(value));
  }
  BOLIDE_TRY(node, finish(std::move(node)));
  if (!negated) return node;
  ExpressionPtr negation = make(ExpressionKind::kNot);
  negation->children.push_back(std::move(node));
  return finish(std::move(negation));
}

}  // namespace bolide::jinja
