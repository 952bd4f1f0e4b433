#include "text/jinja_parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "text/jinja_parser_internal.h"

namespace bolide::jinja {
namespace {

constexpr std::array<std::string_view, 9> kRefused = {"include", "import", "from",       "extends", "block",
                                                      "do",      "trans",  "autoescape", "debug"};

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd: return "the end of the template";
    case TokenKind::kData: return "text";
    case TokenKind::kVariableBegin: return "'{{'";
    case TokenKind::kVariableEnd: return "'}}'";
    case TokenKind::kBlockBegin: return "'{%'";
    case TokenKind::kBlockEnd: return "'%}'";
    case TokenKind::kString: return "a string";
    default: return fmt::format("'{}'", token.text);
  }
}

}  // namespace

bool Parser::is_any_name(std::initializer_list<std::string_view> names) const {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return is_name(name); });
}

bool Parser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  advance();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  advance();
  return true;
}

Error Parser::unexpected(std::string_view wanted) const {
  return fail(fmt::format("expected {}, found {}", wanted, describe(current())));
}

Result<> Parser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) return unexpected(fmt::format("'{}'", text));
  return {};
}

Result<> Parser::expect_block_end() {
  if (!is(TokenKind::kBlockEnd)) return unexpected("'%}'");
  advance();
  return {};
}

Result<std::string> Parser::expect_name(std::string_view what) {
  if (!is(TokenKind::kName)) return unexpected(what);
  std::string name = current().text;
  advance();
  return name;
}

int Parser::line() {
  // Offsets only grow while parsing, so each line is counted once.
  const size_t offset = std::min<size_t>(current().offset, source_.size());
  if (offset > line_offset_) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(line_offset_),
                                         source_.begin() + static_cast<ptrdiff_t>(offset), '\n'));
    line_offset_ = offset;
  }
  return line_;
}

Result<> Parser::check_depth() const {
  if (depth_ > kParserDepthMax) return fail("tags or expressions are nested too deeply");
  return {};
}

Symbol Parser::symbol(const std::string& name) {
  const auto [it, added] = symbols_.emplace(name, static_cast<Symbol>(template_.names.size()));
  if (added) template_.names.push_back(name);
  return it->second;
}

TextRef Parser::literal(const std::string& text) {
  TextRef& ref = literals_[text];
  if (ref == nullptr) ref = constant_text(text);
  return ref;
}

Result<Template> Parser::run() {
  template_.loop = symbol("loop");
  template_.caller = symbol("caller");
  template_.varargs = symbol("varargs");
  template_.kwargs = symbol("kwargs");
  BOLIDE_TRY(template_.body, block({}));
  return std::move(template_);
}

// Statements up to one of the tags `ends`, whose name is then current; to the end of the template if there are none.
Result<Block> Parser::block(std::initializer_list<std::string_view> ends) {
  const Nest nest(depth_);
  BOLIDE_TRY(check_depth());
  Block body;
  const size_t start = current().offset;
  while (!is(TokenKind::kEnd)) {
    if (is(TokenKind::kData)) {
      Statement s;
      s.line = line();
      s.text = current().text;
      body.push_back(std::move(s));
      advance();
    } else if (is(TokenKind::kVariableBegin)) {
      advance();
      BOLIDE_TRY(output(body));
      if (!is(TokenKind::kVariableEnd)) return unexpected("'}}'");
      advance();
    } else {
      advance();  // "{%"
      if (is_any_name(ends)) return body;
      BOLIDE_TRY(statement(body));
    }
  }
  if (ends.size() != 0)
    return syntax_error(source_, start, fmt::format("the block that starts here has no '{}'", *(ends.end() - 1)));
  return body;
}

Result<> Parser::output(Block& to) {
  Statement s;
  s.kind = StatementKind::kOutput;
  s.line = line();
  BOLIDE_TRY(s.value, tuple(true));
  to.push_back(std::move(s));
  return {};
}

Result<> Parser::leave(std::string_view end) {
  if (!skip_name(end)) return unexpected(fmt::format("'{}'", end));
  return expect_block_end();
}

