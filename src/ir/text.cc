// The graph's text form:
//
//   %0 = input ids : i32[T]
//   %1 = weight q4_1[49152,576] model.embed_tokens.weight[0:49152]
//   %3 = Embed(%0, %1) {} : f32[T,576]  # embed
//   output logits = %99
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>

#include "ir/graph.h"

namespace bolide {
namespace {

struct Printer {
  std::string* text;
  bool first = true;

  void name(std::string_view field) {
    *text += fmt::format("{}{}=", first ? "" : ", ", field);
    first = false;
  }
  void operator()(std::string_view field, const int64_t& value) { name(field), *text += fmt::format("{}", value); }
  void operator()(std::string_view field, const float& value) { name(field), *text += fmt::format("{}", value); }
  void operator()(std::string_view field, const bool& value) { name(field), *text += value ? "true" : "false"; }
  void operator()(std::string_view field, const std::vector<float>& value) {
    name(field), *text += fmt::format("[{}]", fmt::join(value, " "));
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(std::string_view field, const Enum& value) {
    name(field), *text += enum_names(Enum{})[static_cast<size_t>(value)];
  }
};

template <class Number>
bool parse_number(std::string_view text, Number* out) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if constexpr (std::is_floating_point_v<Number>)
    if (failure == std::errc() && !std::isfinite(*out)) return false;
  return failure == std::errc() && end == text.data() + text.size();
}

// Reads attributes from a map of strings; the first misfit is kept in `failure`.
struct Reader {
  std::map<std::string, std::string, std::less<>>* attributes;
  std::string failure;

  const std::string* take(std::string_view field) {
    const auto it = attributes->find(field);
    if (it == attributes->end()) {
      failure = fmt::format("attribute {} is missing", field);
      return nullptr;
    }
    taken = it->second;
    attributes->erase(it);
    return &taken;
  }
  void refuse(std::string_view field) {
    failure = fmt::format("attribute {} is not a value of its type: '{}'", field, taken);
  }

  void operator()(std::string_view field, int64_t& value) {
    if (const auto* text = take(field); text != nullptr && !parse_number(*text, &value)) refuse(field);
  }
  void operator()(std::string_view field, float& value) {
    if (const auto* text = take(field); text != nullptr && !parse_number(*text, &value)) refuse(field);
  }
  void operator()(std::string_view field, bool& value) {
    if (const auto* text = take(field); text != nullptr) {
      value = *text == "true";
      if (!value && *text != "false") refuse(field);
    }
  }
  void operator()(std::string_view field, std::vector<float>& value) {
    const auto* text = take(field);
    if (text == nullptr) return;
    value.clear();
    std::string_view rest = *text;
    if (!rest.starts_with('[') || !rest.ends_with(']')) return refuse(field);
    rest = rest.substr(1, rest.size() - 2);
    while (!rest.empty()) {
      const size_t space = rest.find(' ');
      float number = 0;
      if (!parse_number(rest.substr(0, space), &number)) return refuse(field);
      value.push_back(number);
      rest = space == std::string_view::npos ? std::string_view() : rest.substr(space + 1);
    }
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void operator()(std::string_view field, Enum& value) {
    const auto* text = take(field);
    if (text == nullptr) return;
    const auto names = enum_names(Enum{});
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == *text) {
        value = static_cast<Enum>(i);
        return;
      }
    refuse(field);
  }

  std::string taken;
};

template <size_t I = 0>
Result<Op> read_op(std::string_view name, Reader& reader) {
  if constexpr (I == std::variant_size_v<Op>) {
    return error(Code::kInvalid, fmt::format("'{}' is not an op", name));
  } else {
    using T = std::variant_alternative_t<I, Op>;
    if (name != T::kName) return read_op<I + 1>(name, reader);
    T op;
    T::fields(op, reader);
    if (!reader.failure.empty()) return error(Code::kInvalid, reader.failure);
    if (!reader.attributes->empty())
      return error(Code::kInvalid, fmt::format("{} has no attribute {}", name, reader.attributes->begin()->first));
    return Op(std::move(op));
  }
}

// A cursor over one line.
struct Cursor {
  std::string_view rest;

