#include "eval/network_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "ops/number.h"

namespace bolide {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string type_of(const AnyValue& value) {
  if (const Tensor* tensor = value.tensor())
    return fmt::format("{}{}", to_string(tensor->dtype()), to_string(tensor->shape()));
  if (const ValueSequence* sequence = value.sequence()) return fmt::format("sequence of {}", sequence->items.size());
  return "none";
}

// Sums over any number of tensors.
struct Sums {
  double difference = 0, reference = 0, value = 0, product = 0, max_abs = 0;
  int64_t elements = 0;

  void add(double x, double y) {
    ++elements;
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (x != y && !(std::isnan(x) && std::isnan(y))) max_abs = std::numeric_limits<double>::infinity();
      return;
    }
    max_abs = std::max(max_abs, std::abs(x - y));
    difference += (x - y) * (x - y), reference += y * y, value += x * x, product += x * y;
  }
};

// What is unlike, or empty.
std::string add_tensors(const Tensor& value, const Tensor& reference, Sums& sums) {
  if (value.dtype() != reference.dtype() || value.shape() != reference.shape())
    return fmt::format("{} and {}", type_of(value), type_of(reference));
  if (value.is_string()) {
    const auto a = value.as<std::string>(), b = reference.as<std::string>();
    sums.elements += value.elements();
    return std::equal(a.begin(), a.end(), b.begin()) ? "" : "texts that are not equal";
  }
  constexpr auto kCompared = kNumbers + Types<Bool>{};
  const auto done = dispatch(kCompared, value.dtype(), "a value", [&]<class T>() -> Result<> {
    const auto a = value.as<T>(), b = reference.as<T>();
    for (size_t i = 0; i < a.size(); ++i) sums.add(static_cast<double>(widen(a[i])), static_cast<double>(widen(b[i])));
    return {};
  });
  if (done) return "";
  // Types without arithmetic of ours: bits.
  sums.elements += value.elements();
  return std::equal(value.data(), value.data() + value.bytes(), reference.data()) ? "" : "bits that are not equal";
}

std::string add_values(const AnyValue& value, const AnyValue& reference, Sums& sums) {
  if (value.of.index() != reference.of.index()) return fmt::format("{} and {}", type_of(value), type_of(reference));
  if (const Tensor* tensor = value.tensor()) return add_tensors(*tensor, *reference.tensor(), sums);
  const ValueSequence* sequence = value.sequence();
  if (sequence == nullptr) return "";
  if (sequence->items.size() != reference.sequence()->items.size())
    return fmt::format("{} and {}", type_of(value), type_of(reference));
  for (size_t i = 0; i < sequence->items.size(); ++i)
    if (std::string unlike = add_values(sequence->items[i], reference.sequence()->items[i], sums); !unlike.empty())
      return unlike;
  return "";
}

// Names a node's execution: bodies run any number of times.
class Executions {
 public:
  std::string name(const Node& node) {
    const int time = ++counts_[node.name];
    return time == 1 ? node.name : fmt::format("{} (time {})", node.name, time);
  }

 private:
  std::unordered_map<std::string, int> counts_;
};

struct Kept {
  std::string op;
  std::vector<AnyValue> values;
  double seconds = 0;
  bool seen = false;
};

Result<std::vector<AnyValue>> by_name(const NetworkSession& from, const NetworkSession& to,
                                      const std::vector<AnyValue>& inputs) {
  std::vector<AnyValue> values;
  for (const auto& port : to.inputs()) {
    const auto& ports = from.inputs();
    const auto found = std::find_if(ports.begin(), ports.end(), [&](const auto& p) { return p.name == port.name; });
    if (found == ports.end())
      return error(Code::kInvalid,
                   fmt::format("input {} of the network to compare with is none of the first one's", port.name));
    values.push_back(inputs[static_cast<size_t>(found - ports.begin())]);
  }
  return values;
}

}  // namespace

ValueDifference difference_of(const AnyValue& value, const AnyValue& reference) {
  Sums sums;
  ValueDifference difference;
  difference.unlike = add_values(value, reference, sums);
  difference.elements = sums.elements;
  difference.max_abs = sums.max_abs;
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (sums.difference > 0)
    difference.relative_l2 = sums.reference > 0 ? std::sqrt(sums.difference / sums.reference) : kInfinite;
  const double lengths = std::sqrt(sums.value) * std::sqrt(sums.reference);
  if (lengths > 0)
    difference.cosine = std::clamp(sums.product / lengths, -1.0, 1.0);
  else if (sums.difference > 0)
    difference.cosine = 0;
  return difference;
}

Result<NetworkComparison> compare_networks(NetworkSession& network, NetworkSession& reference,
                                           const std::vector<AnyValue>& inputs) {
  BOLIDE_TRY(const std::vector<AnyValue> reference_inputs, by_name(network, reference, inputs));
  NetworkComparison comparison;

  std::unordered_map<std::string, Kept> kept;
  Executions there;
  const auto keep = [&](const Graph& graph, NodeId id, std::span<const AnyValue* const>, std::span<const AnyValue> out,
                        double seconds) {
    const Node& node = graph.node(id);
    kept[there.name(node)] = {std::string(op_name(node.op)), {out.begin(), out.end()}, seconds, false};
  };
  const GeneralObserver keeper(keep);
  BOLIDE_TRY(reference.run(reference_inputs).context("the network to compare with"));
  auto start = Clock::now();
  BOLIDE_TRY(const auto wanted, reference.run(reference_inputs, &keeper).context("the network to compare with"));
  comparison.reference_ms = ms_since(start);

  Executions here;
  double comparing_ms = 0;  // inside the run that is timed
  const auto see = [&](const Graph& graph, NodeId id, std::span<const AnyValue* const>, std::span<const AnyValue> out,
                       double seconds) {
    const auto begin = Clock::now();
    const Node& node = graph.node(id);
    const std::string name = here.name(node);
    const auto it = kept.find(name);
    if (it == kept.end()) {
      ++comparison.nodes_only_here;
    } else {
      Kept& other = it->second;
      other.seen = true;
      std::string op(op_name(node.op));
      if (op != other.op) op += " and " + other.op;
      for (size_t i = 0; i < std::min(out.size(), other.values.size()); ++i)
        comparison.nodes.push_back({i == 0 ? name : fmt::format("{}:{}", name, i), op, type_of(out[i]),
                                    difference_of(out[i], other.values[i]), i == 0 ? seconds * 1e6 : 0,
                                    i == 0 ? other.seconds * 1e6 : 0});
    }
    comparing_ms += ms_since(begin);
  };
  const GeneralObserver observer(see);
  BOLIDE_TRY(network.run(inputs));
  start = Clock::now();
  BOLIDE_TRY(const auto got, network.run(inputs, &observer));
  comparison.ms = ms_since(start) - comparing_ms;
  comparison.nodes_only_there =
      std::count_if(kept.begin(), kept.end(), [](const auto& one) { return !one.second.seen; });

  for (size_t i = 0; i < got.size(); ++i) {
    const std::string& name = network.outputs()[i].name;
    const auto& ports = reference.outputs();
    const auto found = std::find_if(ports.begin(), ports.end(), [&](const auto& p) { return p.name == name; });
    if (found == ports.end())
      return error(Code::kInvalid, fmt::format("the network to compare with has no output {}", name));
    comparison.outputs.push_back(
        {name, "", type_of(got[i]), difference_of(got[i], wanted[static_cast<size_t>(found - ports.begin())])});
  }
  return comparison;
}

}  // namespace bolide
