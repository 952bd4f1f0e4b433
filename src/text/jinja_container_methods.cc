// Methods of list, tuple and dict. Those that change the object are refused by transformers' sandbox, and so no
// template for it uses them; other programs allow them, and templates written for those do.
#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"

namespace bolide::jinja {
namespace {

using R = Result<Value>;

R append(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "append", {"object"}, 1));
  in.heap().append(*self.list, a[0]);
  return Value::none();
}

R extend(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "extend", {"iterable"}, 1));
  BOLIDE_TRY(std::vector<Value> items, iterate(in.heap(), a[0]));
  for (Value& item : items) in.heap().append(*self.list, std::move(item));
  return Value::none();
}

R insert(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "insert", {"index", "object"}, 2));
  BOLIDE_TRY(int64_t at, integer_argument(a[0], "index"));
  std::vector<Value>& items = self.list->items;
  const auto size = static_cast<int64_t>(items.size());
  if (at < 0) at = std::max<int64_t>(at + size, 0);
  BOLIDE_TRY(in.heap().step(items.size() * sizeof(Value)));
  in.heap().account(sizeof(Value));
  items.insert(items.begin() + std::min(at, size), a[1]);
  return Value::none();
}

R pop(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "pop", {"index"}, 0));
  BOLIDE_TRY(int64_t at, integer_argument(a[0], "index", -1));
  std::vector<Value>& items = self.list->items;
  if (at < 0) at += static_cast<int64_t>(items.size());
  if (at < 0 || at >= static_cast<int64_t>(items.size())) return template_error("pop index out of range");
  BOLIDE_TRY(in.heap().step(items.size() * sizeof(Value)));
  Value item = std::move(items[static_cast<size_t>(at)]);
  items.erase(items.begin() + at);
  return item;
}

Result<size_t> position(Heap& heap, const std::vector<Value>& items, const Value& wanted) {
  for (size_t i = 0; i < items.size(); ++i) {
    BOLIDE_TRY(const bool same, equal(heap, items[i], wanted));
    if (same) return i;
  }
  return items.size();
}

R remove(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "remove", {"value"}, 1));
  std::vector<Value>& items = self.list->items;
  BOLIDE_TRY(const size_t at, position(in.heap(), items, a[0]));
  if (at == items.size()) return template_error("remove: no such item in the list");
  items.erase(items.begin() + static_cast<ptrdiff_t>(at));
  return Value::none();
}

R index(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "index", {"value"}, 1));
  BOLIDE_TRY(const size_t at, position(in.heap(), self.list->items, a[0]));
  if (at == self.list->items.size()) return template_error("index: no such item in the list");
  return Value::integer_of(static_cast<int64_t>(at));
}

R count(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "count", {"value"}, 1));
  int64_t total = 0;
  for (const Value& item : self.list->items) {
    BOLIDE_TRY(const bool same, equal(in.heap(), item, a[0]));
    total += same ? 1 : 0;
  }
  return Value::integer_of(total);
}

R reverse(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "reverse"));
  BOLIDE_TRY(in.heap().step(self.list->items.size() * sizeof(Value)));
  std::reverse(self.list->items.begin(), self.list->items.end());
  return Value::none();
}

R sort(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "sort", {"reverse"}, 0));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : self.list->items) keyed.emplace_back(item, item);
  BOLIDE_TRY(sort_values(in.heap(), keyed, flag_argument(a[0], false)));
  for (size_t i = 0; i < keyed.size(); ++i) self.list->items[i] = keyed[i].second;
  return Value::none();
}

R copy_list(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "copy"));
  BOLIDE_TRY(std::vector<Value> items, iterate(in.heap(), self));
  return in.heap().list(std::move(items), self.list->flavour);
}

R clear_list(Interpreter&, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "clear"));
  self.list->items.clear();
  return Value::none();
}

template <Flavour view>
R dict_view(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "this method of dict"));
  BOLIDE_TRY(in.heap().room(self.dict->entries.size() * (4 * sizeof(Value) + sizeof(List))));
  BOLIDE_TRY(in.heap().step(self.dict->entries.size() * 64));
  std::vector<Value> items;
  items.reserve(self.dict->entries.size());
  for (const Dict::Entry& entry : self.dict->entries) {
    if (view == Flavour::kKeys) items.push_back(entry.key);
    if (view == Flavour::kValues) items.push_back(entry.value);
    if (view == Flavour::kItems) items.push_back(in.heap().pair(entry.key, entry.value));
  }
  return in.heap().list(std::move(items), view);
}

