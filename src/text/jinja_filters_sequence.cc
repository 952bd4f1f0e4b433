// Filters on sequences and dicts.
#include <fmt/core.h>

#include <algorithm>

#include "text/jinja_builtins.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"
#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

using R = Result<Value>;
using Keyed = std::vector<std::pair<Value, Value>>;  // key, item

// "a.b.0" of an item, as the `attribute` arguments have it; a missing or None path is the item itself.
R at_path(Heap& heap, Value value, const Value& path) {
  if (path.is(Kind::kMissing) || path.is(Kind::kNone)) return value;
  if (path.is_integral()) return item(heap, value, path);
  BOLIDE_TRY(const std::string_view text, string_argument(path, "attribute"));
  for (const std::string_view part : split(text, ".", -1)) {
    int64_t index = -1;
    if (!part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos) {
      index = 0;
      for (const char c : part) index = index * 10 + (c - '0');
    }
    BOLIDE_TRY(value, item(heap, value, index >= 0 ? Value::integer_of(index) : heap.string(std::string(part))));
  }
  return value;
}

// Strings of sort keys are compared without case unless asked for.
Value sort_key(Heap& heap, const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.is_string()) return value;
  return heap.string(lower(value.string()));
}

Result<Keyed> keyed_items(Interpreter& in, const Value& input, const Value& path, bool case_sensitive) {
  BOLIDE_TRY(std::vector<Value> items, iterate(in.heap(), input));
  Keyed keyed;
  for (Value& one : items) {
    BOLIDE_TRY(in.heap().step());
    BOLIDE_TRY(const Value key, at_path(in.heap(), one, path));
    keyed.emplace_back(sort_key(in.heap(), key, case_sensitive), std::move(one));
  }
  return keyed;
}

R default_filter(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "default", {"default_value", "boolean"}, 0));
  if (!input.is(Kind::kUndefined) && !(flag_argument(a[1], false) && !truthy(input))) return input;
  return a[0].is(Kind::kMissing) ? in.heap().string("") : a[0];
}

R length(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "length"));
  switch (input.kind) {
    case Kind::kUndefined: return Value::integer_of(0);
    case Kind::kString:
      if (!input.text->ascii) BOLIDE_TRY(in.heap().step(input.string().size() * 2));
      return Value::integer_of(
          static_cast<int64_t>(input.text->ascii ? input.string().size() : character_count(input.string())));
    case Kind::kDict: return Value::integer_of(static_cast<int64_t>(input.dict->entries.size()));
    case Kind::kLoop: return Value::integer_of(static_cast<int64_t>(input.loop->length));
    case Kind::kList:
      if (input.list->flavour != Flavour::kGenerator)
        return Value::integer_of(static_cast<int64_t>(input.list->items.size()));
      break;
    default: break;
  }
  return template_error(fmt::format("a '{}' has no length", type_name(input)));
}

R join(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "join", {"d", "attribute"}, 0));
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  Value separator = in.heap().string("");
  if (!a[0].is(Kind::kMissing)) {
    BOLIDE_TRY(separator, to_text(in.heap(), a[0]));
  }
  std::string out;
  for (const Value& one : items) {
    if (&one != items.data()) BOLIDE_TRY(append_text(in.heap(), out, separator));
    BOLIDE_TRY(const Value part, at_path(in.heap(), one, a[1]));
    BOLIDE_TRY(append_text(in.heap(), out, part));
  }
  return in.heap().string(std::move(out));
}

R first(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "first"));
  if (input.is_string() && !input.string().empty())
    return in.heap().string(std::string(input.string().substr(0, character_size(input.string(), 0))));
  if (input.is(Kind::kList) && !input.list->items.empty()) {
    Value found = input.list->items[0];
    if (input.list->flavour == Flavour::kGenerator) {
      BOLIDE_TRY(in.heap().step(input.list->items.size() * sizeof(Value)));
      input.list->items.erase(input.list->items.begin());
    }
    return found;
  }
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  return items.empty() ? Value::undefined() : items[0];
}

R last(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "last"));
  if (input.is(Kind::kList) && input.list->flavour == Flavour::kGenerator)
    return template_error("the last item of a generator is not known: use 'list' first");
  if (input.is(Kind::kList)) return input.list->items.empty() ? Value::undefined() : input.list->items.back();
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  return items.empty() ? Value::undefined() : items.back();
}

