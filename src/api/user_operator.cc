#include "api/user_operator.h"

#include <fmt/format.h>

#include <utility>

#include "api/array.h"
#include "api/convert.h"

namespace bolide {
namespace {

class Call final : public OperatorCall {
 public:
  explicit Call(RunContext& context) : context_(context), made_(context.outputs()) {
    for (size_t i = 0; i < context.inputs(); ++i) {
      const AnyValue* value = context.value(i);
      const Tensor* tensor = value == nullptr ? nullptr : value->tensor();
      inputs_.push_back(tensor == nullptr ? Array() : to_array(*tensor));
    }
  }

  size_t inputs() const override { return inputs_.size(); }
  const Array& input(size_t i) const override {
    static const Array kNone;
    return i < inputs_.size() ? inputs_[i] : kNone;
  }
  size_t outputs() const override { return context_.outputs(); }

  Expected<Array> output(size_t i, ElementType type, const std::vector<int64_t>& dims) override {
    if (i >= made_.size())
      return Status{StatusCode::kInvalid, fmt::format("there is no output {}: the node has {}", i, made_.size())};
    if (type == ElementType::kNone) return Status{StatusCode::kInvalid, fmt::format("output {} of no type", i)};
    if (dims.size() > kRankMax)
      return Status{StatusCode::kUnsupported,
                    fmt::format("output {} of {} dims, at most {} can be", i, dims.size(), kRankMax)};
    auto tensor = context_.make(i, to_dtype(type), Shape(dims)).context(fmt::format("output {}", i));
    if (!tensor) return to_status(std::move(tensor).error());
    made_[i] = true;
    return to_array(**tensor, true);
  }

  std::optional<int64_t> integer(std::string_view name) const override { return attribute<int64_t>(name); }
  std::optional<float> number(std::string_view name) const override { return attribute<float>(name); }
  std::optional<std::string> text(std::string_view name) const override { return attribute<std::string>(name); }
  std::optional<std::vector<int64_t>> integers(std::string_view name) const override {
    return attribute<std::vector<int64_t>>(name);
  }
  std::optional<std::vector<float>> numbers(std::string_view name) const override {
    return attribute<std::vector<float>>(name);
  }

  Result<> check_made() const {
    for (size_t i = 0; i < made_.size(); ++i)
      if (!made_[i]) return error(Code::kInvalid, fmt::format("the operator's function made no output {}", i));
    return {};
  }

 private:
  template <class T>
  std::optional<T> attribute(std::string_view name) const {
    const Attributes::Any* any = context_.attributes().find(name);
    const T* value = any == nullptr ? nullptr : std::get_if<T>(any);
    return value == nullptr ? std::nullopt : std::optional<T>(*value);
  }

  RunContext& context_;
  std::vector<Array> inputs_;
  std::vector<bool> made_;
};

Result<> run_user_operator(RunContext& context) {
  Call call(context);
  if (Status status = static_cast<const UserOperator*>(context.state())->run(call); !status.ok())
    return to_error(std::move(status));
  return call.check_made();
}

}  // namespace

Result<UserOperators> UserOperators::make(const std::vector<UserOperator>& operators) {
  UserOperators made;
  auto kept = std::make_shared<std::vector<UserOperator>>(operators);
  for (UserOperator& one : *kept) {
    const std::string name = fmt::format("operator {}{}{}", one.domain, one.domain.empty() ? "" : ".", one.name);
    if (one.name.empty()) return error(Code::kInvalid, fmt::format("{}: has no name", name));
    if (!one.run) return error(Code::kInvalid, fmt::format("{}: has no function", name));
    if (one.since < 1) return error(Code::kInvalid, fmt::format("{}: since {}, expected at least 1", name, one.since));
    if (one.domain == "ai.onnx") one.domain.clear();
    for (const OpDef& row : made.rows_)
      if (row.domain == one.domain && row.name == one.name && row.since == one.since)
        return error(Code::kInvalid, fmt::format("{}: is given twice since version {}", name, one.since));
    made.rows_.push_back({.domain = one.domain,
                          .name = one.name,
                          .since = one.since,
                          .run = run_user_operator,
                          .pure = false,
                          .state = &one});
  }
  made.operators_ = std::move(kept);
  return made;
}

}  // namespace bolide