// Behind "{%": one statement, up to and with its last "%}".
Result<> Parser::statement(Block& to) {
  if (!is(TokenKind::kName)) return unexpected("the name of a tag");
  const std::string& name = current().text;
  Statement s;
  s.line = line();
  if (std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end()) {
    Error refused = fail(fmt::format("the tag '{}' is not supported", name));
    refused.code = Code::kUnsupported;
    return refused;
  }
  const size_t tag = at_;
  advance();
  const auto begin = [&](std::string_view keyword) { return tokens_[tag].text == keyword; };
  if (begin("print")) {
    BOLIDE_TRY(output(to));
    return expect_block_end();
  }
  if (begin("if")) {
    BOLIDE_TRY(if_statement(s));
  } else if (begin("for")) {
    BOLIDE_TRY(for_statement(s));
  } else if (begin("set")) {
    BOLIDE_TRY(set_statement(s));
  } else if (begin("macro")) {
    BOLIDE_TRY(macro_statement(s));
  } else if (begin("call")) {
    BOLIDE_TRY(call_statement(s));
  } else if (begin("with")) {
    BOLIDE_TRY(with_statement(s));
  } else if (begin("filter")) {
    s.kind = StatementKind::kFilter;
    BOLIDE_TRY(s.value, filter(nullptr, true));
    BOLIDE_TRY(expect_block_end());
    BOLIDE_TRY(s.body, block({"endfilter"}));
    BOLIDE_TRY(leave("endfilter"));
  } else if (begin("generation")) {
    s.kind = StatementKind::kScope;
    BOLIDE_TRY(expect_block_end());
    const int loops = std::exchange(loops_, 0);
    BOLIDE_TRY(s.body, block({"endgeneration"}));
    loops_ = loops;
    BOLIDE_TRY(leave("endgeneration"));
  } else if (begin("break") || begin("continue")) {
    s.kind = begin("break") ? StatementKind::kBreak : StatementKind::kContinue;
    if (loops_ == 0) {
      at_ = tag;
      return fail(fmt::format("'{}' outside of a loop", current().text));
    }
    BOLIDE_TRY(expect_block_end());
  } else {
    at_ = tag;
    return fail(fmt::format("unknown tag '{}'", current().text));
  }
  to.push_back(std::move(s));
  return {};
}

Result<> Parser::if_statement(Statement& s) {
  s.kind = StatementKind::kIf;
  while (true) {
    Branch branch;
    BOLIDE_TRY(branch.condition, tuple(false));
    BOLIDE_TRY(expect_block_end());
    BOLIDE_TRY(branch.body, block({"elif", "else", "endif"}));
    s.branches.push_back(std::move(branch));
    if (skip_name("elif")) continue;
    if (skip_name("else")) {
      BOLIDE_TRY(expect_block_end());
      BOLIDE_TRY(s.otherwise, block({"endif"}));
    }
    return leave("endif");
  }
}

Result<> Parser::for_statement(Statement& s) {
  s.kind = StatementKind::kFor;
  BOLIDE_TRY(s.target, target(false, true, "in"));
  if (!skip_name("in")) return unexpected("'in'");
  BOLIDE_TRY(s.value, tuple(false, false, "recursive"));
  if (skip_name("if")) {
    BOLIDE_TRY(s.condition, expression());
  }
  if (is_name("recursive")) {
    Error refused = fail("recursive loops are not supported: use a macro");
    refused.code = Code::kUnsupported;
    return refused;
  }
  BOLIDE_TRY(expect_block_end());
  ++loops_;
  BOLIDE_TRY(s.body, block({"else", "endfor"}));
  --loops_;
  if (skip_name("else")) {
    BOLIDE_TRY(expect_block_end());
    BOLIDE_TRY(s.otherwise, block({"endfor"}));
  }
  return leave("endfor");
}

Result<> Parser::set_statement(Statement& s) {
  BOLIDE_TRY(s.target, target(true, true, ""));
  if (skip_operator("=")) {
    s.kind = StatementKind::kSet;
    BOLIDE_TRY(s.value, tuple(true));
    return expect_block_end();
  }
  s.kind = StatementKind::kSetBlock;
  if (is_operator("|")) {
    BOLIDE_TRY(s.value, filter(nullptr, false));
  }
  BOLIDE_TRY(expect_block_end());
  BOLIDE_TRY(s.body, block({"endset"}));
  return leave("endset");
}

Result<> Parser::with_statement(Statement& s) {
  s.kind = StatementKind::kWith;
  while (!is(TokenKind::kBlockEnd)) {
    if (!s.targets.empty()) BOLIDE_TRY(expect_operator(","));
    BOLIDE_TRY(ExpressionPtr to, target(false, true, ""));
    BOLIDE_TRY(expect_operator("="));
    BOLIDE_TRY(ExpressionPtr value, expression());
    s.targets.push_back(std::move(to));
    s.values.push_back(std::move(value));
  }
  BOLIDE_TRY(expect_block_end());
  BOLIDE_TRY(s.body, block({"endwith"}));
  return leave("endwith");
}

