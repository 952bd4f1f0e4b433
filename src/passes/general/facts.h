// What is known of the values of a general graph before anything runs: types, dims, small integer contents. Dims that
// are not known have symbols; two dims of one symbol are equal in every run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace bolide {

using Numbers = std::vector<int64_t>;

struct Facts {
  static constexpr int64_t kUnknown = INT64_MIN;  // in `values`
  DType dtype = DType::kNone;                     // kNone: not known, or no tensor
  std::optional<Numbers> dims;                    // numbers and symbols
  std::optional<Numbers> values;                  // of integers of at most one dim: numbers, symbols and kUnknown
  const Tensor* constant = nullptr;

  int rank() const { return dims ? static_cast<int>(dims->size()) : -1; }
};
constexpr int64_t kSymbols0 = INT64_MIN / 2;
constexpr bool is_symbol(int64_t dim) { return dim <= kSymbols0 && dim != Facts::kUnknown; }
constexpr bool is_number(int64_t dim) { return dim > kSymbols0; }

// ONNX's number of an element type as a DType; kNone: none that passes know.
DType element_type(int64_t onnx);
Facts facts_of(const Tensor& constant);

// Facts of all values of one graph. The counter of symbols is shared by a graph and its bodies.
class FactsTable {
 public:
  FactsTable(const Graph& graph, const std::vector<Facts>& inputs, int64_t& symbols);
  const Facts& operator[](ValueId value) const;
  void set(ValueId value, Facts facts);
  // Facts of a node's outputs from those of its inputs.
  void learn(const Graph& graph, NodeId id);
  int64_t fresh() { return kSymbols0 - ++symbols_; }

 private:
  Facts infer(const Node& node, const Generic& op, size_t output);
  std::optional<Numbers> reshape(const Facts& from, const Numbers& target, bool zero_is_size);
  bool is_clipped(int64_t whole, int64_t dim) const;
  std::optional<Numbers> broadcast(const Node& node, size_t first, size_t count);
  Facts windowed(const Facts& x, const Node& node, const Generic& op, bool pool);
  Facts channels_last(const Facts& x, const Node& node, const Generic& op);
  Facts resized(const Node& node, const Generic& op);
  Facts selected(const Node& node, const Generic& op, size_t output);
  Facts quantised(const Node& node, const Generic& op);

  std::vector<Facts> of_;
  std::unordered_map<int64_t, int64_t> clipped_;  // symbols of slices [0, end) of constants: the symbol of `end`
  int64_t& symbols_;
};

}  // namespace bolide
