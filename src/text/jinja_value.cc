#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja_text.h"

namespace bolide::jinja {
namespace {

constexpr size_t kIndexedEntries = 12;  // below, a scan is faster than hashing
constexpr int kJsonDepthMax = 100;

size_t hash_of(const Value& key) {
  switch (key.kind) {
    case Kind::kString: return std::hash<std::string_view>{}(key.string());
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: return std::hash<double>{}(key.as_real());
    default: return 0;
  }
}

}  // namespace

Text::Text(std::string b, uint64_t* account)
    : bytes(std::move(b)),
      ascii(std::all_of(bytes.begin(), bytes.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })),
      live_bytes_(account) {
  if (live_bytes_ != nullptr) *live_bytes_ += sizeof(Text) + bytes.size();
}

Text::~Text() {
  if (live_bytes_ != nullptr) *live_bytes_ -= sizeof(Text) + bytes.size();
}

TextRef constant_text(std::string bytes) { return std::make_shared<const Text>(std::move(bytes), nullptr); }

Value Value::boolean_of(bool b) {
  Value value(Kind::kBool);
  value.boolean = b;
  return value;
}

Value Value::integer_of(int64_t i) {
  Value value(Kind::kInt);
  value.integer = i;
  return value;
}

Value Value::real_of(double d) {
  Value value(Kind::kFloat);
  value.real = d;
  return value;
}

Value Value::string_of(TextRef text) {
  Value value(Kind::kString);
  value.text = std::move(text);
  return value;
}

Value Value::undefined(TextRef name) {
  Value value(Kind::kUndefined);
  value.text = std::move(name);
  return value;
}

size_t Dict::position(const Value& key) const {
  if (index_.empty()) {
    size_t at = 0;
    while (at < entries.size() && !equal_scalars(entries[at].key, key)) ++at;
    return at;
  }
  const auto [first, last] = index_.equal_range(hash_of(key));
  for (auto it = first; it != last; ++it)
    if (equal_scalars(entries[it->second].key, key)) return it->second;
  return entries.size();
}

const Value* Dict::find(const Value& key) const {
  const size_t at = position(key);
  return at < entries.size() ? &entries[at].value : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) return find(Value::string_of(constant_text(std::string(key))));
  for (const Entry& entry : entries)
    if (entry.key.is_string() && entry.key.string() == key) return &entry.value;
  return nullptr;
}

void Dict::index() {
  index_.clear();
  if (entries.size() < kIndexedEntries) return;
  for (size_t at = 0; at < entries.size(); ++at) index_.emplace(hash_of(entries[at].key), at);
}

void Dict::set(Value key, Value value) {
  const size_t at = position(key);
  if (at < entries.size()) {
    entries[at].value = std::move(value);
    return;
  }
  entries.push_back({std::move(key), std::move(value)});
  if (!index_.empty())
    index_.emplace(hash_of(entries.back().key), at);
  else if (entries.size() >= kIndexedEntries)
    index();
}

bool Dict::erase(const Value& key) {
  const size_t at = position(key);
  if (at == entries.size()) return false;
  entries.erase(entries.begin() + static_cast<ptrdiff_t>(at));
  index();
  return true;
}

Heap::~Heap() {
  // Strings report to string_bytes_ when they go: let them, before it goes.
  lists_.clear();
  dicts_.clear();
  functions_.clear();
  cycles_.clear();
}

Value Heap::string(std::string bytes) {
  return Value::string_of(std::make_shared<const Text>(std::move(bytes), &string_bytes_));
}

Value Heap::list(std::vector<Value> items, Flavour flavour) {
  // Twice: whoever walks a list copies it, and between long lists the allocator keeps what such copies left.
  account(sizeof(List) + 2 * items.capacity() * sizeof(Value));
  Value value(Kind::kList);
  value.list = &lists_.emplace_back(List{flavour, std::move(items)});
  return value;
}

Value Heap::pair(Value first, Value second, Flavour flavour) {
  std::vector<Value> items;
  items.reserve(2);
  items.push_back(std::move(first));
  items.push_back(std::move(second));
  return list(std::move(items), flavour);
}

Value Heap::dict() {
  account(sizeof(Dict));
  Value value(Kind::kDict);
  value.dict = &dicts_.emplace_back();
  return value;
}

Value Heap::function(std::string_view name, BuiltIn call, Value self) {
  account(sizeof(Function));
  Value value(Kind::kFunction);
  value.function = &functions_.emplace_back(Function{name, call, std::move(self)});
  return value;
}

Value Heap::cycle(std::vector<Value> items, bool joiner) {
  account(sizeof(Cycle) + items.size() * sizeof(Value));
  Value value(Kind::kCycle);
  value.cycle = &cycles_.emplace_back(Cycle{std::move(items), 0, joiner});
  return value;
}

void Heap::append(List& list, Value value) {
  account(2 * sizeof(Value));  // a vector grows by doubling
  list.items.push_back(std::move(value));
}

void Heap::set(Dict& dict, Value key, Value value) {
  account(2 * sizeof(Dict::Entry));  // the entry, and about as much for the index
  dict.set(std::move(key), std::move(value));
}

