// The filters, tests, methods and global functions of the template language, by name, and the helpers they share.
//
// Thread rules: the tables are constant; a call belongs to the render whose Interpreter it gets.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/jinja_ast.h"
#include "text/jinja_value.h"

namespace bolide::jinja {

// Null if there is none.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
BuiltIn find_global(std::string_view name);
BuiltIn find_method(const Value& object, std::string_view name);
BuiltIn find_string_method(std::string_view name);
BuiltIn find_list_method(const List& list, std::string_view name);
BuiltIn find_dict_method(std::string_view name);
BuiltIn find_cycler_method(std::string_view name);

// Bytes to charge per byte searched: a search may stop at every other byte.
constexpr uint64_t kSearchCost = 8;

template <class Function>
struct Named {
  std::string_view name;
  Function function;
};
// The tables of single files, which find_filter joins.
std::span<const Named<Filter>> text_filters();
std::span<const Named<Filter>> sequence_filters();
std::span<const Named<Filter>> number_filters();

// Matches arguments with parameter names: slot i gets parameter i, Kind::kMissing if it was not given.
Result<> bind(const Args& args, std::string_view function, std::span<const std::string_view> names, size_t required,
              Value* slots);
template <size_t N>
Result<std::array<Value, N>> bind(const Args& args, std::string_view function, const std::string_view (&names)[N],
                                  size_t required) {
  std::array<Value, N> slots;
  BOLIDE_TRY(bind(args, function, std::span<const std::string_view>(names), required, slots.data()));
  return slots;
}
Result<> no_arguments(const Args& args, std::string_view function);

// The value as Python's index (int or bool), `otherwise` if it is missing or None.
Result<int64_t> integer_argument(const Value& value, std::string_view what, int64_t otherwise = 0);
Result<std::string_view> string_argument(const Value& value, std::string_view what);
bool flag_argument(const Value& value, bool otherwise);

// str.replace with the size of the result checked first; `text` is a string, negative `times` replaces all.
Result<Value> replaced(Heap& heap, const Value& text, std::string_view from, std::string_view to, int64_t times);
// dict.update: from one dict or iterable of pairs, and named arguments.
Result<> fill_dict(Heap& heap, Dict& dict, const Args& args, std::string_view function);
// A stable sort by Python's `<`; with reverse, equal items keep their order too. Errors: items that have no order.
Result<> sort_values(Heap& heap, std::vector<std::pair<Value, Value>>& keyed, bool reverse);

}  // namespace bolide::jinja
