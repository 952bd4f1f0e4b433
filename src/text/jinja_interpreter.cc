#include "text/jinja_interpreter.h"

#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace bolide::jinja {

Interpreter::Interpreter(const Template& source, const Limits& limits, int64_t local_seconds)
    : template_(source), heap_(limits), local_seconds_(local_seconds) {
  Scope* globals = enter_scope(nullptr);
  for (size_t i = 0; i < source.names.size(); ++i)
    if (const BuiltIn function = find_global(source.names[i]); function != nullptr)
      globals->values.emplace_back(static_cast<Symbol>(i), heap_.function(source.names[i], function, Value()));
  context_ = enter_scope(globals);
  scope_ = enter_scope(context_);
}

Result<> Interpreter::set_variable(std::string_view name, const nlohmann::ordered_json& json) {
  const auto found = std::find(template_.names.begin(), template_.names.end(), name);
  if (found == template_.names.end()) return {};
  BOLIDE_TRY(Value value, from_json(heap_, json).context(fmt::format("variable '{}'", name)));
  const auto symbol = static_cast<Symbol>(found - template_.names.begin());
  for (auto& [known, old] : context_->values)
    if (known == symbol) {
      old = std::move(value);
      return {};
    }
  context_->values.emplace_back(symbol, std::move(value));
  return {};
}

Result<std::string> Interpreter::run() {
  std::string text;
  out_ = &text;
  Result<Flow> done = execute(template_.body);
  out_ = nullptr;
  if (done) return text;
  if (raised_) return std::move(done).error();
  return std::move(done).error().context(fmt::format("line {}", line_));
}

Error Interpreter::raise(std::string message) {
  raised_ = true;
  return template_error(std::move(message));
}