  bool eat(std::string_view token) {
    if (!rest.starts_with(token)) return false;
    rest.remove_prefix(token.size());
    return true;
  }
  // Everything up to `stop`, which is consumed; false if it does not occur.
  bool until(std::string_view stop, std::string_view* out) {
    const size_t at = rest.find(stop);
    if (at == std::string_view::npos) return false;
    *out = rest.substr(0, at);
    rest.remove_prefix(at + stop.size());
    return true;
  }
};

bool parse_parts(std::string_view text, std::vector<WeightPart>* parts) {
  Cursor cursor{text};
  do {
    std::string_view name, begin, end;
    WeightPart part;
    int64_t last = 0;
    if (!cursor.until("[", &name) || !cursor.until(":", &begin) || !cursor.until("]", &end)) return false;
    if (!parse_number(begin, &part.begin) || !parse_number(end, &last) || part.begin < 0 || last < part.begin)
      return false;
    part.tensor = name;
    part.rows = last - part.begin;
    parts->push_back(std::move(part));
  } while (cursor.eat(" + "));
  return cursor.rest.empty();
}

// "f32[T,576], none"
std::string types_text(const Graph& graph, const Node& node) {
  std::string types;
  for (const ValueId value : node.out)
    types += fmt::format("{}{}", types.empty() ? "" : ", ", to_string(graph.type(value)));
  return types;
}

class GraphParser {
 public:
  Result<Graph> parse(std::string_view text) {
    int line_number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
      ++line_number;
      if (line.empty()) continue;
      BOLIDE_TRY(parse_line(line).context(fmt::format("line {}", line_number)));
    }
    BOLIDE_TRY(graph_.verify());
    return std::move(graph_);
  }

 private:
  Result<ValueId> known(std::string_view number) {
    const auto it = ids_.find(std::string(number));
    if (it == ids_.end()) return error(Code::kInvalid, fmt::format("%{} is not made before it is used", number));
    return it->second;
  }

  Result<> define(std::string_view number, ValueId value) {
    if (ids_.emplace(number, value).second) return {};
    return error(Code::kInvalid, fmt::format("a second %{}", number));
  }

  Result<> parse_line(std::string_view line) {
    Cursor cursor{line};
    if (cursor.eat("activations ")) return parse_activations(cursor);
    if (cursor.eat("output ")) {
      std::string_view name;
      if (!cursor.until(" = %", &name)) return error(Code::kInvalid, "expected 'output NAME = %ID'");
      BOLIDE_TRY(const ValueId value, known(cursor.rest));
      graph_.add_output(std::string(name), value);
      return {};
    }
    std::string_view left;
    if (!cursor.eat("%") || !cursor.until(" = ", &left))
      return error(Code::kInvalid, "expected '%ID = ...' or 'output ...'");
    if (cursor.eat("input ")) return parse_input(left, cursor);
    if (cursor.eat("weight ")) return parse_weight(left, cursor);
    return parse_node(left, cursor);
  }

  // The first line, in graphs whose activations are not f32.
  Result<> parse_activations(Cursor cursor) {
    const auto dtype = dtype_from_string(cursor.rest);
    if (!dtype.has_value() || graph_.value_count() > 0)
      return error(Code::kInvalid, "expected 'activations f32' or 'activations bf16' before any value");
    return graph_.set_activations(*dtype);
  }

  Result<> parse_input(std::string_view id, Cursor cursor) {
    std::string_view name;
    if (!cursor.until(" : ", &name)) return error(Code::kInvalid, "expected 'input NAME : TYPE'");
    BOLIDE_TRY(ValueType type, parse_value_type(cursor.rest));
    return define(id, graph_.add_input(std::string(name), std::move(type)));
  }

  Result<> parse_weight(std::string_view id, Cursor cursor) {
    std::string_view type_text;
    std::vector<WeightPart> parts;
    if (!cursor.until(" ", &type_text) || !parse_parts(cursor.rest, &parts))
      return error(Code::kInvalid, "expected 'weight TYPE NAME[BEGIN:END] + ...'");
    BOLIDE_TRY(ValueType type, parse_value_type(type_text));
    return define(id, graph_.add_weight(std::move(parts), std::move(type)));
  }