Result<> Parser::parameters(MacroDefinition& macro) {
  BOLIDE_TRY(expect_operator("("));
  while (!is_operator(")")) {
    if (!macro.parameters.empty()) BOLIDE_TRY(expect_operator(","));
    BOLIDE_TRY(ExpressionPtr name, single_target(false));
    macro.parameters.emplace_back(name->symbol, literal(template_.names[name->symbol]));
    if (skip_operator("=")) {
      BOLIDE_TRY(ExpressionPtr value, expression());
      macro.defaults.push_back(std::move(value));
    } else if (!macro.defaults.empty()) {
      return fail("a parameter without a default follows one that has a default");
    }
  }
  return expect_operator(")");
}

Result<Block> Parser::macro_body(MacroDefinition& macro, std::string_view end) {
  macros_.push_back(&macro);
  const int loops = std::exchange(loops_, 0);
  BOLIDE_TRY(Block body, block({end}));
  loops_ = loops;
  macros_.pop_back();
  return body;
}

Result<> Parser::macro_statement(Statement& s) {
  s.kind = StatementKind::kMacro;
  s.macro = std::make_unique<MacroDefinition>();
  BOLIDE_TRY(ExpressionPtr name, single_target(false));
  s.macro->symbol = name->symbol;
  s.macro->name = literal(template_.names[name->symbol]);
  BOLIDE_TRY(parameters(*s.macro));
  BOLIDE_TRY(expect_block_end());
  BOLIDE_TRY(s.macro->body, macro_body(*s.macro, "endmacro"));
  return leave("endmacro");
}

Result<> Parser::call_statement(Statement& s) {
  s.kind = StatementKind::kCall;
  s.macro = std::make_unique<MacroDefinition>();
  s.macro->symbol = template_.caller;
  s.macro->name = literal("caller");
  if (is_operator("(")) BOLIDE_TRY(parameters(*s.macro));
  BOLIDE_TRY(s.value, expression());
  if (s.value->kind != ExpressionKind::kCall) return fail("'call' needs a call");
  BOLIDE_TRY(expect_block_end());
  BOLIDE_TRY(s.macro->body, macro_body(*s.macro, "endcall"));
  return leave("endcall");
}

Parser::Parsed Parser::single_target(bool attributes) {
  if (!is(TokenKind::kName)) return unexpected("a name to assign to");
  if (is_any_name({"true", "false", "none", "True", "False", "None"}))
    return fail(fmt::format("cannot assign to '{}'", current().text));
  ExpressionPtr name = name_node(current().text);
  advance();
  if (!attributes || !skip_operator(".")) return name;
  ExpressionPtr attribute = make(ExpressionKind::kAttribute);
  BOLIDE_TRY(const std::string field, expect_name("the name of an attribute"));
  attribute->constant = Value::string_of(literal(field));
  attribute->children.push_back(std::move(name));
  return attribute;
}

Parser::Parsed Parser::target(bool attributes, bool tuples, std::string_view end_name) {
  const Nest nest(depth_);
  BOLIDE_TRY(check_depth());
  std::vector<ExpressionPtr> items;
  bool comma = false;
  while (true) {
    if (is_operator("(")) {
      advance();
      BOLIDE_TRY(ExpressionPtr inner, target(attributes, true, ""));
      BOLIDE_TRY(expect_operator(")"));
      items.push_back(std::move(inner));
    } else {
      BOLIDE_TRY(ExpressionPtr item, single_target(attributes));
      items.push_back(std::move(item));
    }
    if (!tuples || !skip_operator(",")) break;
    comma = true;
    if (is_operator(")") || is_operator("=") || (!end_name.empty() && is_name(end_name))) break;
  }
  if (!comma) return std::move(items[0]);
  ExpressionPtr node = make(ExpressionKind::kTuple);
  node->children = std::move(items);
  return finish(std::move(node));
}

Result<Template> parse_template(std::string_view source) {
  if (source.size() > 2 * kSourceBytesMax)
    return error(Code::kInvalid,
                 fmt::format("the template has {} bytes, more than {}", source.size(), kSourceBytesMax));
  const std::string normalised = normalise_source(source);
  BOLIDE_TRY(std::vector<Token> tokens, tokenize(normalised));
  return Parser(normalised, std::move(tokens)).run();
}

}  // namespace bolide::jinja