Scope* Interpreter::enter_scope(Scope* parent) {
  Scope* scope = nullptr;
  if (free_scopes_.empty()) {
    heap_.account(sizeof(Scope));
    scope = &scopes_.emplace_back();
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Interpreter::leave_scope(Scope* inner, Scope* outer) {
  scope_ = outer;
  if (inner->captured) return;
  inner->values.clear();
  free_scopes_.push_back(inner);
}

Value Interpreter::lookup(Symbol symbol, const TextRef& name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent)
    for (const auto& [known, value] : scope->values)
      if (known == symbol) return value;
  return Value::undefined(name);
}

void Interpreter::set_name(Symbol symbol, Value value) {
  for (auto& [known, old] : scope_->values)
    if (known == symbol) {
      old = std::move(value);
      return;
    }
  scope_->values.emplace_back(symbol, std::move(value));
}

Result<> Interpreter::write(std::string_view text) {
  output_bytes_ += text.size();
  if (output_bytes_ > heap_.limits().output_bytes_max) return template_error("the template writes too much text");
  BOLIDE_TRY(heap_.room(out_->size() + text.size()));
  BOLIDE_TRY(heap_.step(text.size()));
  out_->append(text);
  return {};
}

Result<Interpreter::Flow> Interpreter::execute(const Block& block) {
  for (const Statement& s : block) {
    BOLIDE_TRY(const Flow flow, execute(s));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::execute(const Statement& s) {
  line_ = s.line;
  BOLIDE_TRY(heap_.step());
  if (++depth_ > heap_.limits().depth_max) return template_error("the template calls itself too deeply");
  Result<Flow> flow = Flow::kNext;
  Result<> done;
  switch (s.kind) {
    case StatementKind::kText: done = write(s.text); break;
    case StatementKind::kOutput: done = output(s); break;
    case StatementKind::kIf: flow = execute_if(s); break;
    case StatementKind::kFor: flow = execute_for(s); break;
    case StatementKind::kSet: {
      Result<Value> value = evaluate(*s.value);
      done = value ? assign(*s.target, *value) : Result<>(std::move(value).error());
      break;
    }
    case StatementKind::kSetBlock: done = set_block(s); break;
    case StatementKind::kFilter: done = filter_block(s); break;
    case StatementKind::kMacro: set_name(s.macro->symbol, make_macro(*s.macro)); break;
    case StatementKind::kCall: done = call_block(s); break;
    case StatementKind::kWith: flow = execute_with(s); break;
    case StatementKind::kScope: flow = execute_scope(s.body); break;
    case StatementKind::kBreak: flow = Flow::kBreak; break;
    case StatementKind::kContinue: flow = Flow::kContinue; break;
  }
  --depth_;
  if (!done) return std::move(done).error();
  return flow;
}

Result<> Interpreter::output(const Statement& s) {
  BOLIDE_TRY(const Value value, evaluate(*s.value));
  if (value.is_string()) return write(value.string());
  std::string text;
  BOLIDE_TRY(append_text(heap_, text, value));
  return write(text);
}

Result<Interpreter::Flow> Interpreter::execute_if(const Statement& s) {
  for (const Branch& branch : s.branches) {
    BOLIDE_TRY(const Value condition, evaluate(*branch.condition));
    if (truthy(condition)) return execute(branch.body);
  }
  return execute(s.otherwise);
}

Result<Interpreter::Flow> Interpreter::execute_scope(const Block& block) {
  Scope* outer = scope_;
  Scope* inner = scope_ = enter_scope(outer);
  BOLIDE_TRY(const Flow flow, execute(block));
  leave_scope(inner, outer);
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute_with(const Statement& s) {
  Scope* outer = scope_;
  Scope* inner = enter_scope(outer);
  for (size_t i = 0; i < s.targets.size(); ++i) {
    BOLIDE_TRY(const Value value, evaluate(*s.values[i]));
    scope_ = inner;
    BOLIDE_TRY(assign(*s.targets[i], value));
    scope_ = outer;
  }
  scope_ = inner;
  BOLIDE_TRY(const Flow flow, execute(s.body));
  leave_scope(inner, outer);
  return flow;
}

Result<Interpreter::Flow> Interpreter::execute_for(const Statement& s) {
  Scope* outer = scope_;
  BOLIDE_TRY(const Value source, evaluate(*s.value));
  BOLIDE_TRY(std::vector<Value> items, iterate(heap_, source));
  if (s.condition != nullptr) {
    std::vector<Value> kept;
    for (Value& item : items) {
      Scope* inner = scope_ = enter_scope(outer);
      BOLIDE_TRY(assign(*s.target, item));
      BOLIDE_TRY(const Value wanted, evaluate(*s.condition));
      leave_scope(inner, outer);
      if (truthy(wanted)) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  heap_.account(sizeof(Loop));
  Loop& loop = loops_.emplace_back();
  loop.length = items.size();
  loop.items = std::move(items);
  Value loop_value(Kind::kLoop);
  loop_value.loop = &loop;
  bool completed = false;  // `else` runs unless some pass went to the end of the body, as Jinja has it
  for (; loop.index < loop.length; ++loop.index) {
    BOLIDE_TRY(heap_.step());
    Scope* inner = scope_ = enter_scope(outer);
    inner->values.emplace_back(template_.loop, loop_value);
    BOLIDE_TRY(assign(*s.target, loop.items[loop.index]));
    BOLIDE_TRY(const Flow flow, execute(s.body));
    leave_scope(inner, outer);
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNext;
  }
  loop.items = {};
  if (completed || s.otherwise.empty()) return Flow::kNext;
  return execute_scope(s.otherwise);
}

Result<> Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    set_name(target.symbol, value);
    return {};
  }
  if (target.kind == ExpressionKind::kAttribute) {
    const Expression& name = *target.children[0];
    const Value object = lookup(name.symbol, name.constant.text);
    if (!object.is(Kind::kNamespace))
      return template_error(
          fmt::format("'{}' is not a namespace: its attributes cannot be set", name.constant.string()));
    heap_.set(*object.dict, target.constant, value);
    return {};
  }
  BOLIDE_TRY(const std::vector<Value> items, iterate(heap_, value));
  if (items.size() != target.children.size())
    return template_error(
        fmt::format("{} values cannot be unpacked into {} names", items.size(), target.children.size()));
  for (size_t i = 0; i < items.size(); ++i) BOLIDE_TRY(assign(*target.children[i], items[i]));
  return {};
}

Result<Value> Interpreter::capture(const Block& block) {
  std::string text;
  std::string* out = std::exchange(out_, &text);
  Result<Flow> done = execute_scope(block);
  out_ = out;
  if (!done) return std::move(done).error();
  return heap_.string(std::move(text));
}

Result<> Interpreter::set_block(const Statement& s) {
  BOLIDE_TRY(Value value, capture(s.body));
  if (s.value != nullptr) {
    block_input_ = std::move(value);
    BOLIDE_TRY(value, evaluate(*s.value));
  }
  return assign(*s.target, value);
}

Result<> Interpreter::filter_block(const Statement& s) {
  BOLIDE_TRY(block_input_, capture(s.body));
  BOLIDE_TRY(Value value, evaluate(*s.value));
  BOLIDE_TRY(value, to_text(heap_, value));
  return write(value.string());
}

Result<> Interpreter::call_block(const Statement& s) {
  const Expression& node = *s.value;
  BOLIDE_TRY(const Value callee, evaluate(*node.children[0]));
  Args args;
  BOLIDE_TRY(arguments(node, args));
  args.named.emplace_back(s.macro->name, make_macro(*s.macro));
  BOLIDE_TRY(Value value, call(callee, args));
  BOLIDE_TRY(value, to_text(heap_, value));
  return write(value.string());
}

Value Interpreter::make_macro(const MacroDefinition& definition) {
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  heap_.account(sizeof(Macro) + sizeof(Scope));
  Value value(Kind::kMacro);
  value.macro = &macros_.emplace_back(Macro{&definition, scope_});
  return value;
}

Result<Value> Interpreter::call_macro(const Macro& macro, Args& args) {
  Scope* caller = scope_;
  Scope* inner = scope_ = enter_scope(macro.scope);
  BOLIDE_TRY(bind_macro(*macro.definition, args));
  std::string text;
  std::string* out = std::exchange(out_, &text);
  Result<Flow> done = execute(macro.definition->body);
  out_ = out;
  if (!done) return std::move(done).error();
  leave_scope(inner, caller);
  return heap_.string(std::move(text));
}

Result<> Interpreter::bind_macro(const MacroDefinition& macro, Args& args) {
  const size_t count = macro.parameters.size();
  const auto refuse = [&](std::string_view what) {
    return template_error(fmt::format("the macro '{}' {}", macro.name->bytes, what));
  };
  if (args.positional.size() > count && !macro.uses_varargs)
    return refuse(fmt::format("takes {} arguments, not {}", count, args.positional.size()));
  std::vector<bool> used(args.named.size());
  for (size_t i = 0; i < count; ++i) {
    const auto& [symbol, name] = macro.parameters[i];
    Value value;
    if (i < args.positional.size()) value = args.positional[i];
    for (size_t k = 0; k < args.named.size(); ++k) {
      if (args.named[k].first->bytes != name->bytes) continue;
      if (!value.is(Kind::kMissing)) return refuse(fmt::format("got two values for '{}'", name->bytes));
      used[k] = true;
      value = args.named[k].second;
    }
    const size_t without_default = count - macro.defaults.size();
    if (value.is(Kind::kMissing) && i >= without_default) {
      BOLIDE_TRY(value, evaluate(*macro.defaults[i - without_default]));
    }
    if (value.is(Kind::kMissing)) value = Value::undefined(name);
    set_name(symbol, std::move(value));
  }
  Value rest = heap_.dict();
  Value caller = Value::undefined(constant_text("caller"));
  for (size_t k = 0; k < args.named.size(); ++k) {
    if (used[k]) continue;
    const auto& [name, value] = args.named[k];
    if (macro.uses_caller && name->bytes == "caller") {
      caller = value;
    } else if (macro.uses_kwargs) {
      heap_.set(*rest.dict, Value::string_of(name), value);
    } else {
      return refuse(fmt::format("has no parameter '{}'", name->bytes));
    }
  }
  const auto is_parameter = [&](Symbol symbol) {
    return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                       [&](const auto& p) { return p.first == symbol; });
  };
  if (macro.uses_caller && !is_parameter(template_.caller)) set_name(template_.caller, std::move(caller));
  if (macro.uses_kwargs && !is_parameter(template_.kwargs)) set_name(template_.kwargs, std::move(rest));
  if (macro.uses_varargs && !is_parameter(template_.varargs)) {
    std::vector<Value> more;
    for (size_t i = count; i < args.positional.size(); ++i) more.push_back(args.positional[i]);
    set_name(template_.varargs, heap_.list(std::move(more), Flavour::kTuple));
  }
  return {};
}

Result<Value> Interpreter::call(const Value& callee, Args& args) {
  switch (callee.kind) {
    case Kind::kFunction: return callee.function->call(*this, callee.function->self, args);
    case Kind::kMacro: return call_macro(*callee.macro, args);
    case Kind::kUndefined: return undefined_error(callee);
    case Kind::kCycle: {
      Cycle& cycle = *callee.cycle;
      if (!cycle.joiner) break;
      if (cycle.at++ == 0) return heap_.string("");
      return cycle.items[0];
    }
    default: break;
  }
  return template_error(fmt::format("'{}' object is not callable", type_name(callee)));
}

Result<Value> Interpreter::apply_filter(std::string_view name, const Value& input, Args& args) {
  const Filter filter = find_filter(name);
  if (filter == nullptr) return template_error(fmt::format("there is no filter named '{}'", name));
  return filter(*this, input, args);
}

Result<bool> Interpreter::apply_test(std::string_view name, const Value& input, Args& args) {
  const Test test = find_test(name);
  if (test == nullptr) return template_error(fmt::format("there is no test named '{}'", name));
  return test(*this, input, args);
}

}  // namespace bolide::jinja