  Result<> parse_node(std::string_view left, Cursor cursor) {
    std::string_view op_text, inputs, attribute_text, types;
    if (!cursor.until("(", &op_text) || !cursor.until(")", &inputs) || !cursor.eat(" {") ||
        !cursor.until("} : ", &attribute_text) || !cursor.until("  # ", &types))
      return error(Code::kInvalid, "expected '%ID = Op(%IN, ...) {attributes} : TYPES  # NAME'");
    std::map<std::string, std::string, std::less<>> attributes;
    Cursor fields{attribute_text};
    while (!fields.rest.empty()) {
      std::string_view key, value;
      if (!fields.until("=", &key)) return error(Code::kInvalid, "expected 'key=value' among the attributes");
      if (!fields.until(", ", &value)) {
        value = fields.rest;
        fields.rest = {};
      }
      if (!attributes.emplace(key, value).second)
        return error(Code::kInvalid, fmt::format("attribute {} is there twice", key));
    }
    Reader reader{&attributes, {}, {}};
    BOLIDE_TRY(Op op, read_op(op_text, reader));
    std::vector<ValueId> in;
    while (!inputs.empty()) {
      const size_t comma = inputs.find(", ");
      const std::string_view item = inputs.substr(0, comma);
      if (!item.starts_with('%')) return error(Code::kInvalid, fmt::format("'{}' is not a value such as %3", item));
      BOLIDE_TRY(const ValueId value, known(item.substr(1)));
      in.push_back(value);
      inputs = comma == std::string_view::npos ? std::string_view() : inputs.substr(comma + 2);
    }
    BOLIDE_TRY(const NodeId id, graph_.add(std::move(op), in, std::string(cursor.rest)));
    if (const std::string made = types_text(graph_, graph_.node(id)); made != types)
      return error(Code::kInvalid, fmt::format("the op makes {}, not {}", made, types));
    return name_outputs(left, graph_.node(id).out);
  }

  Result<> name_outputs(std::string_view left, const std::vector<ValueId>& out) {
    size_t count = 0;
    for (bool more = true; more; ++count) {
      const size_t comma = left.find(", %");
      more = comma != std::string_view::npos;
      if (count == out.size()) return error(Code::kInvalid, "more names than the op has outputs");
      BOLIDE_TRY(define(left.substr(0, comma), out[count]));
      if (more) left = left.substr(comma + 3);
    }
    if (count != out.size()) return error(Code::kInvalid, fmt::format("the op has {} outputs", out.size()));
    return {};
  }

  Graph graph_;
  std::map<std::string, ValueId, std::less<>> ids_;
};

}  // namespace

std::string to_string(std::span<const WeightPart> parts) {
  std::string text;
  for (const WeightPart& part : parts)
    text += fmt::format("{}{}[{}:{}]", text.empty() ? "" : " + ", part.tensor, part.begin, part.begin + part.rows);
  return text;
}

std::string Graph::to_text() const {
  std::string text;
  if (activations_ != DType::kF32) text += fmt::format("activations {}\n", to_string(activations_));
  std::vector<bool> used(values_.size());
  for (const NodeId id : order_)
    for (const ValueId value : node(id).in) used[static_cast<size_t>(value)] = true;
  for (size_t i = 0; i < values_.size(); ++i) {
    const Value& v = values_[i];
    if (v.kind == ValueKind::kInput) text += fmt::format("%{} = input {} : {}\n", i, v.name, to_string(v.type));
    if (v.kind == ValueKind::kWeight && used[i])
      text += fmt::format("%{} = weight {} {}\n", i, to_string(v.type), bolide::to_string(std::span(v.parts)));
  }
  for (const NodeId id : order_) {
    const Node& n = node(id);
    text += fmt::format("%{} = {}(", fmt::join(n.out, ", %"), op_name(n.op));
    for (size_t i = 0; i < n.in.size(); ++i) text += fmt::format("{}%{}", i == 0 ? "" : ", ", n.in[i]);
    text += ") {";
    std::visit([&](const auto& op) { std::decay_t<decltype(op)>::fields(op, Printer{&text}); }, n.op);
    text += fmt::format("}} : {}  # {}\n", types_text(*this, n), n.name);
  }
  for (const Output& output : outputs_) text += fmt::format("output {} = %{}\n", output.name, output.value);
  return text;
}

Result<Graph> Graph::from_text(std::string_view text) { return GraphParser().parse(text); }

}  // namespace bolide
