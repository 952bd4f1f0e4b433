// Graphs of ops whose float arithmetic is exact to repeat, weights in memory, and a plain evaluator: for tests only.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "formats/weight_source.h"
#include "ir/graph.h"
#include "tensor/half.h"

namespace bolide::test {

class MemorySource final : public WeightSource {
 public:
  void add(WeightInfo info, std::vector<std::byte> bytes) {
    const std::string name = info.name;
    tensors_[name] = {std::move(info), std::make_shared<std::vector<std::byte>>(std::move(bytes))};
  }
  void add(const std::string& name, const Shape& shape, const std::vector<float>& values) {
    std::vector<std::byte> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    add({name, DType::kF32, nullptr, shape}, std::move(bytes));
  }
  const WeightInfo* find(std::string_view name) const override {
    const auto it = tensors_.find(std::string(name));
    return it == tensors_.end() ? nullptr : &it->second.info;
  }
  Result<WeightData> open(std::string_view name) const override {
    const auto it = tensors_.find(std::string(name));
    if (it == tensors_.end()) return error(Code::kNotFound, "no tensor " + std::string(name));
    return WeightData{it->second.info, *it->second.bytes, it->second.bytes};
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> list;
    for (const auto& [name, tensor] : tensors_) list.push_back(name);
    return list;
  }
  const std::string& label() const override { return label_; }

 private:
  struct Tensor {
    WeightInfo info;
    std::shared_ptr<std::vector<std::byte>> bytes;
  };
  std::map<std::string, Tensor> tensors_;
  std::string label_ = "memory";
};

inline ValueId last_out(const Graph& graph, Result<NodeId> id, size_t i = 0) { return graph.node(id.value()).out[i]; }

inline constexpr int64_t kVocab = 12;  // the last row of every table is far too large: infinities and NaN follow

// Embeddings, then random Add, Activate(relu), GatedAct(relu), Slice and GatherRows; several outputs.
struct RandomGraph {
  Graph graph;
  MemorySource source;
  std::map<std::string, std::vector<float>> tables;

  RandomGraph(uint32_t seed, int nodes) {
    std::mt19937 random(seed);
    const ValueId ids = graph.add_input("ids", i32({Symbol::kTokens}));
    const ValueId rows = graph.add_input("rows", i32({Symbol::kRows}));
    std::vector<ValueId> values;
    for (int table = 0; table < 2; ++table) {
      const int64_t width = 24 + 8 * table;
      const std::string name = "table" + std::to_string(table);
      std::vector<float> contents(static_cast<size_t>(kVocab * width));
      for (float& f : contents) f = static_cast<float>(static_cast<int>(random() % 64) - 32);
      std::fill(contents.end() - width, contents.end(), std::numeric_limits<float>::max());
      source.add(name, {kVocab, width}, contents);
      tables[name] = contents;
      const ValueId weight = graph.add_weight({{name, 0, kVocab}}, f32({kVocab, width}));
      values.push_back(last_out(graph, graph.add(Embed{}, std::vector{ids, weight}, "embed" + std::to_string(table))));
    }
    for (int i = 0; i < nodes; ++i) {
      const std::string name = "n" + std::to_string(i);
      const auto pick = [&] {
        // Mostly recent values, now and then an old one that has to live long.
        const size_t back =
            random() % 5 == 0 ? random() % values.size() : random() % std::min<size_t>(4, values.size());
        return values[values.size() - 1 - back];
      };
      const ValueId x = pick();
      const int64_t width = graph.type(x).last().factor;
      std::vector<ValueId> same;
      for (const ValueId y : values)
        if (graph.type(y) == graph.type(x)) same.push_back(y);
      const ValueId y = same[random() % same.size()];
      switch (random() % 5) {
        case 0: values.push_back(last_out(graph, graph.add(Add{}, std::vector{x, y}, name))); break;
        case 1: values.push_back(last_out(graph, graph.add(GatedAct{ActKind::kRelu}, std::vector{x, y}, name))); break;
        case 2: {
          const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(width));
          const auto count = static_cast<int64_t>(1 + random() % static_cast<uint64_t>(width - begin));
          values.push_back(last_out(graph, graph.add(Slice{begin, count}, std::vector{x}, name)));
          break;
        }
        case 3:
          if (graph.type(x).dims[0] == Dim(Symbol::kTokens)) {
            values.push_back(last_out(graph, graph.add(GatherRows{}, std::vector{x, rows}, name)));
            break;
          }
          [[fallthrough]];
        default: values.push_back(last_out(graph, graph.add(Activate{ActKind::kRelu}, std::vector{x}, name))); break;
      }
      if (random() % 8 == 0 || i + 1 == nodes) graph.add_output("out" + std::to_string(i), values.back());
    }
  }

  // Rows of one value, by recursion over the graph: no arena, no lifetimes.
  using Matrix = std::vector<std::vector<float>>;
  const Matrix& evaluate(ValueId id, const std::vector<int32_t>& ids, const std::vector<int32_t>& rows,
                         std::map<ValueId, Matrix>& done) const {
    if (const auto it = done.find(id); it != done.end()) return it->second;
    const Node& node = graph.node(graph.value(id).producer);
    Matrix out;
    if (std::holds_alternative<Embed>(node.op)) {
      const Value& weight = graph.value(node.in[1]);
      const auto& table = tables.at(weight.parts[0].tensor);
      const int64_t width = weight.type.last().factor;
      for (const int32_t token : ids)
        out.emplace_back(table.begin() + token * width, table.begin() + (token + 1) * width);
    } else {
      const Matrix& x = evaluate(node.in[0], ids, rows, done);
      if (std::holds_alternative<GatherRows>(node.op)) {
        for (const int32_t row : rows) out.push_back(x[static_cast<size_t>(row)]);
      } else if (const auto* slice = std::get_if<Slice>(&node.op)) {
        for (const auto& row : x)
          out.emplace_back(row.begin() + slice->begin, row.begin() + slice->begin + slice->count);
      } else {
        out = x;
        const Matrix* y = node.in.size() > 1 ? &evaluate(node.in[1], ids, rows, done) : nullptr;
        for (size_t r = 0; r < out.size(); ++r)
          for (size_t c = 0; c < out[r].size(); ++c) {
            float& f = out[r][c];
            if (!std::holds_alternative<Add>(node.op)) f = std::max(f, 0.f);
            if (y != nullptr) f = std::holds_alternative<Add>(node.op) ? f + (*y)[r][c] : f * (*y)[r][c];
          }
      }
    }
    return done[id] = std::move(out);
  }
};

}  // namespace bolide::test
