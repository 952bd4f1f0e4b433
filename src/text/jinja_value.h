// Values of the template language, with Python's meaning, and the heap that owns them.
//
// A Value is small and copied freely. Strings are shared and immutable; lists, dicts and the other objects belong to
// the Heap of one render and live until it ends, so cycles cannot leak. Thread rules: a Heap and its values belong to
// one thread; only strings made by constant_text (literals of a parsed template) are shared between threads.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"

namespace bolide::jinja {

struct Dict;
struct List;
struct Loop;
struct Macro;
struct Function;
struct Cycle;

// What one render may use. Exceeding any of them is an error, never a crash or a hang.
struct Limits {
  uint64_t steps_max = 10'000'000;          // nodes evaluated, items visited, and bytes handled / 128
  uint64_t memory_bytes_max = 64ull << 20;  // live strings plus everything else ever made in the render
  uint64_t output_bytes_max = 16ull << 20;  // all text written, that of captured blocks included
  int depth_max = 400;                      // nested evaluations, macro calls included
};

enum class Kind : uint8_t {
  kMissing,  // an argument that was not given; templates never see it
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // every sequence but strings; List::flavour says which
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kFunction,
  kCycle,
};

struct Text {
  Text(std::string b, uint64_t* account);
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string bytes;      // UTF-8; bytes that are not count as one character each
  bool ascii;             // then characters are bytes
  uint64_t* live_bytes_;  // the heap's account, null for constants
};
using TextRef = std::shared_ptr<const Text>;
TextRef constant_text(std::string bytes);

struct Value {
  Value() : integer(0) {}
  explicit Value(Kind k) : kind(k), integer(0) {}

  static Value none() { return Value(Kind::kNone); }
  static Value boolean_of(bool b);
  static Value integer_of(int64_t i);
  static Value real_of(double d);
  static Value string_of(TextRef text);
  static Value undefined(TextRef name = nullptr);  // name: what was looked up, for messages

  bool is(Kind k) const { return kind == k; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_number() const { return kind == Kind::kInt || kind == Kind::kFloat || kind == Kind::kBool; }
  bool is_integral() const { return kind == Kind::kInt || kind == Kind::kBool; }
  // Preconditions: the kind fits.
  std::string_view string() const { return text->bytes; }
  int64_t as_integer() const { return kind == Kind::kBool ? int64_t{boolean} : integer; }
  double as_real() const { return kind == Kind::kFloat ? real : static_cast<double>(as_integer()); }

  Kind kind = Kind::kMissing;
  union {
    bool boolean;
    int64_t integer;
    double real;
    List* list;
    Dict* dict;  // kDict and kNamespace
    Loop* loop;
    Macro* macro;
    Function* function;
    Cycle* cycle;
  };
  TextRef text;  // kString; kUndefined: the name
};

enum class Flavour : uint8_t { kList, kTuple, kGroup, kRange, kGenerator, kKeys, kValues, kItems };

struct List {
  Flavour flavour = Flavour::kList;
  std::vector<Value> items;  // a generator's are taken by its first reader
};

// Keys are None, booleans, numbers and strings, in order of insertion.
struct Dict {
  struct Entry {
    Value key, value;
  };
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);
  bool erase(const Value& key);

  std::vector<Entry> entries;

 private:
  size_t position(const Value& key) const;  // entries.size() if absent
  void index();
  std::unordered_multimap<size_t, size_t> index_;  // hash to position, once there are more than a few entries
};

// Arguments of a call: named ones in order.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<TextRef, Value>> named;
};

// `cycler` and `joiner`: the object, called or asked for its next item.
struct Cycle {
  std::vector<Value> items;
  size_t at = 0;
  bool joiner = false;
};

class Interpreter;
using BuiltIn = Result<Value> (*)(Interpreter&, const Value& self, Args& args);
struct Function {
  std::string_view name;
  BuiltIn call = nullptr;
  Value self;  // of a bound method
};

class Heap {
 public:
  explicit Heap(const Limits& limits) : limits_(limits) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  Value string(std::string bytes);
  Value list(std::vector<Value> items, Flavour flavour = Flavour::kList);
  Value pair(Value first, Value second, Flavour flavour = Flavour::kTuple);
  Value dict();
  Value function(std::string_view name, BuiltIn call, Value self);
  Value cycle(std::vector<Value> items, bool joiner);
  void append(List& list, Value value);
  void set(Dict& dict, Value key, Value value);
  void account(uint64_t bytes) { memory_bytes_ += bytes; }

  // One unit of work, and `bytes` of text handled. Errors: kInvalid, the template takes too long or too much memory.
  Result<> step(uint64_t bytes = 0);
  // To be asked before making something that is larger than what it is made of.
  Result<> room(uint64_t bytes) const;
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  uint64_t steps_ = 0;
  uint64_t memory_bytes_ = 0;
  uint64_t string_bytes_ = 0;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Function> functions_;
  std::deque<Cycle> cycles_;
};

bool truthy(const Value& value);
std::string_view type_name(const Value& value);  // Python's: "str", "list", "NoneType"
bool is_hashable(const Value& value);            // may be a key here

// Equality of keys and other scalars: 1 == 1.0 == True. Anything else is compared by identity.
bool equal_scalars(const Value& a, const Value& b);

// Items of anything iterable: characters, keys, elements; nothing for undefined. Empties a generator.
Result<std::vector<Value>> iterate(Heap& heap, const Value& value);

Result<Value> from_json(Heap& heap, const nlohmann::ordered_json& json, int depth = 0);

Error template_error(std::string text);

}  // namespace bolide::jinja