R list(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "list"));
  BOLIDE_TRY(std::vector<Value> items, iterate(in.heap(), input));
  return in.heap().list(std::move(items));
}

R items_filter(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "items"));
  std::vector<Value> items;
  if (input.is(Kind::kDict)) {
    BOLIDE_TRY(in.heap().step(input.dict->entries.size() * 64));
    for (const Dict::Entry& entry : input.dict->entries) items.push_back(in.heap().pair(entry.key, entry.value));
  } else if (!input.is(Kind::kUndefined)) {
    return template_error(fmt::format("items needs a mapping, not '{}'", type_name(input)));
  }
  return in.heap().list(std::move(items), Flavour::kGenerator);
}

std::vector<Value> values_of(Keyed& keyed) {
  std::vector<Value> items;
  for (auto& [key, value] : keyed) items.push_back(std::move(value));
  return items;
}

R dict_sort(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "dictsort", {"case_sensitive", "by", "reverse"}, 0));
  std::string_view by = "key";
  if (!a[1].is(Kind::kMissing)) {
    BOLIDE_TRY(by, string_argument(a[1], "by"));
  }
  if (by != "key" && by != "value") return template_error("dictsort sorts by 'key' or 'value'");
  if (!input.is(Kind::kDict)) return template_error("dictsort needs a mapping");
  Keyed keyed;
  for (const Dict::Entry& entry : input.dict->entries)
    keyed.emplace_back(sort_key(in.heap(), by == "key" ? entry.key : entry.value, flag_argument(a[0], false)),
                       in.heap().pair(entry.key, entry.value));
  BOLIDE_TRY(sort_values(in.heap(), keyed, flag_argument(a[2], false)));
  return in.heap().list(values_of(keyed));
}

R sort_filter(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "sort", {"reverse", "case_sensitive", "attribute"}, 0));
  const bool case_sensitive = flag_argument(a[1], false);
  Keyed keyed;
  if (a[2].is_string() && a[2].string().find(',') != std::string_view::npos) {
    BOLIDE_TRY(std::vector<Value> items, iterate(in.heap(), input));
    for (Value& one : items) {
      std::vector<Value> keys;
      for (const std::string_view path : split(a[2].string(), ",", -1)) {
        BOLIDE_TRY(const Value key, at_path(in.heap(), one, in.heap().string(std::string(path))));
        keys.push_back(sort_key(in.heap(), key, case_sensitive));
      }
      keyed.emplace_back(in.heap().list(std::move(keys)), std::move(one));
    }
  } else {
    BOLIDE_TRY(keyed, keyed_items(in, input, a[2], case_sensitive));
  }
  BOLIDE_TRY(sort_values(in.heap(), keyed, flag_argument(a[0], false)));
  return in.heap().list(values_of(keyed));
}

R unique(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "unique", {"case_sensitive", "attribute"}, 0));
  BOLIDE_TRY(Keyed keyed, keyed_items(in, input, a[1], flag_argument(a[0], false)));
  Value seen = in.heap().dict();
  std::vector<Value> kept;
  for (auto& [key, one] : keyed) {
    if (!is_hashable(key)) return template_error(fmt::format("unique cannot compare '{}'", type_name(key)));
    if (seen.dict->find(key) != nullptr) continue;
    in.heap().set(*seen.dict, key, Value::none());
    kept.push_back(std::move(one));
  }
  return in.heap().list(std::move(kept), Flavour::kGenerator);
}

R reverse(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(no_arguments(args, "reverse"));
  BOLIDE_TRY(std::vector<Value> items, iterate(in.heap(), input));
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) {
    const bool generator = input.is(Kind::kList) && input.list->flavour == Flavour::kGenerator;
    return in.heap().list(std::move(items), generator ? Flavour::kList : Flavour::kGenerator);
  }
  std::string out;
  for (const Value& one : items) out += one.string();
  return in.heap().string(std::move(out));
}

