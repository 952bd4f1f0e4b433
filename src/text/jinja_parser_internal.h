// The parser's class; only jinja_parser.cc and jinja_parser_expression.cc include this.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace bolide::jinja {

constexpr int kParserDepthMax = 100;  // nested statements and expressions
constexpr int kTreeHeightMax = 250;   // long chains of operators, calls or filters count as well

class Parser {
 public:
  Parser(std::string_view source, std::vector<Token> tokens) : source_(source), tokens_(std::move(tokens)) {}
  Result<Template> run();

 private:
  using Parsed = Result<ExpressionPtr>;

  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is(TokenKind kind) const { return current().kind == kind; }
  static bool token_is(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool is_operator(std::string_view text) const { return token_is(current(), TokenKind::kOperator, text); }
  bool is_name(std::string_view text) const { return token_is(current(), TokenKind::kName, text); }
  bool is_any_name(std::initializer_list<std::string_view> names) const;
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  Result<> expect_operator(std::string_view text);
  Result<> expect_block_end();
  Result<std::string> expect_name(std::string_view what);
  Error unexpected(std::string_view wanted) const;
  Error fail(std::string_view what) const { return syntax_error(source_, current().offset, what); }
  int line();

  // Statements.
  Result<Block> block(std::initializer_list<std::string_view> ends);
  Result<> statement(Block& to);
  Result<> if_statement(Statement& s);
  Result<> for_statement(Statement& s);
  Result<> set_statement(Statement& s);
  Result<> macro_statement(Statement& s);
  Result<> call_statement(Statement& s);
  Result<> with_statement(Statement& s);
  Result<> parameters(MacroDefinition& macro);
  Result<Block> macro_body(MacroDefinition& macro, std::string_view end);
  Result<> output(Block& to);
  Result<> leave(std::string_view end);  // the name of the end tag and "%}"
  Parsed target(bool attributes, bool tuples, std::string_view end_name);
  Parsed single_target(bool attributes);

  // Expressions, in order of precedence.
  Parsed tuple(bool conditional, bool parentheses = false, std::string_view end_name = {});
  bool tuple_ends(std::string_view end_name) const;
  Parsed expression(bool conditional = true);
  Parsed or_expression();
  Parsed and_expression();
  Parsed not_expression();
  Parsed comparison();
  Parsed sum();
  Parsed concatenation();
  Parsed product();
  Parsed power();
  Parsed unary(bool filters);
  Parsed primary();
  Parsed list_literal();
  Parsed dict_literal();
  Parsed postfix(ExpressionPtr node);
  Parsed filters_and_tests(ExpressionPtr node);
  Parsed subscript(ExpressionPtr node);
  Parsed index();
  Parsed call(ExpressionPtr callee);
  Parsed filter(ExpressionPtr input, bool start_inline);
  Parsed test(ExpressionPtr input);
  Result<> arguments(Expression& to);

  ExpressionPtr make(ExpressionKind kind);
  ExpressionPtr constant(Value value);
  Parsed finish(ExpressionPtr node);  // sets and checks the height
  Parsed binary(ExpressionKind kind, ExpressionPtr left, ExpressionPtr right);
  Parsed arithmetic(Operator op, ExpressionPtr left, ExpressionPtr right);
  ExpressionPtr name_node(const std::string& name);

  Symbol symbol(const std::string& name);
  TextRef literal(const std::string& text);
  Result<std::string> dotted_name();

  struct Nest {
    explicit Nest(int& depth) : depth_(++depth) {}
    ~Nest() { --depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    int& depth_;
  };
  Result<> check_depth() const;

  std::string_view source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // for loops around this place, within the innermost macro
  size_t line_offset_ = 0;
  int line_ = 1;
  std::unordered_map<std::string, Symbol> symbols_;
  std::unordered_map<std::string, TextRef> literals_;
  std::vector<MacroDefinition*> macros_;  // those around this place
  Template template_;
};

}  // namespace bolide::jinja
