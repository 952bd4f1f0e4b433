// Global functions, and the attributes of `loop`.
#include <fmt/core.h>

#include <ctime>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace bolide::jinja {
namespace {

using R = Result<Value>;

R range(Interpreter& in, const Value&, Args& args) {
  constexpr int64_t kRangeMax = 100'000;  // as Jinja's sandbox has it
  if (args.positional.empty() || args.positional.size() > 3 || !args.named.empty())
    return template_error("range takes one to three numbers");
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < args.positional.size(); ++i) {
    if (!args.positional[i].is_integral()) return template_error("range takes integers");
    numbers[i] = args.positional[i].as_integer();
  }
  if (args.positional.size() == 1) std::swap(numbers[0], numbers[1]);
  const int64_t first = numbers[0], last = numbers[1], step = numbers[2];
  if (step == 0) return template_error("the step of range is zero");
  // Counted first, so that the list takes its memory at once: a vector that grows leaves as much behind in pieces.
  const auto each = [=](auto&& visit) {
    for (int64_t at = first; step > 0 ? at < last : at > last;) {
      if (!visit(at) || __builtin_add_overflow(at, step, &at)) return;
    }
  };
  int64_t count = 0;
  each([&](int64_t) { return ++count <= kRangeMax; });
  if (count > kRangeMax) return template_error(fmt::format("range makes more than {} numbers", kRangeMax));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  each([&](int64_t at) {
    items.push_back(Value::integer_of(at));
    return true;
  });
  BOLIDE_TRY(in.heap().step(items.size() * sizeof(Value)));
  return in.heap().list(std::move(items), Flavour::kRange);
}

R dict(Interpreter& in, const Value&, Args& args) {
  Value made = in.heap().dict();
  BOLIDE_TRY(fill_dict(in.heap(), *made.dict, args, "dict"));
  return made;
}

R make_namespace(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(Value made, dict(in, self, args));
  made.kind = Kind::kNamespace;
  return made;
}

R cycler(Interpreter& in, const Value&, Args& args) {
  if (args.positional.empty() || !args.named.empty()) return template_error("cycler needs at least one item");
  return in.heap().cycle(std::move(args.positional), false);
}

R joiner(Interpreter& in, const Value&, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "joiner", {"sep"}, 0));
  if (a[0].is(Kind::kMissing)) a[0] = in.heap().string(", ");
  return in.heap().cycle({a[0]}, true);
}

R cycler_next(Interpreter&, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "next"));
  Cycle& cycle = *self.cycle;
  Value item = cycle.items[cycle.at];
  cycle.at = (cycle.at + 1) % cycle.items.size();
  return item;
}

R cycler_reset(Interpreter&, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "reset"));
  self.cycle->at = 0;
  return Value::none();
}

R raise_exception(Interpreter& in, const Value&, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "raise_exception", {"message"}, 1));
  std::string message;
  BOLIDE_TRY(append_text(in.heap(), message, a[0]));
  return in.raise(std::move(message));
}

R strftime_now(Interpreter& in, const Value&, Args& args) {
  constexpr size_t kFormatMax = 256;
  constexpr std::string_view kKnown = "aAbBcCdDeFgGhHIjklmMnpPrRStTuUVwWxXyYzZ%";
  BOLIDE_TRY(auto a, bind(args, "strftime_now", {"format"}, 1));
  BOLIDE_TRY(const std::string_view given, string_argument(a[0], "the format of strftime_now"));
  if (given.size() > kFormatMax) return template_error("the format of strftime_now is too long");
  // Microseconds are Python's own; everything else goes to the C library, if it is a plain directive.
  std::string format;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%') {
      format += given[i];
      continue;
    }
    std::string directive = "%";
    ++i;
    if (i < given.size() && (given[i] == '-' || given[i] == '_')) {
      directive += given[i];
      ++i;
    }
    if (i >= given.size()) return template_error("the format of strftime_now ends in '%'");
    directive += given[i];
    if (given[i] == 'f') {
      format += "000000";
    } else if (kKnown.find(given[i]) == std::string_view::npos) {
      return template_error(fmt::format("strftime_now does not know '{}'", directive));
    } else if (given[i] != 'z' && given[i] != 'Z') {  // the clock has no zone, as Python's datetime.now()
      format += directive;
    }
  }
  const std::time_t seconds = in.local_seconds();
  std::tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return template_error("the clock is out of range");
  char buffer[8 * kFormatMax];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &parts);
  return in.heap().string(std::string(buffer, size));
}

R loop_cycle(Interpreter&, const Value& self, Args& args) {
  if (args.positional.empty() || !args.named.empty()) return template_error("loop.cycle needs at least one item");
  return args.positional[self.loop->index % args.positional.size()];
}

R loop_changed(Interpreter& in, const Value& self, Args& args) {
  Loop& loop = *self.loop;
  const Value now = in.heap().list(args.positional, Flavour::kTuple);
  bool same = false;
  if (loop.has_changed) {
    BOLIDE_TRY(same, equal(in.heap(), loop.last_changed, now));
  }
  loop.has_changed = true;
  loop.last_changed = now;
  return Value::boolean_of(!same);
}

constexpr Named<BuiltIn> kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"cycler", cycler},
    {"joiner", joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

BuiltIn find_global(std::string_view name) {
  for (const auto& entry : kGlobals)
    if (entry.name == name) return entry.function;
  return nullptr;
}

BuiltIn find_cycler_method(std::string_view name) {
  if (name == "next") return cycler_next;
  if (name == "reset") return cycler_reset;
  return nullptr;
}

Result<Value> loop_attribute(Heap& heap, const Value& loop_value, const Value& name) {
  const Loop& loop = *loop_value.loop;
  const std::string_view text = name.string();
  const auto number = [](size_t n) { return Value::integer_of(static_cast<int64_t>(n)); };
  const auto neighbour = [&](bool there, size_t at) {
    return there && at < loop.items.size() ? loop.items[at] : Value::undefined(name.text);
  };
  if (text == "index") return number(loop.index + 1);
  if (text == "index0") return number(loop.index);
  if (text == "first") return Value::boolean_of(loop.index == 0);
  if (text == "last") return Value::boolean_of(loop.index + 1 >= loop.length);
  if (text == "length") return number(loop.length);
  if (text == "revindex") return number(loop.length - loop.index);
  if (text == "revindex0") return number(loop.length - loop.index - 1);
  if (text == "depth") return Value::integer_of(1);  // loops are never recursive
  if (text == "depth0") return Value::integer_of(0);
  if (text == "previtem") return neighbour(loop.index > 0, loop.index - 1);
  if (text == "nextitem") return neighbour(true, loop.index + 1);
  if (text == "cycle") return heap.function(text, loop_cycle, loop_value);
  if (text == "changed") return heap.function(text, loop_changed, loop_value);
  return Value::undefined(name.text);
}

}  // namespace bolide::jinja
