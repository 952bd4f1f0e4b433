// Runs a parsed template: one Interpreter per render, on one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace bolide::jinja {

// Names set in one block of the template; lookups go on to the parent.
struct Scope {
  Scope* parent = nullptr;
  bool captured = false;  // a macro keeps it alive
  std::vector<std::pair<Symbol, Value>> values;
};

struct Macro {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined
};

// What `loop` is inside a for loop.
struct Loop {
  std::vector<Value> items;  // gone once the loop has ended
  size_t index = 0, length = 0;
  bool has_changed = false;
  Value last_changed;
};

class Interpreter {
 public:
  // `local_seconds`: the clock of strftime_now, seconds since 1970 by the local calendar.
  Interpreter(const Template& source, const Limits& limits, int64_t local_seconds);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Heap& heap() { return heap_; }
  int64_t local_seconds() const { return local_seconds_; }

  // Variables that the template never mentions are not even converted.
  Result<> set_variable(std::string_view name, const nlohmann::ordered_json& value);

  // Errors carry the line, except raise_exception's, which are the template's own words.
  Result<std::string> run();

  // For filters and functions.
  Result<Value> call(const Value& callee, Args& args);
  Result<Value> apply_filter(std::string_view name, const Value& input, Args& args);
  Result<bool> apply_test(std::string_view name, const Value& input, Args& args);
  Error raise(std::string message);
  bool raised() const { return raised_; }  // the error of run() is raise_exception's

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };
  struct Nest;

  // Statements, in jinja_interpreter.cc.
  Result<Flow> execute(const Block& block);
  Result<Flow> execute(const Statement& s);
  Result<Flow> execute_if(const Statement& s);
  Result<Flow> execute_for(const Statement& s);
  Result<Flow> execute_with(const Statement& s);
  Result<Flow> execute_scope(const Block& block);
  Result<> output(const Statement& s);
  Result<> set_block(const Statement& s);
  Result<> filter_block(const Statement& s);
  Result<> call_block(const Statement& s);
  Result<Value> capture(const Block& block);
  Result<> assign(const Expression& target, const Value& value);
  Result<> write(std::string_view text);
  Result<Value> call_macro(const Macro& macro, Args& args);
  Result<> bind_macro(const MacroDefinition& macro, Args& args);
  Value make_macro(const MacroDefinition& definition);

  // Names.
  Scope* enter_scope(Scope* parent);
  void leave_scope(Scope* inner, Scope* outer);
  Value lookup(Symbol symbol, const TextRef& name) const;
  void set_name(Symbol symbol, Value value);

  // Expressions, in jinja_evaluate.cc.
  Result<Value> evaluate(const Expression& node);
  Result<Value> evaluate_sequence(const Expression& node);
  Result<Value> evaluate_dict(const Expression& node);
  Result<Value> evaluate_item(const Expression& node);
  Result<Value> evaluate_call(const Expression& node);
  Result<Value> evaluate_filter(const Expression& node);
  Result<Value> evaluate_test(const Expression& node);
  Result<Value> evaluate_arithmetic(const Expression& node);
  Result<Value> evaluate_logic(const Expression& node);
  Result<Value> evaluate_compare(const Expression& node);
  Result<Value> evaluate_concatenation(const Expression& node);
  Result<Value> evaluate_conditional(const Expression& node);
  Result<Value> evaluate_unary(const Expression& node);
  Result<> arguments(const Expression& node, Args& args);

  const Template& template_;
  Heap heap_;
  int64_t local_seconds_;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  std::deque<Macro> macros_;
  std::deque<Loop> loops_;
  Scope* context_;
  Scope* scope_;
  std::string* out_ = nullptr;
  Value block_input_;  // the text that a filter block's chain starts from
  uint64_t output_bytes_ = 0;
  int depth_ = 0;
  int line_ = 0;
  bool raised_ = false;
};

// loop.index and so on; in jinja_globals.cc.
Result<Value> loop_attribute(Heap& heap, const Value& loop, const Value& name);

}  // namespace bolide::jinja
