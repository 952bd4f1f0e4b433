// Prepared ops beside the rows' own kernels, for tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ops/ops.h"
#include "ops/prepared_op.h"

namespace bolide {

using Random = std::mt19937_64;

inline int64_t upto(Random& random, int64_t most) {
  return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
}

inline Tensor floats(Random& random, const Shape& shape) {
  Tensor tensor = *Tensor::make(DType::kF32, shape);
  std::normal_distribution<float> normal;
  for (float& value : tensor.mutate<float>()) value = normal(random);
  return tensor;
}

struct Case {
  std::string_view domain, name;
  int64_t version = 21;
  Attributes attributes;
  std::vector<AnyValue> inputs;
  std::vector<bool> constant;  // by input
  size_t outputs = 1;

  void add(AnyValue value, bool is_constant = false) {
    inputs.push_back(std::move(value)), constant.push_back(is_constant);
  }
};

inline Result<std::vector<AnyValue>> run(const Case& c, const PreparedOp* prepared, bool* ran, bool drop_held) {
  static Workers workers(2);
  const OpDef* def = find_op(c.domain, c.name, c.version);
  const AnyValue nothing;
  std::vector<const AnyValue*> in;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const bool dropped = drop_held && c.constant[i] && prepared != nullptr && prepared->holds(i);
    in.push_back(!c.inputs[i].has_value() ? nullptr : dropped ? &nothing : &c.inputs[i]);
  }
  std::vector<AnyValue> out(c.outputs);
  const auto no_body = [](std::string_view, auto&&) -> Result<std::vector<AnyValue>> {
    return error(Code::kNotFound, "has no graph");
  };
  RunContext context(c.attributes, c.version, in, out, workers, heap_pool(), no_body);
  if (prepared != nullptr) {
    BOLIDE_TRY(*ran, prepared->run(context));
  } else {
    BOLIDE_TRY(def->run(context));
  }
  return out;
}

// Whether something was prepared and did run; the outputs are compared with the row's. The error is relative to their
// size, or to `unit` in every element if that is more: what is rounded is as large, and sums of it may cancel.
inline bool check(const Case& c, Isa isa, double tolerance, DType compute = DType::kF32, double unit = 0) {
  Workers workers(2);
  const OpDef* def = find_op(c.domain, c.name, c.version);
  if (def == nullptr || def->prepare == nullptr) {
    ADD_FAILURE() << c.name << " has no prepare";
    return false;
  }
  const auto device = make_cpu_device(2, isa);
  std::vector<const AnyValue*> constants;
  uint64_t present = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    constants.push_back(c.constant[i] ? &c.inputs[i] : nullptr);
    if (c.inputs[i].has_value()) present |= uint64_t{1} << i;
  }
  auto prepared = def->prepare({.attributes = c.attributes,
                                .version = c.version,
                                .constants = constants,
                                .outputs = c.outputs,
                                .device = (*device)->info(),
                                .workers = workers,
                                .compute = compute,
                                .present = present});
  EXPECT_TRUE(prepared) << c.name << ": " << (prepared ? "" : prepared.error().text);
  if (!prepared || *prepared == nullptr) return false;
  const auto expected = run(c, nullptr, nullptr, false);
  bool ran = false;
  const auto got = run(c, prepared->get(), &ran, true);
  if (!expected) {
    EXPECT_TRUE(!got || !ran) << c.name << " takes what its row refuses: " << expected.error().text;
    return false;
  }
  EXPECT_TRUE(got) << c.name << ": " << (got ? "" : got.error().text);
  if (!got || !ran) return false;
  for (size_t o = 0; o < c.outputs; ++o) {
    const Tensor *a = (*expected)[o].tensor(), *b = (*got)[o].tensor();
    if (a == nullptr || b == nullptr || a->shape() != b->shape() || a->dtype() != b->dtype()) {
      ADD_FAILURE() << c.name << " output " << o << " has another type or shape";
      return false;
    }
    double error = 0, size = 1e-12 + unit * unit * static_cast<double>(a->elements());
    for (size_t i = 0; i < static_cast<size_t>(a->elements()); ++i) {
      const double x = static_cast<double>(a->as<float>()[i]), y = static_cast<double>(b->as<float>()[i]);
      if (std::isnan(x) && std::isnan(y)) continue;
      error += (x - y) * (x - y), size += x * x;
    }
    EXPECT_LE(std::sqrt(error / size), tolerance) << c.name << " output " << o << " " << to_string(a->shape());
  }
  return true;
}

inline std::vector<Isa> levels() {
  std::vector<Isa> list;
  const CpuInfo cpu = detect_cpu();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx})
    if (supports(cpu, isa)) list.push_back(isa);
  return list;
}

}  // namespace bolide
