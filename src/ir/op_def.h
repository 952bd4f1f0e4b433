// OpDef: one op of a general graph (ONNX), a row with its reference kernel. Core ops (ops.h) are what passes match and
// fast kernels compute; all others are a Generic node that names a row of src/ops.
//
// Thread rules: rows are constant; a RunContext belongs to one execution of one node.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/workers.h"
#include "tensor/value.h"

namespace bolide {

// Attributes of a node, as ONNX has them; graphs are bodies of the node, and no attributes here.
class Attributes {
 public:
  using Any = std::variant<int64_t, float, std::string, Tensor, std::vector<int64_t>, std::vector<float>,
                           std::vector<std::string>, std::vector<Tensor>>;

  void set(std::string name, Any value) { values_.insert_or_assign(std::move(name), std::move(value)); }
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  const Any* find(std::string_view name) const;  // null: there is none
  const std::map<std::string, Any, std::less<>>& all() const { return values_; }

  // The attribute, or `otherwise` if there is none. kInvalid: it is of another type.
  Result<int64_t> integer(std::string_view name, int64_t otherwise) const;
  Result<float> number(std::string_view name, float otherwise) const;
  Result<std::string> text(std::string_view name, std::string_view otherwise) const;
  Result<std::vector<int64_t>> integers(std::string_view name, std::vector<int64_t> otherwise = {}) const;
  Result<std::vector<float>> numbers(std::string_view name, std::vector<float> otherwise = {}) const;
  Result<std::vector<std::string>> texts(std::string_view name, std::vector<std::string> otherwise = {}) const;

 private:
  std::map<std::string, Any, std::less<>> values_;
};

// Memory that an output is wanted in, if it is of that type and fits.
struct OutputMemory {
  std::byte* data = nullptr;  // null: anywhere
  size_t bytes = 0;
  DType dtype = DType::kNone;
};

// One execution of a node: inputs in, outputs made. Whatever the file says, what a kernel gets here is a value of some
// type and shape: it checks both before it reads.
class RunContext {
 public:
  // Runs a body of the node by its attribute's name, with these values for its own inputs; its outputs come back.
  // kNotFound: the node has no such body.
  using RunBody = FunctionRef<Result<std::vector<AnyValue>>(std::string_view attribute, std::vector<AnyValue> inputs)>;

  RunContext(const Attributes& attributes, int64_t version, std::span<const AnyValue* const> inputs,
             std::span<AnyValue> outputs, Workers& workers, TensorPool& pool, RunBody run_body,
             const void* state = nullptr, std::span<const OutputMemory> memories = {})
      : attributes_(attributes),
        version_(version),
        inputs_(inputs),
        outputs_(outputs),
        workers_(workers),
        pool_(pool),
        run_body_(run_body),
        state_(state),
        memories_(memories) {}

  const Attributes& attributes() const { return attributes_; }
  int64_t version() const { return version_; }  // of the operator set that the node's domain has in its model
  const void* state() const { return state_; }  // OpDef::state
  Workers& workers() const { return workers_; }
  TensorPool& pool() const { return pool_; }

  size_t inputs() const { return inputs_.size(); }  // as the node lists them, absent ones too
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i] != nullptr; }
  const AnyValue* value(size_t i) const { return has(i) ? inputs_[i] : nullptr; }
  // kInvalid: absent, or no tensor.
  Result<const Tensor*> tensor(size_t i) const;
  // A tensor, or null if it is absent.
  Result<const Tensor*> tensor_if(size_t i) const;
  // The elements of a tensor of i64 or i32, at most `most` of them: axes, shapes, pads. Absent: `otherwise`.
  Result<std::vector<int64_t>> integers(size_t i, std::vector<int64_t> otherwise = {}, int64_t most = 1 << 20) const;
  // The one element of a tensor of numbers, as f64.
  Result<double> number(size_t i, double otherwise) const;

  size_t outputs() const { return outputs_.size(); }  // as the node lists them
  // Output i: contents arbitrary, to be filled; aligned to its elements, no more. An output that the node does not list
  // is made all the same and dropped.
  Result<Tensor*> make(size_t i, DType dtype, const Shape& shape);
  void set(size_t i, AnyValue value) {
    if (i < outputs_.size()) outputs_[i] = std::move(value);
  }
  Result<Tensor> scratch(DType dtype, const Shape& shape) const { return Tensor::make(dtype, shape, pool_); }

  Result<std::vector<AnyValue>> run_body(std::string_view attribute, std::vector<AnyValue> inputs) {
    return run_body_(attribute, std::move(inputs));
  }

 private:
  const Attributes& attributes_;
  int64_t version_;
  std::span<const AnyValue* const> inputs_;
  std::span<AnyValue> outputs_;
  std::vector<AnyValue> dropped_;
  Workers& workers_;
  TensorPool& pool_;
  RunBody run_body_;
  const void* state_;
  std::span<const OutputMemory> memories_;
};

class PreparedOp;  // ops/prepared_op.h
struct PrepareContext;

struct OpDef {
  std::string_view domain;  // "" is ai.onnx
  std::string_view name;
  int64_t since = 1;  // the first version of the operator set that means this row; a later row of the name ends it
  Result<> (*run)(RunContext&) = nullptr;
  bool pure = true;             // the same inputs give the same outputs: may be folded
  const void* state = nullptr;  // of an op that a program has added: what its run finds in the context
  // Something faster than `run` for a node, by its attributes and constants; a null result: there is nothing. kInvalid:
  // the node is wrong, as `run` would say.
  Result<std::unique_ptr<PreparedOp>> (*prepare)(const PrepareContext&) = nullptr;

  // False: it may be named as one of ours, and means something else. Passes leave it alone.
  bool is_ours() const { return state == nullptr; }
};

}  // namespace bolide