Result<> check_key(const Value& key) {
  if (is_hashable(key) || key.is(Kind::kUndefined)) return {};
  return template_error(fmt::format("a '{}' cannot be a key", type_name(key)));
}

R get(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "get", {"key", "default"}, 1));
  BOLIDE_TRY(check_key(a[0]));
  BOLIDE_TRY(in.heap().step());
  if (const Value* found = self.dict->find(a[0]); found != nullptr) return *found;
  return a[1].is(Kind::kMissing) ? Value::none() : a[1];
}

R pop_key(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "pop", {"key", "default"}, 1));
  BOLIDE_TRY(check_key(a[0]));
  BOLIDE_TRY(in.heap().step(self.dict->entries.size() * 64));
  if (const Value* found = self.dict->find(a[0]); found != nullptr) {
    Value value = *found;
    self.dict->erase(a[0]);
    return value;
  }
  if (a[1].is(Kind::kMissing)) return template_error("pop: no such key in the dict");
  return a[1];
}

R set_default(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "setdefault", {"key", "default"}, 1));
  if (!is_hashable(a[0])) return template_error(fmt::format("a '{}' cannot be a key", type_name(a[0])));
  if (const Value* found = self.dict->find(a[0]); found != nullptr) return *found;
  const Value value = a[1].is(Kind::kMissing) ? Value::none() : a[1];
  in.heap().set(*self.dict, a[0], value);
  return value;
}

R update(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(fill_dict(in.heap(), *self.dict, args, "update"));
  return Value::none();
}

R copy_dict(Interpreter& in, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "copy"));
  Value copy = in.heap().dict();
  Args from;
  from.positional.push_back(self);
  BOLIDE_TRY(fill_dict(in.heap(), *copy.dict, from, "copy"));
  return copy;
}

R clear_dict(Interpreter&, const Value& self, Args& args) {
  BOLIDE_TRY(no_arguments(args, "clear"));
  *self.dict = Dict();
  return Value::none();
}

constexpr Named<BuiltIn> kDictMethods[] = {
    {"get", get},
    {"items", dict_view<Flavour::kItems>},
    {"keys", dict_view<Flavour::kKeys>},
    {"pop", pop_key},
    {"values", dict_view<Flavour::kValues>},
    {"setdefault", set_default},
    {"update", update},
    {"copy", copy_dict},
    {"clear", clear_dict},
};
constexpr Named<BuiltIn> kListMethods[] = {
    {"append", append}, {"extend", extend},   {"insert", insert},  {"pop", pop},          {"remove", remove},
    {"sort", sort},     {"reverse", reverse}, {"copy", copy_list}, {"clear", clear_list},
};
constexpr Named<BuiltIn> kTupleMethods[] = {{"index", index}, {"count", count}};

}  // namespace

Result<> fill_dict(Heap& heap, Dict& dict, const Args& args, std::string_view function) {
  if (args.positional.size() > 1) return template_error(fmt::format("{} takes at most one argument", function));
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::kDict)) {
      BOLIDE_TRY(heap.step(from.dict->entries.size() * 64));
      BOLIDE_TRY(heap.room(from.dict->entries.size() * 2 * sizeof(Dict::Entry)));
      const std::vector<Dict::Entry> entries = from.dict->entries;  // it may be `dict` itself
      for (const Dict::Entry& entry : entries) heap.set(dict, entry.key, entry.value);
    } else {
      BOLIDE_TRY(const std::vector<Value> pairs, iterate(heap, from));
      for (const Value& pair : pairs) {
        BOLIDE_TRY(const std::vector<Value> parts, iterate(heap, pair));
        if (parts.size() != 2) return template_error(fmt::format("{} needs pairs of key and value", function));
        BOLIDE_TRY(check_key(parts[0]));
        heap.set(dict, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) heap.set(dict, Value::string_of(name), value);
  return heap.step();
}

BuiltIn find_list_method(const List& list, std::string_view name) {
  if (list.flavour <= Flavour::kRange)
    for (const auto& entry : kTupleMethods)
      if (entry.name == name) return entry.function;
  if (list.flavour == Flavour::kList)
    for (const auto& entry : kListMethods)
      if (entry.name == name) return entry.function;
  return nullptr;
}

BuiltIn find_dict_method(std::string_view name) {
  for (const auto& entry : kDictMethods)
    if (entry.name == name) return entry.function;
  return nullptr;
}

}  // namespace bolide::jinja