Result<> Heap::step(uint64_t bytes) {
  steps_ += 1 + bytes / 128;
  if (steps_ > limits_.steps_max) return template_error("the template takes too long; does it loop without end?");
  if (memory_bytes_ + string_bytes_ > limits_.memory_bytes_max)
    return template_error("the template needs too much memory");
  return {};
}

Result<> Heap::room(uint64_t bytes) const {
  const uint64_t used = memory_bytes_ + string_bytes_;
  if (used > limits_.memory_bytes_max || bytes > limits_.memory_bytes_max - used)
    return template_error("the template needs too much memory");
  return {};
}

bool truthy(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.boolean;
    case Kind::kInt: return value.integer != 0;
    case Kind::kFloat: return value.real != 0.0;
    case Kind::kString: return !value.string().empty();
    case Kind::kList: return value.list->flavour == Flavour::kGenerator || !value.list->items.empty();
    case Kind::kDict: return !value.dict->entries.empty();
    default: return true;
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined: return "Undefined";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kString: return "str";
    case Kind::kDict: return "dict";
    case Kind::kNamespace: return "Namespace";
    case Kind::kLoop: return "LoopContext";
    case Kind::kMacro: return "Macro";
    case Kind::kFunction: return "function";
    case Kind::kCycle: return value.cycle->joiner ? "Joiner" : "Cycler";
    case Kind::kList: break;
  }
  switch (value.list->flavour) {
    case Flavour::kList: return "list";
    case Flavour::kTuple:
    case Flavour::kGroup: return "tuple";
    case Flavour::kRange: return "range";
    case Flavour::kGenerator: return "generator";
    case Flavour::kKeys: return "dict_keys";
    case Flavour::kValues: return "dict_values";
    case Flavour::kItems: return "dict_items";
  }
  return "list";
}

bool is_hashable(const Value& value) { return value.is_string() || value.is_number() || value.is(Kind::kNone); }

bool equal_scalars(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_integer() == b.as_integer();
  if (a.is_number() && b.is_number()) return a.as_real() == b.as_real();
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString: return a.string() == b.string();
    case Kind::kList: return a.list == b.list;
    case Kind::kDict:
    case Kind::kNamespace: return a.dict == b.dict;
    case Kind::kLoop: return a.loop == b.loop;
    case Kind::kMacro: return a.macro == b.macro;
    case Kind::kFunction: return a.function == b.function;
    case Kind::kCycle: return a.cycle == b.cycle;
    default: return false;
  }
}

Result<std::vector<Value>> iterate(Heap& heap, const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case Kind::kUndefined: return items;
    case Kind::kString: {
      const std::string_view text = value.string();
      BOLIDE_TRY(heap.room(text.size() * (sizeof(Value) + sizeof(Text) + 16)));
      BOLIDE_TRY(heap.step(text.size() * 16));
      for (size_t at = 0; at < text.size();) {
        const size_t size = character_size(text, at);
        items.push_back(heap.string(std::string(text.substr(at, size))));
        at += size;
      }
      return items;
    }
    case Kind::kDict:
      BOLIDE_TRY(heap.step(value.dict->entries.size() * 32));
      for (const Dict::Entry& entry : value.dict->entries) items.push_back(entry.key);
      return items;
    case Kind::kList:
      BOLIDE_TRY(heap.step(value.list->items.size() * 32));
      BOLIDE_TRY(heap.room(value.list->items.size() * sizeof(Value)));
      if (value.list->flavour == Flavour::kGenerator)
        items.swap(value.list->items);
      else
        items = value.list->items;
      return items;
    default: return template_error(fmt::format("'{}' object is not iterable", type_name(value)));
  }
}

Result<Value> from_json(Heap& heap, const nlohmann::ordered_json& json, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kJsonDepthMax) return template_error("the variables are nested too deeply");
  BOLIDE_TRY(heap.step());
  switch (json.type()) {
    case Type::null: return Value::none();
    case Type::boolean: return Value::boolean_of(json.get<bool>());
    case Type::number_integer: return Value::integer_of(json.get<int64_t>());
    case Type::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(INT64_MAX))
        return template_error(fmt::format("the number {} does not fit 64 bits with a sign", number));
      return Value::integer_of(static_cast<int64_t>(number));
    }
    case Type::number_float: return Value::real_of(json.get<double>());
    case Type::string: {
      const auto& text = json.get_ref<const std::string&>();
      BOLIDE_TRY(heap.room(text.size()));
      return heap.string(text);
    }
    case Type::array: {
      std::vector<Value> items;
      for (const auto& item : json) {
        BOLIDE_TRY(Value value, from_json(heap, item, depth + 1));
        items.push_back(std::move(value));
      }
      return heap.list(std::move(items));
    }
    case Type::object: {
      Value dict = heap.dict();
      for (auto it = json.begin(); it != json.end(); ++it) {
        BOLIDE_TRY(Value value, from_json(heap, it.value(), depth + 1));
        heap.set(*dict.dict, heap.string(it.key()), std::move(value));
      }
      return dict;
    }
    default: return template_error("binary data cannot be a template's variable");
  }
}

Error template_error(std::string text) { return error(Code::kInvalid, std::move(text)); }

}  // namespace bolide::jinja