// min and max
template <bool largest>
R extreme(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, largest ? "max" : "min", {"case_sensitive", "attribute"}, 0));
  BOLIDE_TRY(const Keyed keyed, keyed_items(in, input, a[1], flag_argument(a[0], false)));
  if (keyed.empty()) return Value::undefined();
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    BOLIDE_TRY(const bool better, largest ? less(in.heap(), keyed[best].first, keyed[i].first)
                                          : less(in.heap(), keyed[i].first, keyed[best].first));
    if (better) best = i;
  }
  return keyed[best].second;
}

R sum(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "sum", {"attribute", "start"}, 0));
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  Value total = a[1].is(Kind::kMissing) ? Value::integer_of(0) : a[1];
  if (total.is_string()) return template_error("sum does not add strings: use 'join'");
  for (const Value& one : items) {
    BOLIDE_TRY(const Value part, at_path(in.heap(), one, a[0]));
    BOLIDE_TRY(total, arithmetic(in.heap(), Operator::kAdd, total, part));
  }
  return total;
}

R batch(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "batch", {"linecount", "fill_with"}, 1));
  BOLIDE_TRY(const int64_t size, integer_argument(a[0], "linecount"));
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  std::vector<Value> rows;
  std::vector<Value> row;
  // A row is full when it has exactly `size` items; otherwise everything goes into one.
  for (const Value& one : items) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(in.heap().list(std::exchange(row, {})));
    row.push_back(one);
  }
  if (!row.empty()) {
    if (!a[1].is(Kind::kMissing) && !a[1].is(Kind::kNone) && static_cast<int64_t>(row.size()) < size) {
      const auto missing = static_cast<uint64_t>(size) - row.size();
      BOLIDE_TRY(in.heap().room(missing < UINT32_MAX ? missing * sizeof(Value) : UINT64_MAX));
      row.resize(static_cast<size_t>(size), a[1]);
    }
    rows.push_back(in.heap().list(std::move(row)));
  }
  return in.heap().list(std::move(rows), Flavour::kGenerator);
}

R slice_filter(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "slice", {"slices", "fill_with"}, 1));
  BOLIDE_TRY(const int64_t slices, integer_argument(a[0], "slices"));
  if (slices <= 0 || slices > 100'000) return template_error("slice needs a count between 1 and 100000");
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  const size_t count = static_cast<size_t>(slices), each = items.size() / count, longer = items.size() % count;
  std::vector<Value> rows;
  size_t at = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t size = each + (i < longer ? 1 : 0);
    std::vector<Value> row(items.begin() + static_cast<ptrdiff_t>(at),
                           items.begin() + static_cast<ptrdiff_t>(at + size));
    if (!a[1].is(Kind::kMissing) && !a[1].is(Kind::kNone) && i >= longer) row.push_back(a[1]);
    at += size;
    rows.push_back(in.heap().list(std::move(row)));
  }
  return in.heap().list(std::move(rows), Flavour::kGenerator);
}

R group_by(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "groupby", {"attribute", "default", "case_sensitive"}, 1));
  const bool case_sensitive = flag_argument(a[2], false);
  BOLIDE_TRY(std::vector<Value> items, iterate(in.heap(), input));
  Keyed keyed;
  std::vector<Value> keys;
  for (Value& one : items) {
    BOLIDE_TRY(Value key, at_path(in.heap(), one, a[0]));
    if (key.is(Kind::kUndefined) && !a[1].is(Kind::kMissing) && !a[1].is(Kind::kNone)) key = a[1];
    // The group shows the key of its first item as it is written there.
    keyed.emplace_back(sort_key(in.heap(), key, case_sensitive), in.heap().pair(key, std::move(one)));
  }
  BOLIDE_TRY(sort_values(in.heap(), keyed, false));
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size(); ++i) {
    bool same = false;
    if (i > 0) {
      BOLIDE_TRY(same, equal(in.heap(), keyed[i - 1].first, keyed[i].first));
    }
    const std::vector<Value>& entry = keyed[i].second.list->items;
    if (!same) groups.push_back(in.heap().pair(entry[0], in.heap().list({}), Flavour::kGroup));
    in.heap().append(*groups.back().list->items[1].list, entry[1]);
  }
  return in.heap().list(std::move(groups));
}

R map(Interpreter& in, const Value& input, Args& args) {
  const bool by_filter = !args.positional.empty();
  Value path, otherwise;
  if (!by_filter) {
    BOLIDE_TRY(auto a, bind(args, "map", {"attribute", "default"}, 1));
    path = a[0];
    otherwise = a[1];
  }
  Args rest;
  if (by_filter) {
    if (!args.positional[0].is_string()) return template_error("map needs the name of a filter");
    rest.positional.assign(args.positional.begin() + 1, args.positional.end());
    rest.named = args.named;
  }
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  std::vector<Value> out;
  for (const Value& one : items) {
    BOLIDE_TRY(in.heap().step());
    Value value;
    if (by_filter) {
      Args copy = rest;
      BOLIDE_TRY(value, in.apply_filter(args.positional[0].string(), one, copy));
    } else {
      BOLIDE_TRY(value, at_path(in.heap(), one, path));
      if (value.is(Kind::kUndefined) && !otherwise.is(Kind::kMissing) && !otherwise.is(Kind::kNone)) value = otherwise;
    }
    out.push_back(std::move(value));
  }
  return in.heap().list(std::move(out), Flavour::kGenerator);
}

// select, reject, selectattr and rejectattr: items whose value, or whose attribute, passes a test (or is true).
template <bool wanted, bool by_attribute>
R choose(Interpreter& in, const Value& input, Args& args) {
  Value path;
  size_t used = 0;
  if (by_attribute) {
    if (args.positional.empty()) return template_error("selectattr and rejectattr need the name of an attribute");
    path = args.positional[used++];
  }
  Value test;
  if (args.positional.size() > used) test = args.positional[used++];
  if (!test.is(Kind::kMissing) && !test.is_string()) return template_error("the name of a test must be a string");
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(used), args.positional.end());
  rest.named = args.named;
  BOLIDE_TRY(const std::vector<Value> items, iterate(in.heap(), input));
  std::vector<Value> kept;
  for (const Value& one : items) {
    BOLIDE_TRY(in.heap().step());
    BOLIDE_TRY(const Value value, at_path(in.heap(), one, path));
    bool passed = truthy(value);
    if (test.is_string()) {
      Args copy = rest;
      BOLIDE_TRY(passed, in.apply_test(test.string(), value, copy));
    }
    if (passed == wanted) kept.push_back(one);
  }
  return in.heap().list(std::move(kept), Flavour::kGenerator);
}

R attr(Interpreter& in, const Value& input, Args& args) {
  BOLIDE_TRY(auto a, bind(args, "attr", {"name"}, 1));
  BOLIDE_TRY(const Value name, to_text(in.heap(), a[0]));
  // Unlike object.name, never the item of a dict.
  if (input.is(Kind::kDict) && find_method(input, name.string()) == nullptr) return Value::undefined(name.text);
  return attribute(in.heap(), input, name);
}

constexpr Named<Filter> kSequenceFilters[] = {
    {"default", default_filter},
    {"d", default_filter},
    {"length", length},
    {"count", length},
    {"join", join},
    {"first", first},
    {"last", last},
    {"list", list},
    {"items", items_filter},
    {"dictsort", dict_sort},
    {"sort", sort_filter},
    {"unique", unique},
    {"reverse", reverse},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"batch", batch},
    {"slice", slice_filter},
    {"groupby", group_by},
    {"map", map},
    {"select", choose<true, false>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<false, true>},
    {"attr", attr},
};

}  // namespace

std::span<const Named<Filter>> sequence_filters() { return kSequenceFilters; }

// A merge sort from the bottom up: stable, and safe with values whose order is no order (NaN).
Result<> sort_values(Heap& heap, Keyed& keyed, bool reverse) {
  Keyed merged(keyed.size());
  BOLIDE_TRY(heap.step(keyed.size() * sizeof(Keyed::value_type)));
  for (size_t width = 1; width < keyed.size(); width *= 2) {
    for (size_t start = 0; start < keyed.size(); start += 2 * width) {
      const size_t middle = std::min(start + width, keyed.size()), end = std::min(start + 2 * width, keyed.size());
      size_t left = start, right = middle;
      for (size_t to = start; to < end; ++to) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          const Value &a = keyed[left].first, &b = keyed[right].first;
          BOLIDE_TRY(take_right, reverse ? less(heap, a, b) : less(heap, b, a));
        }
        merged[to] = std::move(keyed[take_right ? right++ : left++]);
      }
    }
    keyed.swap(merged);
  }
  return {};
}

}  // namespace bolide::jinja
